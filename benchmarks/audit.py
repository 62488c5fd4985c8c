"""Time of an audit of FLORES-200 against bare batch calls of the same libraries, in one run.

    python benchmarks/audit.py --corpus flores200.tar.xz --tokenizers paper-ten.tar.xz

Without --corpus the bundled UDHR is used; tokenizers that cannot be found (M2M-100 is not bundled)
are named and left out. Prints ratios of wall and processor time, peak memory and the cost of a
second run. Bare calls and audit take turns, tokenizer by tokenizer, each in the same process state,
so that a noisy machine disturbs both alike. Work that all tokenizers share (hashing the text and
counting its characters) has its own line and is part of the sum. Both sides run on the cores that
the process may use (`taskset -c 0` for one); `--every 5` takes every fifth language.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from tokengraft.api.results import Audit
from tokengraft.api.verbs import audit
from tokengraft.auditing.count_corpus import count_corpus, count_texts
from tokengraft.core.cache import Store
from tokengraft.core.errors import Unavailable
from tokengraft.corpus import load as load_corpus
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.engine.protocol import cores
from tokengraft.tokenizer import Located, Tokenizer, find
from tokengraft.tokenizer.catalog import PAPER
from tokengraft.tokenizer.huggingface import HuggingFace
from tokengraft.tokenizer.openai import TikToken
from tokengraft.tokenizer.sentence_piece import SentencePiece

T = TypeVar("T")


def bare(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    """The library's own batch call: tokens of each text."""
    if isinstance(tokenizer, HuggingFace):
        rows: Any = tokenizer.pipeline.encode_batch_fast(texts, add_special_tokens=False)
    elif isinstance(tokenizer, TikToken):
        rows = tokenizer.encoding.encode_ordinary_batch(texts, num_threads=cores())
    else:
        assert isinstance(tokenizer, SentencePiece)
        rows = tokenizer.processor.encode(texts, num_threads=cores())
    return list(map(len, rows))


@dataclass(frozen=True)
class Spent:
    """Seconds of wall-clock and of processor time."""

    wall: float = 0.0
    processors: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.wall + other.wall, self.processors + other.processors)


def timed(work: Callable[[], T]) -> tuple[T, Spent]:
    """The result of the work, and the time it took."""
    start, spent = time.perf_counter(), time.process_time()
    result = work()
    return result, Spent(time.perf_counter() - start, time.process_time() - spent)


def shared(corpus: ParallelCorpus, folder: Path) -> None:
    """Do the work that all tokenizers share: hashes, bytes and characters."""
    for code in corpus.languages:
        corpus.digest(code)
    count_texts(corpus, Store(folder))


def race(
    corpus: ParallelCorpus, found: Located, folder: Path, reference: bool
) -> tuple[Spent, Spent, str]:
    """Time of the bare calls and of the audit with one tokenizer, including opening it.

    The third value says which library counted. Their tokens must be the same, line by line.
    """
    lines = {code: corpus.lines(code) for code in corpus.languages}

    def call() -> dict[str, list[int]]:
        tokenizer = found.open()
        return {code: bare(tokenizer, texts) for code, texts in lines.items()}

    theirs, alone = timed(call)
    own = [found.name] if reference else []
    counts, ours = timed(lambda: count_corpus(corpus, [found], Store(folder), reference=own))
    for code, tokens in theirs.items():
        if counts[found.name, code].tokens.tolist() != tokens:
            sys.exit(f"{found.name}: other tokens than the library's in {code}")
    return alone, ours, counts.encoders[found.name]


def measured_audit(
    corpus: str, languages: list[str], names: list[str], search: list[Path], folder: Path, pipe: Any
) -> None:
    """A whole audit in a separate process: seconds and peak memory in MB."""
    start = time.perf_counter()
    store = Store(folder)
    result = audit(corpus, names, languages, search=search, store=store)
    tables(result)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send((time.perf_counter() - start, peak))


def tables(result: Audit) -> int:
    """Compute every table."""
    return sum(table.height for table in result.tables().values())


def main() -> None:
    """Run all of it and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default="udhr")
    parser.add_argument("--tokenizers", type=Path, action="append", default=[])
    parser.add_argument("--every", type=int, default=1, help="every nth language, and English")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--reference", action="store_true", help="use no fast library")
    options = parser.parse_args()
    corpus = load_corpus(options.corpus)
    if options.every > 1:
        corpus = corpus.select(dict.fromkeys(["eng_Latn", *corpus.languages[:: options.every]]))
    alone: dict[str, Spent] = {}
    ours: dict[str, Spent] = {}
    with tempfile.TemporaryDirectory() as folder:
        _, ours["shared"] = timed(lambda: shared(corpus, Path(folder)))
        print(f"{'hashes and bytes':18} {'':14}   audit {ours['shared'].wall:7.1f} s", flush=True)
        for name in PAPER:
            try:
                found = find(name, options.tokenizers)
            except Unavailable as reason:
                print(f"left out: {reason}", file=sys.stderr)
                continue
            alone[name], ours[name], by = race(
                corpus, found, Path(folder) / name, options.reference
            )
            say(name, alone[name], ours[name], by)
    in_all, counting = sum(alone.values(), Spent()), sum(ours.values(), Spent())
    say("all", in_all, counting, "")
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for _ in range(2):
            reader, writer = multiprocessing.Pipe(duplex=False)
            inputs = (options.corpus, list(corpus.languages), list(alone), options.tokenizers)
            process = multiprocessing.get_context("spawn").Process(
                target=measured_audit, args=(*inputs, Path(folder), writer)
            )
            process.start()
            runs.append(reader.recv())
            process.join()
    (first, _), (second, _) = runs
    peak = max(run[1] for run in runs)
    print(
        f"\n{len(corpus.languages)} languages × {len(corpus.units)} lines × {len(alone)} tokenizers"
        f"\nbare batch calls        {in_all.wall:8.1f} s\n"
        f"counting                {counting.wall:8.1f} s   {counting.wall / in_all.wall:.2f} × bare"
        f" (goal ≤ 0.3), by processor time {counting.processors / in_all.processors:.2f} ×\n"
        f"whole audit, tables     {first:8.1f} s   {first / in_all.wall:.2f} × bare\n"
        f"second run              {second:8.1f} s   {second / first:.1%} of the first (goal ≤ 2%)"
        f"\npeak memory             {peak:8.0f} MB  (goal ≤ 900)"
    )
    if options.json:
        spent = {"bare": alone, "audit": ours}
        figures = {side: {k: asdict(v) for k, v in rows.items()} for side, rows in spent.items()}
        runs_of = {"audit_s": first, "second_s": second, "peak_mb": peak}
        options.json.write_text(json.dumps(figures | runs_of, indent=1) + "\n")


def say(name: str, alone: Spent, ours: Spent, by: str) -> None:
    """Print a line of the table."""
    print(
        f"{name:18} bare {alone.wall:7.1f} s   audit {ours.wall:7.1f} s   "
        f"{ours.wall / alone.wall:.2f}×   of processors {ours.processors / alone.processors:.2f}×"
        f"   {by}",
        flush=True,
    )


if __name__ == "__main__":
    main()
