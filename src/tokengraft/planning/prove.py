"""The proof over given text: the real encoder against what the learner expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from tokengraft.errors import TokengraftError
from tokengraft.planning.learn import Learner
from tokengraft.planning.types import Cut
from tokengraft.planning.words import Encoder, lengths


@dataclass(frozen=True)
class Proof:
    """How often the planning text emits each token, and how many pieces of text were compared."""

    emitted: Counter[int]
    pieces: int


def prove(
    base: Tokenizer,
    extended: Tokenizer,
    learner: Learner,
    words: Sequence[str],
    cut: Cut,
    chunks: Sequence[str],
) -> Proof:
    """Raise TokengraftError unless the extended tokenizer does what the learner says.

    Every word must have the length the learner expects (and the learner has mended all that were
    longer than before); where boundaries are relaxed, the chunks and lines given must be no longer
    than the base tokenizer makes them.
    """
    ids = Encoder(extended).ids(words)
    found = np.fromiter(map(len, ids), np.int64, len(ids))
    wrong = np.flatnonzero(found != learner.lengths)
    if len(wrong):
        word = words[int(wrong[0])]
        raise TokengraftError(
            f"the encoder does not follow the plan: {word!r} has {found[wrong[0]]} tokens, "
            f"expected {learner.lengths[wrong[0]]}; please report this tokenizer"
        )
    if cut.scripts:
        old, new = lengths(base, chunks), lengths(extended, chunks)
        longer = np.flatnonzero(new > old)
        if len(longer):
            raise TokengraftError(
                f"refused: {len(longer)} of {len(chunks)} pieces of text would get longer, first "
                f"{chunks[int(longer[0])]!r}. Raise the budget or use boundaries keep."
            )
    emitted: Counter[int] = Counter()
    for numbers, times in zip(ids, learner.occurrences.tolist(), strict=True):
        if times:
            for number in numbers:
                if number >= learner.symbols.first_new:
                    emitted[number] += times
    return Proof(emitted, len(words) + len(chunks))
