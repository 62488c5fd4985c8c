"""Audit of FLORES-200 against the same libraries' bare batch calls, in one run.

    python benchmarks/audit.py --corpus flores200.tar.xz --tokenizers paper-ten.tar.xz

Without --corpus the bundled UDHR is used; tokenizers that are not at hand (M2M-100 is not bundled)
are named and left out. Prints ratios of wall and processor time, peak memory and the cost of a
second run. The bare calls and the audit run in turns, tokenizer by tokenizer, each in the same
process state, so that a noisy machine disturbs both alike. The cut of the text into words is shared
by all tokenizers and is part of the first one's time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tokengraft.api.results import Audit
from tokengraft.api.verbs import audit
from tokengraft.auditing.count import Cut
from tokengraft.auditing.count_corpus import count_corpus, count_texts
from tokengraft.core.cache import Store
from tokengraft.core.errors import Unavailable
from tokengraft.corpus import load as load_corpus
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.tokenizer import Located, Tokenizer, find
from tokengraft.tokenizer.catalog import PAPER
from tokengraft.tokenizer.huggingface import HuggingFace
from tokengraft.tokenizer.openai import TikToken
from tokengraft.tokenizer.sentence_piece import SentencePiece


def bare(tokenizer: Tokenizer, texts: list[str]) -> int:
    """The library's own batch call, and the lengths it gives."""
    if isinstance(tokenizer, HuggingFace):
        rows: Any = tokenizer.pipeline.encode_batch_fast(texts, add_special_tokens=False)
    elif isinstance(tokenizer, TikToken):
        rows = tokenizer.encoding.encode_ordinary_batch(texts, num_threads=2)
    else:
        assert isinstance(tokenizer, SentencePiece)
        rows = tokenizer.processor.encode(texts, num_threads=2)
    return sum(map(len, rows))


Seconds = tuple[float, float, float, float]  # bare and audit by the clock, the same of processors


def race(corpus: ParallelCorpus, found: Located, folder: Path, cuts: dict[int, Cut]) -> Seconds:
    """Seconds of (bare calls, audit) for one tokenizer, opening it included in both."""
    lines = {code: corpus.lines(code) for code in corpus.languages}
    start, spent = time.perf_counter(), time.process_time()
    tokenizer = found.open()
    for texts in lines.values():
        bare(tokenizer, texts)
    alone, alone_spent = time.perf_counter() - start, time.process_time() - spent
    del tokenizer
    store = Store(folder)
    start, spent = time.perf_counter(), time.process_time()
    count_corpus(corpus, [found], store, cuts=cuts)
    ours, ours_spent = time.perf_counter() - start, time.process_time() - spent
    return alone, ours, alone_spent, ours_spent


def measured_audit(
    corpus: Path | str, names: list[str], search: list[Path], folder: Path, pipe: Any
) -> None:
    """A whole audit in a process of its own: seconds and peak memory in MB."""
    start = time.perf_counter()
    store = Store(folder)
    result = audit(corpus, names, search=search, store=store)
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
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    corpus = load_corpus(options.corpus)
    rows: dict[str, Seconds] = {}
    cuts: dict[int, Cut] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in PAPER:
            try:
                found = find(name, options.tokenizers)
            except Unavailable as reason:
                print(f"left out: {reason}", file=sys.stderr)
                continue
            rows[name] = race(corpus, found, Path(folder) / name, cuts)
            alone, ours, alone_spent, ours_spent = rows[name]
            print(
                f"{name:18} bare {alone:7.1f} s   audit {ours:7.1f} s   {ours / alone:.2f}×   "
                f"of processors {ours_spent / alone_spent:.2f}×",
                flush=True,
            )
        start = time.perf_counter()
        count_texts(corpus, Store(Path(folder) / "texts"))
        texts = time.perf_counter() - start
    alone = sum(row[0] for row in rows.values())
    ours = sum(row[1] for row in rows.values()) + texts
    spent = sum(row[3] for row in rows.values()) / sum(row[2] for row in rows.values())
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for _ in range(2):
            reader, writer = multiprocessing.Pipe(duplex=False)
            arguments = (options.corpus, list(rows), options.tokenizers, Path(folder), writer)
            process = multiprocessing.get_context("spawn").Process(
                target=measured_audit, args=arguments
            )
            process.start()
            runs.append(reader.recv())
            process.join()
    figures = {
        "languages": len(corpus.languages),
        "lines": len(corpus.units),
        "tokenizers": len(rows),
        "bare_s": alone,
        "counting_s": ours,
        "counting_over_bare": ours / alone,
        "counting_over_bare_of_processors": spent,
        "audit_s": runs[0][0],
        "audit_over_bare": runs[0][0] / alone,
        "peak_mb": max(run[1] for run in runs),
        "second_s": runs[1][0],
        "second_over_first": runs[1][0] / runs[0][0],
    }
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    print(
        f"\n{figures['languages']} languages × {figures['lines']} lines × {len(rows)} tokenizers\n"
        f"bare batch calls        {alone:8.1f} s\n"
        f"counting                {ours:8.1f} s   {ours / alone:.2f} × bare (goal ≤ 0.8), by "
        f"processor time {spent:.2f} ×\n"
        f"whole audit, tables     {runs[0][0]:8.1f} s   {runs[0][0] / alone:.2f} × bare\n"
        f"second run              {runs[1][0]:8.1f} s   {figures['second_over_first']:.1%} of the "
        "first (goal < 3 %)\n"
        f"peak memory             {figures['peak_mb']:8.0f} MB  (goal < 1000)"
    )


if __name__ == "__main__":
    main()
