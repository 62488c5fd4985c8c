"""`tokengraft report`: one page from one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengraft.cli.console import stdout, warn
from tokengraft.cli.destination import RULE, ForceOption, check_out, holds_page


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of audits and grafts, plan.json or evaluation.json files."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help=f"Folder to write. {RULE}")] = Path(
        "page"
    ),
    force: ForceOption = False,
    tokenizers: Annotated[
        list[Path] | None,
        typer.Option("--tokenizers", help="A folder or archive to look tokenizers up in as well."),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(help="Text for “See the tokens”: a name or path. Default: the run's own."),
    ] = None,
) -> None:
    """Make one self-contained page: index.html, no network, ready for a static hub space.

    [bold]Examples[/bold]

      tokengraft report audit/ --out site/

      tokengraft report audit/ plan.json grafted/ evaluation/ -o site/
    """
    from tokengraft.api.report import page_of
    from tokengraft.render.page.build import save_page

    check_out(out, holds_page, force)
    page = page_of(runs, tokenizers=tokenizers or (), corpus=corpus)
    path = save_page(page, out)
    for note in page.notes:
        warn(note)
    stdout.print(page.title, style="bold", markup=False)
    stdout.print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)", markup=False)
