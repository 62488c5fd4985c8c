"""A reproduced table on disk: as data, as Markdown and as LaTeX, value by value with intervals."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import polars as pl

from tokengraft.core.files import adding, write_text
from tokengraft.render.latex import latex
from tokengraft.render.tables import Cell, Printed, markdown, write_data
from tokengraft.reproduce.claim import Cell as ClaimCell
from tokengraft.reproduce.claim import Verdict

_MARKS = {"reproduced": "", "known difference": "*", "differs": "!", "missing": "?"}


def write_verdict(verdict: Verdict, out: Path) -> list[Path]:
    """Write `NAME` as csv, parquet, json, md and tex into `out`, all or none; returns the paths."""
    name = verdict.claim.name
    table = printed(verdict)
    schema = {"paper": pl.Float64, "ours": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    frame = pl.DataFrame(
        [asdict(cell) for cell in verdict.cells], schema_overrides=schema, infer_schema_length=None
    )
    with adding(out) as new:
        paths = write_data(frame, new / name)
        paths.append(write_text(new / f"{name}.md", markdown(table)))
        paths.append(write_text(new / f"{name}.tex", latex(table)))
    return [out / path.name for path in paths]


def printed(verdict: Verdict) -> Printed:
    """The table as the paper prints it, with our values, their intervals, and marks."""
    claim = verdict.claim
    rows = list(dict.fromkeys(cell.row for cell in verdict.cells))
    columns = list(dict.fromkeys(cell.column for cell in verdict.cells))
    cells = {(cell.row, cell.column): cell for cell in verdict.cells}
    body = [
        [Cell(row), *(_cell(cells.get((row, column)), claim.decimals) for column in columns)]
        for row in rows
    ]
    notes = [verdict.line + "."]
    if any(cell.low is not None for cell in verdict.cells):
        notes.append("In brackets: 95 % bootstrap intervals over sentences.")
    if any(cell.verdict == "known difference" for cell in verdict.cells):
        notes.append(f"* known to differ from the paper: {claim.why}")
    if not verdict.holds:
        notes.append("! differs from the paper; ? could not be computed.")
    return Printed(claim.name, claim.title, ["", *columns], body, notes=notes)


def _cell(cell: ClaimCell | None, decimals: int) -> Cell:
    if cell is None:
        return Cell("")
    if cell.ours is None:
        return Cell("?")
    text = f"{cell.ours:.{decimals}f}{_MARKS[cell.verdict]}"
    if cell.low is not None and cell.high is not None:
        text += f" [{cell.low:.{decimals}f}, {cell.high:.{decimals}f}]"
    return Cell(text, cell.ours)
