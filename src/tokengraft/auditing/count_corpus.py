"""Counts of a whole corpus: from the store, or by encoding what it lacks."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from tokengraft.auditing.count import Counts, TextCounts, count
from tokengraft.auditing.recorded import Recorded
from tokengraft.core.cache import Store
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.engine.protocol import Engine, Report, cores
from tokengraft.tokenizer import Located, Tokenizer, fast
from tokengraft.tokenizer.packed import Packed

_TOGETHER = 1024  # lines: languages with fewer are counted together
_VERSION = "8"  # part of every key: raise it when the meaning of a count changes


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
    """Count cells exactly as an audit does; see `EngineTask`. A result is as in `_labelled`.

    `text` is how many characters each tokenizer is to encode, by name.
    """

    tokenizers: tuple[Packed, ...]
    text: Mapping[str, int] = field(default_factory=dict)

    def open(self, threads: int) -> Callable[[CountItem, Report], bytes]:
        """A counter that opens each tokenizer when it is first needed."""
        del threads
        packed = {one.name: one for one in self.tokenizers}
        opened: dict[str, Tokenizer] = {}

        def count_cell(cell: CountItem, report: Report) -> bytes:
            if cell.tokenizer not in opened:
                opened[cell.tokenizer] = packed[cell.tokenizer].open()
                opened[cell.tokenizer].hasten(self.text.get(cell.tokenizer, 0))
            counts = count(opened[cell.tokenizer], cell.lines)
            report(len(cell.lines), cell.size, int(counts.tokens.sum()), 1.0)
            return _labelled(opened[cell.tokenizer], counts)

        return count_cell


def _labelled(tokenizer: Tokenizer, counts: Counts) -> bytes:
    """Packed counts after a line that names the library that encoded."""
    return tokenizer.encoder.encode() + b"\n" + counts.pack()


@dataclass(frozen=True)
class CorpusCounts(Mapping[tuple[str, str], Counts]):
    """Counts by tokenizer name and language; kept packed, which takes a fifteenth of the memory."""

    _packed: dict[tuple[str, str], bytes]

    def __getitem__(self, cell: tuple[str, str]) -> Counts:
        return Counts.unpack(self._packed[cell].partition(b"\n")[2])

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    @property
    def encoders(self) -> dict[str, str]:
        """By tokenizer name, which libraries encoded."""
        named: dict[str, set[str]] = {}
        for (name, _), data in self._packed.items():
            named.setdefault(name, set()).add(_encoder(data))
        return {name: ", ".join(sorted(encoders)) for name, encoders in named.items()}


def _encoder(data: bytes) -> str:
    return data.partition(b"\n")[0].decode()


OnOpen = Callable[[Located, Tokenizer], None]


def count_corpus(
    corpus: ParallelCorpus,
    tokenizers: Sequence[Located],
    store: Store,
    progress: OnProgress | None = None,
    engine: Engine | None = None,
    on_open: OnOpen | None = None,
    reference: Collection[str] = (),
) -> CorpusCounts:
    """Counts of every (tokenizer name, language); only what the store lacks is encoded.

    A tokenizer is opened only if it has something to encode, passed to `on_open`, and dropped
    before the next is opened. With an `engine`, its workers count instead, to the same result. The
    tokenizers in `reference` are counted by their own libraries only. So is, in the end, one whose
    faster encoder turns out to be wrong: what that has counted is counted again.
    """
    packed: dict[tuple[str, str], bytes] = {}
    missing: dict[tuple[str, str], str] = {}  # (tokenizer, language) → key in the store
    for located in tokenizers:
        trusted: dict[str, bool] = {}
        for code in corpus.languages:
            key = f"counts/{_VERSION}/{located.fingerprint}/{corpus.digest(code)}"
            stored = store.get(key)
            by = _encoder(stored) if stored else ""
            if by not in trusted:
                known = fast.is_fast(by) and located.name in reference
                trusted[by] = not (known or fast.refuted(by, located.fingerprint))
            if stored is not None and trusted[by]:
                packed[located.name, code] = stored
            else:
                missing[located.name, code] = key
    sizes = {code: len(corpus.lines(code)) for code in corpus.languages}
    total, done = sum(sizes[code] for _, code in missing), 0
    if engine is not None:
        made = _on_engine(engine, corpus, tokenizers, list(missing), reference)
    else:
        made = _here(corpus, tokenizers, list(missing), reference, on_open)
    for cell, data in made:
        store.put(missing[cell], data)
        packed[cell] = data
        if progress:
            progress(Progress(" · ".join(cell), done, total, "lines"))
        done += sizes[cell[1]]
    if progress and total:
        progress(Progress("done", total, total, "lines"))
    by_fast: dict[str, set[bool]] = {}
    for cell in missing:
        by_fast.setdefault(cell[0], set()).add(fast.is_fast(_encoder(packed[cell])))
    if wrong := {name for name, both in by_fast.items() if len(both) > 1}:
        again = {*reference, *wrong}
        return count_corpus(corpus, tokenizers, store, progress, engine, None, again)
    return CorpusCounts(packed)


def _here(
    corpus: ParallelCorpus, tokenizers: Sequence[Located], wanted: Sequence[tuple[str, str]],
    reference: Collection[str], on_open: OnOpen | None,
) -> Iterator[tuple[tuple[str, str], bytes]]:  # fmt: skip
    """((tokenizer name, language), labelled counts) of the wanted cells, counted here."""
    for located in tokenizers:
        codes = {code for name, code in wanted if name == located.name}
        if not codes:
            continue
        tokenizer = located.open()
        if on_open:
            on_open(located, tokenizer)
        if located.name in reference:
            tokenizer.by_reference()
        tokenizer.hasten(_length(corpus, codes))
        for counts in _counted(tokenizer, corpus, codes):
            for code, data in counts.items():
                yield (located.name, code), data
        del tokenizer  # before the next is opened


def _length(corpus: ParallelCorpus, codes: Iterable[str]) -> int:
    return sum(len(line) for code in codes for line in corpus.lines(code))


def _counted(
    tokenizer: Tokenizer, corpus: ParallelCorpus, wanted: Set[str]
) -> Iterator[dict[str, bytes]]:
    """The labelled counts of the wanted languages, a group at a time."""
    recorded = Recorded(tokenizer.fingerprint)

    def count_group(codes: list[str]) -> dict[str, bytes]:
        texts = {code: corpus.lines(code) for code in codes}
        lines = [*chain.from_iterable(texts.values())]
        proven = all(recorded.has(code, corpus.digest(code)) for code in codes)
        sample = [] if proven else fast.sample([*map(len, texts.values())], tokenizer.chance)
        while True:
            counts, parts = count(tokenizer, lines, cores() <= 2, sample), {}
            for code, own in texts.items():
                parts[code], counts = counts.parted(len(own))
            if not proven or all(recorded.agrees(code, parts[code]) for code in codes):
                return {code: _labelled(tokenizer, part) for code, part in parts.items()}
            tokenizer.refute("by the recorded counts of the Declaration of Human Rights")
            proven = False

    # Two at a time: while one is encoded, outside Python, the other's ids are added up.
    pool = ThreadPoolExecutor(2)
    todo = [own for codes in groups(corpus) if (own := [c for c in codes if c in wanted])]
    try:
        yield from pool.map(count_group, todo)
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
    engine: Engine, corpus: ParallelCorpus, tokenizers: Sequence[Located],
    wanted: Sequence[tuple[str, str]], reference: Collection[str],
) -> Iterator[tuple[tuple[str, str], bytes]]:  # fmt: skip
    """The same as `_here`, by the engine's workers, in the order in which they finish."""
    names = {name for name, _ in wanted}
    packed = tuple(Packed.of(located) for located in tokenizers if located.name in names)
    cells = [CountItem(name, code, tuple(corpus.lines(code))) for name, code in wanted]
    text = {
        name: 0 if name in reference else _length(corpus, [c for n, c in wanted if n == name])
        for name in names
    }
    for number, data in engine.map(CountTask(packed, text), cells, lambda *_: None):
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
