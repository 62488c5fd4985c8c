"""Grafts where people run models: ids by tokenizer family and program, and speed beside the base.

    python benchmarks/serving.py ids --out FILE.jsonl [--tokenizer NAME …] [--tokenizers FOLDER]
                                     [--boundaries portable] [--reader LABEL=PYTHON …]
    python benchmarks/serving.py read KEPT --out FILE.jsonl --reader LABEL=PYTHON …
    python benchmarks/serving.py table FILE.jsonl …
    python benchmarks/serving.py quantised GRAFT BASE [--kind Q8_0 …] [--base-gguf FILE]
    python benchmarks/serving.py speed [--model rootstock] [--language shn] [--vllm PYTHON]

`ids` grafts 300 tokens for Shan and Tamil into a tiny model of each family, boundaries portable
and relaxed, and counts the lines that each program reads as tokenizer.json does: llama.cpp,
SentencePiece from the written tokenizer.model, and each `--reader`, the Python of another
environment, whose label begins with what to run there (transformers, vllm, openvino). It exits 1
where a program reads a line of a portable graft otherwise instead of refusing it. One line of JSON
a graft is added to `--out`; `table` prints them. With `--keep FOLDER` portable tokenizers
stay, and `read` gives them to further readers. `quantised` writes a real graft and its base as GGUF
of each kind and lets llama.cpp answer: English must be the base's, and no barred id may come after
50 prompts in the planned languages. `speed` serves base and graft in turn: tokens a
character, prefill, decode, KV cache a character, requests a second in the same cache. Needs
`tokengraft[serve,model]`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import lzma
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import tokengraft as tg
from tokengraft.core.errors import TokengraftError
from tokengraft.corpus import udhr
from tokengraft.grafting.graft import Finishing, graft
from tokengraft.grafting.verify.invariants import check_lines
from tokengraft.planning.plan import Boundaries, Planning
from tokengraft.planning.plan_files import plan as plan_for
from tokengraft.serving import llama_cpp, split_patterns
from tokengraft.serving.export_gguf import check_corpus
from tokengraft.serving.gguf_file import write_from_base, write_gguf
from tokengraft.serving.gguf_reader import read_gguf
from tokengraft.serving.gguf_tokenizer import barred_ids
from tokengraft.serving.in_programs import ENGLISH, planned_prompts
from tokengraft.tokenizer.boundaries import is_relaxed
from tokengraft.tokenizer.catalog import as_json, find, side_files
from tokengraft.tokenizer.insert import first_free_id
from tokengraft.tokenizer.other_readers import AWKWARD
from tokengraft.tokenizer.sentence_piece_file import FILE, read_otherwise

#: Tokenizers and the kind of model that has them.
FAMILIES = {
    "rootstock": "llama", "gpt2": "gpt2", "llama-3": "llama", "o200k_base": "llama",
    "cl100k_base": "llama", "claude-2.1": "llama", "olmo-2": "olmo2", "mistral-v0.3": "mistral",
    "qwen3": "qwen3", "qwen2": "qwen2", "gemma3": "gemma3_text", "llama2": "llama",
    "deepseek-v3": "llama", "mistral-nemo": "mistral", "command-r-plus": "cohere",
}  # fmt: skip
SAME_FILES = {"qwen2": "qwen3"}  # the tokenizer of Qwen 2.5 in Qwen 3's files
LANGUAGES = ("shn_Mymr", "tam_Taml")
BOUNDARIES: tuple[Boundaries, ...] = ("portable", "auto")
BUDGET = 300
LINES = 4893
WIDTH = 16
_SIZES = {
    "hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 8,
    "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip
_GPT2 = {"n_embd": WIDTH, "n_layer": 1, "n_head": 2, "n_positions": 512}
#: Counts the lines that another environment's program reads otherwise; argv: question, answer.
_ASK = """
import json, sys
asked = json.load(open(sys.argv[1], encoding="utf-8"))
folder, lines, ids = asked["folder"], asked["lines"], asked["ids"]
def wrong(read):
    return sum(a != b for a, b in zip(read(lines), ids))
{body}
json.dump(answer, open(sys.argv[2], "w"))
"""
_READERS = {
    "transformers": """
import tempfile, shutil, os, transformers
from transformers import AutoTokenizer
def reader(place):
    tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True)
    return tokenizer, lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"]
