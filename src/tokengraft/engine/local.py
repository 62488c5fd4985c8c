"""The engine on this machine: one process per core, or this process if there is just one item.

Processes, not threads: reading JSON and gathering ids hold the interpreter lock, which would cap
the cores in use at about ten. A worker's tokenizers run on one thread, or on a share of the cores
if there are fewer items than workers.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import Counter as Tries
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from typing import Any

from tokengraft.core.errors import TokengraftError
from tokengraft.engine.protocol import EngineTask, ItemT, OnFigures, Sealed, cores, unseal
from tokengraft.tokenizer.packed import THREAD_SETTINGS, limit_threads

TRIES = 3  # worker deaths on one item after which the run fails
_FIGURES = 4  # per item: rows, bytes, tokens, thousandths done
_POLL = 0.5  # seconds between looks at the workers' progress


class Local:
    """A pool of `workers` processes; see `engine.Engine`."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(
        self, task: EngineTask[ItemT], items: Sequence[ItemT], on_progress: OnFigures
    ) -> Iterator[tuple[int, bytes]]:
        """See `engine.Engine.map`."""
        workers = min(self.workers, len(items))
        if workers <= 1:
            yield from self._here(task, items, on_progress)
        else:
            yield from self._pool(task, items, on_progress, workers)

    def _here(
        self, task: EngineTask[ItemT], items: Sequence[ItemT], on_progress: OnFigures
    ) -> Iterator[tuple[int, bytes]]:
        """In this process; a single item still uses all cores, through the Rust tokenizers."""
        if not items:
            return
        before = dict(os.environ)
        if self.workers == 1:
            limit_threads(1)
        try:
            count = task.open(self.workers)
            for number, item in enumerate(items):
                yield number, count(item, partial(on_progress, number))
        finally:  # this is the caller's process, which may want all threads afterwards
            for name in THREAD_SETTINGS:
                os.environ.pop(name, None)
                os.environ.update({name: before[name]} if name in before else {})

    def _pool(
        self, task: EngineTask[ItemT], items: Sequence[ItemT], on_progress: OnFigures, workers: int
    ) -> Iterator[tuple[int, bytes]]:
        context = multiprocessing.get_context("spawn")  # forking with Rust threads can deadlock
        # A row of figures per item, written only by the worker that counts it: there is no lock
        # that a killed worker could keep.
        board = context.RawArray("q", _FIGURES * len(items))
        threads = max(1, cores() // workers) if self.workers > workers else 1
        # The largest first, so that none is left running alone at the end.
        todo = sorted(range(len(items)), key=lambda n: -items[n].size)
        died: Tries[int] = Tries()
        while todo:
            pool = ProcessPoolExecutor(workers, context, _start, (task, board, threads))
            try:
                pending: dict[Future[bytes], int] = {}
                waiting = iter(todo)
                done: set[int] = set()
                # A few ahead of the workers: when one dies, only these can be to blame.
                for number in islice(waiting, workers + 1):
                    pending[pool.submit(_count, number, items[number])] = number
                while pending:
                    ready, _ = wait(pending, _POLL, FIRST_COMPLETED)
                    _pass_on(board, pending.values(), on_progress)
                    for future in ready:
                        result = unseal(future.result())
                        number = pending.pop(future)
                        done.add(number)
                        yield number, result
                        for following in islice(waiting, 1):
                            pending[pool.submit(_count, following, items[following])] = following
            except BrokenProcessPool:
                died.update(pending.values())
                worst, times = died.most_common(1)[0]
                if times >= TRIES:
                    raise TokengraftError(
                        f"A worker died {times} times while {items[worst].name} was being "
                        f"counted, perhaps for lack of memory: use fewer --workers. What was "
                        f"counted is kept: run the command again to go on."
                    ) from None
            finally:
                _end(pool)
            todo = [number for number in todo if number not in done]


def _end(pool: ProcessPoolExecutor) -> None:
    """End the workers at once: nobody will read what they are still counting."""
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.terminate()
    # The pool's own thread reaps them; joining them here as well would race with it.
    pool.shutdown(wait=True, cancel_futures=True)


def _pass_on(board: Any, numbers: Any, on_progress: OnFigures) -> None:
    for number in numbers:
        rows, size, tokens, share = board[_FIGURES * number : _FIGURES * (number + 1)]
        if rows:
            on_progress(number, rows, size, tokens, share / 1000)


# Set once when a worker process starts: what counts an item, and the figures of all items.
_worker: tuple[Sealed[Any], Any] | None = None


def _start(task: EngineTask[Any], board: Any, threads: int) -> None:
    import signal

    global _worker  # noqa: PLW0603 - the only place a pool's worker can keep what it opened
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the driver ends its workers
    threading.Thread(target=_end_with_driver, daemon=True).start()
    limit_threads(threads)
    _worker = (Sealed(task, threads), board)


def _end_with_driver() -> None:
    """Exit when the driver does: if killed, it cannot end its workers, which would wait forever."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def _count(number: int, item: Any) -> bytes:
    assert _worker is not None
    count, board = _worker

    def report(rows: int, size: int, tokens: int, share: float) -> None:
        board[_FIGURES * number : _FIGURES * (number + 1)] = [
            rows, size, tokens, int(1000 * share)
        ]  # fmt: skip

    return count(item, report)
