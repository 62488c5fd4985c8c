"""The premium table as a heat map: a readable choice of languages, or all of them by script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from tokengraft.auditing.frames import UNK_LIMIT
from tokengraft.core.wording import counted
from tokengraft.languages.codes import language
from tokengraft.render.figures.matrices import fold, grid, name_columns, numbers, shade
from tokengraft.render.figures.style import (
    FAINT,
    INK,
    PREMIUM,
    QUIET,
    UNK_EDGE,
    UNK_FACE,
    Sheet,
    bare,
    contrasting,
    row_labels,
    sheet,
    write,
)
from tokengraft.render.selection import (
    all_of_few,
    by_cost,
    check_languages,
    column_order,
    comparable_note,
    labels,
    most_expensive,
    pivot_name,
    typical_costs,
    units,
)

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables

TOP = 30
PANEL_ROWS = 104  # rows per column of the full map, headings included
# Equal ratios are equal steps of colour on both sides of 1.
NORM = LogNorm(1 / 20, 20, clip=True)
_ALONE = "alone in their script"
Row = tuple[str, bool]  # a language's code, or a heading


def premiums(
    audit: AuditTables, languages: Iterable[str] | None = None, top: int = TOP
) -> Figure | None:
    """Premiums of `languages`, or of the `top` costliest by median honest premium."""
    if languages is None:
        codes = most_expensive(audit, top)
        every = typical_costs(audit).height
        if all_of_few(audit) is not None:
            codes = most_expensive(audit, every)
        chosen = f"The {len(codes)} costliest of {counted(every, 'language')}"
        if len(codes) == every:
            chosen = counted(every, "language")
    else:
        codes = check_languages(audit, languages)
        chosen = f"{len(codes)} of {counted(len(audit.corpus.languages), 'language')}"
    columns = _cheapest_first(audit, codes)
    values, spoilt = _cells(audit, codes, columns)
    honest = np.where(spoilt, np.nan, values)
    if not codes or not np.isfinite(honest).any():
        return None
    row, column = np.unravel_index(int(np.nanargmax(honest)), honest.shape)
    pivot = pivot_name(audit)
    names = [labels(audit)[c] for c in columns]
    title = (
        f"The same text takes up to {_times(honest[row, column])} times the tokens in "
        f"{language(codes[row]).name} that it takes in {pivot}"
    )
    subtitle = (
        f"Premium: tokens ÷ tokens of the same unit in {pivot}, mean over "
        f"{units(audit)}. {chosen}{', ordered by their median' if len(codes) > 1 else ''}. "
        f"{comparable_note(audit)}"
    ).strip()
    cell, left = 0.285, 2.8
    across = 0.74 if len(names) > 3 else 1.0
    width = max(left + across * len(names), _legend_width(bool(spoilt.any())))
    names, head = fold(names, across)
    page = sheet(audit, width, 0.95 + head + cell * len(codes), title, subtitle)
    axes = page.axes(left, 0.6, across * len(names), cell * len(codes))
    _draw(axes, values, spoilt, 8.5)
    name_columns(axes, names)
    axes.set_yticks([])
    row_labels(axes, codes)
    _legend(page, bool(spoilt.any()))
    return page.figure


def premiums_all(audit: AuditTables) -> Figure | None:
    """Premiums of every language, scripts together, costliest script first."""
    columns = _cheapest_first(audit, audit.corpus.languages)
    rows = by_script(audit)
    if len(rows) < 3:
        return None
    wanted = math.ceil(len(rows) / PANEL_ROWS)
    # Each column but the first may repeat a heading.
    panels = in_panels(rows, math.ceil((len(rows) + wanted - 1) / wanted))
    cell, across, left, gap = 0.165, 0.4, 2.25, 0.3
    one = left + across * len(columns)
    tall = cell * max(map(len, panels))
    pivot = pivot_name(audit)
    others = typical_costs(audit)
    costly = others.filter(pl.col("typical") > 2).height
    title = (
        f"{costly} of {counted(others.height, 'language')} typically cost more than twice what "
        f"{pivot} costs"
    )
    subtitle = (
        f"Premium: tokens ÷ tokens of the same unit in {pivot}, mean over "
        f"{units(audit)}. Languages by script, costliest script first by median. "
        f"{comparable_note(audit)}"
    ).strip()
    width = len(panels) * one + (len(panels) - 1) * gap
    longest = max(len(labels(audit)[c]) for c in columns)
    head = max(0.7, 0.1 + 0.042 * longest)  # the names stand slanted
    wide = max(width, _legend_width(bool(audit.premiums["meaningless"].any())))
    page = sheet(audit, wide, tall + 0.6 + head, title, subtitle)
    spoiled = False
    for place, panel in enumerate(panels):
        codes = [code for code, heading in panel if not heading]
        values, spoilt = _cells(audit, codes, columns)
        spoiled |= bool(spoilt.any())
        full, bad = with_gaps(panel, values, spoilt)
        height = cell * len(panel)
        axes = page.axes(
            place * (one + gap) + left, 0.6 + tall - height, across * len(columns), height
        )
        _draw(axes, full, bad, 6, line=0.5)
        name_rows(axes, panel)
        axes.xaxis.tick_top()
        axes.set_xticks(range(len(columns)), [labels(audit)[c] for c in columns], fontsize=6.5)
        axes.tick_params("x", rotation=50, labelcolor=INK, pad=1)
        for tick in axes.get_xticklabels():
            tick.set_horizontalalignment("left")
            tick.set_rotation_mode("anchor")
    _legend(page, spoiled)
    return page.figure


def _cheapest_first(audit: AuditTables, codes: Sequence[str]) -> list[str]:
    """Tokenizers by median honest premium over `codes`, those mostly spoilt by UNK last."""
    order = column_order(audit)
    values, spoilt = _cells(audit, codes, order)

    def key(n: int) -> tuple[bool, float]:
        honest = values[~spoilt[:, n], n]
        honest = honest[np.isfinite(honest)]
        return bool(spoilt[:, n].mean() > 0.5), float(np.median(honest)) if len(honest) else 99.0

    return [order[n] for n in sorted(range(len(order)), key=key)] if codes else order


def _cells(
    audit: AuditTables, codes: Sequence[str], columns: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Premiums and whether UNK spoils them, (languages, tokenizers)."""
    where = {code: n for n, code in enumerate(codes)}
    place = {name: n for n, name in enumerate(columns)}
    values = np.full((len(codes), len(columns)), np.nan)
    spoilt = np.zeros(values.shape, np.bool_)
    shown = audit.premiums.filter(pl.col("language").is_in(list(codes)))
    for code, name, value, bad in shown.select(
        "language", "tokenizer", "premium", "meaningless"
    ).rows():
        values[where[code], place[name]] = value
        spoilt[where[code], place[name]] = bad
    return values, spoilt


