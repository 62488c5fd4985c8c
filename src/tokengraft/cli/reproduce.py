"""`tokengraft reproduce`: the paper's tables, value by value."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokengraft.cli.console import drawing, print_json, say_written, stderr, stdout, warn
from tokengraft.cli.options import (
    RULE,
    Command,
    Commands,
    DeviceOption,
    ForceOption,
    check_out,
)
from tokengraft.core.options import MOST_POSITIONS, RESAMPLES
from tokengraft.core.wording import counted
from tokengraft.corpus.lines_of import lines_of
from tokengraft.render.terminal import show_fidelity, show_verdict

if TYPE_CHECKING:
    from tokengraft.reproduce.claim import ClaimVerdict

app = typer.Typer(
    cls=Commands,
    help="Reproduce a published table: exits with 0 if every value comes out, else with 1."
    "\n\nEach value of the paper is compared with the one found on this machine."
    "\n\n[bold]Examples[/bold]\n\n  tokengraft reproduce premiums --corpus flores200.tar.xz"
    "\n\n  tokengraft reproduce vocabulary --tokenizers m2m100/",
    no_args_is_help=True,
)
Tokenizers = Annotated[
    list[Path] | None,
    typer.Option(
        "--tokenizers", metavar="FOLDER", help="Folder or archive that holds M2M-100 (not bundled)."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Write the table into this folder as LaTeX, Markdown, CSV, Parquet and JSON, premiums "
        "with their intervals.",
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print every cell as JSON.")]


@app.command("premiums", cls=Command)
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
    from tokengraft.reproduce import claim as tables

    check_out(out, _any_folder)
    with drawing() as progress:
        verdict, remarks = tables.premiums(
            load(corpus), tokenizers or (), progress, RESAMPLES if out else 0
        )
    _finish(verdict, remarks, json, out)


@app.command("vocabulary", cls=Command)
def vocabulary(tokenizers: Tokenizers = None, out: Out = None, json: JSON = False) -> None:
    """Breakdown of ten vocabularies: sizes, Unicode blocks, characters and tokens by length.

    [bold]Example[/bold]

      tokengraft reproduce vocabulary --tokenizers m2m100/
    """
    from tokengraft.reproduce import claim as tables

    check_out(out, _any_folder)
    verdict, remarks = tables.vocabularies(tokenizers or ())
    _finish(verdict, remarks, json, out)


@app.command("new-token-share", cls=Command)
def new_token_share(
    corpus: Annotated[Path, typer.Option(help="FLORES-200: its archive or folder.")],
    out: Out = None,
    json: JSON = False,
) -> None:
    """Share of the paper's new tokens in Llama 3's encodings, and lengths before and after.

    [bold]Example[/bold]

      tokengraft reproduce new-token-share --corpus flores200.tar.xz
    """
    from tokengraft.reproduce.claim import new_token_share as compute

    check_out(out, _any_folder)
    _finish(compute(corpus), [], json, out)


@app.command("fidelity", cls=Command)
def fidelity(
    model: Annotated[str, typer.Option(help="A model: rootstock, a folder or a hub id.")],
    corpus: Annotated[str, typer.Option(help="FLORES-200: its archive or folder.")],
    languages: Annotated[
        list[str] | None,
        typer.Option(
            "--language",
            "--languages",
            "-l",
            help="Only this language; repeat for more. Default: the paper's twelve.",
        ),
    ] = None,
    lines: Annotated[
        int | None, typer.Option(min=2, help="At most this many lines per language.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Lines to judge on. Characters are those of all splits in any case.")
    ] = "devtest",
    text: Annotated[
        Path | None,
        typer.Option(
            help="Folder of text, a file such as shn_Mymr.txt for each language, for tokengraft's "
            "own default mode. Without it, only the paper's strategies are run."
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", help="For the default mode; repeat for more. Default: mean and distil."
        ),
    ] = None,
    budget: Annotated[int, typer.Option(min=1, help="New tokens per language.")] = 2000,
    steps: Annotated[
        int | None, typer.Option(min=1, help="At most this many steps of distillation.")
    ] = None,
    positions: Annotated[
        int, typer.Option(min=0, help="Positions at which distributions are compared; 0: all.")
    ] = MOST_POSITIONS,
    last_layer: Annotated[
        str,
        typer.Option(
            help="What layer n is: norm, after the model's final norm, which is what the paper's "
            "layer 16 is; or block, the last block's output before it."
        ),
    ] = "norm",
    minutes: Annotated[
        float | None, typer.Option(help="Start no new cell after this many minutes.")
    ] = None,
    device: DeviceOption = "auto",
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help=f"Folder for the tables; finished cells are kept in its .work. {RULE}",
        ),
    ] = Path("fidelity"),
    force: ForceOption = False,
    json: JSON = False,
) -> None:
    """The paper's 40 strategies × 12 languages, by its metric and by those that rank correctly.

    An interrupted run resumes where it stopped. For Llama 3.2 1B the exit code says whether the
    paper's figures for these languages come out; for any other model, or with --lines, they are
    shown beside ours for comparison. How long it will take is shown while it runs.

    [bold]Example[/bold]

      tokengraft reproduce fidelity --model rootstock --corpus flores200.tar.xz -l shn -o fidelity/
    """
    from tokengraft.corpus import load
    from tokengraft.render.claim_folder import save_fidelity
    from tokengraft.reproduce import paper_fidelity as reproducing
    from tokengraft.reproduce.grid import Settings
    from tokengraft.reproduce.paper_fidelity import METHODS, DefaultMode

    check_out(out, lambda at: (at / ".work").is_dir() or (at / "fidelity.json").is_file(), force)
    files = sorted(text.glob("*_*.txt")) if text is not None else ()
    texts = {path.stem: list(lines_of(path)) for path in files}
    with drawing() as progress:
        measured = reproducing.run(
            model, load(corpus), languages or None, judged=load(corpus, split=split),
            text=texts if text is not None else None,
            mode=DefaultMode(method or METHODS, budget, steps),
            settings=Settings(lines, positions),
            running=reproducing.Running(
                work=out / ".work", device=device,
                seconds=None if minutes is None else 60 * minutes,
                progress=progress, last_layer=last_layer,
            ),
        )  # fmt: skip
    said = reproducing.read_with(split, last_layer)
    written = save_fidelity(measured, out, said)
    if json:
        print_json(measured.grid.to_dicts())
    else:
        show_fidelity(stdout, measured)
        stdout.print(said, markup=False)
        say_written(written, out)
        if measured.missing:
            cells = counted(measured.missing, "cell")
            stdout.print(f"Not measured yet: {cells}. Run the command again to go on.")
        if measured.verdict is not None:
            stdout.print(measured.verdict.line, markup=False)
    if measured.verdict is not None and not measured.verdict.holds:
        raise typer.Exit(1)


def _any_folder(folder: Path) -> bool:
    """Accept any folder: tables have names of their own, so several claims can share one."""
    del folder
    return True


def _finish(verdict: ClaimVerdict, remarks: list[str], json: bool, out: Path | None) -> None:
    warn(*remarks)
    if out is not None:
        from tokengraft.render.claim_folder import write_verdict

        written = write_verdict(verdict, out)
        stderr.print(f"{counted(len(written), 'file')} written to {out}", markup=False)
    if json:
        counts = {"reproduced": verdict.reproduced, "of": len(verdict.cells)}
        cells = [asdict(cell) for cell in verdict.cells]
        print_json({"claim": verdict.claim.title, **counts, "holds": verdict.holds, "cells": cells})
    else:
        show_verdict(stdout, verdict)
    if not verdict.holds:
        raise typer.Exit(1)
