"""`Score`: a figure that is never bare, and the paired bootstrap behind its interval.

    value = Σ_lines numerator / Σ_lines denominator
    interval = percentiles of the same over lines drawn with replacement

Positions of one line are not independent, so whole lines are drawn, each with what both models
made of it (paired). Reference: Efron & Tibshirani 1993; `scipy.stats.bootstrap(paired=True)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tokengraft.core.defaults import RESAMPLES
from tokengraft.core.errors import CorpusError
from tokengraft.tokenizer.align import Floats

LEVEL = 0.95


@dataclass(frozen=True)
class Score:
    """A figure with what it has to be read against.

    `floor` is what is reached by doing nothing: the better of `unrelated` (another sentence of the
    same language in its place) and `mean_row` (one and the same row for every new token). A method
    on the wrong side of it has kept nothing. `ceiling` is the base model against itself, the same
    text cut by the old vocabulary in another way: a good graft may be above it, since that cut is
    as foreign to the model as new tokens are. `n` counts what the value is a mean of; `low` and
    `high` bound 95 % of bootstrapped values. None where something was not or could not be measured.
    """

    value: float
    floor: float | None
    ceiling: float | None
    n: int
    low: float | None
    high: float | None
    definition: str
    unrelated: float | None = None
    mean_row: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Metric:
    """What a figure means and which way is better."""

    name: str
    definition: str
    higher: bool = True

    def better(self, *values: float | None) -> float | None:
        """The best of the values that are there."""
        found = [value for value in values if value is not None]
        if not found:
            return None
        return max(found) if self.higher else min(found)


@dataclass(frozen=True)
class Sums:
    """A figure line by line: what to add up, and what to divide the sum by."""

    numerator: Floats  # (lines,)
    denominator: Floats  # (lines,)

    @property
    def value(self) -> float:
        """The figure over all lines; CorpusError where there is nothing to divide by."""
        total = float(self.denominator.sum())
        if not total:
            raise CorpusError("nothing to measure: no position at which both tokenizations meet")
        return float(self.numerator.sum()) / total

    @classmethod
    def of(cls, values: Floats) -> Sums:
        """One value a line, lines that have none (NaN) left out."""
        there = ~np.isnan(values)
        return cls(np.where(there, values, 0.0), there.astype(np.float64))


def score(
    metric: Metric,
    sums: Sums,
    *,
    unrelated: float | None = None,
    mean_row: float | None = None,
    ceiling: float | None = None,
    n: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Score:
    """The figure with its interval and what it is read against; `n` by default what it divides by.

    That is a count of positions, lines or bytes for all figures but a ratio of bits.
    """
    low, high = interval(sums, resamples, seed)
    return Score(
        value=sums.value, floor=metric.better(unrelated, mean_row), ceiling=ceiling,
        n=round(float(sums.denominator.sum())) if n is None else n, low=low, high=high,
        definition=metric.definition, unrelated=unrelated, mean_row=mean_row,
    )  # fmt: skip


def interval(sums: Sums, resamples: int = RESAMPLES, seed: int = 0) -> tuple[Any, Any]:
    """Bounds of the bootstrapped value; (None, None) below two lines or without resamples."""
    used = sums.denominator > 0
    above, below = sums.numerator[used], sums.denominator[used]
    if len(above) < 2 or not resamples:
        return None, None
    from scipy.stats import bootstrap

    def ratio(x: Floats, y: Floats, axis: int = -1) -> Floats:
        found: Floats = x.sum(axis=axis) / y.sum(axis=axis)
        return found

    found = bootstrap(
        (above, below), ratio, paired=True, vectorized=True, n_resamples=resamples, batch=250,
        confidence_level=LEVEL, method="percentile", random_state=np.random.default_rng(seed),
    )  # fmt: skip
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def rows(scores: Mapping[str, Score], **labels: Any) -> list[dict[str, Any]]:
    """Table rows, one a metric, behind the given labels."""
    return [{**labels, "metric": name, **found.to_json()} for name, found in scores.items()]


def counted(values: Floats, counts: Sequence[int] | npt.NDArray[np.int64]) -> Sums:
    """Sums of values that lie line after line, `counts` of them in each line."""
    sizes = np.asarray(counts, np.int64)
    edges = np.concatenate(([0], np.cumsum(sizes)))
    numerator = np.array([values[start:end].sum() for start, end in pairwise(edges)])
    return Sums(numerator.astype(np.float64), sizes.astype(np.float64))
