"""One code path counts a shard; what is counted is a `Work`, who calls it is an engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tokengraft.corpus.batches import Batch, Seen, read
from tokengraft.corpus.compressed import Broken
from tokengraft.corpus.rows import Layout
from tokengraft.corpus.shards import Shard
from tokengraft.engine.protocol import Report
from tokengraft.engine.sums import Outcome, Payload

REPORT_EVERY = 0.5  # seconds


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