def _draw(
    axes: Axes,
    values: NDArray[np.float64],
    spoilt: NDArray[np.bool_],
    size: float,
    line: float = 1.0,
) -> None:
    rows, columns = values.shape
    shown = np.where(spoilt, np.nan, values)
    shades = PREMIUM(NORM(np.ma.masked_invalid(shown)))
    shade(axes, shades)
    if spoilt.any():
        axes.add_patch(_hatched([(x - 0.5, y - 0.5) for y, x in np.argwhere(spoilt)]))
    grid(axes, rows, columns, line)
    here = np.argwhere(np.isfinite(shown))
    cells = [(x, y, _form(shown[y, x]), contrasting(shades[y, x])) for y, x in here]
    numbers(axes, cells, size)
    bare(axes)


def _times(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def _form(value: float) -> str:
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def _hatched(corners: Sequence[tuple[float, float]]) -> PathPatch:
    """Unit squares at `corners` in the pattern that means UNK."""
    unit = Path.unit_rectangle()
    squares = [Path(np.asarray(unit.vertices) + corner, unit.codes) for corner in corners]
    whole = Path.make_compound_path(*squares)
    return PathPatch(whole, facecolor=UNK_FACE, edgecolor=UNK_EDGE, hatch="/////", linewidth=0)


def _legend_width(spoilt: bool) -> float:
    """Inches that the legend takes; a sheet this wide has room for its titles too."""
    return 6.4 if spoilt else 5.2


def _legend(page: Sheet, spoilt: bool) -> None:
    """A colour scale from ½ to 20, and what hatching means, under the cells."""
    left = min(2.8, page.body - _legend_width(spoilt) + 0.15)
    scale = page.axes(left, 0.2, 2.4, 0.13)
    edges = np.linspace(math.log(0.5), math.log(20), 81)
    shades = PREMIUM(NORM(np.exp((edges[:-1] + edges[1:]) / 2)))
    scale.pcolormesh(edges, [0, 1], shades[None], edgecolors="face", linewidth=0.6)
    ticks = (0.5, 1, 2, 5, 10, 20)
    scale.set_xticks([math.log(t) for t in ticks], [f"{t:g}×" for t in ticks], fontsize=7.5)
    scale.set_yticks([])
    bare(scale)
    if not spoilt:
        return
    key = page.axes(left + 2.8, 0.2, 0.3, 0.15)
    key.add_patch(_hatched([(0, 0)]))
    key.set_axis_off()
    why = (
        f"No premium: over {UNK_LIMIT:.0%} of the tokens are UNK;\n"
        "what they stood for is lost, not counted"
    )
    write(key, why, (1, 0.5), (6, 0), va="center", fontsize=7.5, color=QUIET)


def by_script(audit: AuditTables) -> list[Row]:
    """Every language under its script, costliest script first by median."""
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