tokenizer, read = reader(folder)
with tempfile.TemporaryDirectory() as place:
    tokenizer.save_pretrained(place)
    shutil.copyfile(os.path.join(folder, "config.json"), os.path.join(place, "config.json"))
    answer = {"loaded": wrong(read), "saved": wrong(reader(place)[1])}
""",
    "vllm": """
from vllm.tokenizers import get_tokenizer
tokenizer = get_tokenizer(folder)
encode = tokenizer.encode
answer = {"read": wrong(lambda texts: [encode(t, add_special_tokens=False) for t in texts])}
""",
    "openvino": """
import openvino, openvino_tokenizers
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
made = openvino_tokenizers.convert_tokenizer(tokenizer, add_special_tokens=False)
run = openvino.compile_model(made, "CPU")
answer = {"read": wrong(lambda texts: [run([t])["input_ids"][0].tolist() for t in texts])}
""",
}


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("ids")
    one.add_argument("--tokenizer", action="append", choices=FAMILIES)
    one.add_argument("--tokenizers", type=Path)
    one.add_argument("--boundaries", action="append", choices=BOUNDARIES)
    one.add_argument("--reader", action="append", default=[], metavar="LABEL=PYTHON")
    one.add_argument("--keep", type=Path, help="keep the grafts' tokenizers in this folder")
    one.add_argument("--out", type=Path, required=True)
    one = parts.add_parser("read")
    one.add_argument("kept", type=Path)
    one.add_argument("--reader", action="append", default=[], metavar="LABEL=PYTHON")
    one.add_argument("--out", type=Path, required=True)
    one = parts.add_parser("table")
    one.add_argument("files", type=Path, nargs="+")
    one = parts.add_parser("quantised")
    one.add_argument("graft", type=Path)
    one.add_argument("base", type=Path)
    one.add_argument("--kind", action="append", default=[])
    one.add_argument("--base-gguf", type=Path, help="the base's own file, to be extended")
    one = parts.add_parser("speed")
    one.add_argument("--model", default="rootstock")
    one.add_argument("--language", default="shn_Mymr")
    one.add_argument("--characters", type=int, default=300)
    one.add_argument("--vllm", help="the Python of an environment with vLLM and tokengraft")
    options = parser.parse_args()
    if options.part == "speed":
        speed(options.model, options.language, options.vllm, options.characters)
    elif options.part == "quantised":
        kinds = options.kind if options.kind or options.base_gguf else ["Q8_0", "Q4_K_M"]
        right = [quantised(options.graft, options.base, kind) for kind in kinds]
        if options.base_gguf:
            right.append(quantised(options.graft, options.base_gguf, None))
        if not all(right):
            sys.exit(1)
    elif options.part == "table":
        print(table([json.loads(x) for f in options.files for x in f.open(encoding="utf-8")]))
    else:
        readers = dict(reader.split("=", 1) for reader in options.reader)
        if options.part == "read":
            sys.exit(0 if read_kept(options.kept, readers, options.out) else 1)
        search = [options.tokenizers] if options.tokenizers else []
        right = [
            ids(name, search, readers, options.out, options.boundaries, options.keep)
            for name in options.tokenizer or FAMILIES
        ]
        if not all(right):
            sys.exit(1)


def check_text() -> list[str]:
    """The lines: awkward ones, planned languages and their scripts, English, code, the world."""
    corpus = udhr.load()
    folder = resources.files("tokengraft") / "assets" / "protected"
    bundled = [
        line
        for name in ("english", "code")
        for line in lzma.decompress((folder / f"{name}.txt.xz").read_bytes()).decode().split("\n")
    ]
    world = [line for code in corpus.languages for line in corpus.lines(code)]
    first = [*AWKWARD, *check_lines(LANGUAGES), *bundled[:: max(1, len(bundled) // 1000)]]
    kept = list(dict.fromkeys(line for line in first if line))
    rest = [line for line in dict.fromkeys(world) if line not in set(kept)]
    missing = LINES - len(kept)
    return kept + [rest[i * len(rest) // missing] for i in range(missing)]


def ids(
    name: str,
    search: list[Path],
    readers: dict[str, str],
    out: Path,
    wanted: Sequence[Boundaries] | None = None,
    keep: Path | None = None,
) -> bool:
    """One family's grafts in every program; whether the portable one is read alike or refused."""
    lines = check_text()
    right = True
    for boundaries in wanted or BOUNDARIES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = tiny_graft(name, boundaries, search, Path(scratch))
            tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
            if boundaries == "auto" and not is_relaxed(tokenizer):
                found: dict[str, Any] = {"nothing to relax": True}
            else:
                found = read_here(folder, tokenizer, lines)
                found |= read_elsewhere(folder, lines, readers)
                if keep is not None and boundaries == "portable":
                    keep_tokenizer(folder, keep / f"{name} {boundaries}")
        add_row(out, name, boundaries, len(lines), found)
        right &= boundaries != "portable" or is_right(found)
    return right


