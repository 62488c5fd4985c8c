"""Counting on an engine: one code path counts a shard, and the results of all shards add up.

A `Work` says what to count. Results are sums of integers, so the order of adding does not matter.

Finished shards are kept in the state, one SQLite file, key → result, which only the driver writes.
A key names the file (path and size), the range, the tokenizers' hashes and all options. An entry
holds the hash of the bytes that were counted and stands for no others, so it is never stale. Each
is written whole or not at all, so a run that was killed resumes where it stopped.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tokengraft.core.cache import Store
from tokengraft.core.errors import CorpusError, TokengraftError
from tokengraft.core.files import sha256
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.corpus.archive import Broken
from tokengraft.corpus.rows import Batch, Layout, Seen, read_rows
from tokengraft.corpus.shards import Shard, Span, parquet_module
from tokengraft.engine.protocol import Engine, Report, cores

REPORT_EVERY = 0.5  # seconds
# Nested mappings whose leaves are lists of integers (or single integers); addition goes by key.
Payload = dict[str, Any]


@dataclass
class ShardResult:
    """The counts of a shard; `broken` says why it has none, and `payload` is empty then."""

    payload: Payload = field(default_factory=dict)
    lines: int = 0
    blank: int = 0
    bad: int = 0
    listed: list[tuple[int, str]] = field(default_factory=list)  # line in the shard, reason
    broken: str | None = None
    figures: tuple[int, int, int] = (0, 0, 0)  # rows, bytes of text, tokens of all tokenizers
    digest: str = ""  # of the bytes that were counted (`Shard.digest`)

    @classmethod
    def of(
        cls, payload: Payload, seen: Seen, figures: tuple[int, int, int], broken: str | None = None
    ) -> ShardResult:
        """A result with what the reader saw: lines, blank lines and bad rows."""
        listed = list(seen.listed)
        return cls(payload, seen.lines, seen.blank, seen.bad, listed, broken, figures)

    @property
    def sound(self) -> bool:
        """Whether every row was counted."""
        return not self.bad and self.broken is None

    def pack(self) -> bytes:
        """Compact bytes, equal for equal results; read back by `unpack`."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return zlib.compress(text.encode(), level=1)

    @classmethod
    def unpack(cls, data: bytes) -> ShardResult:
        """Inverse of `pack`."""
        value = json.loads(zlib.decompress(data))
        value["listed"] = [(line, reason) for line, reason in value["listed"]]
        value["figures"] = tuple(value["figures"])
        return cls(**value)


def add(into: Payload, more: Payload) -> None:
    """Add `more` to `into`, in place; exact, commutative and associative."""
    for key, value in more.items():
        if key not in into:
            into[key] = _copy(value)
        elif isinstance(value, dict):
            add(into[key], value)
        elif isinstance(value, list):
            into[key] = [a + b for a, b in zip(into[key], value, strict=True)]
        else:
            into[key] += value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, list) else value


class Counter(Protocol):
    """Counts batches; opened once per worker and used for all its shards, one by one."""

    def begin(self) -> None:
        """Forget all counts."""

    def add(self, batch: Batch, seen: Seen) -> None:
        """Count the rows; those that turn out to be bad go to `seen`."""

    def payload(self) -> Payload:
        """The counts since `begin`."""

    def progress(self) -> tuple[int, int, int]:
        """Rows, bytes of text and tokens since `begin`."""


class Work(Protocol):
    """What to count; plain data that travels to workers."""

    @property
    def layout(self) -> Layout:
        """How rows are read."""

    @property
    def fingerprint(self) -> str:
        """Hash of all that a result depends on besides the shard."""

    def open(self, threads: int) -> Counter:
        """A counter in this process."""


def count_shard(
    shard: Shard, layout: Layout, counter: Counter, beside: Counter | None = None,
    *, skip_bad: bool, report: Report | None = None,
) -> ShardResult:  # fmt: skip
    """Count one shard, with the same result anywhere as long as its files do not change.

    Unless `skip_bad`, counting ends at the first batch with a bad row. A file that cannot be read
    to its end gives a result without counts. `beside` counts the same rows; its counts are its own.
    """
    seen = Seen()
    counter.begin()
    if beside is not None:
        beside.begin()
    reported = time.monotonic()
    try:
        for batch in read_rows(shard, layout, seen):
            counter.add(batch, seen)
            if beside is not None:
                beside.add(batch, seen)
            if seen.bad and not skip_bad:
                break
            if report is not None and time.monotonic() - reported > REPORT_EVERY:
                reported = time.monotonic()
                report(*counter.progress(), seen.done)
    except Broken as reason:
        return ShardResult.of({}, seen, (0, 0, 0), str(reason))
    return ShardResult.of(counter.payload(), seen, counter.progress())


