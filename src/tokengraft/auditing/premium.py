"""Premiums: what a language pays in tokens for the text that costs English one.

Two definitions, never mixed: the mean over sentences of the per-sentence ratio (the paper's, and
the headline here), and the ratio of the sums. Both with a bootstrap interval over sentences.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.options import RESAMPLES

Floats = NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Premium:
    """One premium with all that is needed to read it; never a bare number."""

    value: float
    low: float
    high: float
    n: int  # sentences
    definition: str  # "mean of ratios" or "ratio of sums"
    unk_share: float  # share of the language's tokens that are UNK

    def __str__(self) -> str:
        flag = f", {self.unk_share:.0%} UNK" if self.unk_share else ""
        about = f"{self.definition}, n={self.n}{flag}"
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}] ({about})"


@dataclass(frozen=True)
class Estimates:
    """Both premiums of many cells (one per column of the input), with their intervals."""

    n: NDArray[np.int64]
    mean_of_ratios: Floats
    mean_low: Floats
    mean_high: Floats
    ratio_of_sums: Floats
    sums_low: Floats
    sums_high: Floats


def estimate(cost: Floats, pivot: Floats, resamples: int = RESAMPLES, seed: int = 0) -> Estimates:
    """Premiums of each column of `cost` over the same column of `pivot`, both (sentences, cells).

    NaN marks a sentence that a cell lacks; a sentence whose pivot has no tokens is left out too.
    SciPy's percentile bootstrap draws sentences for all cells together, so that their differences
    can be compared, and one matrix product gives a batch of resamples. `resamples=0`: no interval.
    """
    usable = np.isfinite(cost) & np.isfinite(pivot) & (pivot > 0)  # (n, cells)
    top = np.where(usable, cost, 0.0)
    bottom = np.where(usable, pivot, 0.0)
    ratios = np.divide(top, bottom, out=np.zeros_like(top), where=usable)
    complete = bool(usable.all())
    present = usable.astype(np.float64)

    def both(weights: Floats) -> Floats:  # (b, n) → (2, cells, b)
        counts = weights.sum(axis=1)[:, None] if complete else weights @ present
        with np.errstate(invalid="ignore", divide="ignore"):
            means = (weights @ ratios) / counts
            sums = (weights @ top) / (weights @ bottom)
        return np.stack([means.T, sums.T])

    sentences = len(cost)
    value = both(np.ones((1, sentences)))[..., 0]
    if sentences > 1 and resamples:
        low, high = _interval(both, sentences, resamples, seed)
    else:
        low = high = np.full_like(value, np.nan)
    return Estimates(usable.sum(axis=0), value[0], low[0], high[0], value[1], low[1], high[1])


def _interval(both: Any, sentences: int, resamples: int, seed: int) -> tuple[Floats, Floats]:
    def statistic(drawn: NDArray[np.int64], axis: int = -1) -> Floats:
        rows = drawn.reshape(-1, sentences).astype(np.int64)
        offsets = np.arange(len(rows))[:, None] * sentences
        weights = np.bincount((rows + offsets).ravel(), minlength=rows.size)
        return both(weights.reshape(rows.shape).astype(np.float64))  # type: ignore[no-any-return]

    from scipy import stats  # half a second, which not every command has to spend

    with warnings.catch_warnings():
        # A cell that few sentences have may get none in a draw: then it has no interval.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        result = stats.bootstrap(
            (np.arange(sentences),),
            statistic,
            n_resamples=resamples,
            batch=max(1, min(resamples, 2_000_000 // sentences)),
            vectorized=True,
            axis=-1,
            confidence_level=CONFIDENCE,
            method="percentile",
            rng=np.random.default_rng(seed),
        )
    return result.confidence_interval.low, result.confidence_interval.high


def gini(costs: Floats) -> float:
    """Gini coefficient of the languages' costs for the same content: 0 equal, towards 1 unequal."""
    ordered = np.sort(costs[np.isfinite(costs)])
    if not len(ordered) or ordered.sum() == 0:
        return float("nan")
    ranks = np.arange(1, len(ordered) + 1)
    return float((2 * ranks - len(ordered) - 1) @ ordered / (len(ordered) * ordered.sum()))
