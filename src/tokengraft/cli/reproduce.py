"""`tokengraft reproduce`: the paper's tables, value by value."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokengraft.cli.console import drawing, print_json, stderr, stdout, warn
from tokengraft.core.options import RESAMPLES
from tokengraft.core.progress import by_lines
from tokengraft.render.terminal import show_verdict

if TYPE_CHECKING:
    from tokengraft.reproduce.claim import Verdict

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
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Write the table here as LaTeX, Markdown, CSV, Parquet and JSON, premiums with their "
        "intervals.",
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print every cell as JSON.")]


@app.command("premiums")
def premiums(
    corpus: Annotated[str, typer.Option(help="FLORES-200: its archive or folder.")],
    tokenizers: Tokenizers = None,
    out: Out = None,
    json: JSON = False,
) -> None:
    r"""Premiums of ten tokenizers on fourteen languages (FLORES-200 dev + devtest).

    [bold]Example[/bold]

      tokengraft reproduce premiums --corpus flores200.tar.xz \
        --tokenizers m2m100/ -o tables/
    """
    from tokengraft.corpus import load
    from tokengraft.reproduce import tokenizer_tables as tables

    with drawing() as progress:
        verdict, remarks = tables.premiums(
            load(corpus), tokenizers or (), by_lines(progress), RESAMPLES if out else 0
        )
    _finish(verdict, remarks, json, out)


@app.command("vocabulary")
def vocabulary(tokenizers: Tokenizers = None, out: Out = None, json: JSON = False) -> None:
    """Breakdown of ten vocabularies: sizes, Unicode blocks, characters and tokens by length.

    [bold]Example[/bold]

      tokengraft reproduce vocabulary --tokenizers m2m100/
    """
    from tokengraft.reproduce import tokenizer_tables as tables

    verdict, remarks = tables.vocabularies(tokenizers or ())
    _finish(verdict, remarks, json, out)


@app.command("new-token-share")
def new_token_share(
    corpus: Annotated[Path, typer.Option(help="FLORES-200: its archive or folder.")],
    out: Out = None,
    json: JSON = False,
) -> None:
    """Share of the paper's new tokens in Llama 3's encodings, and lengths before and after.

    [bold]Example[/bold]

      tokengraft reproduce new-token-share --corpus flores200.tar.xz
    """
    from tokengraft.reproduce.tokenizer_tables import new_token_share as compute

    _finish(compute(corpus), [], json, out)


def _finish(verdict: Verdict, remarks: list[str], json: bool, out: Path | None) -> None:
    for remark in remarks:
        warn(remark)
    if out is not None:
        from tokengraft.render.claim_folder import write_verdict

        written = write_verdict(verdict, out)
        stderr.print(f"{len(written)} files written to {out}", markup=False)
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
        show_verdict(stdout, verdict)
    if not verdict.holds:
        raise typer.Exit(1)
