"""Reproduced tables, value by value: in the terminal, as data, as Markdown and as LaTeX.

The grid of strategies has the paper's layout, with its figures beside ours: coloured by
ColorBrewer's reds, light where a cell is good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.table import Table

from tokengraft.core.files import adding, write_json, write_text
from tokengraft.core.wording import as_csv
from tokengraft.paper.claim import ClaimCell, ClaimVerdict
from tokengraft.paper.fidelity import Fidelity, model_layers, paper_row
from tokengraft.paper.grid import PAPER
from tokengraft.render.latex import SHRUNK, colours, latex
from tokengraft.render.tables import Cell, Printed, markdown, write_data
from tokengraft.render.terminal import plain

_TITLES = {"knn": "KNN", "linear": "LinReg", "local-linear": "LocalLinReg"}
_OURS = r"{\cellcolor[HTML]{%s}} \color[HTML]{%s} %s"
_THEIRS = r" {\tiny %s}"
_MARKS = {"reproduced": "", "known difference": "*", "differs": "!", "missing": "?"}


def write_verdict(verdict: ClaimVerdict, out: Path) -> list[Path]:
    """Write `NAME` as csv, parquet, json, md and tex into `out`, all or none; returns the paths."""
    table = printed(verdict)
    schema = {"paper": pl.Float64, "ours": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    frame = pl.DataFrame(
        [asdict(cell) for cell in verdict.cells], schema_overrides=schema, infer_schema_length=None
    )
    return write_table(table, frame, out)


def write_table(table: Printed, frame: pl.DataFrame, out: Path) -> list[Path]:
    """Write a table as data, Markdown and LaTeX into `out`, all or none; returns the paths."""
    with adding(out) as new:
        paths = write_data(frame, new / table.name)
        paths.append(write_text(new / f"{table.name}.md", markdown(table)))
        paths.append(write_text(new / f"{table.name}.tex", latex(table)))
    return [out / path.name for path in paths]


def printed(verdict: ClaimVerdict) -> Printed:
    """The table as the paper prints it, with our values, their intervals, and marks."""
    claim = verdict.claim
    rows, columns = verdict.axes
    cells = {(cell.row, cell.column): cell for cell in verdict.cells}
    body = [
        [Cell(row), *(_cell(cells.get((row, column)), claim.decimals) for column in columns)]
        for row in rows
    ]
    notes = [verdict.line + "."]
    if any(cell.low is not None for cell in verdict.cells):
        notes.append("In brackets: 95% bootstrap intervals over sentences.")
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


def save_fidelity(fidelity: Fidelity, out: Path, read_with: str = "") -> list[Path]:
    """Write the grid (CSV), tables by metric (CSV, LaTeX) and `fidelity.json` with `read_with`."""
    frames = {"grid": fidelity.grid, "sizes": fidelity.sizes}
    written = [write_text(out / f"{name}.csv", as_csv(frame)) for name, frame in frames.items()]
    modes = fidelity.grid["mode"].unique(maintain_order=True).to_list()
    for mode in modes:
        for metric in fidelity.grid["metric"].unique(maintain_order=True).to_list():
            table = fidelity.table(metric, mode)
            if table.height:
                path = out / f"{mode}-{metric}.csv"
                written.append(write_text(path, as_csv(table, float_precision=4)))
    for metric in ("pooled_cosine", "kl", "top1") if PAPER in modes else ():
        written.append(write_text(out / f"{metric}.tex", fidelity_latex(fidelity, metric)))
    facts = {  # best() is empty where the paper's mode was not run
        "model": fidelity.model,
        "cells_missing": fidelity.missing,
        "read_with": read_with,
        "best_by_kl": fidelity.best().to_dicts(),
        "best_by_pooled_cosine": fidelity.best("pooled_cosine", False).to_dicts(),
        "claim": None if fidelity.verdict is None else fidelity.verdict.line,
    }
    return [*written, write_json(out / "fidelity.json", facts)]


def fidelity_latex(fidelity: Fidelity, metric: str) -> str:
    """The grid by one metric in the paper's layout, with its figures beside the pooled cosine."""
    from tokengraft.evaluating.fidelity import METRICS

    layers = model_layers(fidelity)
    labels = {row["method"]: row for row in fidelity.cells(metric).to_dicts()}
    wide = fidelity.table(metric)
    codes = [name for name in wide.columns if name not in ("method", "mean")]
    bare = {full: code for code, full in fidelity.claim.languages.items()}
    rows = []
    for values in wide.to_dicts():
        label = labels[values["method"]]
        theirs: dict[str, float | None] = {}
        if metric == "pooled_cosine":
            row = paper_row(values["method"], layers)
            printed = fidelity.claim.expected
            theirs = {c: printed.get((row, bare.get(c, c))) for c in ("mean", *codes)}
        ours = {code: values[code] for code in ("mean", *codes)}
        rows.append(Row(int(label["layer"]), label["strategy"], label["k"], ours, theirs))
    sizes = fidelity.sizes.filter(pl.col("mode") == PAPER)
    shares = dict(zip(sizes["language"], 100 * sizes["new_token_share"], strict=True))
    what = METRICS[metric].definition.replace("%", r"\%").replace("‖", r"$\|$")
    beside = " In small type: the paper's, of Llama 3.2 1B." if metric == "pooled_cosine" else ""
    return fidelity_table(
        rows,
        codes,
        shares,
        f"{fidelity.model}: {what}.{beside}",
        f"fidelity-{metric}",
        METRICS[metric].higher,
    )


