"""The paper's full grid and the default mode on one GPU, within a box of time.

    python benchmarks/fidelity_gpu.py MODEL FLORES TEXT OUT --work WORK --minutes 9

MODEL is a folder with safetensors and tokenizer.json, FLORES a FLORES-200 folder or archive, TEXT
a folder of xxx_Ssss.txt (no FLORES line in it: it is checked). OUT gets grid.csv, sizes.csv, tables
by metric (CSV, LaTeX), fidelity.json and run.json; WORK keeps finished cells, and the same call
goes on where it stopped. Runs that were saved apart are put together by
`tokengraft.reproduce.fidelity.join([A, B]).save(OUT)`. The paper's grid is judged first; each
distillation of the default mode may take its even share of 80 % of the time.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path

from tokengraft.corpus import load
from tokengraft.reproduce import fidelity


def main() -> None:
    """Run within the time given and write what there is."""
    options = parse()
    begun = time.monotonic()
    device = describe(options.device)
    judged = load(options.flores, split="devtest")
    text = {
        path.stem: path.read_text(encoding="utf-8").split("\n")
        for path in sorted(options.text.glob("*_*.txt"))
    }
    codes = options.languages or list(fidelity.read_paper().languages)
    done = 0

    def report(what: str, count: int, _total: int) -> None:
        nonlocal done
        done = count
        if count % 20 == 0 or not what.startswith("paper"):
            print(f"{time.monotonic() - begun:7.1f} s  {count:4d}  {what}", flush=True)

    def run(stages: list[str], max_minutes: float | None) -> fidelity.Fidelity:
        left = 60 * options.minutes - (time.monotonic() - begun)
        return fidelity.run(
            options.model, load(options.flores), languages=codes, lines=options.lines,
            judged=judged, text=text, methods=options.methods, budget=options.budget,
            steps=options.steps, max_minutes=max_minutes, stages=stages, work=options.work,
            device=options.device, positions=options.positions, seconds=max(1.0, left),
            batch_tokens=options.batch_tokens, keep_bytes=options.keep_gib << 30, on_cell=report,
        )  # fmt: skip

    found = None
    for stage in options.stages:
        # A function of the options alone: the method's name in the cells says it.
        share = options.max_minutes or max(0.1, round(0.8 * options.minutes / len(codes), 1))
        try:
            # Stages before are given again: their cells are known, and the tables hold them all.
            found = run(options.stages[: options.stages.index(stage) + 1], share)
        except Exception as error:  # what the stages before have made must not be lost
            print(f"stage {stage} failed: {type(error).__name__}: {error}", flush=True)
            if found is None:
                raise
            break
        found.save(options.out)
        spent = time.monotonic() - begun
        print(f"{spent:7.1f} s  {stage} saved, {found.missing} missing", flush=True)
    facts = {
        "command": ["benchmarks/fidelity_gpu.py", *(Path(w).name for w in sys.argv[1:])],
        "device": device, "python": platform.python_version(),
        "seconds": round(time.monotonic() - begun, 1), "cells": done,
    }  # fmt: skip
    (options.out / "run.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(facts))


def describe(device: str) -> str:
    """The device's name, torch and precision; float32 products stay float32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    name = torch.cuda.get_device_name() if device != "cpu" and torch.cuda.is_available() else "cpu"
    return f"{name}, torch {torch.__version__}"


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("flores", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--work", type=Path, required=True, help="cells and states are kept here between calls"
    )
    parser.add_argument("--stages", nargs="+", default=["paper", "default"])
    parser.add_argument("--languages", nargs="*")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--positions", type=int, default=4096)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--methods", nargs="+", default=["mean", "distil"])
    parser.add_argument("--budget", type=int, default=2000)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--max-minutes", type=float, help="of one distillation")
    parser.add_argument("--batch-tokens", type=int, default=32768)
    parser.add_argument("--keep-gib", type=int, default=8)
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


if __name__ == "__main__":
    main()
