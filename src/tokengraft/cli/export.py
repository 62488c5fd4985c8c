"""`tokengraft export`."""

from __future__ import annotations

import enum
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tokengraft.cli.console import print_json, stdout, warn, working
from tokengraft.cli.text import KINDS, FormatOption, TextColumnOption, read_text


class Format(str, enum.Enum):
    """What a graft is written as."""

    gguf = "gguf"


def export(
    graft: Annotated[str, typer.Argument(help="A grafted model's folder (or any model's).")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The file to write; one that exists needs --force."),
    ],
    to: Annotated[
        Format, typer.Option(help="gguf: for llama.cpp, Ollama, LM Studio.")
    ] = Format.gguf,
    base: Annotated[
        Path | None,
        typer.Option(
            help="The base model's GGUF: its tensors are copied byte for byte, in their types, "
            "and only rows, tokens, merges and barred ids are added."
        ),
    ] = None,
    quantize: Annotated[
        str | None,
        typer.Option(
            help="Without --base: Q8_0, Q4_K_M, Q6_K, Q5_0, Q5_1, Q4_0, Q4_1, F16, BF16 or F32; "
            "default: the types of the folder.",
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            help=f"Text that must get the folder's ids, FILE or CODE=FILE: {KINDS}. Default: the "
            "UDHR in the planned languages and others.",
        ),
    ] = None,
    text_column: TextColumnOption = "text",
    format_: FormatOption = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="llama.cpp's split pattern to try first (tokenizer.ggml.pre)."),
    ] = None,
    unchecked: Annotated[
        bool,
        typer.Option("--unchecked", help="Write the file without running llama.cpp on it."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace --out where it exists.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write a graft for llama.cpp and Ollama, with the same ids or not at all.

    llama.cpp holds its split patterns in code, so each that might fit is
    tried: the file is written under the one with which llama.cpp gives every
    line of the check text the folder's ids, and refused where there is none.

    [bold]Examples[/bold]

      tokengraft export grafted/ -o grafted.gguf

      tokengraft export grafted/ --quantize Q4_K_M -o grafted-q4.gguf

      tokengraft export grafted/ --base base-Q4_K_M.gguf -o grafted-q4.gguf
    """
    from tokengraft.api.verbs import export as run_export

    del to  # there is one so far

    with working("Writing and running it"):
        made = run_export(
            graft, out, base=base, quantize=quantize,
            text=read_text(text, text_column, format_),
            pattern=pattern, unchecked=unchecked, force=force,
        )  # fmt: skip
    for note in made.notes:
        warn(note)
    if json:
        print_json({key: str(v) if isinstance(v, Path) else v for key, v in asdict(made).items()})
        return
    ids = f"{made.checked:,} of {made.checked:,} lines get the folder's ids in llama.cpp; "
    split = f"split pattern {made.pattern}" if made.pattern else "SentencePiece scores"
    stdout.print(f"{made.file}: {ids if made.checked else ''}{split}", markup=False)
    stdout.print(f"llama-server -m {made.file} --port 8080", markup=False)
    stdout.print(f"ollama create {made.file.stem.lower()} -f {made.modelfile}", markup=False)
