"""Does a sentence find its translation, which is what encoders are used for?

    right = share of lines whose vector is nearest, of all English lines, to its own translation's

Vectors are means of last hidden states, special tokens included, as sentence-transformers pools by
default; nearest by cosine. English is read by the base in both cases. Chance is 1 / lines, which is
where a language of UNKs starts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokengraft.evaluating.fidelity import ranks
from tokengraft.evaluating.score import Bootstrap, Metric, Score, Sums, score
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.reading import read
from tokengraft.tokenizer.align import Floats

RETRIEVED = Metric(
    "translation_retrieval",
    "share of lines that find their English translation first among all English lines, by the "
    "graft's mean states; the floor is chance",
)
BASE_RETRIEVED = Metric("base_translation_retrieval", "the same by the base's reading")


def translation_scores(
    base: FrozenModel,
    graft: FrozenModel,
    lines: Sequence[str],
    english: Sequence[str],
    drawn: Bootstrap,
) -> dict[str, Score]:
    """Both figures for lines and their English translations."""
    there = _vectors(base, english)
    figures = {}
    for metric, model in ((RETRIEVED, graft), (BASE_RETRIEVED, base)):
        first = ranks(there, _vectors(model, lines)).first
        chance = 1 / max(1, len(lines))
        figures[metric.name] = score(metric, Sums.of(first), drawn, unrelated=chance)
    return figures


def _vectors(model: FrozenModel, lines: Sequence[str]) -> Floats:
    ids = [np.asarray(one[: model.room], np.int64) for one in model.tokenizer.encode(list(lines))]
    nowhere = np.zeros(0, np.int64)
    return read(model, ids, [nowhere] * len(ids)).pooled
