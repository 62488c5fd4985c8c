"""Grafts in llama.cpp: ids by tokenizer family and boundaries, and speed beside the base.

    python benchmarks/serving.py ids [--tokenizer NAME …] [--tokenizers FOLDER]
    python benchmarks/serving.py speed [--model rootstock] [--language shn]

`ids` plans 300 tokens for Shan and Tamil on each tokenizer, boundaries portable and relaxed, and
counts the check lines that llama.cpp reads as tokenizer.json does: all of them, or a refusal that
names the nearest split pattern. It exits 1 where a portable graft is refused. `speed` grafts the
model and serves both files in turn: tokens a character, prefill and decode a character, as ratios
of one run. Needs `tokengraft[serve,model]`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import tokengraft as tg
from tokengraft.core.errors import TokengraftError
from tokengraft.corpus import udhr
from tokengraft.grafting.verify.invariants import check_lines
from tokengraft.planning.plan import Boundaries
from tokengraft.planning.plan_files import insert_plan
from tokengraft.serving import llama_cpp, split_patterns
from tokengraft.serving.gguf_file import write_gguf
from tokengraft.tokenizer.boundaries import is_relaxed

FAMILIES = ("rootstock", "gpt2", "llama-3", "o200k_base", "olmo-2", "mistral-v0.3")
LANGUAGES = ("shn_Mymr", "tam_Taml")
BOUNDARIES: tuple[Boundaries, ...] = ("portable", "auto")
BUDGET = 300


def main() -> None:
    """Run one of the two parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=("ids", "speed"))
    parser.add_argument("--tokenizer", action="append")
    parser.add_argument("--tokenizers", type=Path)
    parser.add_argument("--model", default="rootstock")
    parser.add_argument("--language", default="shn_Mymr")
    options = parser.parse_args()
    if options.part == "speed":
        speed(options.model, options.language)
        return
    search = [options.tokenizers] if options.tokenizers else []
    served = [ids(name, search) for name in options.tokenizer or FAMILIES]
    if not all(served):
        sys.exit(1)


def ids(name: str, search: list[Path]) -> bool:
    """One tokenizer's rows of the table; whether its portable graft is served."""
    lines = [*split_patterns.AWKWARD, *dict.fromkeys(check_lines(LANGUAGES))]
    served = False
    for boundaries in BOUNDARIES:
        with tempfile.TemporaryDirectory() as scratch:
            plan, folder = Path(scratch) / "plan.json", Path(scratch) / "tokenizer"
            planned = tg.plan(name, LANGUAGES, budget=BUDGET, boundaries=boundaries, search=search)
            planned.plan.write(plan)
            insert_plan(name, plan, folder, search)
            relaxed = is_relaxed(json.loads((folder / "tokenizer.json").read_text("utf-8")))
            if boundaries == "auto" and not relaxed:
                print(f"{name} | auto | boundaries are not relaxed: as portable", flush=True)
                continue
            try:
                pattern, tried = split_patterns.choose_pattern(folder, lines)
            except TokengraftError as error:
                print(f"{name} | {boundaries} | refused: {error}", flush=True)
                continue
        served |= boundaries == "portable"
        said = f"{len(lines)} of {len(lines)} lines, {pattern or 'SentencePiece'}, {tried} tried"
        print(f"{name} | {boundaries} | {said}", flush=True)
    return served


def speed(model: str, language: str) -> None:
    """Prefill and decode a character, base and graft in one run."""
    from tokengraft.model.folder import resolve

    (code,) = (c for c in udhr.load([language]).languages)
    text = " ".join(udhr.load([language]).lines(code)[:4])[:400]
    with tempfile.TemporaryDirectory() as scratch:
        graft = Path(scratch) / "graft"
        plan = tg.plan(model, [code], budget=1000, boundaries="portable")
        tg.graft(model, plan, out=graft, policy="shared")
        folders = {"base": resolve(model).path, "graft": graft}
        pattern, _ = split_patterns.choose_pattern(graft, [text])
        print("file | tokens a character | prefill ms a character | decode ms a token")
        for name, folder in folders.items():
            file = Path(scratch) / f"{name}.gguf"
            write_gguf(folder, file, pre=pattern)
            with llama_cpp.serving(file, context=4096) as llama:
                prompt = llama.tokenize(text)
                runs = [llama.complete(prompt, 32)["timings"] for _ in range(5)]
            prefill = min(run["prompt_ms"] for run in runs) / len(text)
            decode = min(run["predicted_per_token_ms"] for run in runs)
            print(f"{name} | {len(prompt) / len(text):.3f} | {prefill:.3f} | {decode:.2f}")


if __name__ == "__main__":
    main()
