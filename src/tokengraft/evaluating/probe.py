"""Does what a model knows about a text survive in its new reading? A linear probe on its states.

    accuracy = share of lines whose label a linear classifier finds from their pooled states

Logistic regression on standardised states (means over positions common to both tokenizations, last
layer), cross-validated: each line is labelled by a probe that never saw it. There are three
accuracies: of a probe for the base's states, of one for the graft's, and of the base's probe on the
graft's states, which asks for more: that things are still where they were. The floor of all is the
share of the commonest label.

Reference: Alain & Bengio 2017 (https://arxiv.org/abs/1610.01644).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokengraft.core.errors import MissingExtra
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.evaluating.labels import guessing, labelled
from tokengraft.evaluating.lines import prepare
from tokengraft.evaluating.score import Bootstrap, Metric, Score, Sums, score
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.reading import read
from tokengraft.tokenizer.align import Floats

_HOW = "lines whose label a linear probe, cross-validated, finds from states at common positions"
PROBED = Metric("probe_accuracy", f"share of {_HOW}, graft; the ceiling is the base's own")
BASE_PROBED = Metric("base_probe_accuracy", f"share of {_HOW}, base model")
CARRIED_PROBE = Metric(
    "carried_probe_accuracy",
    f"share of {_HOW}: the probe is trained on the base's states and judged on the graft's",
)
_FOLDS = 5
_C = 0.01  # best for the base's own states: rootstock in twelve languages, Qwen in three


def probe_scores(
    base: FrozenModel,
    graft: FrozenModel,
    corpus: ParallelCorpus,
    code: str,
    labels: Mapping[str, str],
    drawn: Bootstrap = Bootstrap(),  # noqa: B008 - frozen
) -> dict[str, Score]:
    """The three accuracies over the corpus's labelled lines in one language."""
    lines, every = labelled(corpus, code, labels)
    states, kept = pooled_states(base, graft, lines)
    names = np.array(every)[kept]
    hits = accuracies(states, names, drawn.seed)
    sums = {side: Sums.of(own) for side, own in hits.items()}
    floor, ceiling = guessing(names), sums["base"].value
    metrics = {"base": BASE_PROBED, "graft": PROBED, "carried": CARRIED_PROBE}
    return {
        metric.name: score(
            metric, sums[side], drawn, unrelated=floor,
            ceiling=None if side == "base" else ceiling,
        )
        for side, metric in metrics.items()
    }  # fmt: skip


def pooled_states(
    base: FrozenModel, graft: FrozenModel, lines: Sequence[str]
) -> tuple[dict[str, Floats], Any]:
    """States of both readings, pooled line by line; and which lines have a common position."""
    case = prepare("probe", lines, base, graft.tokenizer, min(base.window, graft.window))
    before = read(base, case.old, [pair.old_at for pair in case.pairs], same=case.same)
    after = read(graft, case.new, [pair.new_at for pair in case.pairs], same=case.same)
    return {"base": before.means(), "graft": after.means()}, case.kept


def accuracies(states: Mapping[str, Floats], labels: Any, seed: int) -> dict[str, Floats]:
    """1 for every line whose label was found, else 0: base, graft, and base's probe on graft."""
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as error:
        raise MissingExtra("A probe", "probe") from error
    hits = {name: np.zeros(len(labels)) for name in ("base", "graft", "carried")}
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    for train, test in folds.split(states["base"], labels):
        for name, own in states.items():
            probe = make_pipeline(StandardScaler(), LogisticRegression(C=_C, max_iter=2000))
            probe.fit(own[train], labels[train])
            hits[name][test] = probe.predict(own[test]) == labels[test]
            if name == "base":
                hits["carried"][test] = probe.predict(states["graft"][test]) == labels[test]
    return hits
