"""`tokengraft evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokengraft.cli import options
from tokengraft.cli.console import drawing, print_json, say_written, stdout, warn
from tokengraft.cli.options import (
    KINDS,
    ForceOption,
    PlainFormatOption,
    PlainTextColumnOption,
    check_out,
    holds_file,
    panel,
    read_text,
)
from tokengraft.core.errors import UsageError
from tokengraft.core.options import MOST_POSITIONS, RESAMPLES
from tokengraft.render.terminal import show_evaluation

_more, _how = map(panel, ("More to measure", "How it is measured"))


def evaluate(
    base: Annotated[str, typer.Argument(help="The base model: rootstock, a folder or a hub id.")],
    graft: Annotated[str, typer.Argument(help="The grafted model's folder.")],
    corpus: Annotated[
        str,
        typer.Option(help="Text to evaluate on: udhr (bundled), flores200, a folder or archive."),
    ] = "udhr",
    language: Annotated[
        list[str] | None,
        typer.Option(
            "--language",
            "-l",
            help="Only this language; repeat for more. Default: those that the graft is for.",
        ),
    ] = None,
    lines: Annotated[
        int | None, typer.Option(min=1, help="At most this many lines per language.")
    ] = None,
    split: options.SplitOption = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="Text that the rows were trained on: if the corpus has a line of it, nothing is "
            f"measured. FILE or CODE=FILE: {KINDS}; repeat for more."
        ),
    ] = None,
    text_column: PlainTextColumnOption = "text",
    format_: PlainFormatOption = None,
    against: Annotated[
        bool,
        _how("--against/--bare", help="Measure floors and ceilings too, or bare figures."),
    ] = True,
    prompts: Annotated[
        int, _more(min=0, help="Measure generation too, on this many prompts per language.")
    ] = 0,
    task: Annotated[
        list[str] | None,
        _more("--tasks", help="A task of lm-evaluation-harness; repeat for more."),
    ] = None,
    task_files: Annotated[
        Path | None, _more(help="A folder of your own task files (YAML).")
    ] = None,
    task_limit: Annotated[
        int | None, _more(min=1, help="At most this many documents per task.")
    ] = None,
    probe: Annotated[
        Path | None,
        _more(
            metavar="LABELS",
            help="Labels of the corpus's lines (CSV: flores_split, line, category). Measures how "
            "often a linear probe finds them in the base's states, in the graft's, and in the "
            "graft's if it was fitted to the base's.",
        ),
    ] = None,
    ask: Annotated[
        str | None,
        _more(
            metavar="QUESTION",
            help="With --probe, for models that follow prompts: a question with {} for the line, "
            "such as 'Text: {} Topic:'. The answer is the label that the line makes more likely "
            "than any other.",
        ),
    ] = None,
    positions: Annotated[
        int, _how(min=0, help="Positions at which distributions are compared; 0: all.")
    ] = MOST_POSITIONS,
    resamples: Annotated[int, _how(min=0, help="Bootstrap resamples.")] = RESAMPLES,
    window: Annotated[
        int | None, _how(min=8, help="Read at most this many tokens of a line.")
    ] = None,
    device: options.DeviceOption = "auto",
    dtype: options.DtypeOption = "auto",
    seed: Annotated[int, _how(help="Seed of every random choice.")] = 0,
    out: options.ResultsOption = None,
    force: ForceOption = False,
    fail_below_floor: Annotated[
        bool,
        typer.Option(
            "--fail-below-floor",
            help="Exit with 3 if KL, top-1, continuation or aligned cosine is no better than its "
            "floor: the graft learned nothing.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    r"""Measure how much of a model survived a graft: each figure with floor, ceiling and interval.

    A verdict in one sentence comes first. A figure means little by itself: its
    floor is what a graft that learned nothing reaches, its ceiling what the base
    reaches on the same text cut another way.

    [bold]Examples[/bold]

      tokengraft evaluate rootstock grafted/ -o evaluation/

      tokengraft evaluate rootstock grafted/ -l shn \
        --corpus flores200.tar.xz --split devtest

      tokengraft evaluate BASE GRAFT -l shn --tasks belebele_shn_Mymr

      tokengraft evaluate BASE GRAFT --corpus flores200.tar.xz --probe labels.csv
    """
    check_out(out, holds_file("evaluation.json"), force)
    if fail_below_floor and not against:
        raise UsageError(
            "--fail-below-floor needs the floors, which --bare leaves out: drop one of them"
        )
    from tokengraft.api.verbs import evaluate as run_evaluate

    with drawing() as progress:
        result = run_evaluate(
            base, graft, corpus, language or None, lines,
            split=split, text=read_text(text, text_column, format_), device=device, dtype=dtype,
            window=window, against=against,
            prompts=prompts, tasks=task or (), tasks_include=task_files, tasks_limit=task_limit,
            probe=probe, ask=ask, most_positions=positions, resamples=resamples, seed=seed,
            progress=progress,
        )  # fmt: skip
    warn(*result.notes)
    written = result.save(out) if out else []
    verdict = result.verdict
    if json:
        print_json({"verdict": verdict.sentence, "next_step": result.next_step, **result.to_json()})
    else:
        stdout.print(f"{verdict.sentence} {result.next_step}".strip(), markup=False)
        show_evaluation(stdout, result)
        say_written(written, out)
    if fail_below_floor and verdict.below:
        raise typer.Exit(3)