def read_kept(kept: Path, readers: dict[str, str], out: Path) -> bool:
    """Tokenizers that an earlier run kept, in further readers."""
    lines = check_text()
    right = True
    for folder in sorted(kept.iterdir()):
        name, boundaries = folder.name.split(" ")
        outcomes = read_elsewhere(folder, lines, readers)
        add_row(out, name, boundaries, len(lines), outcomes)
        right &= boundaries != "portable" or is_right(outcomes)
    return right


def keep_tokenizer(folder: Path, target: Path) -> None:
    """The graft's small files, which are all that reading text needs."""
    target.mkdir(parents=True)
    for path in folder.glob("*.json"):
        shutil.copyfile(path, target / path.name)


def add_row(out: Path, name: str, boundaries: str, count: int, found: dict[str, Any]) -> None:
    """Print a graft's outcomes and add them to the file."""
    row = {"tokenizer": name, "boundaries": boundaries, "lines": count, "found": found}
    print(json.dumps(row, ensure_ascii=False), flush=True)
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def is_right(found: dict[str, Any]) -> bool:
    """Whether every program reads every line alike, or refuses."""
    outcomes = [found[program] for program in found if program != "pattern"]
    return all(one == 0 or str(one).startswith("refused") for one in outcomes)


def tiny_graft(name: str, boundaries: Boundaries, search: list[Path], root: Path) -> Path:
    """A graft with the family's tokenizer and kind of model, one layer deep, weights random."""
    import torch
    import transformers

    source = find(SAME_FILES.get(name, name), search)
    parsed, base = as_json(source), root / "base"
    sizes = _GPT2 if FAMILIES[name] == "gpt2" else _SIZES
    config = transformers.AutoConfig.for_model(
        FAMILIES[name], vocab_size=first_free_id(parsed), bos_token_id=None, eos_token_id=None,
        pad_token_id=None, **sizes,
    )  # fmt: skip
    torch.manual_seed(0)
    model: Any = transformers.AutoModelForCausalLM
    model.from_config(config).save_pretrained(base)
    for file, data in side_files(source).items():
        (base / file).write_bytes(data)
    (base / "tokenizer.json").write_text(json.dumps(parsed, ensure_ascii=False), "utf-8")
    if source.source is not None and FILE in source.source.files:
        (base / FILE).write_bytes(source.source.read(FILE))
    choosing = Planning(budget=BUDGET, boundaries=boundaries)
    plan = plan_for(base, LANGUAGES, options=choosing).plan
    rows = np.random.default_rng(0).normal(0, 0.02, (len(plan.tokens), WIDTH)).astype(np.float32)
    graft(base, plan, root / "graft", rows=rows, options=Finishing(verified=False))
    return root / "graft"


def read_here(folder: Path, tokenizer: dict[str, Any], lines: Sequence[str]) -> dict[str, Any]:
    """Lines that llama.cpp and SentencePiece read otherwise, or a refusal in words."""
    found: dict[str, Any] = {}
    try:
        pattern = split_patterns.choose_pattern(folder, lines)
        found["llama.cpp"] = 0
        normal, _ = split_patterns.in_form(folder, lines)
        moved = sum(a != b for a, b in zip(lines, normal, strict=True))
        found["pattern"] = (pattern or "SentencePiece") + (f", {moved} normalised" if moved else "")
    except TokengraftError as error:
        found["llama.cpp"] = f"refused: {error}"
    if (folder / FILE).is_file():
        found[FILE] = read_otherwise((folder / FILE).read_bytes(), tokenizer, lines) or 0
    elif (folder / "tokengraft.json").is_file():
        notes = json.loads((folder / "tokengraft.json").read_text("utf-8"))["rows"]["notes"]
        if any(FILE in note for note in notes):
            found[FILE] = "refused"
    return found


