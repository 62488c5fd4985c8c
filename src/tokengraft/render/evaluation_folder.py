"""An evaluation on disk: tables, a README with each figure's floor and ceiling, a plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tokengraft.core.files import write_json, write_text
from tokengraft.core.verdict import DECIDING
from tokengraft.core.wording import as_csv, in_markdown
from tokengraft.evaluating.measures import described
from tokengraft.evaluating.score import Measurements
from tokengraft.languages.codes import language_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS = (
    ("kl", "KL to the base, nats\n(lower is better)"),
    ("top1", "same likeliest token\n(higher is better)"),
    ("aligned_cosine", "cosine at common positions\n(higher is better)"),
    ("pooled_cosine", "the paper's pooled cosine\n(compare with its floor)"),
)


def write_evaluation(measured: Measurements, folder: Path, figures: bool = True) -> list[Path]:
    """Write `evaluation.json`, every table (CSV), a README and the figure; returns the paths."""
    paths = [
        write_json(folder / "evaluation.json", measured.to_json()),
        *(write_text(folder / f"{n}.csv", as_csv(t)) for n, t in measured.tables().items()),
        write_text(folder / "README.md", write_up(measured)),
    ]
    if figures and (drawn := draw(measured)) is not None:
        from tokengraft.render.figures.style import save_figure

        paths += save_figure(drawn, folder / "fidelity")
    return paths


def write_up(measured: Measurements) -> str:
    """The README of an evaluation: the verdict, then a table per measure, the main ones first."""
    lines = [
        f"# How much of {in_markdown(measured.base)} was kept in {in_markdown(measured.graft)}",
        "",
        f"**{in_markdown(measured.verdict.sentence)}**",
        "",
        *([in_markdown(measured.next_step), ""] if measured.next_step else []),
        f"Measured on {in_markdown(measured.corpus)}. Each figure is given with a 95% interval "
        "over lines, with its floor, which a model that kept nothing reaches, and with its "
        "ceiling, which the base itself reaches when the same text is cut into other tokens. "
        "`scores.csv` has all of them at full precision.",
    ]
    by_metric: dict[str, list[dict[str, Any]]] = {}
    for row in measured.scores.to_dicts():
        by_metric.setdefault(row["metric"], []).append(row)
    order = [name for name in DECIDING if name in by_metric]
    for metric in (*order, *(name for name in by_metric if name not in order)):
        name, sentence = described(metric)
        lines += ["", f"## {name} (`{metric}`)", "", *([sentence, ""] if sentence else [])]
        lines += ["| language | value | interval | floor | ceiling | n |", "|---|" + "---:|" * 5]
        for row in by_metric[metric]:
            names = ("value", "low", "high", "floor", "ceiling")
            value, low, high, *ends = ("" if row[k] is None else f"{row[k]:.4g}" for k in names)
            where = f"{row['language']} {in_markdown(language_name(row['language']))}"
            interval = f"{low} – {high}" if low else ""
            lines.append(
                f"| {' | '.join([where, value, interval, *ends, format(row['n'], ',')])} |"
            )
        lines += ["", f"Exactly: {in_markdown(by_metric[metric][0]['definition'])}."]
    if measured.notes:
        lines += ["", "## Notes", "", *(f"- {in_markdown(note)}" for note in measured.notes)]
    return "\n".join([*lines, ""])


def draw(measured: Measurements) -> Figure | None:
    """One panel per metric, one row per language: value, interval, floor and ceiling."""
    from tokengraft.render.figures.style import (
        INK,
        LESS,
        LINE,
        MORE,
        QUIET,
        row_labels,
        sheet,
        styled,
    )

    scores = measured.scores
    panels = [panel for panel in _PANELS if panel[0] in set(scores["metric"])]
    if not panels:
        return None
    codes = scores["language"].unique(maintain_order=True).to_list()
    subtitle = (
        "Dots: the graft, with its 95% interval. Red: its floor, what a model that kept nothing "
        "reaches."
    )
    shown = scores.filter(pl.col("metric").is_in([metric for metric, _ in panels]))
    if shown["ceiling"].count():  # none for text that the base reads byte by byte
        subtitle += " Blue: its ceiling, what the base reaches on the same text in other tokens."
    left, wide, gap, tall = 2.3, 2.4, 0.25, 0.32 * len(codes)
    width = left + len(panels) * (wide + gap) - gap
    with styled():
        title, note = f"{measured.graft}: what survived of {measured.base}", measured.corpus
        page = sheet(width, tall + 0.9, title, subtitle, f"Text: {note}.")
        for place, (metric, name) in enumerate(panels):
            axes = page.axes(left + place * (wide + gap), 0.3, wide, tall)
            rows = scores.filter(pl.col("metric") == metric).to_dicts()
            for row in rows:
                y, ends = codes.index(row["language"]), [row["floor"], row["ceiling"]]
                if None not in ends:
                    axes.plot(ends, [y, y], color=LINE, linewidth=1, zorder=1)
                for end, colour in zip(ends, (MORE, LESS), strict=True):
                    if end is not None:
                        axes.plot([end], [y], "|", color=colour, markersize=9)
                if row["low"] is not None:
                    axes.plot([row["low"], row["high"]], [y, y], color=INK, linewidth=2.5)
                axes.plot([row["value"]], [y], "o", color=INK, markersize=5)
            axes.set_title(name, loc="left", fontsize=8.5, color=INK)
            axes.set_ylim(len(codes) - 0.4, -0.6)
            axes.set_yticks([])
            axes.tick_params(length=0, labelsize=8, colors=QUIET)
            axes.spines[["top", "right", "left"]].set_visible(False)
            if metric == "kl":
                axes.set_xscale("symlog", linthresh=0.1)
                axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
                axes.set_xlim(left=0)
            axes.grid(axis="x", color=LINE, linewidth=0.6)
            if not place:
                row_labels(axes, codes)
        return page.figure
