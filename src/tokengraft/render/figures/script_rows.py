"""Rows of the map of all languages: script by script, cut into columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tokengraft.languages.codes import language
from tokengraft.render.figures.style import FAINT, INK
from tokengraft.render.selection import by_cost

if TYPE_CHECKING:
    from tokengraft.auditing.results import AuditTables

_ALONE = "alone in their script"
Row = tuple[str, bool]  # a language's code, or a heading


def by_script(audit: AuditTables) -> list[Row]:
    """Every language under its script, dearest script first by median."""
    ranked = by_cost(audit)
    if ranked.is_empty():
        return []
    alone = pl.len().over("script") == 1
    grouped = ranked.with_columns(
        pl.when(alone).then(pl.lit(_ALONE)).otherwise(pl.col("script")).alias("group")
    )
    groups = (
        grouped.group_by("group")
        .agg(pl.col("typical").median(), pl.len())
        .sort(["typical", "group"], descending=[True, False])
    )
    rows: list[Row] = []
    for group, _, count in groups.rows():
        codes = grouped.filter(pl.col("group") == group)["language"].to_list()
        name = group if group == _ALONE else language(codes[0]).script_name or group
        rows.append((f"{name} ({count})", True))
        rows += [(code, False) for code in codes]
    return rows


def in_panels(rows: Sequence[Row], length: int) -> list[list[Row]]:
    """Cut the rows into columns; a column never ends in a heading and repeats the one it is in."""
    panels: list[list[Row]] = [[]]
    heading: Row | None = None
    for row in rows:
        heading = row if row[1] else heading
        last = len(panels[-1]) == length - 1 and row[1]
        if len(panels[-1]) >= length or last:
            again = [] if row[1] or heading is None else [(f"{heading[0]}, continued", True)]
            panels.append(list(again))
        panels[-1].append(row)
    return panels


def with_gaps(
    panel: Sequence[Row], values: NDArray[np.float64], spoilt: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """`values` and `spoilt` of the languages with empty rows where headings stand."""
    full = np.full((len(panel), values.shape[1]), np.nan)
    bad = np.zeros(full.shape, np.bool_)
    here = [n for n, (_, heading) in enumerate(panel) if not heading]
    full[here], bad[here] = values, spoilt
    return full, bad


def name_rows(axes: Axes, panel: Sequence[Row]) -> None:
    """Languages and headings at the left of their rows."""
    names = [text.upper() if heading else _short(text) for text, heading in panel]
    axes.set_yticks(range(len(panel)), names, fontsize=6.5)
    for tick, (_, heading) in zip(axes.get_yticklabels(), panel, strict=True):
        tick.set_color(FAINT if heading else INK)
        tick.set_fontweight("bold" if heading else "normal")


def _short(code: str, longest: int = 32) -> str:
    name = language(code).name
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"
