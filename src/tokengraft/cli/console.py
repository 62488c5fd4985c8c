"""How the command line speaks: results on stdout, progress and messages on stderr."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from tokengraft.auditing.count_corpus import OnCount

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


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar on stderr that is gone when it ends; none at all where stderr is no terminal."""
    return Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say what is being done while it is; nothing where stderr is no terminal."""
    with stderr.status(what) if stderr.is_terminal else nullcontext():
        yield


@contextmanager
def counting() -> Iterator[OnCount]:
    """A progress bar over the lines being counted; it appears only when something is."""
    progress = progress_bar(
        TextColumn("Counting [bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("lines"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    task = progress.add_task("", total=None, visible=False)

    def on_count(tokenizer: str, language: str, done: int, total: int) -> None:
        what = f"{tokenizer} · {language}" if tokenizer else "done"
        progress.update(task, description=what, completed=done, total=total, visible=True)

    with progress:
        yield on_count
