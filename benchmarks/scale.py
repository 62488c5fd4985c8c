"""Large corpora: both engines against the bare libraries, `datasets.map` and a process pool.

    python benchmarks/scale.py --bytes 3e8 --tokenizer gpt2 --tokenizer llama-3
    python benchmarks/scale.py --corpus FOLDER --only local,ray --rounds 1
    python benchmarks/scale.py --tokenizer gpt2,llama-3,olmo-2  # all at once

Every measurement is a process of its own, in turns, so that a noisy machine disturbs all alike;
of each the fastest round counts. `net` leaves out the start (processes, tokenizers, Ray), which is
measured with the same call on a hundred rows. `cpu` is the processor time of the driver and all
processes below it (Ray's own too), also net: where others use the machine, it tells what the wall
clock cannot. All ways must give the same number of tokens. `bare` is the library's batch call with
a thread a core, `ideal` the same with a process a core (tiktoken's threads wait for each other); in
both the text is already in memory and only the calls are timed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WORKERS = 2
ROWS = 2048  # a batch of the bare calls, of the pool and of `datasets`


def texts_of(folder: Path) -> Iterator[str]:
    """The texts of the folder's JSONL files."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)["text"]


def batches(texts: Iterator[str]) -> Iterator[list[str]]:
    """Lists of `ROWS` texts."""
    held: list[str] = []
    for text in texts:
        held.append(text)
        if len(held) == ROWS:
            yield held
            held = []
    if held:
        yield held


def opened(names: str) -> list[Any]:
    """The tokenizers named, with commas between."""
    from tokengraft.tokenizer import load

    return [load(name) for name in names.split(",")]


def encode_all(tokenizers: list[Any], texts: list[str], threads: int) -> int:
    """Tokens of all tokenizers together."""
    return sum(sum(encode(tokenizer, texts, threads)) for tokenizer in tokenizers)


def encode(tokenizer: Any, texts: list[str], threads: int) -> list[int]:
    """The library's own batch call; tokens of each text."""
    if hasattr(tokenizer, "pipeline"):
        rows = tokenizer.pipeline.encode_batch_fast(texts, add_special_tokens=False)
    elif hasattr(tokenizer, "encoding"):
        if threads == 1:
            rows = [tokenizer.encoding.encode_ordinary(text) for text in texts]
        else:
            rows = tokenizer.encoding.encode_ordinary_batch(texts, num_threads=threads)
    else:
        rows = tokenizer.processor.encode(texts, num_threads=threads)
    return [len(row) for row in rows]


def bare(folder: Path, name: str, workers: int) -> dict[str, float]:
    """Text already in memory, nothing but the batch calls."""
    held = list(batches(texts_of(folder)))
    tokenizers = opened(name)
    start, spent = time.perf_counter(), time.process_time()
    tokens = sum(encode_all(tokenizers, batch, workers) for batch in held)
    ended = time.process_time() - spent
    return {"seconds": time.perf_counter() - start, "tokens": tokens, "cpu": ended}


def ideal(folder: Path, name: str, workers: int) -> dict[str, float]:
    """The most these cores can give: a process each, text in memory, nothing but batch calls."""
    context = multiprocessing.get_context("spawn")
    gate, queue = context.Barrier(workers + 1), context.SimpleQueue()
    shares = [(folder, name, number, workers, gate, queue) for number in range(workers)]
    made = [context.Process(target=_share, args=share) for share in shares]
    for process in made:
        process.start()
    gate.wait()
    start = time.perf_counter()
    counted = [queue.get() for _ in made]
    seconds = time.perf_counter() - start
    for process in made:
        process.join()
    tokens, spent = sum(pair[0] for pair in counted), sum(pair[1] for pair in counted)
    return {"seconds": seconds, "tokens": tokens, "cpu": spent}


def _share(folder: Path, name: str, number: int, workers: int, gate: Any, queue: Any) -> None:
    held = list(batches(texts_of(folder)))[number::workers]
    _open(name)
    gate.wait()
    spent = time.process_time()
    queue.put((sum(encode_all(_opened, batch, 1) for batch in held), time.process_time() - spent))


def engine(folder: Path, name: str, workers: int, which: str) -> dict[str, float]:
    """A whole run of ours, from finding the files to the table."""
    from tokengraft.api.verbs import survey
    from tokengraft.corpus.rows import Layout

    with tempfile.TemporaryDirectory() as state:
        start = time.perf_counter()
        result = survey(
            [folder],
            name.split(","),
            layout=Layout(language_column="lang"),
            engine=which,
            workers=workers,
            state=Path(state),
            shard_bytes=SHARD_BYTES,
        )
        height = result.counts.height
        seconds = time.perf_counter() - start
    tokens = int(result.counts["tokens"].sum())
    digest = hash_of(result.counts.write_csv())
    size = int(result.counts["bytes"].sum()) // len(name.split(","))
    assert result.total is not None
    cells = {"cells": height, "digest": digest, "shards": len(result.total.shards)}
    return {"seconds": seconds, "tokens": tokens, "bytes": size, **cells}


