"""`tokengraft verify` and `export`: a finished graft, proved sound and written for llama.cpp."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from tokengraft.cli.console import print_json, stdout, warn, working
from tokengraft.cli.options import KINDS, PlainFormatOption, PlainTextColumnOption, read_text
from tokengraft.core.wording import counted


def verify(
    folder: Annotated[Path, typer.Argument(help="A grafted model's folder.")],
    base: Annotated[str, typer.Option(help="The model it was grafted from.")],
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text", help=f"Text to check on, FILE or CODE=FILE: {KINDS}. Default: the UDHR."
        ),
    ] = None,
    text_column: PlainTextColumnOption = "text",
    format_: PlainFormatOption = None,
    served_by: Annotated[
        str | None,
        typer.Option(
            "--served-by",
            help="Also run it in these programs, with commas between: transformers, llama.cpp, "
            "vllm, openvino-genai, onnxruntime-genai, ctranslate2. Each must read the check text "
            "into the folder's ids; llama.cpp, vllm and ctranslate2 must also write English as "
            "before and no barred id. The outcome goes into the model's card.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            help="A public key (PEM): every file must be as its owner signed it (graft --sign)."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Prove a graft sound by loading it afresh: old weights, round trip, ids, live rows, loading.

    Exits with 3 if one of these does not hold.

    [bold]Examples[/bold]

      tokengraft verify grafted/ --base rootstock

      tokengraft verify grafted/ --base rootstock --served-by llama.cpp,vllm

      tokengraft verify grafted/ --base rootstock --key maker.pub

      tokengraft verify grafted/ --base meta-llama/Llama-3.2-1B --json
    """
    from tokengraft.api.verbs import verify as run_verify

    programs = [name.strip() for name in served_by.split(",")] if served_by else []
    with working("Verifying"):
        lines = read_text(text, text_column, format_)
        report = run_verify(folder, base, lines, served_by=programs, key=key)
    if json:
        print_json([asdict(check) for check in report.checks])
    else:
        for line in report.lines():
            stdout.print(line, markup=False)
        passed = sum(check.passed for check in report.checks)
        verdict = "Sound" if report.passed else "Not sound"
        stdout.print(f"{verdict}: {passed} of {counted(len(report.checks), 'check')} passed")
    if not report.passed:
        raise typer.Exit(3)


def export(
    graft: Annotated[str, typer.Argument(help="A grafted model's folder (or any model's).")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The file to write; --force replaces one that exists."),
    ],
    to: Annotated[
        Literal["gguf"], typer.Option(help="gguf: for llama.cpp, Ollama, LM Studio.")
    ] = "gguf",
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
            help="Without --base: Q8_0, Q4_K_M, Q6_K, Q5_0, Q5_1, Q4_0, Q4_1, F16, BF16 or F32. "
            "Default: the types of the folder."
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
    text_column: PlainTextColumnOption = "text",
    format_: PlainFormatOption = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="llama.cpp's split pattern to try first (tokenizer.ggml.pre)."),
    ] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Write the file without running llama.cpp on it.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace --out if it exists.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Write a graft for llama.cpp and Ollama, with the same ids or not at all.

    llama.cpp has its split patterns in code, so each that might fit is tried:
    the file names the one with which llama.cpp gives every line of the check
    text the folder's ids. If there is none, nothing is written.

    [bold]Examples[/bold]

      tokengraft export grafted/ -o grafted.gguf

      tokengraft export grafted/ --quantize Q4_K_M -o grafted-q4.gguf

      tokengraft export grafted/ --base base-Q4_K_M.gguf -o grafted-q4.gguf
    """
    from tokengraft.api.verbs import export as run_export

    del to  # only one format so far

    with working("Writing and running it"):
        made = run_export(
            graft, out, base=base, quantize=quantize,
            text=read_text(text, text_column, format_),
            pattern=pattern, unchecked=unchecked, force=force,
        )  # fmt: skip
    warn(*made.notes)
    if json:
        print_json({key: str(v) if isinstance(v, Path) else v for key, v in asdict(made).items()})
        return
    ids = f"{made.checked:,} of {made.checked:,} lines get the folder's ids in llama.cpp; "
    split = f"split pattern {made.pattern}" if made.pattern else "SentencePiece scores"
    stdout.print(f"{made.file}: {ids if made.checked else ''}{split}", markup=False)
    stdout.print("To serve it, either of:")
    stdout.print(f"llama-server -m {made.file} --port 8080", markup=False)
    stdout.print(f"ollama create {made.file.stem.lower()} -f {made.modelfile}", markup=False)
