"""Large corpora: both engines against the bare libraries, `datasets.map` and a process pool.

    python benchmarks/scale.py --bytes 3e8 --tokenizer gpt2 --tokenizer llama-3
    python benchmarks/scale.py --corpus FOLDER --only local,ray --rounds 1
    python benchmarks/scale.py --tokenizer gpt2,llama-3,olmo-2  # all at once
    python benchmarks/scale.py --corpus FOLDER --sample 2  # the libraries on two of its files only

Every measurement runs in its own process, in turns, so that a noisy machine disturbs all alike; the
fastest round of each counts. `net` leaves out the start (processes, tokenizers, Ray), which is
measured with the same call on a hundred rows. `cpu` is the processor time of the driver and all
processes below it (Ray's own too), also net: on a machine that others use too it says more than the
wall clock. All ways must give the same tokens for every tokenizer and language (with --sample, for
the sampled files, as part of what the engines counted). `bare` is the library's batch call with a
thread per core, `ideal` the same with a process per core (tiktoken's threads wait for each other);
in both the text is already in memory and only the calls are timed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

WORKERS = 2
ROWS = 2048  # a batch of the bare calls, of the pool and of `datasets`


Row = tuple[str, str]  # language, text
Tokens = dict[str, dict[str, int]]  # by tokenizer and language


def rows_of(folder: Path) -> Iterator[Row]:
    """The rows of the folder's JSONL files."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                yield row["lang"], row["text"]


def batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Lists of `ROWS` rows."""
    while held := list(islice(rows, ROWS)):
        yield held


def opened(names: str) -> list[Any]:
    """The tokenizers of a comma-separated list of names."""
    from tokengraft.tokenizer import load

    return [load(name) for name in names.split(",")]


def encode_all(tokenizers: list[Any], texts: list[str], threads: int) -> list[list[int]]:
    """Tokens of each text by each tokenizer."""
    return [encode(tokenizer, texts, threads) for tokenizer in tokenizers]


def counted(name: str, batch: list[str], columns: list[list[int]], into: Tokens) -> Tokens:
    """Add the tokens of texts in these languages to the sums."""
    for tokenizer, column in zip(name.split(","), columns, strict=True):
        sums = into.setdefault(tokenizer, {})
        for language, tokens in zip(batch, column, strict=True):
            sums[language] = sums.get(language, 0) + tokens
    return into


def told(sums: Tokens) -> dict[str, int]:
    """The total of tokens, and a hash of the whole table."""
    tokens = sum(sum(languages.values()) for languages in sums.values())
    return {"tokens": tokens, "table": hash_of(json.dumps(sums, sort_keys=True))}


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
    """The batch calls alone, with the text already in memory."""
    held = list(batches(rows_of(folder)))
    texts = [[text for _, text in batch] for batch in held]
    tokenizers = opened(name)
    start, spent = time.perf_counter(), time.process_time()
    columns = [encode_all(tokenizers, batch, workers) for batch in texts]
    seconds, spent = time.perf_counter() - start, time.process_time() - spent
    sums: Tokens = {}
    for batch, column in zip(held, columns, strict=True):
        counted(name, [language for language, _ in batch], column, sums)
    return {"seconds": seconds, "cpu": spent, "bytes": size_of(texts), **told(sums)}


def size_of(texts: list[list[str]]) -> int:
    """Bytes of text."""
    return sum(len(text.encode()) for batch in texts for text in batch)


def ideal(folder: Path, name: str, workers: int) -> dict[str, float]:
    """The most these cores can do: a process each, text in memory, nothing but batch calls."""
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
    held = [
        [text for _, text in batch] for batch in list(batches(rows_of(folder)))[number::workers]
    ]
    _open(name)
    gate.wait()
    spent = time.process_time()
    queue.put((sum(map(_count, held)), time.process_time() - spent))


def engine(
    folder: Path, name: str, workers: int, which: str, sample: frozenset[str]
) -> dict[str, float]:
    """A whole run of our engine, from finding the files to the table."""
    from tokengraft.api.verbs import survey
    from tokengraft.core.cache import Store
    from tokengraft.corpus.rows import Layout
    from tokengraft.engine.count_shards import STATE, Payload, ShardResult, add

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
        assert result.total is not None
        shards, store = result.total.shards, Store(Path(state), STATE)
        payload: Payload = {}
        for shard in shards:
            if not sample or Path(str(shard["file"])).name in sample:
                data = store.get(str(shard["key"])) or b""
                add(payload, ShardResult.unpack(data).payload)
        store.close()
    sums = {
        tokenizer: {language: row[0] for language, row in languages.items()}
        for tokenizer, languages in payload["tokens"].items()
    }
    digest = hash_of(result.counts.write_csv())
    size = int(result.counts["bytes"].sum()) // len(name.split(","))
    cells = {"cells": height, "digest": digest, "shards": len(shards)}
    return {"seconds": seconds, "bytes": size, **cells, **told(sums)}


def hash_of(text: str) -> int:
    """A hash of the whole table."""
    from tokengraft.core.files import sha256

    return int(sha256(text.encode())[:12], 16)


_opened: Any = None


def _open(name: str) -> None:
    global _opened  # noqa: PLW0603
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _opened = opened(name)


def _count(texts: list[str]) -> int:
    return sum(map(sum, encode_all(_opened, texts, 1)))


def pool(folder: Path, name: str, workers: int) -> dict[str, float]:
    """The simple way: the main process reads, a pool encodes batches."""
    start = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _open, (name,)) as made:
        texts = ([text for _, text in batch] for batch in batches(rows_of(folder)))
        tokens = sum(made.imap_unordered(_count, texts))
    return {"seconds": time.perf_counter() - start, "tokens": tokens}


def _mapped(batch: dict[str, list[str]], name: str) -> dict[str, list[Any]]:
    if _opened is None:
        _open(name)
    columns = encode_all(_opened, batch["text"], 1)
    return {"lang": batch["lang"], **dict(zip(name.split(","), columns, strict=True))}


def mapped(folder: Path, name: str, workers: int) -> dict[str, float]:
    """`datasets`: files to Arrow (timed apart), then `map` with processes."""
    with tempfile.TemporaryDirectory() as cache:
        import datasets

        datasets.disable_progress_bars()
        start = time.perf_counter()
        files = [str(path) for path in sorted(folder.glob("*.jsonl"))]
        made = datasets.load_dataset("json", data_files=files, split="train", cache_dir=cache)
        loaded = time.perf_counter()
        tokens = made.map(
            _mapped,
            batched=True,
            batch_size=ROWS,
            num_proc=workers,
            fn_kwargs={"name": name},
            remove_columns=made.column_names,
        )
        table = {column: tokens.data.column(column).to_pylist() for column in tokens.column_names}
        ended = time.perf_counter()
        size = size_of([made["text"]])
    sums = counted(name, table["lang"], [table[one] for one in name.split(",")], {})
    return {"seconds": ended - loaded, "load": loaded - start, "bytes": size, **told(sums)}


SHARD_BYTES = 16 << 20
ENGINES = ("local", "ray")
WAYS: dict[str, Any] = {
    "bare": bare,
    "ideal": ideal,
    "local": lambda folder, name, workers, sample: engine(folder, name, workers, "local", sample),
    "ray": lambda folder, name, workers, sample: engine(folder, name, workers, "ray", sample),
    "pool": pool,
    "datasets": mapped,
}


def measure(
    way: str, folder: Path, name: str, workers: int, sample: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """One way in a separate process; seconds, and peak memory of driver and worker in MB."""
    command = [sys.executable, __file__, "--way", way, "--corpus", str(folder)]
    command += ["--files", ",".join(sorted(sample))]
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
                if "spawn_main" in words or "CountingActor" in words:
                    peaks["worker"] = max(peaks["worker"], child.memory_info().rss / 1e6)
        except psutil.Error:
            continue


def compare(
    folder: Path, tiny: Path, name: str, ways: list[str], rounds: int, sampled: Path | None = None
) -> dict[str, Any]:
    """Every way in turns, the fastest round of each; start-up is measured on the tiny corpus.

    If `sampled` is given, all ways but the engines read only its files.
    """
    alone = "bare" in ways
    sample = frozenset(path.name for path in sampled.iterdir()) if sampled else frozenset()
    tried: dict[str, list[dict[str, Any]]] = {}
    starts: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for way in ways:
            both = way in ENGINES and alone and not sampled
            where = folder if way in ENGINES or sampled is None else sampled
            for workers in (1, WORKERS) if both else (WORKERS,):
                label = f"{way} {workers}"
                tried.setdefault(label, []).append(measure(way, where, name, workers, sample))
                print(f"  {label:12} {tried[label][-1]}", file=sys.stderr, flush=True)
                if way not in ("bare", "ideal"):
                    starts.setdefault(label, []).append(measure(way, tiny, name, workers))
    for agreed in ("tokens", "table", "digest"):  # `ideal` and the pool tell their tokens only
        values = {row[agreed] for rows in tried.values() for row in rows if agreed in row}
        if len(values) > 1:
            sys.exit(f"{name}: the ways disagree: {agreed} {values}")
    best = {label: min(rows, key=lambda row: row["seconds"]) for label, rows in tried.items()}
    size = max(row.get("bytes", 0) for row in best.values())
    for label, row in best.items():
        begun = starts.get(label, [{"seconds": 0.0, "cpu": 0.0}])
        row["bytes"] = row.get("bytes", size)
        row["start"] = min(start["seconds"] for start in begun)
        row["net"] = row["seconds"] - row["start"]
        row["cpu"] = min(other["cpu"] for other in tried[label])
        row["cpu"] -= min(start["cpu"] for start in begun)
        for peak in ("driver", "worker"):
            row[peak] = max(other[peak] for other in tried[label])
    agreed_tokens = next(iter(best.values()))["tokens"]
    return {"tokenizer": name, "bytes": size, "tokens": agreed_tokens, "ways": best}


def show(result: dict[str, Any]) -> None:
    """Print one line per way, then ratios of megabytes per second."""
    ways = result["ways"]
    print(f"\n{result['tokenizer']}: {result['tokens']:,} tokens, the same by all ways")
    print("way           MB        s   start    MB/s   net MB/s   cpu s  MB/cpu s  driver  worker")
    for label, row in ways.items():
        size = row["bytes"] / 1e6
        print(
            f"{label:11} {size:6,.0f} {row['seconds']:7.1f} {row['start']:7.1f} "
            f"{size / row['seconds']:7.2f} {size / row['net']:10.2f} {row['cpu']:7.1f} "
            f"{size / row['cpu']:9.2f} {row['driver']:7.0f} {row['worker']:10.0f}"
        )

    def faster(one: str, other: str, by: str) -> str:
        if min(ways[label][by] for label in (one, other)) <= 0:
            return "(too short to say)"
        speeds = [ways[label]["bytes"] / ways[label][by] for label in (one, other)]
        return f"{speeds[0] / speeds[1]:.2f} ×"

    for way, other in (*product(ENGINES, ("bare", "ideal", "datasets")), ("ray", "local")):
        one, two = f"{way} {WORKERS}", f"{other} {WORKERS}"
        if one in ways and two in ways:
            print(
                f"{way}: {faster(one, two, 'seconds')} {other}, "
                f"{faster(one, two, 'net')} net of the start, "
                f"{faster(one, two, 'cpu')} by processor time"
            )
    for way in ENGINES:
        if f"{way} 1" in ways:
            speedup = faster(f"{way} {WORKERS}", f"{way} 1", "net")
            print(f"{way}: 1 → {WORKERS} workers {speedup}")


def serial_seconds(languages: int = 100, tokenizers: int = 10, shards: int = 300) -> float:
    """Seconds per shard that only the driver works: store its result, read it back, add it up."""
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
    parser.add_argument("--sample", type=int, default=0, help="files, drawn at random")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--files", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.tokenizer or ["gpt2", "llama-3"]
    if options.way:
        files = frozenset(filter(None, options.files.split(",")))
        more = (files,) if options.way in ENGINES else ()
        print(json.dumps(WAYS[options.way](options.corpus, names[0], options.workers, *more)))
        return
    sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
    from make_corpus import make  # type: ignore[import-not-found,unused-ignore]

    ways = options.only.split(",")
    with tempfile.TemporaryDirectory() as made:
        folder, tiny = options.corpus or Path(made) / "corpus", Path(made) / "tiny"
        if options.corpus is None:
            make(folder, int(options.bytes), ["jsonl"], 4)
        make(tiny, 40_000, ["jsonl"], 4)
        sampled = Path(made) / "sample" if options.sample else None
        if sampled:
            sampled.mkdir()
            for path in random.Random(1).sample(sorted(folder.glob("*.jsonl")), options.sample):
                (sampled / path.name).symlink_to(path.resolve())
        results = []
        for name in names:
            results.append(compare(folder, tiny, name, ways, options.rounds, sampled))
            show(results[-1])
    print(f"\ndriver, 100 languages × 10 tokenizers: {1e3 * serial_seconds():.1f} ms a shard")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
