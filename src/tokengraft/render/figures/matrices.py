"""Heat maps with a number in every cell: overlap of vocabularies, coverage of scripts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from numpy.typing import NDArray

from tokengraft.languages.codes import known
from tokengraft.render.figures.style import FAINT, INK, PAPER_WHITE, SHARE, bare, contrasting, sheet
from tokengraft.render.selection import column_order, labels

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables

Values = NDArray[np.float64]


def jaccard(audit: AuditTables) -> Figure | None:
    """Jaccard similarity of the vocabularies in clustering order; None for a single one."""
    names = audit.jaccard.columns[1:]
    values = audit.jaccard.drop("label").to_numpy().astype(np.float64)
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
    return _square(audit, title, subtitle, names, values)


def containment(audit: AuditTables) -> Figure | None:
    """Share of the row's vocabulary that the column's holds; None for a single one."""
    names = audit.containment.columns[1:]
    values = audit.containment.drop("label").to_numpy().astype(np.float64)
    if len(names) < 2:
        return None
    inside = (values - 2 * np.eye(len(values))).clip(0).sum(axis=0) / (len(values) - 1)
    widest = int(inside.argmax())
    title = f"{names[widest]} holds {inside[widest]:.0%} of the average other vocabulary"
    subtitle = (
        "Share of the row’s vocabulary that the column’s vocabulary holds too, in percent. "
        "Space markers removed before comparing; same order as the Jaccard map."
    )
    return _square(audit, title, subtitle, names, values)


def coverage(audit: AuditTables) -> Figure | None:
    """Share of running text in one-token characters, scripts × tokenizers."""
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
        "Share of running text whose characters are one token, in percent (spaces apart), mean "
        "over the script’s languages (how many in brackets). The other characters are spelled "
        "byte by byte or become UNK."
    )
    cell = 0.27
    names, head = fold(names, 0.78)
    width, height = 1.9 + 0.78 * len(names), 0.35 + head + cell * len(rows)
    page = sheet(audit, max(width, 5.2), height, title, subtitle)
    axes = page.axes(1.9, 0, 0.78 * len(names), cell * len(rows))
    draw_cells(axes, values, SHARE, Normalize(0, 1), _percent, 8)
    name_columns(axes, names)
    axes.set_yticks(range(len(rows)), rows, fontsize=8.5, color=INK)
    return page.figure


def draw_cells(
    axes: Axes, values: Values, colours: Colormap, norm: Normalize, form: Any, size: float
) -> None:
    """Fill the axes with coloured cells, white gaps between them, each with its number."""
    rows, columns = values.shape
    shades = colours(norm(np.ma.masked_invalid(values)))
    shade(axes, shades)
    grid(axes, rows, columns)
    here = np.argwhere(np.isfinite(values))
    cells = [(x, y, form(values[y, x]), contrasting(shades[y, x])) for y, x in here]
    numbers(axes, cells, size)
    bare(axes)


def shade(axes: Axes, shades: Values) -> None:
    """Colour unit cells centred on whole numbers, as shapes and not as an image."""
    rows, columns = shades.shape[:2]
    across, down = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    axes.pcolormesh(across, down, shades, edgecolor="none", antialiased=False)


def numbers(axes: Axes, cells: Iterable[tuple[float, float, str, str]], size: float) -> None:
    """Write (x, y, text, colour) centred on their places.

    Each distinct text is one marker drawn at many places: thirty times faster than as many texts,
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
        axes.plot(
            xs,
            ys,
            linestyle="none",
            marker=marker,
            markersize=2 * reach,
            markerfacecolor=colour,
            markeredgewidth=0,
        )


def grid(axes: Axes, rows: int, columns: int, width: float = 1.0) -> None:
    """White lines between cells."""
    axes.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, PAPER_WHITE, linewidth=width)
    axes.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, PAPER_WHITE, linewidth=width)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)


def fold(names: Sequence[str], across: float, size: float = 8.5) -> tuple[list[str], float]:
    """Names folded to columns `across` inches wide, and the inches above for further lines."""
    room = max(6, int(across * 72 / (size * 0.66)))
    fits = [TextPath((0, 0), name, size).get_extents().width < across * 72 - 3 for name in names]
    folded = [
        [name] if fit else textwrap.wrap(name, room) for name, fit in zip(names, fits, strict=True)
    ]
    lines = max(map(len, folded), default=1)
    return ["\n".join(parts) for parts in folded], 0.14 * (lines - 1)


def name_columns(axes: Axes, names: list[str], size: float = 8.5) -> None:
    """Column names above the cells."""
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(names)), names, fontsize=size, color=INK)


def _square(
    audit: AuditTables, title: str, subtitle: str, names: list[str], values: Values
) -> Figure:
    count = len(names)
    side, one = 0.62, 0.74
    across = one * count
    left = max(1.0, 0.075 * max(map(len, names)) - 0.15)
    above, head = fold(names, one)
    note = f"Vocabularies of {count} tokenizers."
    tall = side * 0.8 * count
    page = sheet(audit, max(left + across, 5.2), 0.35 + head + tall, title, subtitle, note)
    axes = page.axes(left, 0, across, tall)
    shown = values.copy()
    np.fill_diagonal(shown, np.nan)
    draw_cells(axes, shown, SHARE, Normalize(0, 1), _percent, 9)
    numbers(axes, [(n, n, "–", FAINT) for n in range(count)], 9)
    name_columns(axes, above)
    axes.set_yticks(range(count), names, fontsize=8.5, color=INK)
    return page.figure


def _percent(share: float) -> str:
    # "100" only for all of it, "0" only for none: 99.9 % is not everything.
    percent = 100 * share
    if 0 < percent < 0.5:
        return "< 1"
    return "> 99" if 99.5 <= percent < 100 else f"{percent:.0f}"