def read_elsewhere(folder: Path, lines: Sequence[str], readers: dict[str, str]) -> dict[str, Any]:
    """The same by the programs of other environments."""
    found: dict[str, Any] = {}
    own = split_patterns.folder_ids(folder, lines)
    with tempfile.TemporaryDirectory() as scratch:
        question, answer = Path(scratch) / "asked.json", Path(scratch) / "answer.json"
        asked = {"folder": str(folder.resolve()), "lines": list(lines), "ids": own}
        question.write_text(json.dumps(asked), "utf-8")
        for label, python in readers.items():
            body = next(code for name, code in _READERS.items() if label.startswith(name))
            command = [python, "-c", _ASK.replace("{body}", body), str(question), str(answer)]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                found[label] = f"refused: {ran.stderr.strip().splitlines()[-1][:300]}"
                continue
            for what, wrong in json.loads(answer.read_text("utf-8")).items():
                found[label if what == "read" else f"{label}, {what}"] = wrong
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The results as Markdown; the last run of a graft in a program counts."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        known = last.setdefault((row["tokenizer"], row["boundaries"]), {**row, "found": {}})
        known["found"] |= row["found"]
    programs = list(
        dict.fromkeys(p for row in last.values() for p in row["found"] if p != "pattern")
    )
    programs = [program for program in programs if program != "nothing to relax"]
    head = ["tokenizer", "boundaries", *programs]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for (name, boundaries), row in last.items():
        found, count = row["found"], row["lines"]
        cells = [name, {"auto": "relaxed"}.get(boundaries, boundaries)]
        if "nothing to relax" in found:
            cells += ["nothing to relax", *[""] * (len(programs) - 1)]
        else:
            cells += [_cell(found.get(program, ""), count) for program in programs]
            if "pattern" in found:
                cells[2] += f" (`{found['pattern']}`)"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(wrong: Any, count: int) -> str:
    if isinstance(wrong, int):
        return f"{count - wrong:,} of {count:,}" if wrong else f"all {count:,}"
    return "refused" if str(wrong).startswith(("refused", "no ")) else str(wrong)


def quantised(folder: Path, base: Path, kind: str | None) -> bool:
    """Whether llama.cpp answers as the equally quantised base and writes no barred id.

    Without a kind `base` is the base's GGUF, which is extended.
    """
    lines = check_corpus(folder)
    barred = barred_ids(folder)
    english = split_patterns.folder_ids(folder, ENGLISH, frame=True)
    others = [prompt[:_PROMPT] for prompt in planned_prompts(folder, lines)]
    pattern = split_patterns.choose_pattern(folder, lines)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.gguf"
        if kind is None:
            write_from_base(read_gguf(base), folder, file, pre=pattern)
        else:
            write_gguf(folder, file, pre=pattern, kind=kind)
        with llama_cpp.serving(file) as llama:
            graft_wrote = [llama.complete(ids, _WRITTEN)["tokens"] for ids in english]
            free = [llama.complete(ids, _FREE, temperature=1.0)["tokens"] for ids in others]
        if kind is not None:
            write_gguf(base, file, pre=pattern, kind=kind)
        with llama_cpp.serving(base if kind is None else file) as llama:
            base_wrote = [llama.complete(ids, _WRITTEN)["tokens"] for ids in english]
    same = sum(a == b for a, b in zip(graft_wrote, base_wrote, strict=True))
    written = [number for answer in (*graft_wrote, *free) for number in answer]
    slipped = sum(number in barred for number in written)
    print(
        f"{kind or base.name}: {same} of {len(english)} English answers of {_WRITTEN} tokens are "
        f"the base's; {len(barred)} ids barred, {slipped} of {len(written)} written tokens are "
        f"such, after {len(others)} prompts that hold them; {len(lines)} lines read alike",
        flush=True,
    )
    return same == len(english) and not slipped


#: Times one prompt and a batch of them; argv: question, answer.
_VLLM = """
import json, sys, time
from vllm import LLM, SamplingParams
asked = json.load(open(sys.argv[1], encoding="utf-8"))
llm = LLM(asked["model"], max_model_len=asked["longest"], enforce_eager=True, dtype="float32",
          block_size=32, num_gpu_blocks_override=asked["cells"] // 32, max_num_seqs=32,
          enable_prefix_caching=False)
def took(count, tokens):
    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    begun = time.perf_counter()
    llm.generate([{"prompt_token_ids": asked["prompt"]}] * count, params, use_tqdm=False)
    return time.perf_counter() - begun
took(1, 2)
one = min(took(1, 1) for _ in range(3))
more = min(took(1, 1 + asked["written"]) for _ in range(3))
answer = {"prefill": one * 1000, "decode": (more - one) * 1000 / asked["written"],
          "requests": asked["requests"] / took(asked["requests"], asked["written"])}
json.dump(answer, open(sys.argv[2], "w"))
"""
_WRITTEN, _REQUESTS = 16, 16
_PROMPT, _FREE = 24, 6  # tokens of a prompt in a planned language, and of its answer