@dataclass(frozen=True)
class Row:
    """One strategy: our values and the paper's, by column; None where there is none."""

    layer: int
    strategy: str
    k: int | None
    ours: Mapping[str, float | None]
    paper: Mapping[str, float | None]


def fidelity_table(
    rows: Sequence[Row],
    columns: Sequence[str],
    shares: Mapping[str, float],
    caption: str,
    label: str,
    higher: bool = True,
) -> str:
    r"""The table as a float; its first lines name the packages it needs.

    `columns` are language codes; the mean comes before them. `shares` are percentages of new
    tokens. Light cells are good ones.
    """
    every = ["mean", *columns]
    values = [v for row in rows for v in row.ours.values() if v is not None]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    beside = any(v is not None for row in rows for v in row.paper.values())
    heads = [
        rf"\makecell{{{code[:3]}\\{shares[code]:.0f}\%}}" if code in shares else code[:3]
        for code in columns
    ]
    lines = [
        r"% Needs: \usepackage{graphicx,multirow,makecell} \usepackage[table]{xcolor}",
        r"\begin{table*}",
        r"\centering\scriptsize\setlength{\tabcolsep}{2pt}",
        SHRUNK,
        rf"\begin{{tabular}}{{rrrr|{'r' * len(columns)}}}",
        rf"& & & & \multicolumn{{{len(columns)}}}{{c}}"
        r"{Language plus \% of new tokens in encodings} \\",
        " & ".join([r"\makecell{Layer}", "Strategy", "$k$", "Mean", *heads]) + r" \\",
        r"\hline",
    ]
    for place, row in enumerate(rows):
        before = rows[place - 1] if place else None
        new_layer = before is None or before.layer != row.layer
        new_strategy = new_layer or before is None or before.strategy != row.strategy
        if new_layer and before is not None:
            lines.append(r" \hline")
        first = _span(str(row.layer), sum(r.layer == row.layer for r in rows)) if new_layer else ""
        alike = sum((r.layer, r.strategy) == (row.layer, row.strategy) for r in rows)
        title = _TITLES.get(row.strategy, row.strategy)
        second = _span(title, alike) if new_strategy else ""
        cells = [
            _strategy_cell(row.ours.get(c), row.paper.get(c), low, high, higher, beside)
            for c in every
        ]
        k = "" if row.k is None else str(row.k)
        lines.append(" & ".join([first, second, k, *cells]) + r" \\")
    lines += [
        r"\end{tabular}}",
        rf"\caption{{{caption}}}",
        rf"\label{{table:{label}}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def cosine(value: float) -> str:
    """A cosine as the paper prints it: three decimals, no leading zero."""
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def _span(text: str, count: int) -> str:
    return rf"\multirow[c]{{{count}}}{{*}}{{{text}}}" if count > 1 else text


def _strategy_cell(
    value: float | None, paper: float | None, low: float, high: float, higher: bool, beside: bool
) -> str:
    theirs = _THEIRS % cosine(paper) if beside and paper is not None else ""
    if value is None:
        return "---" + theirs
    share = (value - low) / (high - low) if high > low else 0.0
    background, text = colours(1 - share if higher else share)
    return _OURS % (background, text, cosine(value)) + theirs


def show_verdict(console: Console, verdict: ClaimVerdict) -> None:
    """Print a claim cell by cell, what differs, and whether it holds."""
    claim, shown = verdict.claim, printed(verdict)
    grid = [list(shown.header), *([cell.text for cell in row] for row in shown.rows)]
    if len(grid[0]) > len(grid):  # terminals are taller than wide
        grid = [list(column) for column in zip(*grid, strict=True)]
    table = Table(*grid[0], title=claim.title)
    for row in grid[1:]:
        table.add_row(*row)
    console.print(table)
    rows, columns = verdict.axes
    judged = [column for column in columns if column not in claim.besides]
    exact = [column for column in judged if verdict.exact(column)]
    console.print(f"{len(exact)} of {len(judged)} columns exact for all {len(rows)} rows.")
    for column in claim.besides:
        console.print(f"{column}: {'exact too' if verdict.exact(column) else 'not exact'}.")
    for note in shown.notes[1:]:
        console.print(note, markup=False)
    for cell in verdict.cells:
        if cell.verdict in ("differs", "missing"):
            ours = "not found here" if cell.ours is None else f"ours {cell.ours}"
            console.print(
                f"[red]{cell.verdict}[/red]: {cell.row}, {cell.column}: "
                f"paper {cell.paper:g}, {ours}"
            )
    console.print(verdict.line, markup=False)


def show_fidelity(console: Console, fidelity: Fidelity) -> None:
    """Print the grid by the paper's metric and by KL."""
    for metric in ("pooled_cosine", "kl"):
        best = fidelity.table(metric)
        table = Table(*best.columns, title=f"{fidelity.model}, paper mode: {metric}")
        for row in best.rows():
            table.add_row(*(plain(value) for value in row))
        console.print(table)