def hash_of(text: str) -> int:
    """A number that stands for the whole table."""
    from tokengraft.core.files import sha256

    return int(sha256(text.encode())[:12], 16)


_opened: Any = None


def _open(name: str) -> None:
    global _opened  # noqa: PLW0603
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _opened = opened(name)


def _count(texts: list[str]) -> int:
    return encode_all(_opened, texts, 1)


def pool(folder: Path, name: str, workers: int) -> dict[str, float]:
    """The plain way: the main process reads, a pool encodes batches."""
    start = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _open, (name,)) as made:
        tokens = sum(made.imap_unordered(_count, batches(texts_of(folder))))
    return {"seconds": time.perf_counter() - start, "tokens": tokens}


def _mapped(batch: dict[str, list[str]], name: str) -> dict[str, list[int]]:
    if _opened is None:
        _open(name)
    columns = [encode(tokenizer, batch["text"], 1) for tokenizer in _opened]
    return {"tokens": [sum(row) for row in zip(*columns, strict=True)]}


def mapped(folder: Path, name: str, workers: int) -> dict[str, float]:
    """`datasets`: files to Arrow (timed apart), then `map` with processes."""
    with tempfile.TemporaryDirectory() as cache:
        import datasets

        datasets.disable_progress_bars()
        start = time.perf_counter()
        files = [str(path) for path in sorted(folder.glob("*.jsonl"))]
        made = datasets.load_dataset("json", data_files=files, split="train", cache_dir=cache)
        loaded = time.perf_counter()
        counted = made.map(
            _mapped,
            batched=True,
            batch_size=ROWS,
            num_proc=workers,
            fn_kwargs={"name": name},
            remove_columns=made.column_names,
        )
        tokens = sum(counted.data.column("tokens").to_pylist())
        ended = time.perf_counter()
    return {"seconds": ended - loaded, "load": loaded - start, "tokens": tokens}


SHARD_BYTES = 16 << 20
WAYS: dict[str, Any] = {
    "bare": bare,
    "ideal": ideal,
    "local": lambda folder, name, workers: engine(folder, name, workers, "local"),
    "ray": lambda folder, name, workers: engine(folder, name, workers, "ray"),
    "pool": pool,
    "datasets": mapped,
}


def measure(way: str, folder: Path, name: str, workers: int) -> dict[str, Any]:
    """One way in a process of its own; seconds, and peak memory of driver and worker in MB."""
    command = [sys.executable, __file__, "--way", way, "--corpus", str(folder)]
    command += ["--tokenizer", name, "--workers", str(workers)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        peaks = {"driver": 0.0, "worker": 0.0}
        spent: dict[int, float] = {}
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, peaks, spent, ended))
        watcher.start()
        output, _ = process.communicate()
        ended.set()
        watcher.join()
        if process.returncode:
            log.seek(0)
            sys.exit(f"{way} failed:\n{log.read().decode()[-2000:]}")
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return {"cpu": sum(spent.values())} | found | peaks


def _watch(
    pid: int, peaks: dict[str, float], spent: dict[int, float], ended: threading.Event
) -> None:
    """Sample memory of driver and workers, and everyone's processor time, ten times a second."""
    import psutil

    while not ended.wait(0.1):
        try:
            driver = psutil.Process(pid)
            peaks["driver"] = max(peaks["driver"], driver.memory_info().rss / 1e6)
            spent[pid] = sum(driver.cpu_times()[:2])
            for child in driver.children(recursive=True):
                spent[child.pid] = sum(child.cpu_times()[:2])
                words = " ".join(child.cmdline())
                if "spawn_main" in words or "MapWorker" in words:
                    peaks["worker"] = max(peaks["worker"], child.memory_info().rss / 1e6)
        except psutil.Error:
            continue


