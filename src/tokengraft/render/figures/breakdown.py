"""The premium taken apart: what the split pattern forces, and what a vocabulary could save."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tokengraft.render.figures.style import (
    ABOVE,
    BESIDE,
    INK,
    LINE,
    PAPER_WHITE,
    QUIET,
    Sheet,
    row_labels,
    sheet,
    write,
)
from tokengraft.render.selection import (
    all_of_few,
    check_languages,
    check_tokenizer,
    column_order,
    labels,
    not_comparable,
    one_a_script,
    pivot_name,
    units,
)

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables

ROWS, DEAREST = 25, 5
_KEYS = 10.5  # inches that the legend takes
_NUMBERS = 76  # points left of the bars for two columns of numbers
PREFERRED = ("llama-3", "o200k_base")
# Dark to light: the part nobody can graft away stands out; the rest is what can be won.
PARTS = {
    "floor": ("#16324f", "Split pattern", "forced by how words are cut before any merge"),
    "missing_tokens": ("#e0a458", "Missing longer tokens", "saved by a vocabulary of whole words"),
    "missing_characters": ("#c8553d", "Missing characters", "characters spelled in several tokens"),
}


def apart(
    audit: AuditTables,
    tokenizers: Iterable[str] | None = None,
    languages: Iterable[str] | None = None,
) -> Figure | None:
    """Stacked premiums, one panel per tokenizer: Llama 3 and GPT-4o unless told otherwise.

    None where no tokenizer of the audit has a floor.
    """
    shown = _tokenizers(audit, tokenizers)
    if not shown:
        return None
    which = ""
    if languages is not None:
        codes = check_languages(audit, languages)
    elif (every := all_of_few(audit, shown[0])) is not None:
        codes = every
    else:
        codes = one_a_script(audit, shown[0], ROWS, DEAREST)
        which = "The most spoken language of each script, and the costliest."
    missing = not_comparable(audit)
    codes = [code for code in codes if code not in missing]
    cells = {
        (row["tokenizer"], row["language"]): row
        for row in audit.premiums.filter(
            pl.col("tokenizer").is_in(shown) & pl.col("language").is_in(codes)
        ).to_dicts()
    }
    if not codes:
        return None
    pivot = pivot_name(audit)
    subtitle = (
        f"Premium over {pivot} (tokens ÷ tokens of the same unit in {pivot}, mean over "
        f"{units(audit)}), taken apart exactly. The floor counts the pieces into which the "
        f"tokenizer’s pattern cuts text before any merge: no vocabulary can go below it. {which}"
    )
    left, row, gap = 3.3, 0.29, 1.1
    wide = 3.7 if len(shown) > 1 else _KEYS - left
    width = left + len(shown) * wide + (len(shown) - 1) * gap
    tall = row * len(codes)
    title = _title(audit, cells, shown, codes)
    page = sheet(audit, max(width, _KEYS), tall + 1.35, title, subtitle)
    most = max(_total(cell) for cell in cells.values())
    for n, name in enumerate(shown):
        axes = page.axes(left + n * (wide + gap), 0.4, wide, tall)
        _panel(axes, [cells[name, code] for code in codes], most, labels(audit)[name])
        if n == 0:
            row_labels(axes, codes, gap=_NUMBERS + 10)
    _legend(page, tall + 0.92, pivot)
    return page.figure


def _tokenizers(audit: AuditTables, wanted: Iterable[str] | None) -> list[str]:
    floored = set(audit.premiums.filter(pl.col("floor").is_not_null())["tokenizer"])
    if wanted is not None:
        return [check_tokenizer(audit, name) for name in wanted]
    preferred = [name for name in PREFERRED if name in floored]
    return preferred or [name for name in column_order(audit) if name in floored][:1]


def _title(
    audit: AuditTables,
    cells: dict[tuple[str, str], dict[str, Any]],
    shown: Sequence[str],
    codes: Sequence[str],
) -> str:
    first = [cells[shown[0], code] for code in codes]
    worst = max(first, key=lambda cell: float(cell["floor"] or 0))
    name = labels(audit)[shown[0]]
    if not (worst["floor"] or 0) > 1.2:
        return f"What {name}’s premiums consist of"
    title = (
        f"{name}’s split pattern alone makes {worst['name']} cost {worst['floor']:.1f} times "
        f"{pivot_name(audit)}, whatever the vocabulary"
    )
    other = cells.get((shown[-1], worst["language"]))
    if len(shown) > 1 and other and other["floor"] is not None and other["floor"] < worst["floor"]:
        title += f"; {labels(audit)[shown[-1]]}’s only {other['floor']:.1f}"
    return title


def _panel(axes: Axes, rows: Sequence[dict[str, Any]], most: float, name: str) -> None:
    ys = np.arange(len(rows))
    starts = np.zeros(len(rows))
    for part, (colour, *_) in PARTS.items():
        widths = np.array([max(0.0, float(row[part] or 0)) for row in rows])
        axes.barh(ys, widths, 0.72, starts, color=colour, linewidth=0)
        starts += widths
    floors = [row["floor"] for row in rows]
    _diamonds(axes, [float(row["utf8"]) for row in rows], list(ys))
    _column(axes, "premium", 32 - _NUMBERS, list(starts), INK)
    _column(axes, "floor", -9, floors, PARTS["floor"][0])
    axes.axvline(1, color=QUIET, linewidth=0.9, linestyle=(0, (3, 2)), zorder=4)
    axes.set_xlim(0, most * 1.04)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks([])
    step = 2 if most < 16 else 5
    places = np.arange(0, most * 1.04, step)
    axes.set_xticks(places, [f"{p:g}×" for p in places], fontsize=8)
    axes.grid(axis="x", color=LINE, linewidth=0.7)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_title(name, loc="left", fontsize=11, weight="bold", color=INK, pad=6)


def _diamonds(axes: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    axes.plot(
        xs,
        ys,
        linestyle="none",
        marker="D",
        markersize=5.5,
        markerfacecolor=PAPER_WHITE,
        markeredgecolor=INK,
        markeredgewidth=1.1,
        clip_on=False,
        zorder=5,
    )


def _column(
    axes: Axes, heading: str, offset: float, values: Sequence[float | None], colour: str
) -> None:
    """Numbers left of the bars, where no bar and no mark can hide them."""
    for y, value in enumerate(values):
        text = "–" if value is None else f"{value:.1f}"
        look = {"color": colour, "weight": "bold", "fontsize": 8.5, "ha": "right"}
        write(axes, text, (0, y), (offset, -3), BESIDE, **look)
    write(axes, heading, (0, 1), (offset + 1, 3), ABOVE, color=colour, fontsize=7.5, ha="right")


def _total(cell: dict[str, Any]) -> float:
    parts = sum(max(0.0, float(cell[part] or 0)) for part in PARTS)
    return max(parts, float(cell["utf8"]))


def _legend(page: Sheet, bottom: float, pivot: str) -> None:
    axes = page.axes(0, bottom, 8.6, 0.34)
    axes.set_xlim(0, 8.6)
    axes.set_ylim(0, 0.34)
    axes.set_axis_off()
    x = 0.0
    for colour, name, meaning in PARTS.values():
        axes.add_patch(Rectangle((x, 0.19), 0.13, 0.13, color=colour))
        axes.text(x + 0.2, 0.255, name, fontsize=8.5, weight="bold", va="center")
        axes.text(x + 0.2, 0.06, meaning, fontsize=7.5, color=QUIET, va="center")
        x += 2.85
    _diamonds(axes, [x + 0.06], [0.255])
    axes.text(x + 0.2, 0.255, "UTF-8", fontsize=8.5, weight="bold", va="center")
    axes.text(x + 0.2, 0.06, f"bytes ÷ bytes in {pivot}", fontsize=7.5, color=QUIET, va="center")
