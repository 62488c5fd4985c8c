"""Counts of a whole corpus: from the store, or by encoding what it lacks."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tokengraft.auditing.count import Counts, Cut, TextCounts, by_words, count
from tokengraft.core.cache import Store
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.engine.protocol import Engine, Report, cores
from tokengraft.tokenizer import Located, Tokenizer
from tokengraft.tokenizer.packed import Packed

_TOGETHER = 1024  # lines: languages with fewer are counted together
_VERSION = "7"  # part of every key: raise it when the meaning of a count changes


@dataclass(frozen=True)
class CountItem:
    """A language's lines, to be counted with one tokenizer; see `engine.protocol.Item`."""

    tokenizer: str
    language: str
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        """Tokenizer and language, for messages."""
        return f"{self.language} with {self.tokenizer}"

    @property
    def size(self) -> int:
        """Characters."""
        return sum(map(len, self.lines))


@dataclass(frozen=True)
class CountTask:
    """Count cells exactly as an audit does; see `EngineTask`. A result is packed `Counts`."""

    tokenizers: tuple[Packed, ...]

    def open(self, threads: int) -> Callable[[CountItem, Report], bytes]:
        """A counter that opens each tokenizer when it is first needed."""
        del threads
        packed = {one.name: one for one in self.tokenizers}
        opened: dict[str, Tokenizer] = {}

        def count_cell(cell: CountItem, report: Report) -> bytes:
            if cell.tokenizer not in opened:
                opened[cell.tokenizer] = packed[cell.tokenizer].open()
            counts = count(opened[cell.tokenizer], cell.lines)
            report(len(cell.lines), cell.size, int(counts.tokens.sum()), 1.0)
            return counts.pack()

        return count_cell


@dataclass(frozen=True)
class CorpusCounts(Mapping[tuple[str, str], Counts]):
    """Counts by tokenizer name and language; kept packed, which takes a fifteenth of the memory."""

    _packed: dict[tuple[str, str], bytes]

    def __getitem__(self, cell: tuple[str, str]) -> Counts:
        return Counts.unpack(self._packed[cell])

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


OnOpen = Callable[[Located, Tokenizer], None]


def count_corpus(
    corpus: ParallelCorpus,
    tokenizers: Sequence[Located],
    store: Store,
    progress: OnProgress | None = None,
    engine: Engine | None = None,
    on_open: OnOpen | None = None,
    cuts: dict[int, Cut] | None = None,
) -> CorpusCounts:
    """Counts of every (tokenizer name, language); only what the store lacks is encoded.

    A tokenizer is opened only if it has something to encode, passed to `on_open`, and dropped
    before the next is opened. With an `engine`, its workers count instead, to the same result. Text
    is cut into words once for all tokenizers, small languages together; `cuts` holds what was cut
    before, by group, and receives the rest.
    """
    cuts = {} if cuts is None else cuts
    packed: dict[tuple[str, str], bytes] = {}
    missing: dict[tuple[str, str], str] = {}  # (tokenizer, language) → key in the store
    for located in tokenizers:
        for code in corpus.languages:
            key = f"counts/{_VERSION}/{located.fingerprint}/{corpus.digest(code)}"
            stored = store.get(key)
            if stored is None:
                missing[located.name, code] = key
            else:
                packed[located.name, code] = stored
    if engine is not None:
        for cell, data in _on_engine(engine, corpus, tokenizers, list(missing), progress):
            store.put(missing[cell], data)
            packed[cell] = data
        return CorpusCounts(packed)
    sizes = {code: len(corpus.lines(code)) for code in corpus.languages}
    total, done = sum(sizes[code] for _, code in missing), 0
    for located in tokenizers:
        wanted = [code for code in corpus.languages if (located.name, code) in missing]
        if not wanted:
            continue
        tokenizer = located.open()
        if on_open:
            on_open(located, tokenizer)
        for counts in _counted(tokenizer, corpus, set(wanted), cuts):
            if progress:
                progress(Progress(f"{located.label} · {next(iter(counts))}", done, total, "lines"))
            for code, own in counts.items():
                packed[located.name, code] = own
                store.put(missing[located.name, code], own)
                done += sizes[code]
        del tokenizer  # before the next is opened
    if progress and total:
        progress(Progress("done", total, total, "lines"))
    return CorpusCounts(packed)


