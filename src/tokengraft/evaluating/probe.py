"""Does what a model knows of a text survive in its new reading? A linear probe tells.

    accuracy = share of lines whose label a linear classifier finds from their pooled states

Logistic regression on standardised states (means over positions common to both tokenizations, last
layer), cross-validated: each line is labelled by a probe that never saw it. Three accuracies: a
probe of the base's reading on the base's, one of the graft's on the graft's, and the base's probe,
unchanged, on the graft's states, which asks more: that things are still where they were. All are
read against the share of the commonest label.

Reference: Alain & Bengio 2017 (https://arxiv.org/abs/1610.01644). SIB-200 (Adelani et al. 2024,
https://arxiv.org/abs/2309.07445) labels FLORES lines with topics in all of its languages.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.core.errors import CorpusError, MissingExtra, UsageError
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.deriving.distil.passages import shorten
from tokengraft.evaluating.lines import prepare
from tokengraft.evaluating.score import Metric, Score, Sums, score
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.reading import read
from tokengraft.tokenizer.align import Aligner, Floats

_HOW = "lines whose label a linear probe, cross-validated, finds from states at common positions"
ACCURACY = Metric("probe_accuracy", f"share of {_HOW}, graft; the ceiling is the base's own")
BASE = Metric("base_probe_accuracy", f"share of {_HOW}, base model")
CARRIED = Metric(
    "carried_probe_accuracy",
    f"share of {_HOW}: the probe is trained on the base's states and judged on the graft's",
)
_FOLDS = 5
_LEAST = 2 * _FOLDS  # lines of a label


def read_labels(file: Path | str) -> dict[str, str]:
    """Labels by unit of the corpus (`dev.1`), from a CSV file.

    Its columns are `unit` or `line`, with `flores_split` or `split` where there are several, and
    `category` or `label`.
    """
    try:
        with Path(file).open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    columns = set(rows[0]) if rows else set()
    label = next((name for name in ("category", "label") if name in columns), None)
    if label is None or not columns & {"unit", "line"}:
        raise UsageError(
            f"{file} has the columns {', '.join(sorted(columns)) or 'none'}; needed are category "
            "(or label) and unit, or line with flores_split"
        )
    part = next((name for name in ("flores_split", "split") if name in columns), None)
    if "unit" in columns:
        return {row["unit"]: row[label] for row in rows}
    return {f"{row[part]}.{row['line']}" if part else row["line"]: row[label] for row in rows}


def probe_scores(
    base: FrozenModel,
    graft: FrozenModel,
    corpus: ParallelCorpus,
    code: str,
    labels: Mapping[str, str],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Score]:
    """The three accuracies over the corpus's labelled lines in one language."""
    texts = dict(zip(corpus.units, corpus.texts[code], strict=True))
    known = [(line, labels[unit]) for unit, line in texts.items() if line and unit in labels]
    common = Counter(label for _, label in known)
    known = [(line, label) for line, label in known if common[label] >= _LEAST]
    if len({label for _, label in known}) < 2:
        raise CorpusError(
            f"{code}: {len(known)} lines have a label that {_LEAST} others share; units are named "
            f"{next(iter(texts), '')!r} here, the labels' {next(iter(labels), '')!r}"
        )
    states, kept = pooled_states(base, graft, [line for line, _ in known])
    names = np.array([label for _, label in known])[kept]
    hits = accuracies(states, names, seed)
    majority = Counter(names.tolist()).most_common(1)[0][1] / len(names)
    one = np.ones(len(names))
    options: dict[str, Any] = {"unrelated": majority, "resamples": resamples, "seed": seed}
    ceiling = float(hits["base"].mean())
    return {
        BASE.name: score(BASE, Sums(hits["base"], one), **options),
        ACCURACY.name: score(ACCURACY, Sums(hits["graft"], one), ceiling=ceiling, **options),
        CARRIED.name: score(CARRIED, Sums(hits["carried"], one), ceiling=ceiling, **options),
    }


def pooled_states(
    base: FrozenModel, graft: FrozenModel, lines: Sequence[str]
) -> tuple[dict[str, Floats], Any]:
    """States of both readings, pooled line by line; and which lines have a common position."""
    window = min(base.window, graft.window)
    room = window - len(base.prefix) - len(base.suffix)
    pairs = Aligner(base.tokenizer, graft.tokenizer)(list(lines))
    kept = np.array([len(shorten(pair, room)) > 0 for pair in pairs])  # as `prepare` keeps them
    case = prepare("probe", lines, base, graft.tokenizer, window)
    before = read(base, case.old, [pair.old_at for pair in case.pairs], same=case.same)
    after = read(graft, case.new, [pair.new_at for pair in case.pairs], same=case.same)
    return {"base": before.means(), "graft": after.means()}, kept


def accuracies(states: Mapping[str, Floats], labels: Any, seed: int) -> dict[str, Floats]:
    """For every line 1 where its label was found, 0 otherwise, by what was probed how."""
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
            probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
            probe.fit(own[train], labels[train])
            hits[name][test] = probe.predict(own[test]) == labels[test]
            if name == "base":
                hits["carried"][test] = probe.predict(states["graft"][test]) == labels[test]
    return hits
