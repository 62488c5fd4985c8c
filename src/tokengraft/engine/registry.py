"""The engines by name; Ray is imported only where it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokengraft.core.errors import UsageError, did_you_mean
from tokengraft.corpus.shards import SHARD_BYTES
from tokengraft.engine.protocol import Engine, cores


@dataclass(frozen=True)
class Counting:
    """How a large corpus is counted: who does it, in pieces of which size, what is left out.

    `workers` are processes, by default one a core; `address` is a Ray cluster's. With `skip_bad`
    bad rows and broken files are left out and listed instead of stopping the run. Finished shards
    are kept under `state`, by default in the cache, so a run that was stopped goes on.
    """

    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    shard_bytes: int = SHARD_BYTES
    skip_bad: bool = False
    state: Path | str | None = None

    def open(self) -> Engine:
        """The engine."""
        return make_engine(self.engine, self.workers, self.address)


def make_engine(name: str, workers: int | None = None, address: str | None = None) -> Engine:
    """`local` or `ray`; `workers` processes, by default one a core."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers {workers}: at least one is needed.")
    if name == "local":
        from tokengraft.engine.local import Local

        if address is not None:
            raise UsageError("--address is for --engine ray; add it or drop the address.")
        return Local(workers or cores())
    if name == "ray":
        from tokengraft.engine.on_ray import Cluster

        return Cluster(workers, address)
    known = ("local", "ray")
    raise UsageError(f"No engine {name!r}: write local or ray.{did_you_mean(name, known)}")
