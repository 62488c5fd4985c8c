"""`Score`: a figure that is never bare, with the paired bootstrap behind its interval.

    value = Σ_lines numerator / Σ_lines denominator
    interval = percentiles of the same over lines drawn with replacement

Positions of one line are not independent, so whole lines are drawn, each with both models' values
(paired). Reference: Efron & Tibshirani 1993; `scipy.stats.bootstrap(paired=True)`. `Measurements`
holds all scores of an evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tokengraft.auditing.premium import percentile_interval
from tokengraft.core.errors import CorpusError, ModelError, UsageError
from tokengraft.core.options import RESAMPLES
from tokengraft.core.verdict import Done, Judged, Verdict, judge
from tokengraft.languages.codes import language_name, resolve
from tokengraft.tokenizer.align import Floats


@dataclass(frozen=True)
class Score:
    """A figure with what it must be compared with.

    `floor` is what doing nothing gives: the better of `unrelated` (another sentence of the same
    language in its place) and `mean_row` (the same row for every new token). A method on the wrong
    side of it has kept nothing. `ceiling` is usually the base model against itself: the same text
    in another segmentation by its old vocabulary; a good graft may be above it, since that
    segmentation is as foreign to the model as new tokens are. `n` counts what the value is a mean
    of; `low` and `high` bound 95% of bootstrapped values. None stands for what was not measured.
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


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made: `resamples` times lines are drawn, by `seed`; 0 makes none."""

    resamples: int = RESAMPLES
    seed: int = 0


@dataclass(frozen=True)
class Metric:
    """What a figure means and which way is better."""

    name: str
    definition: str
    higher: bool = True

    def better(self, *values: float | None) -> float | None:
        """The best of the values that are not None."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return max(known) if self.higher else min(known)


@dataclass(frozen=True)
class Sums:
    """A figure line by line: what to add up, and what to divide the sum by."""

    numerator: Floats  # (lines,)
    denominator: Floats  # (lines,)

    @property
    def value(self) -> float:
        """The figure over all lines; an error if there is nothing to divide by, or it is NaN."""
        total = float(self.denominator.sum())
        if not total:
            raise CorpusError(
                "nothing to measure: old and new tokens never end at the same byte; give more text"
            )
        value = float(self.numerator.sum()) / total
        if math.isnan(value):
            raise ModelError(
                "a model's output is not a number (nan): its weights are damaged. `tokengraft "
                "verify` finds such rows of a graft."
            )
        return value

    @classmethod
    def of(cls, values: Floats) -> Sums:
        """One value per line; lines without a value (NaN) are left out."""
        there = ~np.isnan(values)
        return cls(np.where(there, values, 0.0), there.astype(np.float64))

    @classmethod
    def over(cls, values: Floats, counts: Sequence[int] | npt.NDArray[np.int64]) -> Sums:
        """Values that lie line after line, `counts` of them in each line."""
        sizes = np.asarray(counts, np.int64)
        edges = np.concatenate(([0], np.cumsum(sizes)))
        numerator = np.array([values[start:end].sum() for start, end in pairwise(edges)])
        return cls(numerator.astype(np.float64), sizes.astype(np.float64))


