"""Checks a plan's guarantees on the given text: the real encoder must do what the learner says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from tokenizers import Tokenizer

from tokengraft.core.errors import TokengraftError
from tokengraft.planning.chain import Ints
from tokengraft.planning.learn import Learner
from tokengraft.tokenizer.pipeline import Encoded, Encoder, emitted_ids, lengths
from tokengraft.tokenizer.pre_tokenizer import Word


@dataclass(frozen=True)
class Proof:
    """How often the planning text emits each token, examples, and how many texts were compared."""

    emitted: Counter[int]
    examples: dict[int, str]
    pieces: int


def prove(
    base: Tokenizer,
    extended: Tokenizer,
    learner: Learner,
    words: Sequence[Word],
    origins: Sequence[str],
    old: Ints,
    lines: Sequence[str],
) -> Proof:
    """Raise TokengraftError unless the extended tokenizer does what the learner says.

    Every word must have the length that the learner expects, and at most that in `old`; no line may
    be longer than under the base tokenizer; every new token must be emitted on a text (`origins`)
    that holds its word.
    """
    encoded = Encoder(extended).ids(words)
    sizes = encoded.sizes
    wrong = np.flatnonzero(sizes != learner.lengths)
    if len(wrong):
        word = words[int(wrong[0])]
        raise TokengraftError(
            f"the encoder does not follow the plan: {word!r} has {sizes[wrong[0]]} tokens, "
            f"expected {learner.lengths[wrong[0]]}; please report this tokenizer"
        )
    longer = [words[place] for place in np.flatnonzero(sizes > old).tolist()]
    grown = np.flatnonzero(lengths(extended, lines) > lengths(base, lines))
    longer += [lines[place] for place in grown.tolist()]
    if longer:
        raise TokengraftError(
            f"refused: {len(longer)} of {len(words) + len(lines)} pieces of text would get longer, "
            f"first {longer[0]!r}; please report this tokenizer, and use boundaries keep"
        )
    first = learner.symbols.first_new
    prove_emitted(extended, range(first, first + learner.spent), encoded, origins)
    is_new = encoded.ids >= first
    times = np.zeros(max(1, int(encoded.ids.max(initial=0)) - first + 1), np.int64)
    np.add.at(times, encoded.ids[is_new] - first, np.repeat(learner.occurrences, sizes)[is_new])
    emitted = Counter({first + int(place): int(times[place]) for place in np.flatnonzero(times)})
    examples = _examples(extended, learner, words, encoded)
    return Proof(emitted, examples, len(words) + len(lines))


def prove_emitted(
    extended: Tokenizer, new: range, encoded: Encoded, origins: Sequence[str]
) -> None:
    """Raise TokengraftError unless the whole pipeline emits every new token on the given text.

    `encoded` are words as the model alone encodes them; each stands in its text of `origins`.
    """
    word_of = np.repeat(np.arange(len(encoded.sizes)), encoded.sizes)
    ids, first = np.unique(encoded.ids, return_index=True)
    holders = {origins[word] for word in word_of[first[ids >= new.start]].tolist()}
    dead = sorted(set(new) - emitted_ids(extended, sorted(holders)))
    if dead:
        raise TokengraftError(
            f"refused: the encoder emits {len(dead)} of {len(new)} new tokens nowhere in the text, "
            f"first {extended.id_to_token(dead[0])!r}; please report this tokenizer"
        )


def _examples(
    extended: Tokenizer, learner: Learner, words: Sequence[Word], encoded: Encoded
) -> dict[int, str]:
    """For each new token the commonest word that emits it, as text on which the encoder does."""
    word_of = np.repeat(np.arange(len(words)), encoded.sizes)
    is_new = encoded.ids >= learner.symbols.first_new
    ids, holders = encoded.ids[is_new], word_of[is_new]
    often = learner.occurrences[holders]
    order = np.lexsort((-often, ids))
    ids, holders, often = ids[order], holders[order], often[order]
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    examples = {}
    for start, end in pairwise([*starts.tolist(), len(ids)]):
        number = int(ids[start])
        # Of equally common words the first by spelling, so that the text's order does not matter.
        common = holders[start:end][often[start:end] == often[start]]
        word = min(str(words[holder]) for holder in np.unique(common).tolist())
        text = learner.symbols.piece(word).decode("utf-8", "ignore")
        for tried in (text, text.removeprefix(" "), f" {text}"):
            if number in extended.encode(tried, add_special_tokens=False).ids:
                examples[number] = tried
                break
    return examples