@dataclass(frozen=True)
class ShardTask:
    """What engines map over shards; see `EngineTask`. A result is a packed `ShardResult`.

    With `beside`, it is two, joined by `_join`; the second is empty unless every row was counted.
    """

    work: Work
    skip_bad: bool
    beside: Work | None = None

    def open(self, threads: int) -> Callable[[Shard, Report], bytes]:
        """Open a counter in this process."""
        counter, layout = self.work.open(threads), self.work.layout
        beside = None if self.beside is None else self.beside.open(threads)

        def count(shard: Shard, report: Report) -> bytes:
            digest = shard.digest()
            result = count_shard(
                shard, layout, counter, beside, skip_bad=self.skip_bad, report=report
            )
            result = replace(result, digest=digest)
            if beside is None:
                return result.pack()
            also = replace(result, payload=beside.payload(), figures=beside.progress())
            return _join(result.pack(), also.pack() if result.sound else b"")

        return count


def _join(first: bytes, second: bytes) -> bytes:
    return len(first).to_bytes(8, "big") + first + second


def _parted(joined: bytes) -> tuple[bytes, bytes]:
    end = 8 + int.from_bytes(joined[:8], "big")
    return joined[8:end], joined[end:]


STATE = "shards.sqlite"


@dataclass(frozen=True)
class LeftOutRow:
    """A row that was left out: its line (or table row) in the file, and why."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, repr=False)
class Total:
    """The sum of all shards, and all that was left out of it."""

    payload: Payload
    lines: int
    blank: int
    bad: int
    bad_rows: tuple[LeftOutRow, ...]  # the first hundred of each shard
    broken: dict[str, str]  # file → why none of its rows is counted
    shards: tuple[dict[str, str | int], ...]  # the manifest: what was counted, with hashes
    resumed: int  # shards whose result was already in the state

    def __repr__(self) -> str:
        left = f", {self.bad:,} bad rows, {len(self.broken)} broken files"
        return f"Total({self.lines:,} lines in {len(self.shards):,} shards{left})"


@dataclass
class Meter:
    """How far a run is: the figures of each shard, from its latest attempt only."""

    sizes: Sequence[int]  # bytes on disk of each shard that is to be counted
    _figures: dict[int, tuple[int, int, int, float]] = field(default_factory=dict)

    def update(self, number: int, rows: int, size: int, tokens: int, share: float) -> None:
        """Set the figures of one shard, replacing its earlier ones."""
        self._figures[number] = (rows, size, tokens, share)

    def read(self) -> Progress:
        """Bytes on disk that are done; in words the rows, text and tokens so far."""
        shards = list(self._figures.items())
        rows, size, tokens = (int(sum(figures[n] for _, figures in shards)) for n in range(3))
        detail = f"{rows:,} rows  {size / 1e6:,.1f} MB" + (f"  {tokens:,} tokens" if tokens else "")
        done = int(sum(self.sizes[n] * figures[3] for n, figures in shards))
        return Progress("Counting", done, sum(self.sizes), "bytes", detail)


def count_all(
    work: Work,
    shards: Sequence[Shard],
    engine: Engine,
    *,
    skip_bad: bool = False,
    state: Path | str | None = None,
    progress: OnProgress | None = None,
    beside: Work | None = None,
) -> Total:
    """Count every shard that the state lacks, then add up all of them.

    Without `skip_bad`, the first bad row or broken file is a CorpusError with file and line; shards
    finished before it stay in the state. Of `beside`, counted in the same pass, only the state is
    left, for a later `count_all` of that work; shards with bad rows are left to it.
    """
    fingerprint = work.fingerprint
    keys = [shard.key(fingerprint) for shard in shards]
    others = [] if beside is None else [shard.key(beside.fingerprint) for shard in shards]
    store = Store(None if state is None else Path(state), STATE)
    try:
        counted = [_digest(store, two) for two in zip(keys, others or keys, strict=True)]
        with ThreadPoolExecutor(cores()) as pool:
            here = pool.map(_same_bytes, shards, counted)
            todo = [n for n, is_known in enumerate(here) if not is_known]
        meter = Meter([shards[n].size for n in todo])

        def on_progress(number: int, rows: int, size: int, tokens: int, share: float) -> None:
            meter.update(number, rows, size, tokens, share)
            if progress is not None:
                progress(meter.read())

        kept = len(shards) - len(todo)
        task = ShardTask(work, skip_bad, beside)
        for place, made in engine.map(task, [shards[n] for n in todo], on_progress):
            data, more = (made, b"") if beside is None else _parted(made)
            number, outcome = todo[place], ShardResult.unpack(data)
            if not outcome.sound and not skip_bad:
                raise _stop(shards[number], outcome)
            try:
                if more:
                    store.put(others[number], more)
                store.put(keys[number], data)
            except TokengraftError as error:
                raise TokengraftError(
                    f"{error}. {kept} of {len(shards)} shards are counted and kept: make room and "
                    f"run the command again to go on."
                ) from error
            kept += 1
            on_progress(place, *outcome.figures, 1.0)
        return _add_up(shards, keys, store, skip_bad, len(shards) - len(todo))
    finally:
        store.close()


def _digest(store: Store, keys: Sequence[str]) -> str | None:
    """The hash of the bytes that these entries were counted from; None if one is missing."""
    entries = [store.get(key) for key in dict.fromkeys(keys)]
    digests = {None if entry is None else ShardResult.unpack(entry).digest for entry in entries}
    return digests.pop() if len(digests) == 1 else None


def _same_bytes(shard: Shard, counted: str | None) -> bool:
    return counted is not None and not shard.file.piped and shard.digest() == counted


def _outcomes(keys: Sequence[str], store: Store) -> Iterator[tuple[bytes, ShardResult]]:
    for key in keys:
        data = store.get(key)
        if data is None:
            raise TokengraftError(f"{store.path} lost a shard while it was in use; run again.")
        yield data, ShardResult.unpack(data)


def _add_up(
    shards: Sequence[Shard], keys: Sequence[str], store: Store, skip_bad: bool, resumed: int
) -> Total:
    payload: Payload = {}
    lines: dict[str, int] = {}
    rows: list[LeftOutRow] = []
    manifest: list[dict[str, str | int]] = []
    broken: dict[str, str] = {}
    blank = bad = 0
    for shard, key, (data, outcome) in zip(shards, keys, _outcomes(keys, store), strict=True):
        if not outcome.sound and not skip_bad:
            raise _stop(shard, outcome)
        if outcome.broken is not None:
            broken.setdefault(shard.file.url, outcome.broken)
        file, span, (read, size, _) = shard.file, shard.spans[0], outcome.figures
        manifest.append(
            {"file": file.url, "start": span.start, "stop": span.stop, "stamp": file.stamp,
             "rows": read, "bytes": size, "bad": outcome.bad, "key": key, "sha256": sha256(data)}
        )  # fmt: skip
    # Only now are all broken files known: none of their rows counts, whatever the shard.
    for shard, (_, outcome) in zip(shards, _outcomes(keys, store), strict=True):
        url = shard.file.url
        if url in broken:
            continue
        before = lines.get(url, 0)
        rows += [LeftOutRow(url, before + line, reason) for line, reason in outcome.listed]
        lines[url] = before + outcome.lines
        blank += outcome.blank
        bad += outcome.bad
        add(payload, outcome.payload)
    every = sum(lines.values())
    return Total(payload, every, blank, bad, tuple(rows), broken, tuple(manifest), resumed)


def _stop(shard: Shard, outcome: ShardResult) -> CorpusError:
    again = "Repair it, or leave such rows and files out with --skip-bad; what was counted is kept."
    if outcome.broken is not None:
        return CorpusError(f"{shard.file.url}: {outcome.broken}. {again}")
    line, reason = outcome.listed[0]
    what = "row" if shard.file.format == "parquet" else "line"
    return CorpusError(
        f"{shard.file.url}, {what} {_lines_before(shard.spans[0]) + line}: {reason}. {again}"
    )


def _lines_before(span: Span) -> int:
    """Lines (or table rows) of the file before the span; reads them, so only for messages."""
    if not span.start:
        return 0
    if span.file.format == "parquet":
        with span.file.open() as raw, parquet_module().ParquetFile(raw) as opened:
            return sum(opened.metadata.row_group(n).num_rows for n in range(span.start))
    lines, left, last = 0, span.start, b"\n"
    with span.file.open() as raw:
        while left and (block := raw.read(min(left, 1 << 20))):
            lines += block.count(b"\n")
            left -= len(block)
            last = block[-1:]
    return lines + (last != b"\n")  # a line cut by the border belongs to the shard before
