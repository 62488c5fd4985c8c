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
    encoded = Encoder(extended).ids(words)
    found = encoded.sizes
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
    first = learner.symbols.first_new
    is_new = encoded.ids >= first
    times = np.zeros(max(1, int(encoded.ids.max(initial=0)) - first + 1), np.int64)
    np.add.at(times, encoded.ids[is_new] - first, np.repeat(learner.occurrences, found)[is_new])
    emitted = Counter({first + int(place): int(times[place]) for place in np.flatnonzero(times)})
    return Proof(emitted, len(words) + len(chunks))
