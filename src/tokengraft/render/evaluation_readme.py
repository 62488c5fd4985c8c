"""An evaluation in words: what was compared, the figures with what they are read against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tokengraft.core.escaping import in_markdown
from tokengraft.evaluating.measures import told
from tokengraft.languages.codes import language_name

_FIRST = ("kl", "top1", "continuation_excess", "aligned_cosine")  # what a reader asks for first


def write_up(
    graft: str, base: str, corpus: str, scores: pl.DataFrame, notes: Sequence[str] = ()
) -> str:
    """The README of an evaluation: a table a measure, the telling ones first, in Markdown."""
    lines = [
        f"# How much of {in_markdown(base)} was kept in {in_markdown(graft)}",
        "",
        f"Measured on {in_markdown(corpus)}. Each figure stands with a 95 % interval over lines, "
        "the floor that a model which kept nothing reaches, and the ceiling that the base itself "
        "reaches when it reads the same text cut otherwise. `scores.csv` has all of them at full "
        "precision.",
    ]
    found: dict[str, list[dict[str, Any]]] = {}
    for row in scores.to_dicts():
        found.setdefault(row["metric"], []).append(row)
    order = [name for name in _FIRST if name in found]
    for metric in (*order, *(name for name in found if name not in order)):
        name, sentence = told(metric)
        lines += ["", f"## {name} (`{metric}`)", "", *([sentence, ""] if sentence else [])]
        lines += ["| language | value | interval | floor | ceiling | n |", "|---|" + "---:|" * 5]
        for row in found[metric]:
            interval = "" if row["low"] is None else f"{_form(row['low'])} – {_form(row['high'])}"
            lines.append(
                f"| {row['language']} {in_markdown(language_name(row['language']))} | "
                f"{_form(row['value'])} | "
                f"{interval} | {_form(row['floor'])} | {_form(row['ceiling'])} | {row['n']:,} |"
            )
        lines += ["", f"Exactly: {found[metric][0]['definition']}."]
    if notes:
        lines += ["", "## Notes", "", *(f"- {in_markdown(note)}" for note in notes)]
    return "\n".join([*lines, ""])


def _form(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
