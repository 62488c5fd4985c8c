"""`tokengraft reproduce`, the paper's tables value by value; and `tokengraft paper`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tokengraft.cli.console import drawing, print_json, say_written, stderr, stdout, warn
from tokengraft.cli.options import (
    KINDS,
    RULE,
    WHOLE_RULE,
    Command,
    Commands,
    DeviceOption,
    ForceOption,
    LanguageOption,
    ModelArgument,
    PivotOption,
    PlainFormatOption,
    PlainTextColumnOption,
    PlanArgument,
    ReplaceOption,
    SplitOption,
    check_out,
    holds_file,
    read_text,
)
from tokengraft.core.options import MOST_POSITIONS, PIVOT, RESAMPLES
from tokengraft.core.wording import counted
from tokengraft.corpus.lines_of import lines_of
from tokengraft.deriving.known_methods import METHODS
from tokengraft.grafting.output_policies import POLICIES
from tokengraft.languages.codes import listed as listed_languages
from tokengraft.paper.claim_folder import show_fidelity, show_verdict, write_table
from tokengraft.planning import MODES
from tokengraft.render.terminal import Column, code_column, print_table, text_column

if TYPE_CHECKING:
    from tokengraft.paper.claim import ClaimVerdict

reproduce = typer.Typer(
    cls=Commands,
    help="Reproduce a published table: exits with 0 if every value comes out, else with 1."
    "\n\nEach value of the paper is compared with the one found on this machine."
    "\n\n[bold]Examples[/bold]\n\n  tokengraft reproduce premiums --corpus flores200.tar.xz"
    "\n\n  tokengraft reproduce vocabulary --tokenizers m2m100/",
    no_args_is_help=True,
    add_completion=False,
)
paper = typer.Typer(
    cls=Commands,
    help="What the paper proposes and our own measurements found to lose (docs/paper.md): methods, "
    "plan modes and output policies by name, and verbs of their own."
    "\n\n[bold]Examples[/bold]\n\n  tokengraft paper"
    "\n\n  tokengraft graft rootstock plan/ --method paper.knn --option k=3 -o grafted/"
    "\n\n  tokengraft plan llama-3 -l shn --mode paper.likelihood -o plan/",
    invoke_without_command=True,
    add_completion=False,
)
APPS = {"paper": paper, "reproduce": reproduce}
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


@reproduce.command("premiums", cls=Command)
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
    from tokengraft.paper import claim as tables

    check_out(out, _any_folder)
    with drawing() as progress:
        verdict, remarks = tables.premiums(
            load(corpus), tokenizers or (), progress, RESAMPLES if out else 0
        )
    _finish(verdict, remarks, json, out)


@reproduce.command("vocabulary", cls=Command)
def vocabulary(tokenizers: Tokenizers = None, out: Out = None, json: JSON = False) -> None:
    """Breakdown of ten vocabularies: sizes, Unicode blocks, characters and tokens by length.

    [bold]Example[/bold]

      tokengraft reproduce vocabulary --tokenizers m2m100/
    """
    from tokengraft.paper import claim as tables

    check_out(out, _any_folder)
    verdict, remarks = tables.vocabularies(tokenizers or ())
    _finish(verdict, remarks, json, out)


@reproduce.command("new-token-share", cls=Command)
def new_token_share(
    corpus: Annotated[Path, typer.Option(help="FLORES-200: its archive or folder.")],
    out: Out = None,
    json: JSON = False,
) -> None:
    """Share of the paper's new tokens in Llama 3's encodings, and lengths before and after.

    [bold]Example[/bold]

      tokengraft reproduce new-token-share --corpus flores200.tar.xz
    """
    from tokengraft.paper.claim import new_token_share as compute

    check_out(out, _any_folder)
    _finish(compute(corpus), [], json, out)


@reproduce.command("fidelity", cls=Command)
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
    from tokengraft.paper import fidelity as reproducing
    from tokengraft.paper.claim_folder import save_fidelity
    from tokengraft.paper.fidelity import METHODS, DefaultMode
    from tokengraft.paper.grid import Settings

    check_out(out, lambda at: (at / ".work").is_dir() or (at / "fidelity.json").is_file(), force)
    files = sorted(text.glob("*_*.txt")) if text is not None else ()
    texts = {path.stem: list(lines_of(path)) for path in files}
    with drawing() as progress:
        measured = reproducing.run(
            model,
            load(corpus),
            languages or None,
            judged=load(corpus, split=split),
            text=texts if text is not None else None,
            mode=DefaultMode(method or METHODS, budget, steps),
            settings=Settings(lines, positions),
            running=reproducing.Running(
                work=out / ".work",
                device=device,
                seconds=None if minutes is None else 60 * minutes,
                progress=progress,
                last_layer=last_layer,
            ),
        )
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


@paper.callback()
def _listed(
    ctx: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the rows that `paper` adds: what may be said to graft and plan, and its options."""
    if ctx.invoked_subcommand is not None:
        return
    methods = [("--method", one.name, one.summary, one.takes) for one in METHODS.values()]
    modes: list[tuple[str, str, str, tuple[str, ...]]]
    modes = [("--mode", one.name, one.help, ()) for one in MODES.values()]
    policies = [("--policy", one.name, one.help, one.takes) for one in POLICIES.values()]
    rows = [row for row in (*methods, *modes, *policies) if row[1].startswith("paper")]
    if json:
        names = ("option", "name", "help", "options")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(
        stdout,
        [code_column("name", [f"{option} {name}" for option, name, *_ in rows])],
        [
            text_column("what it is", [row[2] for row in rows]),
            text_column("--option", [", ".join(row[3]) for row in rows]),
        ],
    )
    stdout.print("Besides: paper adapt-input, paper equiprobable, reproduce.", markup=False)