def _counted(
    tokenizer: Tokenizer, corpus: ParallelCorpus, wanted: Set[str], cuts: dict[int, Cut]
) -> Iterator[dict[str, bytes]]:
    """The packed counts of the wanted languages, a group at a time."""

    def count_group(number: int, codes: list[str]) -> dict[str, bytes]:
        texts = {code: corpus.lines(code) for code in codes}
        if by_words(tokenizer, sum(map(len, texts.values()))):
            # Of the whole group, even if the store has some of it: tokenizers share the cut.
            cuts[number] = cuts.get(number) or Cut.of([*chain.from_iterable(texts.values())])
        else:
            texts = {code: texts[code] for code in codes if code in wanted}
        lines = [*chain.from_iterable(texts.values())]
        counts = count(tokenizer, lines, cuts.get(number), cores() <= 2)
        parts = {}
        for code, own in texts.items():
            parts[code], counts = counts.parted(len(own))
        return {code: part.pack() for code, part in parts.items() if code in wanted}

    # Two at a time: while one is encoded, outside Python, the other's ids are added up.
    pool = ThreadPoolExecutor(2)
    todo = [(n, codes) for n, codes in enumerate(groups(corpus)) if not wanted.isdisjoint(codes)]
    try:
        yield from pool.map(count_group, *zip(*todo, strict=True))
    finally:
        pool.shutdown(cancel_futures=True)


def groups(corpus: ParallelCorpus) -> list[list[str]]:
    """The languages in groups that are counted together, each of `_TOGETHER` lines or more."""
    together: list[list[str]] = [[]]
    lines = 0
    for code in corpus.languages:
        together[-1].append(code)
        lines += len(corpus.lines(code))
        if lines >= _TOGETHER:
            together.append([])
            lines = 0
    return [codes for codes in together if codes]


def _on_engine(
    engine: Engine,
    corpus: ParallelCorpus,
    tokenizers: Sequence[Located],
    wanted: Sequence[tuple[str, str]],
    progress: OnProgress | None,
) -> Iterator[tuple[tuple[str, str], bytes]]:
    """((tokenizer name, language), packed counts) of the wanted cells as they are finished."""
    names = {name for name, _ in wanted}
    packed = tuple(Packed.of(located) for located in tokenizers if located.name in names)
    cells = [CountItem(name, code, tuple(corpus.lines(code))) for name, code in wanted]
    total, done = sum(len(cell.lines) for cell in cells), 0
    task = CountTask(packed)
    for number, data in engine.map(task, cells, lambda *_: None):
        done += len(cells[number].lines)
        if progress:
            progress(Progress(" · ".join(wanted[number]), done, total, "lines"))
        yield wanted[number], data


def count_texts(corpus: ParallelCorpus, store: Store) -> dict[str, TextCounts]:
    """Bytes, characters and character histogram of each language."""
    results = {}
    for code in corpus.languages:
        key = f"text/{_VERSION}/{corpus.digest(code)}"
        stored = store.get(key)
        if stored is None:
            lines = corpus.lines(code)
            histogram = Counter(chain.from_iterable(lines))
            value = {
                "bytes": [len(line.encode("utf-8")) for line in lines],
                "characters": [len(line) for line in lines],
                "histogram": {c: n for c, n in histogram.most_common() if not c.isspace()},
            }
            stored = zlib.compress(json.dumps(value).encode(), level=1)
            store.put(key, stored)
        value = json.loads(zlib.decompress(stored))
        results[code] = TextCounts(
            np.array(value["bytes"], np.int64),
            np.array(value["characters"], np.int64),
            value["histogram"],
        )
    return results
