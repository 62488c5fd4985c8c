"""Export of a synthetic sharded checkpoint: peak memory, and time against plain `cp -r`.

    python benchmarks/export.py --gigabytes 8 --repeats 4

A Llama-shaped, untied bfloat16 checkpoint (128,256 x 4,096 tables, the rest filler matrices, in
shards of 2 GB) is written once; `cp -r` and `export` with 2,600 new tokens then take turns, each
timed until the data is on disk (`sync`), including the start of the interpreter. The export runs in
a separate process, whose peak resident memory the kernel reports. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.core.files import writing_folder
from tokengraft.grafting.write_folder import write_model
from tokengraft.model.checkpoint import INDEX, Tensor, header_bytes, read_json
from tokengraft.tokenizer.insert import Additions, first_free_id, insert

ROWS, WIDTH, NEW, LAYER = 128_256, 4_096, 2_600, 14_336
SHARD = 2 << 30


def main() -> None:
    """Make the checkpoint, time both, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--new", type=int, default=NEW)
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run_export(arguments.child[0], arguments.child[1], arguments.new)
        return
    work = Path(tempfile.mkdtemp(prefix="tokengraft-export-", dir=arguments.folder))
    try:
        print(json.dumps(measure(work, arguments.gigabytes, arguments.repeats, arguments.new)))
    finally:
        shutil.rmtree(work)


def measure(work: Path, gigabytes: float, repeats: int, new: int) -> dict[str, Any]:
    """Seconds of each, alternating, and the peak memory of the export."""
    base = work / "base"
    size = make(base, int(gigabytes * 1e9))
    child = [sys.executable, __file__, "--new", str(new), "--child", str(base), str(work / "to")]
    commands = {"cp": ["cp", "-r", str(base), str(work / "to")], "export": child}
    runs: dict[str, list[tuple[float, float, str]]] = {"cp": [], "export": []}
    for repeat in range(repeats):
        # Turn and turn about, since whoever comes second finds the page cache fuller.
        for name in sorted(commands, reverse=bool(repeat % 2)):
            runs[name].append(timed(commands[name]))
            shutil.rmtree(work / "to")
    inside = [json.loads(output) for _, _, output in runs["export"]]
    wall = {name: statistics.median(run[0] for run in found) for name, found in runs.items()}
    cpu = {name: statistics.median(run[1] for run in found) for name, found in runs.items()}
    return {
        "checkpoint_gb": round(size / 1e9, 2),
        "new_tokens": new,
        "cp_seconds": [round(run[0], 2) for run in runs["cp"]],
        "export_seconds": [round(run[0], 2) for run in runs["export"]],
        "cp_cpu_seconds": round(cpu["cp"], 2),
        "export_cpu_seconds": round(cpu["export"], 2),
        "wall_ratio": round(wall["export"] / wall["cp"], 2),
        "cpu_ratio": round(cpu["export"] / cpu["cp"], 2),
        "peak_gb": round(max(run["peak_bytes"] for run in inside) / 1e9, 3),
        "load_average": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def timed(command: list[str]) -> tuple[float, float, str]:
    """Wall seconds of a command until its data is on the disk, its CPU seconds, its output."""
    os.sync()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    os.sync()
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout


def run_export(base: Path, out: Path, new: int) -> None:
    """The export itself, in a process that does nothing else."""
    tokenizer = read_json(base / "tokenizer.json")
    grown = insert(tokenizer, additions(tokenizer, new))
    rows = np.random.default_rng(0).normal(0, 0.02, (new, WIDTH)).astype(np.float32)
    parts = [(i % 256, i % 251) for i in range(new)]
    with writing_folder(out) as folder:
        write_model(base, grown, rows, folder, parts=parts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak_bytes": peak}))


def additions(tokenizer: dict[str, Any], new: int) -> Additions:
    """Made-up tokens: the export does not care what they are."""
    first = first_free_id(tokenizer)
    return Additions(tokens=tuple((first + i, f"\u0100new{i}") for i in range(new)))


def make(folder: Path, size: int) -> int:
    """Write the checkpoint; returns the bytes of its tensors."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": ROWS,
        "hidden_size": WIDTH, "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    vocab = {f"t{i}": i for i in range(ROWS)}
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    tokenizer: dict[str, Any] = {
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "ByteLevel"},
        "model": model, "normalizer": None, "post_processor": None, "decoder": None,
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    table, filler = ROWS * WIDTH * 2, LAYER * WIDTH * 2
    names = [("model.embed_tokens.weight", ROWS, table)]
    count = max(1, (size - 2 * table) // filler)
    names += [(f"model.layers.{i}.mlp.up_proj.weight", LAYER, filler) for i in range(count)]
    names.append(("lm_head.weight", ROWS, table))
    shards: list[list[tuple[str, int, int]]] = [[]]
    for entry in names:
        if shards[-1] and sum(e[2] for e in shards[-1]) + entry[2] > SHARD:
            shards.append([])
        shards[-1].append(entry)
    placed = {}
    block = noise()
    for number, entries in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_shard(folder / file, entries, block)
        placed.update(dict.fromkeys((name for name, _, _ in entries), file))
    total = sum(entry[2] for entry in names)
    index = {"metadata": {"total_size": total}, "weight_map": placed}
    (folder / INDEX).write_text(json.dumps(index))
    return total


def noise() -> bytes:
    """64 MB of small finite bfloat16 numbers."""
    values = np.random.default_rng(1).normal(0, 0.02, 1 << 25).astype("<f4")
    return (values.view("<u4") >> 16).astype("<u2").tobytes()


def write_shard(path: Path, entries: list[tuple[str, int, int]], block: bytes) -> None:
    """One shard filled with repeated noise."""
    tensors, at = [], 0
    for name, rows, size in entries:
        tensors.append(Tensor(name, path.name, "BF16", (rows, WIDTH), at, at + size))
        at += size
    with path.open("wb") as file:
        file.write(header_bytes(tuple(tensors), {"format": "pt"}))
        for start in range(0, at, len(block)):
            file.write(block[: min(len(block), at - start)])


if __name__ == "__main__":
    main()
