"""Bars: what content costs, what vocabularies consist of, and the premium taken apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tokengraft.core.wording import counted
from tokengraft.render import colours
from tokengraft.render.figures.style import (
    ABOVE,
    BESIDE,
    INK,
    LINE,
    MORE,
    PAPER_WHITE,
    QUIET,
    SHARE,
    Sheet,
    bare,
    contrasting,
    row_labels,
    sheet,
    text_width,
    write,
)
from tokengraft.render.selection import (
    all_of_few,
    by_use,
    column_order,
    labels,
    not_comparable,
    one_a_script,
    pivot_name,
    readers,
    units,
)
from tokengraft.tokenizer.catalog import BY_NAME

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables

WELL_KNOWN = 10_000_000  # speakers
LANGUAGES = 16
ROWS, COSTLIEST = 25, 5
_KEYS = 10.5  # inches that the legend takes
_NUMBERS = 76  # points left of the bars for two columns of numbers
PANELS = 4  # tokenizers that `apart` shows
_FLOOR, _LONGER, _SPLIT = (colours.PARTS[part][0] for part in ("floor", "longer", "split"))
PARTS = {
    "floor": (_FLOOR, "Split pattern", "forced by how words are cut before any merge"),
    "missing_tokens": (_LONGER, "Missing longer tokens", "saved by a vocabulary of whole words"),
    "missing_characters": (_SPLIT, "Missing characters", "characters spelled in several tokens"),
}


def cost(audit: AuditTables) -> Figure | None:
    """What content worth a dollar in the pivot language costs on each priced model.

    Shows all languages if they are few, else the most affected with over ten million speakers.
    Models with the same tokenizer share a panel. None if the audit has no priced model's tokenizer.
    """
    finite, priced = pl.col("relative_cost").is_finite(), pl.col("input_usd").is_not_null()
    table = audit.cost.filter(priced & ~pl.col("meaningless") & finite)
    if table.is_empty():
        return None
    codes, which = _affected(audit, table)
    panels = list(dict.fromkeys(table["tokenizer"]))
    # Among models with the same tokenizer, the one with the largest context stands for all.
    table = table.sort("context", descending=True, maintain_order=True)
    shown = table.filter(pl.col("language").is_in(codes)).reverse()
    cells = {(row["tokenizer"], row["language"]): row for row in shown.to_dicts()}
    if not codes or not cells:
        return None
    top: dict[str, Any] = max(cells.values(), key=lambda row: float(row["relative_cost"]))
    pivot = pivot_name(audit)
    title = (
        f"What costs $1 in {pivot} costs ${top['relative_cost']:.2f} in {top['name']} "
        f"with {top['model']}"
    )
    subtitle = (
        f"Price of the same content (tokens summed over the corpus ÷ tokens in {pivot}) and, in "
        f"grey, how many {pivot} tokens’ worth of it fits into the context. {which}"
    )
    left, row, wide, gap = 2.1, 0.3, 2.35, 0.3
    width = left + len(panels) * wide + (len(panels) - 1) * gap
    tall = row * len(codes)
    note = f"Text: {audit.corpus.title}. Prices as of {audit.facts['prices_as_of']}."
    page = sheet(max(width, 5.6), tall + 0.6, title, subtitle, note)
    for n, name in enumerate(panels):
        axes = page.axes(left + n * (wide + gap), 0.0, wide, tall)
        rows = [cells.get((name, code)) for code in codes]
        models = table.filter(pl.col("tokenizer") == name)
        _money(axes, rows, float(top["relative_cost"]))
        biggest = models.row(0, named=True)
        named = list(dict.fromkeys(models["model"]))
        title = ", ".join(named) if len(named) < 3 else f"{named[0]} and {len(named) - 1} more"
        axes.set_title(title, loc="left", fontsize=9, weight="bold", color=INK, pad=17)
        room = f"Context of {biggest['model']}: {_tokens(biggest['context'])} tokens"
        write(axes, room, (0, 1), (0, 7), ABOVE, fontsize=7.5, color=QUIET)
        if n == 0:
            row_labels(axes, codes)
    return page.figure


def _affected(audit: AuditTables, table: pl.DataFrame) -> tuple[list[str], str]:
    """The languages to show, costliest first, and a sentence on how they were chosen."""
    ranked = (
        table.group_by("language", maintain_order=True)
        .agg(pl.col("relative_cost").mean())
        .sort(["relative_cost", "language"], descending=[True, False])["language"]
        .to_list()
    )
    others = [code for code in ranked if code != audit.pivot]
    if all_of_few(audit) is not None:
        return others, ""
    famous = [code for code in others if readers(code) >= WELL_KNOWN]
    codes = (famous or others)[:LANGUAGES]
    spoken = f" of over {WELL_KNOWN // 10**6} million speakers" if famous else ""
    return codes, f"The {len(codes)} most affected languages{spoken}."


def _money(axes: Axes, rows: Sequence[dict[str, Any] | None], most: float) -> None:
    axes.set_xlim(0, most * 1.62)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    for y, row in enumerate(rows):
        if row is None:
            continue
        dollars = float(row["relative_cost"])
        axes.barh(y, dollars, 0.68, color=MORE, linewidth=0)
        money = write(axes, f"${dollars:.2f}", (dollars, y), (4, -3), fontsize=8.5, weight="bold")
        beside = (text_width(axes, money) + 9, -3)
        room = _tokens(row["effective_context"])
        write(axes, room, (dollars, y), beside, fontsize=7.5, color=QUIET)
    axes.axvline(1, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
    bare(axes, ticks=False)


def _tokens(count: int) -> str:
    return f"{count / 1000:,.0f}k" if count >= 10_000 else f"{count / 1000:,.1f}k"


def vocabulary(audit: AuditTables) -> Figure | None:
    """Shares of tokens by length in bytes, a bar per vocabulary, the smallest vocabulary first."""
    frame = audit.vocabulary
    if frame.is_empty():
        return None
    lengths = [*(f"toks_{n}b" for n in range(1, 8)), "toks_gt7b"]
    counts = frame.select(lengths).to_numpy().astype(np.float64)
    shares = counts / counts.sum(axis=1, keepdims=True)
    names = [labels(audit)[name] for name in frame["tokenizer"]]
    short = shares[:, :3].sum(axis=1)
    most, least = int(short.argmax()), int(short.argmin())
    title = f"{short[most]:.0%} of {names[most]}’s tokens are three bytes or shorter"
    if len(names) > 1:
        title += f", {short[least]:.0%} of {names[least]}’s"
    subtitle = (
        "Tokens by length in UTF-8 bytes, percent of the vocabulary (space markers removed). Three "
        "bytes are three Latin letters, but one letter of most Indic scripts or one Chinese "
        "character."
    )
    left, row, wide = max(1.75, 0.85 + 0.075 * max(map(len, names))), 0.4, 7.6
    tall = row * len(names)
    note = f"Vocabularies of {counted(len(names), 'tokenizer')}."
    page = sheet(left + wide, tall + 0.42, title, subtitle, note)
    axes = page.axes(left, 0, wide, tall)
    shades = SHARE(colours.LENGTHS)
    starts = np.zeros(len(names))
    for n, shade in enumerate(shades):
        axes.barh(range(len(names)), shares[:, n], 0.8, starts, color=shade, edgecolor="white")
        for y, share in enumerate(shares[:, n]):
            if share > 0.025:
                axes.text(starts[y] + share / 2, y, f"{share:.0%}"[:-1], color=contrasting(shade),
                          fontsize=8, ha="center", va="center_baseline")  # fmt: skip
        starts += shares[:, n]
    for y, (name, size) in enumerate(zip(names, frame["clean_vocab_size"], strict=True)):
        write(axes, name, (0, y), (-58, -3), BESIDE, ha="right", fontsize=9)
        write(axes, f"{size:,}", (0, y), (-8, -3), BESIDE, ha="right", fontsize=8.5, color=QUIET)
    for n, shade in enumerate(shades):
        word = f"{n + 1}" if n < 7 else "8 or more bytes"
        write(axes, word, (0, 1), (34 * n + 14, 8), ABOVE, fontsize=8, color=QUIET)
        write(axes, "■", (0, 1), (34 * n, 6.5), ABOVE, fontsize=12, color=shade)
    write(axes, "Tokens", (0, 1), (-8, 8), ABOVE, ha="right", fontsize=8, color=QUIET)
    axes.set_xlim(0, 1)
    axes.set_ylim(len(names) - 0.45, -0.55)
    bare(axes, ticks=False)
    return page.figure


def apart(audit: AuditTables) -> Figure | None:
    """The premium taken apart: what the split pattern forces, and what a vocabulary could save.

    One panel for each tokenizer with a floor, up to `PANELS`: those that are not in the catalog
    first, then those used most. The subtitle names the others. None if no tokenizer has a floor.
    """
    floored = set(audit.premiums.filter(pl.col("floor").is_not_null())["tokenizer"])
    every = sorted(by_use(column_order(audit)), key=lambda name: name in BY_NAME)
    shown = [name for name in every if name in floored][:PANELS]
    if not shown:
        return None
    absent = _absent(audit, [name for name in every if name not in shown], floored)
    codes, which = all_of_few(audit, shown[0]), ""
    if codes is None:
        codes = one_a_script(audit, shown[0], ROWS, COSTLIEST)
        which = " The most spoken language of each script, and the costliest."
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
        f"Premium over {pivot} (tokens ÷ tokens of the same passage in {pivot}, mean over "
        f"{units(audit)}), taken apart exactly. The floor counts the pieces into which the "
        f"tokenizer’s pattern cuts text before any merge: no vocabulary can go below "
        f"it.{which}{absent}"
    )
    left, row, gap = 3.3, 0.29, 1.1
    wide = 3.7 if len(shown) > 1 else _KEYS - left
    width = left + len(shown) * wide + (len(shown) - 1) * gap
    tall = row * len(codes)
    title = _apart_title(audit, cells, shown)
    note = f"Text: {audit.corpus.title}."
    page = sheet(max(width, _KEYS), tall + 1.35, title, subtitle, note)
    parts = [sum(max(0.0, float(c[part] or 0)) for part in PARTS) for c in cells.values()]
    most = max(*parts, *(float(cell["utf8"]) for cell in cells.values()))
    for n, name in enumerate(shown):
        axes = page.axes(left + n * (wide + gap), 0.4, wide, tall)
        _stacked(axes, [cells[name, code] for code in codes], most, labels(audit)[name])
        if n == 0:
            row_labels(axes, codes, gap=_NUMBERS + 10)
    _parts_legend(page, tall + 0.92, pivot)
    return page.figure


def _absent(audit: AuditTables, names: Sequence[str], floored: Collection[str]) -> str:
    """Which tokenizers are not shown, and why; empty if all are."""
    uncut = [labels(audit)[name] for name in names if name not in floored]
    rest = [labels(audit)[name] for name in names if name in floored]
    text = f" Without a floor, since they cut nothing in advance: {', '.join(uncut)}." * bool(uncut)
    return text + f" No room for {', '.join(rest)}." * bool(rest)


def _apart_title(
    audit: AuditTables,
    cells: dict[tuple[str, str], dict[str, Any]],
    shown: Sequence[str],
) -> str:
    every = [cell for cell in cells.values() if not cell["meaningless"]]
    worst = max(every, key=lambda cell: float(cell["floor"] or 0), default=None)
    names = labels(audit)
    if worst is None or not (worst["floor"] or 0) > 1.2:
        return "What the premiums consist of"
    title = (
        f"{names[worst['tokenizer']]}’s split pattern alone makes {worst['name']} cost "
        f"{worst['floor']:.1f} times {pivot_name(audit)}, whatever the vocabulary"
    )
    same = [cells[name, worst["language"]] for name in shown]
    least = min((cell for cell in same if cell["floor"] is not None), key=lambda c: c["floor"])
    if least["floor"] < worst["floor"]:
        title += f"; {names[least['tokenizer']]}’s only {least['floor']:.1f}"
    return title


def _stacked(axes: Axes, rows: Sequence[dict[str, Any]], most: float, name: str) -> None:
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
    axes.spines[:].set_visible(False)
    axes.set_title(name, loc="left", fontsize=11, weight="bold", color=INK, pad=6)


def _diamonds(axes: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    axes.plot(xs, ys, linestyle="none", marker="D", markersize=5.5, markerfacecolor=PAPER_WHITE,
              markeredgecolor=INK, markeredgewidth=1.1, clip_on=False, zorder=5)  # fmt: skip


def _column(
    axes: Axes, heading: str, offset: float, values: Sequence[float | None], colour: str
) -> None:
    """Write numbers left of the bars, where no bar or mark can hide them."""
    for y, value in enumerate(values):
        text = "–" if value is None else f"{value:.1f}"
        look = {"color": colour, "weight": "bold", "fontsize": 8.5, "ha": "right"}
        write(axes, text, (0, y), (offset, -3), BESIDE, **look)
    write(axes, heading, (0, 1), (offset + 1, 3), ABOVE, color=colour, fontsize=7.5, ha="right")


def _parts_legend(page: Sheet, bottom: float, pivot: str) -> None:
    axes = page.axes(0, bottom, 8.6, 0.34)
    axes.set_xlim(0, 8.6)
    axes.set_ylim(0, 0.34)
    axes.set_axis_off()
    marks = (*PARTS.values(), (None, "UTF-8", f"bytes ÷ bytes in {pivot}"))
    for x, (colour, name, meaning) in zip(np.arange(len(marks)) * 2.85, marks, strict=True):
        if colour is not None:
            axes.add_patch(Rectangle((x, 0.19), 0.13, 0.13, color=colour))
        else:
            _diamonds(axes, [x + 0.06], [0.255])
        axes.text(x + 0.2, 0.255, name, fontsize=8.5, weight="bold", va="center")
        axes.text(x + 0.2, 0.06, meaning, fontsize=7.5, color=QUIET, va="center")
