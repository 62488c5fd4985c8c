"""Bars: what a dollar of the pivot language costs elsewhere, and what vocabularies consist of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tokengraft.core.wording import counted
from tokengraft.render.figures.style import (
    ABOVE,
    BESIDE,
    INK,
    QUIET,
    SHARE,
    bare,
    contrasting,
    row_labels,
    sheet,
    text_width,
    write,
)
from tokengraft.render.selection import (
    all_of_few,
    check_languages,
    credit,
    labels,
    pivot_name,
    readers,
)

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables

WELL_KNOWN = 10_000_000  # speakers
LANGUAGES = 16
BAR = "#c8553d"


def cost(audit: AuditTables, languages: Iterable[str] | None = None) -> Figure | None:
    """What content worth a dollar in the pivot language costs on each priced model.

    By default all of few languages or those asked for, else the most affected of over ten million
    speakers. Models of one tokenizer share a panel. None where no priced model's tokenizer is in
    the audit.
    """
    table = audit.cost.filter(
        pl.col("input_usd").is_not_null()
        & ~pl.col("meaningless")
        & pl.col("relative_cost").is_finite()
    )
    if table.is_empty():
        return None
    which = ""
    if languages is None:
        codes, which = _affected(audit, table)
    else:
        codes = check_languages(audit, languages)
    panels = list(dict.fromkeys(table["tokenizer"]))
    # Of models with one tokenizer the one with the largest context speaks for all.
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
    note = f"Text: {credit(audit)}. Prices as of {audit.facts['prices_as_of']}."
    page = sheet(audit, max(width, 5.6), tall + 0.6, title, subtitle, note)
    for n, name in enumerate(panels):
        axes = page.axes(left + n * (wide + gap), 0.0, wide, tall)
        rows = [cells.get((name, code)) for code in codes]
        models = table.filter(pl.col("tokenizer") == name)
        _money(axes, rows, float(top["relative_cost"]))
        biggest = models.row(0, named=True)
        axes.set_title(
            _listed(list(dict.fromkeys(models["model"]))),
            loc="left",
            fontsize=9,
            weight="bold",
            color=INK,
            pad=17,
        )
        room = f"Context of {biggest['model']}: {_tokens(biggest['context'])} tokens"
        write(axes, room, (0, 1), (0, 7), ABOVE, fontsize=7.5, color=QUIET)
        if n == 0:
            row_labels(axes, codes)
    return page.figure


def _affected(audit: AuditTables, table: pl.DataFrame) -> tuple[list[str], str]:
    """Languages, costliest first, and in words which they are."""
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
        axes.barh(y, dollars, 0.68, color=BAR, linewidth=0)
        money = write(axes, f"${dollars:.2f}", (dollars, y), (4, -3), fontsize=8.5, weight="bold")
        beside = (text_width(axes, money) + 9, -3)
        room = _tokens(row["effective_context"])
        write(axes, room, (dollars, y), beside, fontsize=7.5, color=QUIET)
    axes.axvline(1, color=INK, linewidth=0.9, linestyle=(0, (3, 2)))
    axes.set_yticks([])
    axes.set_xticks([])
    bare(axes)


def _listed(models: Sequence[str]) -> str:
    return ", ".join(models) if len(models) < 3 else f"{models[0]} and {len(models) - 1} more"


def _tokens(count: int) -> str:
    return f"{count / 1000:,.0f}k" if count >= 10_000 else f"{count / 1000:,.1f}k"


def vocabulary(audit: AuditTables) -> Figure | None:
    """Tokens of each vocabulary by their length in bytes, as shares; largest vocabulary last."""
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
    page = sheet(audit, left + wide, tall + 0.42, title, subtitle, note)
    axes = page.axes(left, 0, wide, tall)
    shades = SHARE(np.linspace(0.16, 1, len(lengths)))
    starts = np.zeros(len(names))
    for n, shade in enumerate(shades):
        axes.barh(range(len(names)), shares[:, n], 0.8, starts, color=shade, edgecolor="white")
        for y, share in enumerate(shares[:, n]):
            if share > 0.025:
                axes.text(
                    starts[y] + share / 2,
                    y,
                    f"{share:.0%}"[:-1],
                    color=contrasting(shade),
                    fontsize=8,
                    ha="center",
                    va="center_baseline",
                )
        starts += shares[:, n]
    for y, (name, size) in enumerate(zip(names, frame["clean_vocab_size"], strict=True)):
        write(axes, name, (0, y), (-58, -3), BESIDE, ha="right", fontsize=9)
        write(axes, f"{size:,}", (0, y), (-8, -3), BESIDE, ha="right", fontsize=8.5, color=QUIET)
    _keys(axes, shades)
    axes.set_xlim(0, 1)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.set_xticks([])
    axes.set_yticks([])
    bare(axes)
    return page.figure


def _keys(axes: Axes, shades: Any) -> None:
    """Length keys above the bars."""
    words = [*(f"{n}" for n in range(1, 8)), "8 or more bytes"]
    for n, (word, shade) in enumerate(zip(words, shades, strict=True)):
        write(axes, word, (0, 1), (34 * n + 14, 8), ABOVE, fontsize=8, color=QUIET)
        write(axes, "■", (0, 1), (34 * n, 6.5), ABOVE, fontsize=12, color=shade)
    write(axes, "Tokens", (0, 1), (-8, 8), ABOVE, ha="right", fontsize=8, color=QUIET)
