"""`tokengraft reproduce`: the paper's tables, value by value."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tokengraft.cli.console import drawing, print_json, stdout, warn
from tokengraft.core.progress import by_lines

if TYPE_CHECKING:
    from tokengraft.reproduce.claim import Cell, Verdict

app = typer.Typer(
    help="Reproduce a published table: exit 0 when every value comes out, 1 when one does not."
    "\n\n[bold]Examples[/bold]\n\n  tokengraft reproduce premiums --corpus flores200.tar.xz"
    "\n\n  tokengraft reproduce vocabulary --tokenizers m2m100/",
    no_args_is_help=True,
)
Tokenizers = Annotated[
    list[Path] | None,
    typer.Option("--tokenizers", help="Folder or archive that holds M2M-100 (not bundled)."),
]
JSON = Annotated[bool, typer.Option("--json", help="Print every cell as JSON.")]


@app.command("premiums")
def premiums(
    corpus: Annotated[str, typer.Option(help="FLORES-200: its archive or folder.")],
    tokenizers: Tokenizers = None,
    json: JSON = False,
) -> None:
    """Premiums of ten tokenizers on fourteen languages (FLORES-200 dev + devtest).

    [bold]Example[/bold]

      tokengraft reproduce premiums --corpus flores200.tar.xz --tokenizers m2m100/
    """
    from tokengraft.corpus import load
    from tokengraft.reproduce import tokenizer_tables as tables

    with drawing() as progress:
        verdict, remarks = tables.premiums(load(corpus), tokenizers or (), by_lines(progress))
    _finish(verdict, remarks, json)


@app.command("vocabulary")
def vocabulary(tokenizers: Tokenizers = None, json: JSON = False) -> None:
    """Breakdown of ten vocabularies: sizes, Unicode blocks, characters and tokens by length.

    [bold]Example[/bold]

      tokengraft reproduce vocabulary --tokenizers m2m100/
    """
    from tokengraft.reproduce import tokenizer_tables as tables

    verdict, remarks = tables.vocabularies(tokenizers or ())
    _finish(verdict, remarks, json)


@app.command("new-token-share")
def new_token_share(
    corpus: Annotated[Path, typer.Option(help="FLORES-200: its archive or folder.")],
    json: JSON = False,
) -> None:
    """Share of the paper's new tokens in Llama 3's encodings, and lengths before and after.

    [bold]Example[/bold]

      tokengraft reproduce new-token-share --corpus flores200.tar.xz
    """
    from tokengraft.reproduce.tokenizer_tables import new_token_share as compute

    _finish(compute(corpus), [], json)


def _finish(verdict: Verdict, remarks: list[str], json: bool) -> None:
    for remark in remarks:
        warn(remark)
    if json:
        print_json(
            {
                "claim": verdict.claim.title,
                "reproduced": verdict.reproduced,
                "of": len(verdict.cells),
                "holds": verdict.holds,
                "cells": [asdict(cell) for cell in verdict.cells],
            }
        )
    else:
        _show(verdict)
    if not verdict.holds:
        raise typer.Exit(1)


def _show(verdict: Verdict) -> None:
    claim = verdict.claim
    rows = list(dict.fromkeys(cell.row for cell in verdict.cells))
    columns = list(dict.fromkeys(cell.column for cell in verdict.cells))
    marks = {(cell.row, cell.column): _mark(cell, claim.decimals) for cell in verdict.cells}
    if len(columns) > len(rows):  # terminals are taller than wide
        table = Table("", *rows, title=claim.title)
        for column in columns:
            table.add_row(column, *(marks.get((row, column), "") for row in rows))
    else:
        table = Table("", *columns, title=claim.title)
        for row in rows:
            table.add_row(row, *(marks.get((row, column), "") for column in columns))
    stdout.print(table)
    counted = [column for column in columns if column not in claim.besides]
    exact = [column for column in counted if verdict.exact(column)]
    stdout.print(f"{len(exact)} of {len(counted)} columns exact for all {len(rows)} rows.")
    for column in claim.besides:
        stdout.print(f"{column}: {'exact too' if verdict.exact(column) else 'not exact'}.")
    if claim.known:
        stdout.print(f"Known to differ (paper → ours): {claim.why}", markup=False)
    for cell in verdict.cells:
        if cell.verdict in ("differs", "missing"):
            stdout.print(
                f"[red]{cell.verdict}[/red]: {cell.row}, {cell.column}: "
                f"paper {cell.paper:g}, ours {cell.ours}"
            )
    stdout.print(verdict.line, markup=False)


def _mark(cell: Cell, decimals: int) -> str:
    paper = f"{cell.paper:.{decimals}f}"
    if cell.verdict == "reproduced":
        return f"[green]{paper}[/green]"
    if cell.ours is None:
        return f"[red]{paper} → ?[/red]"
    colour = "yellow" if cell.verdict == "known difference" else "red"
    return f"[{colour}]{paper} → {cell.ours:.{decimals}f}[/{colour}]"
