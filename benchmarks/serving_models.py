"""Real models in the programs people use: English, barred ids and speed, compared with the base.

    python benchmarks/serving_models.py quantised GRAFT BASE [--kind Q8_0 …] [--base-gguf FILE]
    python benchmarks/serving_models.py http GRAFT --vllm PYTHON [--port 8041]
    python benchmarks/serving_models.py speed [--model rootstock] [--language shn] [--vllm PYTHON]

`quantised` writes a graft and its base as GGUF of each kind and lets llama.cpp answer: English must
be the base's, and no barred id may be written after 50 prompts in the planned languages. `http`
serves a graft with vLLM's own server and sends the same prompts as text, without any parameter that
bars ids: every prompt must get the folder's ids, and no barred id may be written. `speed` serves
base and graft in turn: tokens per character, prefill, decode, KV cache per character, requests per
second with the same cache. `--vllm` is the Python of an environment with vLLM and tokengraft. Needs
`tokengraft[serve,model]`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokengraft as tg
from tokengraft.corpus import udhr
from tokengraft.grafting.small_files import barred_ids
from tokengraft.serving import llama_cpp, split_patterns
from tokengraft.serving.export_gguf import check_corpus
from tokengraft.serving.gguf_file import read_gguf, write_from_base, write_gguf
from tokengraft.serving.in_programs import ENGLISH, planned_prompts

_PATIENCE = 280  # seconds until vLLM must serve
_TEXT = 60  # characters of a prompt


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("quantised")
    one.add_argument("graft", type=Path)
    one.add_argument("base", type=Path)
    one.add_argument("--kind", action="append", default=[])
    one.add_argument("--base-gguf", type=Path, help="the base's own file, to be extended")
    one.add_argument("--work", type=Path, help="a folder for the files, to be taken up again")
    one = parts.add_parser("http")
    one.add_argument("graft", type=Path)
    one.add_argument("--vllm", required=True)
    one.add_argument("--port", type=int, default=8041)
    one = parts.add_parser("speed")
    one.add_argument("--model", default="rootstock")
    one.add_argument("--language", default="shn_Mymr")
    one.add_argument("--characters", type=int, default=300)
    one.add_argument("--vllm")
    options = parser.parse_args()
    if options.part == "speed":
        speed(options.model, options.language, options.vllm, options.characters)
        return
    if options.part == "http":
        right = [over_http(options.graft, options.vllm, options.port)]
    else:
        kinds = options.kind if options.kind or options.base_gguf else ["Q8_0", "Q4_K_M"]
        with tempfile.TemporaryDirectory() as scratch:
            work = options.work or Path(scratch)
            right = [quantised(options.graft, options.base, kind, work) for kind in kinds]
            if options.base_gguf:
                right.append(quantised(options.graft, options.base_gguf, None, work))
    if not all(right):
        sys.exit(1)


def quantised(folder: Path, base: Path, kind: str | None, work: Path) -> bool:
    """Whether llama.cpp answers as the equally quantised base and writes no barred id.

    Without a kind, `base` is the base's GGUF, which is extended. Files and answers in `work` are
    used again: a run that was interrupted resumes where it stopped.
    """
    lines = check_corpus(folder)
    barred = barred_ids(folder)
    corpus = udhr.load(["eng_Latn"])
    articles = [line[:_TEXT] for line in corpus.lines(*corpus.languages)[4:16]]
    english = split_patterns.folder_ids(folder, [*ENGLISH, *articles], frame=True)
    others = [prompt[:_PROMPT] for prompt in planned_prompts(folder, lines)]
    pattern = split_patterns.choose_pattern(folder, lines)
    file = work / f"graft-{kind}.gguf"
    if not file.exists() and kind is None:
        write_from_base(read_gguf(base), folder, file, pre=pattern)
    elif not file.exists():
        write_gguf(folder, file, pre=pattern, kind=kind)
    graft_wrote = answers(file, english, _WRITTEN, 0.0, work / f"graft-{kind}.english")
    free = answers(file, others, _FREE, 1.0, work / f"graft-{kind}.free")
    bare = base if kind is None else work / f"base-{kind}.gguf"
    if not bare.exists():
        write_gguf(base, bare, pre=pattern, kind=kind)
    base_wrote = answers(bare, english, _WRITTEN, 0.0, work / f"base-{kind}.english")
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


def answers(
    file: Path, prompts: list[list[int]], count: int, temperature: float, kept: Path
) -> list[list[int]]:
    """What llama.cpp writes after each prompt; each answer is appended to the file `kept`."""
    known = [json.loads(line) for line in kept.open(encoding="utf-8")] if kept.exists() else []
    if len(known) < len(prompts):
        with llama_cpp.serving(file) as llama, kept.open("a", encoding="utf-8") as more:
            for ids in prompts[len(known) :]:
                known.append(llama.complete(ids, count, temperature)["tokens"])
                print(json.dumps(known[-1]), file=more, flush=True)
    return known


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
            model, plan, out=graft_folder, policy="paper.shared", method="mean", verified=False
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
    """Milliseconds per prompt and per written token; requests per second in `cells` KV cells."""
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


def over_http(folder: Path, python: str, port: int) -> bool:
    """Whether vLLM's server gives prompts the folder's ids and never writes a barred id."""
    barred, read, written = barred_ids(folder), 0, []
    texts = [line[:_TEXT] for line in check_corpus(folder)]
    every = list(zip(texts, split_patterns.folder_ids(folder, texts), strict=True))
    planned = [(text, ids) for text, ids in every if barred & set(ids)]
    prompts = planned[:: -(-len(planned) // 50)]
    with vllm_server(folder, python, port) as url:
        for text, ids in prompts:
            asked = {"prompt": text, "max_tokens": 8, "return_token_ids": True}
            answer = ask(f"{url}/v1/completions", {**asked, "add_special_tokens": False})
            choice = answer["choices"][0]
            read += choice["prompt_token_ids"] == ids
            written += choice["token_ids"]
    slipped = sum(number in barred for number in written)
    print(
        f"vLLM over HTTP: {read} of {len(prompts)} prompts get the folder's ids; {len(barred):,} "
        f"ids barred, {slipped} of {len(written)} written tokens are such",
        flush=True,
    )
    return read == len(prompts) and not slipped


@contextlib.contextmanager
def vllm_server(folder: Path, python: str, port: int) -> Iterator[str]:
    """Run vLLM's server on a folder, with nothing set but its size; gives its address."""
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder),
               "--port", str(port), "--max-model-len", "256", "--enforce-eager"]  # fmt: skip
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + _PATIENCE
            while not _answers(url):
                if child.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"vLLM does not serve:\n{log.read()[-3000:].decode()}")
                time.sleep(0.5)
            yield url
        finally:
            child.terminate()
            child.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def ask(url: str, value: dict[str, Any]) -> dict[str, Any]:
    """POST a question as JSON and return the answer."""
    request = urllib.request.Request(
        url, json.dumps(value).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        answered: dict[str, Any] = json.loads(answer.read())
        return answered


if __name__ == "__main__":
    main()
