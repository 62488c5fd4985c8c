"""What benchmarks that train have in common: command line, processes, lines of a file.

They are made for a machine with one GPU on which several small models train at once, and which may
lack polars: only the tables of results need it, not the measurements.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import multiprocessing
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def arguments(about: str | None) -> argparse.ArgumentParser:
    """A command line with the folders that all of them take, and the languages."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    for name in ("model", "plans", "text", "flores", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--language", "-l", nargs="+", required=True)
    return parser


def share_out(
    run: Callable[..., None], options: argparse.Namespace, jobs: Iterable[tuple[Any, ...]]
) -> None:
    """Call `run(options, *job)` for every job, `options.jobs` of them at once.

    A job that fails is printed; the others go on.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    for job in [*jobs, *[None] * options.jobs]:
        queue.put(job)
    running = [
        context.Process(target=_work, args=(run, options, queue)) for _ in range(options.jobs)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()


def _work(run: Callable[..., None], options: argparse.Namespace, queue: Any) -> None:
    import torch

    without_polars()
    from tokengraft.model.divergence import MEASURING, TRAINING

    if options.jobs > 2:  # many share the memory of one GPU
        TRAINING["cuda"], MEASURING["cuda"] = 1 << 25, 1 << 25
    torch.set_num_threads(getattr(options, "threads", 1))
    while (job := queue.get()) is not None:
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            run(options, *job)
        except Exception:
            print(job, traceback.format_exc(), flush=True)


def without_polars() -> None:
    """Make modules that import polars importable even if it is missing."""
    try:
        import polars  # noqa: F401
    except ImportError:
        stub = types.ModuleType("polars")
        stub.__getattr__ = _anything  # type: ignore[method-assign]
        stub.__spec__ = importlib.machinery.ModuleSpec("polars", None)  # others look for it
        sys.modules["polars"] = stub


def _anything(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


def lines_in(path: Path) -> list[str]:
    """The lines of a file that are not blank."""
    return [one for one in path.read_text(encoding="utf-8").split("\n") if one.strip()]
