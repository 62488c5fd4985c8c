"""The engines by name; Ray is imported only where it is asked for."""

from __future__ import annotations

from tokengraft.core.errors import UsageError, did_you_mean
from tokengraft.engine.protocol import Engine, cores


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
