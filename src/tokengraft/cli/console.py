"""How the command line speaks: results on stdout, progress and messages on stderr."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tokengraft.core.progress import OnProgress, Progress

# Piped output is for files and CI logs: wide enough that no table is cut.
stdout = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
# A log is read line by line: a message stays on one.
stderr = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def speak_any_language() -> None:
    """Characters that a terminal or a pipe cannot show become `?`, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_json(value: Any) -> None:
    """Write `value` to stdout as JSON and nothing else, in ASCII where it is not UTF-8."""
    utf8 = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    print(json.dumps(value, ensure_ascii=not utf8, indent=1))


def warn(message: str) -> None:
    """A message that does not stop the run."""
    stderr.print("[yellow]Note:[/yellow]", end=" ")
    stderr.print(message, markup=False)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say what is being done while it is; nothing where stderr is no terminal."""
    with stderr.status(what) if stderr.is_terminal else nullcontext():
        yield


@contextmanager
def drawing() -> Iterator[OnProgress]:
    """A bar on stderr over whatever is being done, gone when it ends.

    It appears when something is, and not at all where stderr is no terminal.
    """
    bar = Bar(
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )
    task = bar.add_task("", total=None, visible=False, figures="")

    def on_progress(now: Progress) -> None:
        seconds = bar.tasks[0].elapsed or 0.0
        figures = now.detail
        if now.unit == "bytes" and seconds:
            figures += f"  {now.done / 1e6 / seconds:.1f} MB/s"
        elif now.unit:
            figures = f"{now.done:,.0f}" + (f" of {now.total:,.0f}" if now.total else "")
            figures += f" {now.unit}"
        elif now.total:
            figures = f"{now.done / now.total:.0%}"
        bar.update(task, description=now.what, completed=now.done, total=now.total,
                   visible=True, figures=figures)  # fmt: skip

    with bar:
        yield on_progress
