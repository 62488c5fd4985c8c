"""The engine on a Ray cluster: Ray Data maps the items over a pool of actors.

Actors open the tokenizers once, from bytes that travel with the task. Ray restarts an actor that
dies and runs its item again; results are kept by item, so one that ran twice counts once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tokengraft.core.errors import MissingExtra, TokengraftError
from tokengraft.engine.protocol import ItemT, OnProgress, Sealed, Task, unseal

_POLL = 1.0  # seconds between looks at the workers' progress
_DEATHS = 3  # workers in a row that may die before they have opened the tokenizers
_STORE_BYTES = 256 << 20  # shards and results are small; text never passes through Ray's store


class Cluster:
    """Ray at `address`, or a cluster of its own on this machine; see `engine.Engine`."""

    def __init__(self, workers: int | None, address: str | None) -> None:
        self.workers = workers
        self.address = address

    def map(
        self, task: Task[ItemT], items: Sequence[ItemT], on_progress: OnProgress
    ) -> Iterator[tuple[int, bytes]]:
        """See `engine.Engine.map`."""
        if not items:
            return
        ray = _ray()
        with self._connected(ray):
            yield from self._run(ray, task, items, on_progress)

    def _run(
        self, ray: Any, task: Task[ItemT], items: Sequence[ItemT], on_progress: OnProgress
    ) -> Iterator[tuple[int, bytes]]:
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # progress is shown by us alone
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        # An actor that dies as it starts is replaced, and one that came too late fails nothing.
        context.max_consecutive_actor_init_deaths = _DEATHS
        available = int(ray.cluster_resources().get("CPU", 1))
        most = min(self.workers or available, len(items))
        fewest = min(most, available)  # more join when the cluster grows
        board = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
        # Inside a list: as an argument of its own it might be gone when an actor is restarted.
        held = ray.put(task)
        # The largest first, so that none is left running alone at the end.
        order = sorted(range(len(items)), key=lambda n: -items[n].size)
        rows = [{"number": n, "item": pickle.dumps(items[n])} for n in order]
        counted = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            _Actor,
            fn_constructor_args=([held], board),
            compute=ray.data.ActorPoolStrategy(
                min_size=fewest, max_size=most, max_tasks_in_flight_per_actor=2
            ),
            num_cpus=1,
        )
        with _watching(ray, board, on_progress):
            done: set[int] = set()
            try:
                for row in counted.iter_rows():
                    number = int(row["number"])
                    if number not in done:
                        done.add(number)
                        yield number, unseal(bytes(row["result"]))
            except ray.exceptions.RayError as error:
                raise _explained(error) from error
            if len(done) != len(items):
                raise TokengraftError(
                    f"Ray gave back {len(done)} of {len(items)} results. What was counted is kept: "
                    f"run the command again to go on."
                )

    @contextlib.contextmanager
    def _connected(self, ray: Any) -> Iterator[None]:
        """A connection to the cluster; one that the caller already has is used and left open."""
        if ray.is_initialized():
            yield
            return
        # Ray's core warns of every Ray Data actor that its arguments could get lost with this node;
        # the driver would be lost with it.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        own: dict[str, Any] = {}
        if self.address is None:
            own = {"num_cpus": self.workers, "object_store_memory": _STORE_BYTES}
            own["include_dashboard"] = False
        try:
            _require_listener(self.address)
            ray.init(self.address or "local", log_to_driver=False, logging_level="ERROR", **own)
        except (OSError, RuntimeError, ValueError) as error:
            raise TokengraftError(
                f"No Ray cluster at {self.address or 'this machine'} ({error}). Start one with "
                f"`ray start --head`, or leave --address out."
            ) from error
        try:
            yield
        finally:
            ray.shutdown()


class _Board:
    """The latest figures of each item; one that is counted again overwrites its own."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, int, int, float]] = {}

    def update(self, number: int, figures: tuple[int, int, int, float]) -> None:
        self._latest[number] = figures

    def read(self) -> dict[int, tuple[int, int, int, float]]:
        latest, self._latest = self._latest, {}
        return latest


class _Actor:
    """A worker: opens the tokenizers when it starts, then counts item after item."""

    def __init__(self, task: list[Any], board: Any) -> None:
        import ray

        from tokengraft.tokenizer.packed import limit_threads

        limit_threads(1)
        self._count: Sealed[Any] = Sealed(ray.get(task[0]), 1)
        self._board = board

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = int(row["number"])

        def report(rows: int, size: int, tokens: int, share: float) -> None:
            self._board.update.remote(number, (rows, size, tokens, share))

        item = pickle.loads(row["item"])  # noqa: S301 - the driver made it
        return {"number": number, "result": self._count(item, report)}


@contextlib.contextmanager
def _watching(ray: Any, board: Any, on_progress: OnProgress) -> Iterator[None]:
    """Pass on the board's figures while the body runs; a board that is gone stops nothing."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL):
            with contextlib.suppress(Exception):
                for number, figures in ray.get(board.read.remote(), timeout=5).items():
                    on_progress(number, *figures)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(Exception):
            ray.kill(board)


def _require_listener(address: str | None) -> None:
    """Raise an OSError unless something listens at host:port; Ray itself would try for minutes."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


def _explained(error: Any) -> TokengraftError:
    """Ray's own failure in one line; errors of ours come back inside results."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return TokengraftError(
        f"Ray failed ({type(error).__name__}: {lines[0] if lines else ''}). What was counted is "
        f"kept: run the command again to go on."
    )


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtra("--engine ray", "scale") from None
    return ray