#: Columns of a table of scores.
SCORES: dict[str, Any] = {
    "language": pl.String, "metric": pl.String, "value": pl.Float64, "floor": pl.Float64,
    "ceiling": pl.Float64, "n": pl.Int64, "low": pl.Float64, "high": pl.Float64,
    "unrelated": pl.Float64, "mean_row": pl.Float64, "definition": pl.String,
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Measurements:
    """Everything measured. Tables are polars; each figure has its floor, ceiling, n and interval.

    `sizes`: tokens before and after; `generation`, `samples`, `tasks`: None unless asked for;
    `notes`: what could not be measured, and why.
    """

    base: str
    graft: str
    kind: str
    corpus: str
    settings: Mapping[str, Any]
    scores: pl.DataFrame
    sizes: pl.DataFrame
    generation: pl.DataFrame | None = None
    samples: pl.DataFrame | None = None
    tasks: pl.DataFrame | None = None
    notes: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measurements) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def score(self, language: str, metric: str) -> Score:
        """One figure; UsageError if it was not measured.

        The language may be a bare code or a name (`shn`, `Shan`) if that is unambiguous.
        """
        try:
            code = resolve(language, self.sizes["language"].to_list(), "the evaluation")
        except CorpusError as error:
            raise UsageError(str(error)) from None
        row = self.scores.filter((pl.col("language") == code) & (pl.col("metric") == metric))
        if row.is_empty():
            known = ", ".join(sorted(set(self.scores["metric"])))
            raise UsageError(f"no {metric!r} for {code}; measured: {known}")
        values = row.row(0, named=True)
        return Score(**{field.name: values[field.name] for field in fields(Score)})

    @property
    def verdict(self) -> Verdict:
        """One sentence by floors and ceilings, and the deciding figures that miss their floor."""
        return judge(
            [
                Judged(
                    r["metric"], language_name(r["language"]), r["value"], r["floor"], r["ceiling"]
                )
                for r in self.scores.to_dicts()
                if r["value"] is not None
            ]
        )

    @property
    def done(self) -> Done | None:
        """How the graft was made; None if that is not known."""
        known = self.settings.get("done")
        return None if known is None else Done(**known)

    @property
    def next_step(self) -> str:
        """What the graft's maker can do about the verdict; "" if it works."""
        return self.verdict.next_step(self.done)

    @property
    def summary(self) -> pl.DataFrame:
        """One row per language, one column per metric: the bare values, for reading."""
        wide: pl.DataFrame = self.scores.pivot(
            "metric", index="language", values="value", maintain_order=True
        )
        return self.sizes.select("language", "tokens_before", "tokens_after").join(
            wide, on="language", how="left"
        )

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table that there is, by name."""
        every = {
            "scores": self.scores, "sizes": self.sizes, "summary": self.summary,
            "generation": self.generation, "samples": self.samples, "tasks": self.tasks,
        }  # fmt: skip
        return {name: table for name, table in every.items() if table is not None}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "base": self.base, "graft": self.graft, "kind": self.kind, "corpus": self.corpus,
            "settings": dict(self.settings), "notes": list(self.notes),
            **{name: t.to_dicts() for name, t in self.tables().items() if name != "summary"},
        }  # fmt: skip


def score(
    metric: Metric,
    sums: Sums,
    drawn: Bootstrap = Bootstrap(),  # noqa: B008 - frozen
    *,
    unrelated: float | None = None,
    mean_row: float | None = None,
    ceiling: float | None = None,
    n: int | None = None,
) -> Score:
    """The figure with its interval, floor and ceiling.

    `n` defaults to the sum of denominators: positions, lines or bytes; give it for ratios of bits.
    """
    low, high = interval(sums, drawn)
    return Score(
        value=sums.value, floor=metric.better(unrelated, mean_row), ceiling=ceiling,
        n=round(float(sums.denominator.sum())) if n is None else n, low=low, high=high,
        definition=metric.definition, unrelated=unrelated, mean_row=mean_row,
    )  # fmt: skip


def interval(sums: Sums, drawn: Bootstrap) -> tuple[Any, Any]:
    """Bounds of the bootstrapped value; (None, None) with fewer than two lines or no resamples."""
    used = sums.denominator > 0
    above, below = sums.numerator[used], sums.denominator[used]
    if len(above) < 2 or not drawn.resamples:
        return None, None

    def ratio(lines: npt.NDArray[np.int64]) -> Floats:
        quotient: Floats = above[lines].sum(axis=-1) / below[lines].sum(axis=-1)
        return quotient

    low, high = percentile_interval(ratio, len(above), drawn.resamples, drawn.seed, batch=250)
    return float(low), float(high)
