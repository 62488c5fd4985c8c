"""What an engine is: a map over items (shards, say). It does not itself read, count or add up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from tokengraft.core import errors
from tokengraft.core.errors import TokengraftError

# Rows, bytes of text and tokens so far, and the share of the item that is done. These are totals of
# one attempt: an item that is counted again overwrites them, so nothing is ever added twice.
Report = Callable[[int, int, int, float], None]
# The item's number in the list given to the engine, then as in `Report`.
OnFigures = Callable[[int, int, int, int, float], None]


class Item(Protocol):
    """What one call counts; plain data that can be sent to workers."""

    @property
    def name(self) -> str:
        """What it is, for messages."""

    @property
    def size(self) -> int:
        """About how much work it is."""


ItemT = TypeVar("ItemT", bound=Item)
ItemT_contra = TypeVar("ItemT_contra", bound=Item, contravariant=True)


class EngineTask(Protocol[ItemT_contra]):
    """The function to map, as plain data that can be sent to workers."""

    def open(self, threads: int) -> Callable[[ItemT_contra, Report], bytes]:
        """Prepare once per worker (open tokenizers); returns the function that counts an item."""


class Engine(Protocol):
    """Maps a task over items."""

    def map(
        self, task: EngineTask[ItemT], items: Sequence[ItemT], on_progress: OnFigures
    ) -> Iterator[tuple[int, bytes]]:
        """(number, result) of every item exactly once, in the order in which they finish.

        A worker that dies is replaced and its item counted again. Closing the iterator ends all
        workers.
        """


class Sealed(Generic[ItemT]):
    """A task in a worker: returns results and our own errors alike as bytes.

    Exceptions do not travel well: some cannot be pickled, and Ray wraps them several times over.
    """

    def __init__(self, task: EngineTask[ItemT], threads: int) -> None:
        self._task = task
        self._threads = threads
        self._count: Callable[[ItemT, Report], bytes] | None = None

    def __call__(self, item: ItemT, report: Report) -> bytes:
        """Count the item, after opening the task the first time; `unseal` reads the answer."""
        try:
            if self._count is None:
                self._count = self._task.open(self._threads)
            return b"+" + self._count(item, report)
        except TokengraftError as error:
            return b"-" + json.dumps([type(error).__name__, str(error)]).encode()


def unseal(data: bytes) -> bytes:
    """The result in a `Sealed` task's answer; if that holds an error, it is raised."""
    if data.startswith(b"+"):
        return data[1:]
    kind, message = json.loads(data[1:])
    known = getattr(errors, kind, TokengraftError)
    error = known.__new__(known)
    error.args = (message,)
    raise error


def cores() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
