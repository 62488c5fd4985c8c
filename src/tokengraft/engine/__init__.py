"""The engines by name; Ray is imported only when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokengraft.core.errors import UsageError, look_up
from tokengraft.core.options import Later
from tokengraft.corpus.shards import SHARD_BYTES
from tokengraft.engine.protocol import Engine, cores


@dataclass(frozen=True)
class Counting:
    """How a large corpus is counted: on which engine, in shards of what size, with what left out.

    `workers` are processes, by default one per core; `address` is a Ray cluster's. With `skip_bad`,
    bad rows and broken files are left out and listed instead of stopping the run. Finished shards
    are kept under `state`, by default in the cache, so an interrupted run resumes.
    """

    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    shard_bytes: int = SHARD_BYTES
    skip_bad: bool = False
    state: Path | str | None = None

    def open(self) -> Engine:
        """The engine that these options describe."""
        return make_engine(self.engine, self.workers, self.address)


@dataclass(frozen=True)
class EngineRow:
    """A registered engine."""

    name: str
    help: str
    make: Callable[[int | None, str | None], Engine]  # workers, address


def make_engine(name: str, workers: int | None = None, address: str | None = None) -> Engine:
    """The engine of this name; `workers` processes, by default one per core."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers {workers}: at least one is needed.")
    return look_up("engine", name, ENGINES).make(workers, address)


def _local(workers: int | None, address: str | None) -> Engine:
    from tokengraft.engine.local import Local

    if address is not None:
        raise UsageError("--address is for --engine ray: add that, or drop the address.")
    return Local(workers or cores())


ENGINES = {
    row.name: row
    for row in (
        EngineRow("local", "all cores of this machine", _local),
        EngineRow("ray", "a Ray cluster", Later("tokengraft.engine.on_ray:Cluster")),
    )
}
