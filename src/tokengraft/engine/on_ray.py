"""The engine on a Ray cluster: a pool of actors, each with its next item already queued.

Actors open the tokenizers once, from bytes sent with the task. One that dies is replaced and its
items are counted again. Plain actors, not Ray Data: to map over a list, its scheduler takes a share
of the cores and seconds to start (600 MB on two cores: 0.70 times the local engine).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter as Tries
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from tokengraft.core.errors import TokengraftError, optional
from tokengraft.engine.protocol import EngineTask, ItemT, OnFigures, Sealed, unseal

_POLL = 1.0  # seconds between looks at the workers' progress
_DEATHS = 3  # deaths in a row, at start or on one item, after which the run fails
_AHEAD = 2  # items a worker holds: the one it counts and the next
_STORE_BYTES = 256 << 20  # shards and results are small; text never passes through Ray's store


class Cluster:
    """Ray at `address`, or a new cluster on this machine; see `engine.Engine`."""

    def __init__(self, workers: int | None, address: str | None) -> None:
        self.workers = workers
        self.address = address

    def map(
        self, task: EngineTask[ItemT], items: Sequence[ItemT], on_progress: OnFigures
    ) -> Iterator[tuple[int, bytes]]:
        """See `engine.Engine.map`."""
        if not items:
            return
        ray = optional("ray", "--engine ray", "scale")
        with self._connected(ray):
            workers = self.workers or int(ray.cluster_resources().get("CPU", 1))
            pool = _Pool(ray, task, items, min(workers, len(items)))
            try:
                yield from pool.results(on_progress)
            except ray.exceptions.RayError as error:
                raise TokengraftError(
                    f"Ray failed ({type(error).__name__}: {_first_line(error)}). What was counted "
                    "is kept: run the command again to go on."
                ) from error
            finally:
                pool.end()

    @contextlib.contextmanager
    def _connected(self, ray: Any) -> Iterator[None]:
        """Connect to the cluster; a connection that exists already is used and left open."""
        if ray.is_initialized():
            yield
            return
        # Silences Ray's warning that actors' arguments could be lost with this node: so would the
        # driver.
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


class _Pool:
    """Actors that count, and the items that each of them holds.

    Actors for which the cluster has no room yet wait inside Ray, and get items when they are ready.
    """

    def __init__(self, ray: Any, task: Any, items: Sequence[Any], workers: int) -> None:
        self._ray, self._items = ray, items
        # The largest first, so that none is left running alone at the end.
        self._todo = deque(sorted(range(len(items)), key=lambda n: -items[n].size))
        self._board = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
        # In a list: Ray would fetch a bare reference before it starts the actor.
        self._task = [ray.put(task)]
        self._made = ray.remote(num_cpus=1)(CountingActor)
        self._pending: dict[Any, tuple[Any, int | None]] = {}  # answer → actor, item (None: ready)
        self._died: Tries[int | None] = Tries()
        for _ in range(workers):
            self._start()

    def results(self, on_progress: OnFigures) -> Iterator[tuple[int, bytes]]:
        """(number, result) as they come."""
        ray, left = self._ray, len(self._items)
        figures = self._board.read.remote()
        while left:
            ready, _ = ray.wait([*self._pending], timeout=_POLL)
            with contextlib.suppress(ray.exceptions.RayError):  # unread progress stops nothing
                if ray.wait([figures], timeout=0)[0]:
                    for number, latest in ray.get(figures).items():
                        on_progress(number, *latest)
                    figures = self._board.read.remote()
            for answer in ready:
                if answer not in self._pending:  # from an actor that died
                    continue
                actor, number = self._pending[answer]
                try:
                    data = ray.get(answer)
                except ray.exceptions.RayActorError as error:
                    self._replace(actor, error)
                    continue
                del self._pending[answer]
                self._died[number] = 0
                for _ in range(_AHEAD if number is None else 1):
                    self._give(actor)
                if number is not None:
                    left -= 1
                    yield number, unseal(data)

    def _start(self) -> None:
        actor = self._made.remote(self._task, self._board)
        self._pending[actor.ready.remote()] = actor, None

    def _give(self, actor: Any) -> None:
        if self._todo:
            number = self._todo.popleft()
            self._pending[actor.count.remote(number, self._items[number])] = actor, number

    def _replace(self, actor: Any, error: Any) -> None:
        """Replace an actor that died; its first item is blamed (None: it died while starting).

        Which answer fails first says nothing: those of the items behind it fail at the same moment.
        """
        had = {ref: item for ref, (other, item) in self._pending.items() if other is actor}
        number, *_ = had.values()
        self._died[number] += 1
        if self._died[number] >= _DEATHS:
            doing = "it started" if number is None else f"{self._items[number].name} was counted"
            raise TokengraftError(
                f"A worker died {_DEATHS} times while {doing}, perhaps for lack of memory "
                f"({_first_line(error)}). What was counted is kept: run the command again to go on."
            ) from error
        for ref in had:
            del self._pending[ref]
        self._todo.extendleft(item for item in reversed([*had.values()]) if item is not None)
        self._start()

    def end(self) -> None:
        """End all actors: nobody will read what they are still counting."""
        with contextlib.suppress(Exception):
            for actor in {id(a): a for a, _ in self._pending.values()}.values():
                self._ray.kill(actor)
            self._ray.kill(self._board)


class _Board:
    """The latest figures of each item; an item that is counted again overwrites its old ones."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, int, int, float]] = {}

    def update(self, number: int, figures: tuple[int, int, int, float]) -> None:
        self._latest[number] = figures

    def read(self) -> dict[int, tuple[int, int, int, float]]:
        latest, self._latest = self._latest, {}
        return latest


class CountingActor:
    """A worker: opens the tokenizers when it starts, then counts item after item."""

    def __init__(self, task: list[Any], board: Any) -> None:
        import ray

        from tokengraft.tokenizer.packed import limit_threads

        limit_threads(1)
        self._count: Sealed[Any] = Sealed(ray.get(task[0]), 1)
        self._board = board

    def ready(self) -> None:
        """Returns once the worker has started."""

    def count(self, number: int, item: Any) -> bytes:
        """The item's result, to be read with `unseal`."""

        def report(rows: int, size: int, tokens: int, share: float) -> None:
            self._board.update.remote(number, (rows, size, tokens, share))

        return self._count(item, report)


def _require_listener(address: str | None) -> None:
    """Raise an OSError unless something listens at host:port; Ray itself would try for minutes."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


def _first_line(error: Any) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else ""