def compare(folder: Path, tiny: Path, name: str, ways: list[str], rounds: int) -> dict[str, Any]:
    """Every way in turns, the fastest round of each; starts on the tiny corpus."""
    alone = "bare" in ways
    tried: dict[str, list[dict[str, Any]]] = {}
    starts: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for way in ways:
            for workers in (1, WORKERS) if way in ("local", "ray") and alone else (WORKERS,):
                label = f"{way} {workers}"
                tried.setdefault(label, []).append(measure(way, folder, name, workers))
                print(f"  {label:12} {tried[label][-1]}", file=sys.stderr, flush=True)
                if way not in ("bare", "ideal") and alone:
                    starts.setdefault(label, []).append(measure(way, tiny, name, workers))
    tokens = {row["tokens"] for rows in tried.values() for row in rows}
    digests = {row["digest"] for rows in tried.values() for row in rows if "digest" in row}
    if len(tokens) > 1 or len(digests) > 1:
        sys.exit(f"{name}: the ways disagree: {tokens}, {digests}")
    best = {label: min(rows, key=lambda row: row["seconds"]) for label, rows in tried.items()}
    for label, row in best.items():
        begun = starts.get(label, [{"seconds": 0.0, "cpu": 0.0}])
        row["start"] = min(start["seconds"] for start in begun)
        row["net"] = row["seconds"] - row["start"]
        row["cpu"] = min(other["cpu"] for other in tried[label])
        row["cpu"] -= min(start["cpu"] for start in begun)
        for peak in ("driver", "worker"):
            row[peak] = max(other[peak] for other in tried[label])
    size = max(row.get("bytes", 0) for row in best.values())
    return {"tokenizer": name, "bytes": size, "tokens": tokens.pop(), "ways": best}


def show(result: dict[str, Any]) -> None:
    """One line a way, then the ratios that are wanted."""
    size, ways = result["bytes"], result["ways"]
    print(f"\n{result['tokenizer']}: {size / 1e6:,.0f} MB of text, {result['tokens']:,} tokens")
    print("way              s   start    MB/s   net MB/s   cpu s  MB/cpu s  driver MB  worker MB")
    for label, row in ways.items():
        print(
            f"{label:11} {row['seconds']:7.1f} {row['start']:7.1f} "
            f"{size / 1e6 / row['seconds']:7.2f} {size / 1e6 / row['net']:10.2f} "
            f"{row['cpu']:7.1f} {size / 1e6 / row['cpu']:9.2f} "
            f"{row['driver']:10.0f} {row['worker']:10.0f}"
        )
    alone = ways.get(f"bare {WORKERS}")
    if alone is None:
        return
    for way, goal in (("local", 0.85), ("ray", 0.75)):
        two, one = ways.get(f"{way} {WORKERS}"), ways.get(f"{way} 1")
        if two and one:
            speedup = one["net"] / two["net"]
            ideal = ways.get(f"ideal {WORKERS}")
            ideally = f"{ideal['seconds'] / two['net']:.2f} × ideal net; " if ideal else ""
            print(
                f"{way}: {alone['seconds'] / two['net']:.2f} × bare net of the start (goal ≥ "
                f"{goal}), {alone['seconds'] / two['seconds']:.2f} × with it; "
                f"{ideally}1 → {WORKERS} workers {speedup:.2f} × "
                f"(serial share {max(0.0, 2 / speedup - 1):.3f}); by "
                f"processor time {alone['cpu'] / two['cpu']:.2f} × bare"
            )


def serial_seconds(languages: int = 100, tokenizers: int = 10, shards: int = 300) -> float:
    """What the driver alone does for a shard: keep its outcome, read it back, add it up."""
    from tokengraft.core.cache import Store
    from tokengraft.engine.count_shards import Payload, ShardResult, add

    codes = [f"l{n:03}" for n in range(languages)]
    text = {code: [12345, 12345678, 4567890] for code in codes}
    tokens = {f"t{n}": {code: [3456789, 0, 234567] for code in codes} for n in range(tokenizers)}
    data = ShardResult({"text": text, "tokens": tokens}).pack()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder), "shards.sqlite")
        total: Payload = {}
        start = time.perf_counter()
        for number in range(shards):
            ShardResult.unpack(data)
            store.put(str(number), data)
        for number in range(shards):
            ShardResult.unpack(store.get(str(number)) or b"")
        for number in range(shards):
            add(total, ShardResult.unpack(store.get(str(number)) or b"").payload)
        seconds = time.perf_counter() - start
        store.close()
    return seconds / shards


def main() -> None:
    """Generate the corpus unless one is given, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--bytes", type=float, default=2e8)
    parser.add_argument("--tokenizer", action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.tokenizer or ["gpt2", "llama-3"]
    if options.way:
        print(json.dumps(WAYS[options.way](options.corpus, names[0], options.workers)))
        return
    sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
    from make_corpus import make  # type: ignore[import-not-found,unused-ignore]

    ways = options.only.split(",")
    with tempfile.TemporaryDirectory() as made:
        folder, tiny = options.corpus or Path(made) / "corpus", Path(made) / "tiny"
        if options.corpus is None:
            make(folder, int(options.bytes), ["jsonl"], 4)
        make(tiny, 40_000, ["jsonl"], 4)
        results = []
        for name in names:
            results.append(compare(folder, tiny, name, ways, options.rounds))
            show(results[-1])
    print(f"\ndriver, 100 languages × 10 tokenizers: {1e3 * serial_seconds():.1f} ms a shard")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
