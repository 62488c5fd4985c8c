"""Heat maps with a number in every cell: premiums, overlap of vocabularies, coverage of scripts."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from numpy.typing import NDArray

from tokengraft.auditing.frames import UNK_LIMIT
from tokengraft.core.wording import counted, in_percent
from tokengraft.languages.codes import known, language
from tokengraft.render.figures.style import (
    FAINT,
    INK,
    PAPER_WHITE,
    PREMIUM,
    QUIET,
    SHARE,
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
    column_order,
    comparable_note,
    labels,
    pivot_name,
    typical_costs,
    units,
)

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables

Values = NDArray[np.float64]
TOP = 30
PANEL_ROWS = 104  # rows per column of the full map, headings included
# Equal ratios are equal steps of colour on both sides of 1.
NORM = LogNorm(1 / 20, 20, clip=True)
_ALONE = "alone in their script"
_NAME_SIZE = 8.5  # of a column's name, in points
Row = tuple[str, bool]  # a language's code, or a heading


def premiums(audit: AuditTables) -> Figure | None:
    """Premiums of all languages if they are few, else of the costliest by median honest premium."""
    every = typical_costs(audit)["language"].to_list()
    codes = every[:TOP] if all_of_few(audit) is None else every
    chosen = f"The {len(codes)} costliest of " if len(codes) < len(every) else ""
    chosen += counted(len(every), "language")
    columns = _cheapest_first(audit, codes)
    values, spoilt = _cells(audit, codes, columns)
    honest = np.where(spoilt, np.nan, values)
    if not codes or not np.isfinite(honest).any():
        return None
    row, column = np.unravel_index(int(np.nanargmax(honest)), honest.shape)
    pivot = pivot_name(audit)
    names = [labels(audit)[c] for c in columns]
    title = (
        f"The same text takes up to {_form(honest[row, column], 10)} times the tokens in "
        f"{language(codes[row]).name} that it takes in {pivot}"
    )
    subtitle = (
        f"Premium: tokens ÷ tokens of the same passage in {pivot}, mean over "
        f"{units(audit)}. {chosen}{', ordered by their median' if len(codes) > 1 else ''}. "
        f"{comparable_note(audit)}"
    ).strip()
    cell, left = 0.285, 2.8
    across = 0.74 if len(names) > 3 else 1.0
    width = max(left + across * len(names), _legend_width(bool(spoilt.any())))
    names, head = fold(names, across)
    note = f"Text: {audit.corpus.title}."
    page = sheet(width, 0.95 + head + cell * len(codes), title, subtitle, note)
    axes = page.axes(left, 0.6, across * len(names), cell * len(codes))
    draw_cells(axes, values, PREMIUM, NORM, _form, 8.5, spoilt)
    name_columns(axes, names)
    axes.set_yticks([])
    row_labels(axes, codes)
    _legend(page, bool(spoilt.any()))
    return page.figure


def premiums_all(audit: AuditTables) -> Figure | None:
    """Premiums of every language, grouped by script, costliest script first."""
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
    cost = "costs" if costly == 1 else "cost"
    title = (
        f"{costly} of {counted(others.height, 'language')} typically {cost} more than twice what "
        f"{pivot} costs"
    )
    subtitle = (
        f"Premium: tokens ÷ tokens of the same passage in {pivot}, mean over "
        f"{units(audit)}. Languages by script, costliest script first by median. "
        f"{comparable_note(audit)}"
    ).strip()
    width = len(panels) * one + (len(panels) - 1) * gap
    longest = max(len(labels(audit)[c]) for c in columns)
    head = max(0.7, 0.1 + 0.042 * longest)  # the names stand slanted
    wide = max(width, _legend_width(bool(audit.premiums["meaningless"].any())))
    page = sheet(wide, tall + 0.6 + head, title, subtitle, f"Text: {audit.corpus.title}.")
    spoiled = False
    for place, panel in enumerate(panels):
        # Headings are not languages: their rows stay empty.
        full, bad = _cells(audit, [code for code, _ in panel], columns)
        spoiled |= bool(bad.any())
        height = cell * len(panel)
        axes = page.axes(
            place * (one + gap) + left, 0.6 + tall - height, across * len(columns), height
        )
        draw_cells(axes, full, PREMIUM, NORM, _form, 6, bad, line=0.5)
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
) -> tuple[Values, NDArray[np.bool_]]:
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


def _form(value: float, whole: float = 100) -> str:
    """The value with one decimal below `whole`, with none from there on."""
    return f"{value:.1f}" if value < whole - 0.05 else f"{value:.0f}"


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
        f"No premium: over {UNK_LIMIT:.0%} of the tokens, or of the pivot’s,\n"
        "are UNK; what they stood for is lost, not counted"
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


def name_rows(axes: Axes, panel: Sequence[Row]) -> None:
    """Languages and headings at the left of their rows."""
    names = [text.upper() if heading else _short(text) for text, heading in panel]
    axes.set_yticks(range(len(panel)), names, fontsize=6.5)
    for tick, (_, heading) in zip(axes.get_yticklabels(), panel, strict=True):
        tick.set_color(QUIET if heading else INK)
        tick.set_fontweight("bold" if heading else "normal")


def _short(code: str) -> str:
    name = language(code).name
    return name if len(name) <= 32 else name[:31].rstrip() + "…"


def jaccard(audit: AuditTables) -> Figure | None:
    """Jaccard similarity of the vocabularies in clustering order; None for a single one."""
    names, values = _overlap(audit.jaccard)
    if len(names) < 2:
        return None
    apart = values - 2 * np.eye(len(values))
    row, column = np.unravel_index(int(apart.argmax()), apart.shape)
    first, second = sorted((names[row], names[column]), key=str.lower)
    title = f"{first} and {second} share {values[row, column]:.0%} of their tokens"
    subtitle = (
        "Jaccard similarity: tokens that both vocabularies hold ÷ tokens that either holds, "
        "in percent. Space markers removed before comparing; neighbours are alike."
    )
    return _square(title, subtitle, names, values)


def containment(audit: AuditTables) -> Figure | None:
    """Share of the row's vocabulary that the column's holds; None for a single one."""
    names, values = _overlap(audit.containment)
    if len(names) < 2:
        return None
    inside = (values - 2 * np.eye(len(values))).clip(0).sum(axis=0) / (len(values) - 1)
    widest = int(inside.argmax())
    title = f"{names[widest]} holds {inside[widest]:.0%} of the average other vocabulary"
    subtitle = (
        "Share of the row’s vocabulary that the column’s vocabulary holds too, in percent. "
        "Space markers removed before comparing; same order as the Jaccard map."
    )
    return _square(title, subtitle, names, values)


def _overlap(frame: pl.DataFrame) -> tuple[list[str], Values]:
    return frame.columns[1:], frame.drop("label").to_numpy().astype(np.float64)


def coverage(audit: AuditTables) -> Figure | None:
    """Share of running text whose characters are one token, scripts × tokenizers."""
    columns = column_order(audit)
    mean = (
        audit.coverage.group_by("script", "tokenizer")
        .agg(pl.col("running_share").fill_nan(None).mean(), pl.len())
        .pivot(on="tokenizer", index=["script", "len"], values="running_share")
        .with_columns(pl.mean_horizontal(columns).alias("typical"))
        .sort(["typical", "script"], descending=[True, False])
    )
    values = mean.select(columns).to_numpy().astype(np.float64)
    if values.size == 0:
        return None
    order = np.argsort(-np.nanmean(values, axis=0), kind="stable")
    values = values[:, order]
    names = [labels(audit)[columns[n]] for n in order]
    scripts = {entry.script: entry.script_name for entry in known().values()}
    rows = [f"{scripts.get(s) or s}  ({n})" for s, n in mean.select("script", "len").rows()]
    half = (values < 0.5).sum(axis=0)
    title = f"{names[-1]} has no token for most characters of {half[-1]} of {len(rows)} scripts"
    if len(names) > 1:
        title += f", {names[0]} for those of {half[0] or 'none'}"
    subtitle = (
        "Share of running text whose characters are one token, in percent (spaces left out), mean "
        "over the script’s languages (how many in brackets). The other characters are spelled "
        "byte by byte or become UNK."
    )
    cell = 0.27
    names, head = fold(names, 0.78)
    width, height = 1.9 + 0.78 * len(names), 0.35 + head + cell * len(rows)
    page = sheet(max(width, 5.2), height, title, subtitle, f"Text: {audit.corpus.title}.")
    axes = page.axes(1.9, 0, 0.78 * len(names), cell * len(rows))
    draw_cells(axes, values, SHARE, Normalize(0, 1), in_percent, 8)
    name_columns(axes, names)
    axes.set_yticks(range(len(rows)), rows, fontsize=8.5, color=INK)
    return page.figure


def draw_cells(
    axes: Axes,
    values: Values,
    colours: Colormap,
    norm: Normalize,
    form: Callable[[float], str],
    size: float,
    spoilt: NDArray[np.bool_] | None = None,
    line: float = 1.0,
) -> None:
    """Fill the axes with coloured cells and their numbers; cells that UNK `spoilt` are hatched."""
    rows, columns = values.shape
    shown = values if spoilt is None else np.where(spoilt, np.nan, values)
    shades = colours(norm(np.ma.masked_invalid(shown)))
    across, down = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    axes.pcolormesh(across, down, shades, edgecolor="none", antialiased=False)
    if spoilt is not None and spoilt.any():
        axes.add_patch(_hatched([(x - 0.5, y - 0.5) for y, x in np.argwhere(spoilt)]))
    axes.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, PAPER_WHITE, linewidth=line)
    axes.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, PAPER_WHITE, linewidth=line)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    here = np.argwhere(np.isfinite(shown))
    numbers(axes, [(x, y, form(shown[y, x]), contrasting(shades[y, x])) for y, x in here], size)
    bare(axes)


def numbers(axes: Axes, cells: Iterable[tuple[float, float, str, str]], size: float) -> None:
    """Write (x, y, text, colour) centred on their places.

    Each distinct text is one marker drawn at many places: thirty times faster than separate texts,
    and a smaller SVG.
    """
    alike: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for x, y, text, colour in cells:
        alike.setdefault((text, colour), []).append((x, y))
    for (text, colour), places in alike.items():
        outline = TextPath((0, 0), text, size=size, prop=FontProperties(family="DejaVu Sans"))
        box = outline.get_extents()
        middle = ((box.x0 + box.x1) / 2, size * 0.365)  # half the height of a digit
        marker = Path(outline.vertices - middle, outline.codes)
        # Matplotlib scales a marker so that its farthest coordinate is half the marker size.
        reach = float(np.abs(marker.vertices).max())
        xs, ys = zip(*places, strict=True)
        axes.plot(xs, ys, linestyle="none", marker=marker, markersize=2 * reach,
                  markerfacecolor=colour, markeredgewidth=0)  # fmt: skip


def fold(names: Sequence[str], across: float) -> tuple[list[str], float]:
    """Names folded to columns `across` inches wide, and the extra inches their lines need above."""
    room = max(6, int(across * 72 / (_NAME_SIZE * 0.66)))
    fits = [
        TextPath((0, 0), name, _NAME_SIZE).get_extents().width < across * 72 - 3 for name in names
    ]
    folded = [
        [name] if fit else textwrap.wrap(name, room) for name, fit in zip(names, fits, strict=True)
    ]
    lines = max(map(len, folded), default=1)
    return ["\n".join(parts) for parts in folded], 0.14 * (lines - 1)


def name_columns(axes: Axes, names: list[str]) -> None:
    """Column names above the cells."""
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(names)), names, fontsize=_NAME_SIZE, color=INK)


def _square(title: str, subtitle: str, names: list[str], values: Values) -> Figure:
    count = len(names)
    side, one = 0.62, 0.74
    across = one * count
    left = max(1.0, 0.075 * max(map(len, names)) - 0.15)
    above, head = fold(names, one)
    note = f"Vocabularies of {count} tokenizers."
    tall = side * 0.8 * count
    page = sheet(max(left + across, 5.2), 0.35 + head + tall, title, subtitle, note)
    axes = page.axes(left, 0, across, tall)
    shown = values.copy()
    np.fill_diagonal(shown, np.nan)
    draw_cells(axes, shown, SHARE, Normalize(0, 1), in_percent, 9)
    numbers(axes, [(n, n, "–", FAINT) for n in range(count)], 9)
    name_columns(axes, above)
    axes.set_yticks(range(count), names, fontsize=8.5, color=INK)
    return page.figure
