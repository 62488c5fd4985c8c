"""One code path counts a shard; what is counted is a `Work`, who calls it is an engine.

Results are sums of integers, so any order of adding them up gives the same.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tokengraft.corpus.batches import Batch, Seen, read
from tokengraft.corpus.compressed import Broken
from tokengraft.corpus.rows import Layout
from tokengraft.corpus.shards import Shard
from tokengraft.engine.protocol import Report

REPORT_EVERY = 0.5  # seconds
# Nested mappings whose leaves are lists of integers (or single integers); addition goes by key.
Payload = dict[str, Any]


@dataclass
class Outcome:
    """What a shard gave. `payload` is empty where `broken` says why nothing can be counted."""

    payload: Payload = field(default_factory=dict)
    lines: int = 0
    blank: int = 0
    bad: int = 0
    listed: list[tuple[int, str]] = field(default_factory=list)  # line in the shard, reason
    broken: str | None = None
    figures: tuple[int, int, int] = (0, 0, 0)  # rows, bytes of text, tokens of all tokenizers

    @classmethod
    def of(
        cls, payload: Payload, seen: Seen, figures: tuple[int, int, int], broken: str | None = None
    ) -> Outcome:
        """An outcome from what the reader saw."""
        listed = list(seen.listed)
        return cls(payload, seen.lines, seen.blank, seen.bad, listed, broken, figures)

    @property
    def sound(self) -> bool:
        """Whether every row was counted."""
        return not self.bad and self.broken is None

    def pack(self) -> bytes:
        """Compact bytes, equal for equal outcomes; read back by `unpack`."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return zlib.compress(text.encode(), level=1)

    @classmethod
    def unpack(cls, data: bytes) -> Outcome:
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
    """Counts batches; opened once a worker, used for one shard after the other."""

    def begin(self) -> None:
        """Forget all counts."""

    def add(self, batch: Batch, seen: Seen) -> None:
        """Count the rows; those that turn out to be uncountable go to `seen`."""

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
    shard: Shard,
    layout: Layout,
    counter: Counter,
    *,
    skip_bad: bool,
    report: Report | None = None,
) -> Outcome:
    """Count one shard: the same outcome anywhere, any time, as long as its files stay the same.

    Unless `skip_bad`, counting ends at the first bad row. A file that breaks off gives an outcome
    without counts.
    """
    seen = Seen()
    counter.begin()
    told = time.monotonic()
    try:
        for batch in read(shard, layout, seen):
            counter.add(batch, seen)
            if seen.bad and not skip_bad:
                break
            if report is not None and time.monotonic() - told > REPORT_EVERY:
                told = time.monotonic()
                report(*counter.progress(), seen.done)
    except Broken as reason:
        return Outcome.of({}, seen, (0, 0, 0), str(reason))
    return Outcome.of(counter.payload(), seen, counter.progress())


@dataclass(frozen=True)
class ShardTask:
    """What engines map over shards; see `engine.Task`. A result is a packed `Outcome`."""

    work: Work
    skip_bad: bool

    def open(self, threads: int) -> Callable[[Shard, Report], bytes]:
        """Open a counter in this process."""
        counter = self.work.open(threads)

        def count(shard: Shard, report: Report) -> bytes:
            layout = self.work.layout
            return count_shard(shard, layout, counter, skip_bad=self.skip_bad, report=report).pack()

        return count
