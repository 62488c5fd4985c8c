"""Checks of a graft by running it in other programs: ids, English as its base's, barred ids.

Each function runs a folder and its base in one program and reports what it saw on the given lines;
the table of programs is `SERVERS`.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokengraft.core.errors import MissingExtra, TokengraftError, optional
from tokengraft.grafting.manifest import new_ids, read_manifest
from tokengraft.grafting.small_files import barred_ids
from tokengraft.grafting.verify import loading
from tokengraft.grafting.verify.invariants import Check
from tokengraft.model.checkpoint import read_json
from tokengraft.model.tokenizer_files import TOKENIZER
from tokengraft.serving import gguf_file, llama_cpp, split_patterns
from tokengraft.serving.own_readers import OWN_READERS, run_script
from tokengraft.tokenizer.insert import first_free_id

ENGLISH = (
    "The history of the world is",
    "Water boils at a temperature of",
    "Once upon a time there was a",
    "The most important rule of",
)
_STEPS = 16
_PROMPTS = 50
_LONGEST = 48  # tokens of a prompt
#: The script that runs one model in vLLM.
_VLLM = """
import vllm
from vllm import LLM, SamplingParams
llm = LLM(folder, max_model_len=256, enforce_eager=True, dtype="float32",
          gpu_memory_utilization=0.2)
tokenizer = llm.get_tokenizer()
ids = [tokenizer(line, add_special_tokens=False)["input_ids"] for line in lines]
def write(prompts, temperature):
    params = SamplingParams(max_tokens=asked["steps"], temperature=temperature, seed=0)
    made = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
    return [list(one.outputs[0].token_ids) for one in made]
answer = {"ids": ids, "english": write(asked["english"], 0.0), "free": write(asked["free"], 1.0),
          "version": vllm.__version__}
"""


def refuse_missing(programs: Sequence[str]) -> None:
    """Raise unless what each of these needs is installed, before the first one is run."""
    for program in programs:
        if program == "vllm":
            _require(program, ("vllm",))
        elif program == "llama.cpp" and llama_cpp.installed() is None:
            raise MissingExtra("Running llama.cpp", "serve")
        elif program in OWN_READERS:
            _require(program, OWN_READERS[program][0])


def in_transformers(folder: Path, base: Path, lines: Sequence[str]) -> list[Check]:
    """Load the tokenizer, save it, load it again; `verify` itself checks the model."""
    del base
    transformers = optional("transformers", "Running transformers", "model")
    ids = split_patterns.folder_ids(folder, lines)
    tokenizer = loading.load_tokenizer(folder)
    said = f"{len(lines)} lines as the folder's; transformers {transformers.__version__}"
    checks = []
    for name, reader in (("ids", tokenizer), ("saved", loading.reloaded(tokenizer, folder))):
        wrong = loading.same_ids(reader, lines, ids)
        checks.append(Check(f"transformers: {name}", wrong is None, wrong or said))
    return checks


def in_llama_cpp(folder: Path, base: Path, lines: Sequence[str]) -> list[Check]:
    """Write both models as GGUF, serve one after the other and compare."""
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
    """Run both models in vLLM, with no special request parameters, and compare."""
    _require("vllm", ("vllm",))
    english = split_patterns.folder_ids(folder, ENGLISH, frame=True)
    asked = {"steps": _STEPS, "english": english}
    given = {"folder": str(folder), "lines": list(lines), "free": planned_prompts(folder, lines)}
    try:
        graft = run_script("vLLM", _VLLM, asked | given)
        bare = {"folder": str(base), "lines": [], "free": []}
        wrote = run_script("vLLM", _VLLM, asked | bare)["english"] if barred_ids(folder) else []
    except TokengraftError as error:
        return [Check("vllm: ids", False, str(error))]
    ids = _same_ids("vllm", folder, lines, graft)
    return [ids, *_writing("vllm", folder, graft["english"], wrote, graft["free"])]


def in_its_own(program: str, folder: Path, base: Path, lines: Sequence[str]) -> list[Check]:
    """Check the ids of a program of `OWN_READERS`, and what it writes if its script writes."""
    packages, script = OWN_READERS[program]
    _require(program, packages)
    normal, note = split_patterns.in_form(folder, lines)
    asked = {
        "folder": str(folder), "lines": normal, "base": str(base), "steps": _STEPS,
        "barred": sorted(barred_ids(folder)), "free": planned_prompts(folder, lines),
        "english": split_patterns.folder_ids(folder, ENGLISH, frame=True),
        "rows": first_free_id(read_json(folder / TOKENIZER)),
    }  # fmt: skip
    try:
        answer = run_script(program, script, asked)
    except TokengraftError as error:
        return [Check(f"{program}: ids", False, str(error))]
    ids = _same_ids(program, folder, normal, answer, note.replace("llama.cpp", program))
    if "free" in answer:
        written = answer["english"], answer["base"], answer["free"]
        return [ids, *_writing(program, folder, *written)]
    return [ids]


def _require(program: str, packages: Sequence[str]) -> None:
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        names = " ".join(name.replace("_", "-") for name in missing)
        raise TokengraftError(f"{program} is not installed here: pip install {names}")


def _same_ids(
    program: str, folder: Path, lines: Sequence[str], answer: dict[str, Any], note: str = ""
) -> Check:
    """Whether a program gave every line the folder's ids."""
    own = split_patterns.folder_ids(folder, lines)
    wrong = [line for line, a, b in zip(lines, answer["ids"], own, strict=True) if a != b]
    said = f"{len(lines)} lines as the folder's"
    if wrong:
        first = json.dumps(wrong[0][:60], ensure_ascii=False)
        said = f"{len(wrong)} of {len(lines)} lines get other ids, first {first}"
    about = (said, f"{program} {answer['version']}", note)
    return Check(f"{program}: ids", not wrong, "; ".join(filter(None, about)))


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
    """Whether greedy English is the base's and no barred id was written; no check if none is.

    Of a body that was trained, or has lanes and so rounded norms, only what was seen is said.
    """
    barred = barred_ids(folder)
    if not barred:
        return []
    same = list(graft_english) == list(base_english)
    said = "the base's own text" if same else "NOT what the base writes"
    same = same or "trained" in (read_manifest(folder) or {})
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
