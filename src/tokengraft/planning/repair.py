"""Merges that keep relaxed boundaries from lengthening a word.

Joining pieces lets an old merge act across the old cut, which can break up a token on either
side (Arabic on Llama 3: alef and tanwin become alef with the mark's first byte, and its last byte).
Most such words are short again after the learned merges; for the rest, the pair that most of them
share is merged, until none is longer than it was.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np

from tokengraft.planning.chain import Ints
from tokengraft.planning.learn import Learner, key_of


def mend(learner: Learner, old: Ints, budget: int) -> int:
    """Merge until no word is longer than `old` says, or no token or pair is left to do it with.

    Returns how many words are still longer: 0 where all is mended.
    """
    longer = np.flatnonzero(learner.lengths > old)
    inside = {word: _pairs(learner, word) for word in longer.tolist()}
    counts = Counter(pair for pairs in inside.values() for pair in pairs)
    while inside and learner.spent < budget:
        ranked = sorted(counts, key=lambda pair: (-counts[pair], pair))
        pair = next((p for p in ranked if not learner.waits(*p)), None)
        if pair is None:
            break
        learner.take(key_of(*pair))
        for word in [word for word, pairs in inside.items() if pair in pairs]:
            counts.subtract(inside.pop(word))
            if learner.lengths[word] > old[word]:
                inside[word] = _pairs(learner, word)
                counts.update(inside[word])
        counts = +counts
    return len(np.flatnonzero(learner.lengths > old))


def _pairs(learner: Learner, word: int) -> set[tuple[int, int]]:
    return set(pairwise(learner.spell(word)))
