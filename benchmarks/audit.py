"""Audit of FLORES-200 against the same libraries' bare batch calls, in one run.

    python benchmarks/audit.py --corpus flores200.tar.xz --tokenizers paper-ten.tar.xz

Without --corpus the bundled UDHR is used and M2M-100 is left out. Prints wall-time ratio, peak
memory and the cost of a second run. The bare calls and the audit run in turns, tokenizer by
tokenizer, each in the same process state, so that a noisy machine disturbs both alike.
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


def race(corpus: ParallelCorpus, found: Located, folder: Path) -> tuple[float, float]:
    """Seconds of (bare calls, audit) for one tokenizer, opening it included in both."""
    lines = {code: corpus.lines(code) for code in corpus.languages}
    start = time.perf_counter()
    tokenizer = found.open()
    for texts in lines.values():
        bare(tokenizer, texts)
    alone = time.perf_counter() - start
    del tokenizer
    store = Store(folder)
    start = time.perf_counter()
    count_corpus(corpus, [found], store)
    return alone, time.perf_counter() - start


def measured_audit(corpus: Path | str, search: list[Path], folder: Path, pipe: Any) -> None:
    """A whole audit in a process of its own: seconds and peak memory in MB."""
    start = time.perf_counter()
    store = Store(folder)
    result = audit(corpus, PAPER, search=search, store=store)
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
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in PAPER:
            try:
                found = find(name, options.tokenizers)
            except Unavailable as reason:
                print(reason, file=sys.stderr)
                continue
            rows[name] = race(corpus, found, Path(folder) / name)
            alone, ours = rows[name]
            print(f"{name:18} bare {alone:7.1f} s   audit {ours:7.1f} s   {ours / alone:.2f}×")
        start = time.perf_counter()
        count_texts(corpus, Store(Path(folder) / "texts"))
        texts = time.perf_counter() - start
    alone = sum(row[0] for row in rows.values())
    ours = sum(row[1] for row in rows.values()) + texts
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for _ in range(2):
            reader, writer = multiprocessing.Pipe(duplex=False)
            arguments = (options.corpus, options.tokenizers, Path(folder), writer)
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
        f"counting                {ours:8.1f} s   {ours / alone:.2f} × bare (goal ≤ 1.15)\n"
        f"whole audit, tables     {runs[0][0]:8.1f} s   {runs[0][0] / alone:.2f} × bare\n"
        f"second run              {runs[1][0]:8.1f} s   {figures['second_over_first']:.1%} of the "
        "first (goal < 3 %)\n"
        f"peak memory             {figures['peak_mb']:8.0f} MB  (goal < 1500)"
    )


if __name__ == "__main__":
    main()