def speed(model: str, language: str, vllm: str | None, characters: int) -> None:
    """Base and graft in each program, the same text, the same number of KV cells."""
    from tokengraft.model.folder import resolve

    corpus = udhr.load([language])
    (code,) = corpus.languages
    text = " ".join(corpus.lines(code)[4:40])[:characters]
    with tempfile.TemporaryDirectory() as scratch:
        graft_folder = Path(scratch) / "graft"
        plan = tg.plan(model, [code], budget=1000, boundaries="portable")
        tg.graft(
            model, plan, out=graft_folder, policy="shared", method="mean", verified=False
        )  # fmt: skip
        folders = {"base": resolve(model).path, "graft": graft_folder}
        pattern = split_patterns.choose_pattern(graft_folder, [text])
        prompts = {n: split_patterns.folder_ids(f, [text])[0] for n, f in folders.items()}
        # Three of the base's requests fit at once.
        cells = -(-3 * (len(prompts["base"]) + _WRITTEN + 1) // 32) * 32
        names = ("program", "model", "tokens a character", "prefill ms a character",
                 "decode ms a character", "KV bytes a character", "requests a second")  # fmt: skip
        print(f"{model}, {code}, {len(text)} characters, {cells} KV cells\n")
        print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
        for program in ("llama.cpp", *(["vllm"] if vllm else [])):
            for name, folder in folders.items():
                prompt = prompts[name]
                if program == "llama.cpp":
                    file = Path(scratch) / f"{name}.gguf"
                    write_gguf(folder, file, pre=pattern)
                    taken = in_llama_cpp(file, prompt, cells)
                else:
                    taken = in_vllm(str(vllm), folder, prompt, cells)
                rate = len(prompt) / len(text)
                kv = kv_bytes(folder, 2 if program == "llama.cpp" else 4) * rate
                print(
                    f"| {program} | {name} | {rate:.3f} | {taken['prefill'] / len(text):.3f} | "
                    f"{taken['decode'] * rate:.3f} | {kv:,.0f} | {taken['requests']:.3f} |",
                    flush=True,
                )


def kv_bytes(folder: Path, width: int) -> int:
    """Bytes of the KV cache that a token takes."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    layers, kept = config["num_hidden_layers"], config.get("num_key_value_heads") or heads
    return int(2 * layers * kept * size * width)


def in_llama_cpp(file: Path, prompt: list[int], cells: int) -> dict[str, float]:
    """Milliseconds of a prompt and of a written token; requests a second in `cells` KV cells."""
    slots = cells // (len(prompt) + _WRITTEN)
    with llama_cpp.serving(file, context=cells) as llama:
        runs = [llama.complete(prompt, _WRITTEN)["timings"] for _ in range(3)]
    with llama_cpp.serving(file, context=cells, slots=slots) as llama:
        begun = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(slots) as pool:
            list(pool.map(lambda _: llama.again().complete(prompt, _WRITTEN), range(_REQUESTS)))
        requests = _REQUESTS / (time.perf_counter() - begun)
    return {
        "prefill": min(run["prompt_ms"] for run in runs),
        "decode": min(run["predicted_per_token_ms"] for run in runs),
        "requests": requests,
    }


def in_vllm(python: str, folder: Path, prompt: list[int], cells: int) -> dict[str, float]:
    """The same in vLLM, in the environment of `python`."""
    asked = {"model": str(folder.resolve()), "prompt": prompt, "cells": cells,
             "longest": len(prompt) + _WRITTEN + 2, "written": _WRITTEN,
             "requests": _REQUESTS}  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        question, answer = Path(scratch) / "asked.json", Path(scratch) / "answer.json"
        question.write_text(json.dumps(asked), "utf-8")
        command = [python, "-c", _VLLM, str(question), str(answer)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise SystemExit(f"vLLM ended with {ran.returncode}:\n{ran.stderr[-2000:]}")
        found: dict[str, float] = json.loads(answer.read_text("utf-8"))
        return found


if __name__ == "__main__":
    main()
