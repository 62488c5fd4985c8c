"""An evaluation on disk: tables, a README of each figure with what it is read against, a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from tokengraft.core.files import write_json, write_text
from tokengraft.core.wording import as_csv, in_markdown
from tokengraft.evaluating.measures import described
from tokengraft.evaluating.score import Measurements
from tokengraft.languages.codes import language_name

_FIRST = ("kl", "top1", "continuation_excess", "aligned_cosine")  # what a reader asks for first
_PANELS = (
    ("kl", "KL to the base, nats\n(lower is better)"),
    ("top1", "same likeliest token\n(higher is better)"),
    ("aligned_cosine", "cosine at common positions\n(higher is better)"),
    ("pooled_cosine", "the paper's pooled cosine\n(compare with its floor)"),
)
_INK, _QUIET, _LOW, _HIGH = "#1c2126", "#626b74", "#c42f2f", "#1d5f80"


def write_evaluation(measured: Measurements, folder: Path, figures: bool = True) -> list[Path]:
    """Write `evaluation.json`, every table (CSV), a README and the figure; returns the paths."""
    paths = [write_json(folder / "evaluation.json", measured.to_json())]
    for name, table in measured.tables().items():
        paths.append(write_text(folder / f"{name}.csv", as_csv(table)))
    verdict = measured.verdict.sentence
    words = write_up(
        measured.graft, measured.base, measured.corpus, measured.scores, measured.notes, verdict
    )
    paths.append(write_text(folder / "README.md", words))
    return [*paths, *(save_figure(measured.scores, measured.graft, folder) if figures else ())]


def write_up(
    graft: str,
    base: str,
    corpus: str,
    scores: pl.DataFrame,
    notes: Sequence[str] = (),
    verdict: str = "",
) -> str:
    """The README of an evaluation: the verdict, then a table per measure, the main ones first."""
    lines = [
        f"# How much of {in_markdown(base)} was kept in {in_markdown(graft)}",
        "",
        *([f"**{in_markdown(verdict)}**", ""] if verdict else []),
        f"Measured on {in_markdown(corpus)}. Each figure stands with a 95 % interval over lines, "
        "the floor that a model which kept nothing reaches, and the ceiling that the base itself "
        "reaches when it reads the same text cut otherwise. `scores.csv` has all of them at full "
        "precision.",
    ]
    by_metric: dict[str, list[dict[str, Any]]] = {}
    for row in scores.to_dicts():
        by_metric.setdefault(row["metric"], []).append(row)
    order = [name for name in _FIRST if name in by_metric]
    for metric in (*order, *(name for name in by_metric if name not in order)):
        name, sentence = described(metric)
        lines += ["", f"## {name} (`{metric}`)", "", *([sentence, ""] if sentence else [])]
        lines += ["| language | value | interval | floor | ceiling | n |", "|---|" + "---:|" * 5]
        for row in by_metric[metric]:
            interval = "" if row["low"] is None else f"{_form(row['low'])} – {_form(row['high'])}"
            lines.append(
                f"| {row['language']} {in_markdown(language_name(row['language']))} | "
                f"{_form(row['value'])} | "
                f"{interval} | {_form(row['floor'])} | {_form(row['ceiling'])} | {row['n']:,} |"
            )
        lines += ["", f"Exactly: {in_markdown(by_metric[metric][0]['definition'])}."]
    if notes:
        lines += ["", "## Notes", "", *(f"- {in_markdown(note)}" for note in notes)]
    return "\n".join([*lines, ""])


def _form(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def save_figure(scores: pl.DataFrame, title: str, folder: Path) -> list[Path]:
    """The figure as `fidelity.svg` and `.png`; the same scores give the same bytes."""
    from matplotlib import rc_context

    written = []
    for suffix in ("svg", "png"):
        written.append(folder / f"fidelity.{suffix}")
        with rc_context({"svg.hashsalt": "tokengraft"}):  # else its ids are drawn by chance
            draw(scores, title).savefig(
                written[-1], format=suffix, dpi=160, bbox_inches="tight",
                metadata={"Date": None} if suffix == "svg" else {"Software": None},
            )  # fmt: skip
    return written


def draw(scores: pl.DataFrame, title: str) -> Any:
    """A matplotlib figure with one panel per metric and one row per language."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measured = set(scores["metric"])
    panels = [panel for panel in _PANELS if panel[0] in measured]
    codes = scores["language"].unique(maintain_order=True).to_list()
    height = 0.32 * len(codes) + 2.0  # inches; 1.0 above the panels, 0.7 below
    figure = Figure(figsize=(3.0 * len(panels) + 1.2, height))
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for place, (axis, (metric, name)) in enumerate(zip(axes, panels, strict=True)):
        table = {r["language"]: r for r in scores.filter(pl.col("metric") == metric).to_dicts()}
        for y, code in enumerate(codes):
            row = table.get(code)
            if row is not None:
                _row(axis, y, row, label=place == 0 and y == 0)
        axis.set_title(name, fontsize=9, color=_INK)
        axis.set_yticks(range(len(codes)), [language_name(code) for code in codes], fontsize=8,
                        parse_math=False)  # fmt: skip
        axis.set_ylim(len(codes) - 0.4, -0.6)
        axis.tick_params(labelsize=8, colors=_QUIET)
        axis.spines[["top", "right"]].set_visible(False)
        if metric == "kl":
            axis.set_xscale("symlog", linthresh=0.1)
            axis.set_xlim(left=0)
        axis.grid(axis="x", color="#e6e9ec", linewidth=0.6)
    heading = f"{title}: what survived"  # a folder's name may hold a $, which is no formula
    figure.suptitle(heading, fontsize=12, color=_INK, y=1 - 0.15 / height, parse_math=False)
    figure.subplots_adjust(top=1 - 1.0 / height, bottom=0.7 / height, wspace=0.12)
    figure.legend(loc="lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _row(axis: Any, y: int, row: dict[str, Any], label: bool) -> None:
    ends = [v for v in (row["floor"], row["ceiling"]) if v is not None]
    if len(ends) == 2:
        axis.plot(ends, [y, y], color="#c9cfd5", linewidth=1, zorder=1)
    for key, mark, colour, name in (
        ("floor", "|", _LOW, "floor: nothing kept"),
        ("ceiling", "|", _HIGH, "ceiling: the base, cut otherwise"),
    ):
        if row[key] is not None:
            shown = name if label else None
            axis.plot([row[key]], [y], mark, color=colour, markersize=9, label=shown)
    if row["low"] is not None:
        axis.plot([row["low"], row["high"]], [y, y], color=_INK, linewidth=2.5, zorder=2)
    axis.plot([row["value"]], [y], "o", color=_INK, markersize=5, label="graft" if label else None)
