"""Premiums: how many tokens a language pays for what costs the pivot, usually English, one.

Two definitions, never mixed: the mean over sentences of the per-sentence ratio (the paper's, and
the headline here), and the ratio of the sums. Both with a bootstrap interval over sentences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.options import RESAMPLES

Floats = NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True, repr=False)
class Premium:
    """One premium with all that is needed to read it; never a bare number."""

    value: float
    low: float
    high: float
    n: int  # sentences
    definition: str  # "mean of ratios" or "ratio of sums"
    unk_share: float  # of the language's tokens, or of the pivot's if those are lost

    def __str__(self) -> str:
        share = f"{self.unk_share:.1%}" if self.unk_share < 0.1 else f"{self.unk_share:.0%}"
        flag = f", {share} UNK" if self.unk_share else ""
        interval = "" if math.isnan(self.low) else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.value:.2f}{interval} ({self.definition}, n={self.n}{flag})"

    __repr__ = __str__  # what a notebook shows


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
    The bootstrap draws the same sentences for all cells, and with one seed in every call, so that
    their differences can be compared; one matrix product gives a batch of resamples.
    `resamples=0`: no interval.
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

    def redrawn(rows: NDArray[np.int64]) -> Floats:
        offsets = np.arange(len(rows))[:, None] * sentences
        weights = np.bincount((rows + offsets).ravel(), minlength=rows.size)
        return both(weights.reshape(rows.shape).astype(np.float64))

    sentences = len(cost)
    value = both(np.ones((1, sentences)))[..., 0]
    if sentences > 1 and resamples:
        batch = max(1, min(resamples, 2_000_000 // sentences))
        low, high = percentile_interval(redrawn, sentences, resamples, seed, batch)
    else:
        low = high = np.full_like(value, np.nan)
    return Estimates(usable.sum(axis=0), value[0], low[0], high[0], value[1], low[1], high[1])


def percentile_interval(
    statistic: Callable[[NDArray[np.int64]], Floats],
    sentences: int,
    resamples: int,
    seed: int,
    batch: int,
) -> tuple[Floats, Floats]:
    """Bounds of a statistic of drawn sentences, (draws, n) → (…, draws), by percentiles.

    The same figures as `scipy.stats.bootstrap`, whose import takes half of a small audit's time. A
    cell that has no value in a draw has no interval.
    """
    generator = np.random.default_rng(seed)
    sizes = [min(batch, resamples - begun) for begun in range(0, resamples, batch)]
    draws = (generator.integers(0, sentences, (size, sentences)) for size in sizes)
    values = np.sort(np.concatenate([statistic(drawn) for drawn in draws], axis=-1), axis=-1)
    bounds = []
    for share in ((1 - CONFIDENCE) / 2, 1 - (1 - CONFIDENCE) / 2):
        place, between = divmod(share * resamples + (1 - share), 1)
        below = values[..., int(place) - 1]
        above = values[..., min(int(place), resamples - 1)]
        bound = (1 - between) * below + between * above
        bounds.append(np.where(np.isnan(values[..., -1]), np.nan, bound))
    return bounds[0], bounds[1]


def gini(costs: Floats) -> float:
    """Gini coefficient of the languages' costs for the same content: 0 equal, towards 1 unequal."""
    ordered = np.sort(costs[np.isfinite(costs)])
    if not len(ordered) or ordered.sum() == 0:
        return float("nan")
    ranks = np.arange(1, len(ordered) + 1)
    return float((2 * ranks - len(ordered) - 1) @ ordered / (len(ordered) * ordered.sum()))
