"""`tokengraft fit`: plan, graft and evaluate in one go, each by its own command."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tokengraft.cli.console import stderr, stdout
from tokengraft.cli.options import KINDS, DeviceOption, ModelArgument, check_out, holds_file
from tokengraft.core.errors import UsageError
from tokengraft.core.files import read_json, write_json

_RECORD = "fit.json"
_SHORTEST = 0.5  # of the minutes, for training, however long the rest takes
#: Seconds for what is not training, and more for each billion weights on a CPU, which also
#: evaluates fewer lines.
_BESIDES, _SLOW = 90.0, 4000.0
_LINES = {"cpu": 40, "cuda": 200}


def fit(
    model: ModelArgument,
    language: Annotated[
        list[str],
        typer.Option("--language", "-l", help="The language to fit; repeat for more."),
    ],
    text: Annotated[
        list[str],
        typer.Option(
            "--text",
            metavar="FILE",
            help=f"Text of the language to learn from, FILE or CODE=FILE: {KINDS}.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for plan, model, evaluation and page.")
    ],
    minutes: Annotated[
        float, typer.Option(min=1, help="How long everything may take, about.")
    ] = 10,
    write: Annotated[
        bool, typer.Option("--write", help="The model shall write the new tokens, not only read.")
    ] = False,
    export: Annotated[
        bool,
        typer.Option(
            "--export",
            help="Also write model.gguf for llama.cpp; plans portable boundaries, trains rows.",
        ),
    ] = False,
    corpus: Annotated[
        str,
        typer.Option(help="Parallel text to judge by, which must not be the text learned from."),
    ] = "udhr",
    split: Annotated[str | None, typer.Option(help="Part of FLORES to judge by.")] = None,
    device: DeviceOption = "auto",
) -> None:
    r"""Fit a model to a language: plan its tokens, graft and train them, judge the result.

    Three things to decide: the language, its text, and how many minutes. Each
    step is printed as a command of its own, to be taken over from there. What
    was done is not done again: after any stop, the same command goes on.

    [bold]Examples[/bold]

      tokengraft fit rootstock -l tam --text tamil.txt -o fitted/

      tokengraft fit Qwen/Qwen3-0.6B -l khm --text khmer.txt --minutes 15 \
        --write -o fitted/
    """
    from tokengraft.model.folder import resolve
    from tokengraft.model.libraries import pick_device

    check_out(out, holds_file(_RECORD), False)
    begun, place = time.monotonic(), pick_device(device)
    languages = [word for one in language for word in ("-l", one)]
    texts = [word for one in text for word in ("--text", one)]
    judged = ["--corpus", corpus, *(("--split", split) if split else ())]
    asked = [model, *languages, *texts, f"{minutes:g}", str(write), str(export), *judged, device]
    record: dict[str, Any] = {"asked": asked, "steps": {}}
    if (out / _RECORD).is_file():
        record = read_json(out / _RECORD)
    if record["asked"] != asked:
        raise UsageError(f"{out} holds another fit ({_RECORD}): choose another folder")
    rest = _BESIDES
    if place.type == "cpu":
        size = sum(file.stat().st_size for file in resolve(model).path.glob("*.safetensors"))
        rest += _SLOW * size / 2e9

    def run(name: str, *command: str) -> None:
        """Run a step, as it was planned first, unless it is done."""
        steps: dict[str, Any] = record["steps"]
        step = steps.setdefault(name, {"command": list(command), "done": False})
        said = shlex.join(["tokengraft", *step["command"]])
        if step["done"]:
            stderr.print(f"Done before: {said}", markup=False)
            return
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / _RECORD, record)
        stdout.print(f"\n$ {said}", markup=False, style="bold")
        ended = subprocess.run([sys.executable, "-m", "tokengraft", *step["command"]], check=False)
        if ended.returncode:
            raise typer.Exit(ended.returncode)
        step["done"] = True
        write_json(out / _RECORD, record)

    plan, fitted, evaluation = (str(out / name) for name in ("plan", "model", "evaluation"))
    portable = ["--boundaries", "portable"] if export else []
    run("plan", "plan", model, *languages, *texts, *portable, "-o", plan)
    left = minutes - (time.monotonic() - begun + rest) / 60
    if left < _SHORTEST * minutes:
        left = _SHORTEST * minutes
        total = left + (time.monotonic() - begun + rest) / 60
        stderr.print(f"What is not training takes long here: about {total:.0f} minutes in all.")
    how = [*(("--policy", "write") if write else ()), *(("--train", "rows") if export else ())]
    trained = [*texts, "--minutes", f"{left:.1f}", *how, "--device", device]
    run("graft", "graft", model, plan, *trained, "-o", fitted)
    lines = ["--lines", str(_LINES.get(place.type, 200)), "--device", device]
    run("evaluate", "evaluate", model, fitted, *judged, *texts, *lines, "-o", evaluation)
    if export:
        run("export", "export", fitted, "-o", str(out / "model.gguf"))
    run("report", "report", plan, fitted, evaluation, "-o", str(out / "page"))
    took = (time.monotonic() - begun) / 60
    page = out / "page" / "index.html"
    stdout.print(f"\n{fitted} was fitted in {took:.1f} minutes; {page} shows it", markup=False)