@paper.command("equiprobable", cls=Command)
def equiprobable(
    strings: Annotated[int, typer.Option(min=1, help="How many strings each language has.")],
    corpus: Annotated[str, typer.Argument(help="Parallel text: a name or a path.")] = "udhr",
    language: LanguageOption = None,
    split: SplitOption = None,
    pivot: PivotOption = PIVOT,
    out: Out = None,
    json: JSON = False,
) -> None:
    """What each language would pay if it and the pivot had equally likely strings of their own.

    That is what is left of a premium when no vocabulary is shared. Strings are
    chosen on every other unit, and the others are counted.

    [bold]Example[/bold]

      tokengraft paper equiprobable --strings 2000 -l shn -l tam
    """
    from tokengraft.api.verbs import open_corpus
    from tokengraft.paper.tunstall import equiprobable as measure
    from tokengraft.paper.tunstall import printed

    check_out(out, _any_folder)
    loaded = open_corpus(corpus, split)
    pivot = loaded.require(pivot)
    if language:
        loaded = loaded.select([pivot, *listed_languages(language)])
    frame = measure(loaded, pivot, strings, RESAMPLES)
    table = printed(frame, pivot)
    if out is not None:
        say_written(write_table(table, frame, out), out)
    if json:
        print_json(frame.to_dicts())
        return
    stdout.print(f"{table.caption}.", markup=False)
    cells = [[cell.text for cell in row] for row in table.rows]
    name, code, *figures = ([row[n] for row in cells] for n in range(len(table.header)))
    print_table(
        stdout,
        [text_column("", name), code_column("", code)],
        [Column(title, column) for title, column in zip(table.header[2:], figures, strict=True)],
    )


@paper.command("adapt-input", cls=Command)
def adapt_input(
    model: ModelArgument,
    plan: PlanArgument,
    text: Annotated[
        list[str], typer.Option("--text", help=f"Text to train on, FILE or CODE=FILE: {KINDS}.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help=f"Folder for the adapter. {WHOLE_RULE}")],
    kind: Annotated[
        Literal["attention", "convolution", "tag"],
        typer.Option(
            help="The map behind the rows. attention: a causal layer and an MLP. convolution: each "
            "position sees itself and the three before it. tag: one row for the language, added to "
            "all."
        ),
    ] = "attention",
    text_column: PlainTextColumnOption = "text",
    format_: PlainFormatOption = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop training after this many minutes.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="At most this many steps of training.")
    ] = None,
    device: DeviceOption = "auto",
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    force: ReplaceOption = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    r"""Write rows and a small map in front of a model that stays as it is (docs/paper.md).

    The folder has both as safetensors, the new tokenizer, and a loader that
    needs nothing but transformers. Text without a new token is read exactly as
    the base reads it. graft --train lora reads better with as many weights.

    [bold]Examples[/bold]

      tokengraft paper adapt-input rootstock plan/ --text shan.txt -o adapted/

      tokengraft paper adapt-input rootstock plan/ --text shan.txt \
        --kind tag -o adapted/
    """
    from tokengraft.paper.adapting import adapt_input as run_adapt_input

    check_out(out, holds_file("input_adapter.safetensors"), force, whole=True)
    lines = read_text(text, text_column, format_)
    assert lines is not None
    with drawing() as progress:
        made = run_adapt_input(
            model,
            plan,
            out,
            lines,
            kind=kind,
            minutes=minutes,
            steps=steps,
            device=device,
            seed=seed,
            force=force,
            progress=progress,
        )
    warn(*made.rows.notes)
    scores = {"start": made.rows.start, "floor": made.rows.floor, "trained": made.rows.held_out}
    kl = {name: None if score is None else score.kl for name, score in scores.items()}
    if json:
        about = {"folder": str(made.folder), "kind": kind, "new_tokens": len(made.rows.rows)}
        print_json({**about, "weights": made.weights, "held_out_kl": kl})
        return
    said = f"{len(made.rows.rows)} rows and {made.weights:,} weights of a map behind them"
    stdout.print(f"{said}: {made.folder}", markup=False)
    worth = ", ".join(f"{name} {value:.3f}" for name, value in kl.items() if value is not None)
    stdout.print(f"held-out KL (nats): {worth}", markup=False)
    stdout.print(f"{made.folder}/README.md says how to load it", markup=False)


def _any_folder(folder: Path) -> bool:
    """Accept any folder: tables have names of their own, so several claims can share one."""
    del folder
    return True


def _finish(verdict: ClaimVerdict, remarks: list[str], json: bool, out: Path | None) -> None:
    warn(*remarks)
    if out is not None:
        from tokengraft.paper.claim_folder import write_verdict

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
