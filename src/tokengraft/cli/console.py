"""How the command line speaks: results on stdout, progress and messages on stderr."""

from __future__ import annotations

import codecs
import io
import json
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.segment import Segment

from tokengraft.core.errors import EncoderDiffers
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.core.wording import counted, one_line


class HarmlessConsole(Console):
    """Shows `?` for control characters in what it prints: names in files may hold any."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """What is printed, piece by piece; rich's own moves of the cursor stay."""
        for part in super().render(renderable, options):
            text = "\n".join(map(one_line, part.text.split("\n")))
            yield part if part.control else part._replace(text=text)


# Piped output goes to files and CI logs: wide enough that no table is cut off.
# A stream that the caller closed is None.
stdout = HarmlessConsole(highlight=False, width=None if sys.stdout and sys.stdout.isatty() else 160)
# A log is read line by line, so a message stays on one line.
stderr = HarmlessConsole(
    stderr=True, highlight=False, soft_wrap=not (sys.stderr and sys.stderr.isatty())
)

#: What stands in for a character outside ASCII; without its minus, a change would lose its sign.
_PLAIN = {"−": "-", "→": ">", "×": "x", "’": "'", "“": '"', "”": '"'}
EVERY = 30.0  # seconds between two lines of progress in a log


def speak_any_language() -> None:
    """Characters that a terminal or a pipe cannot show become plainer ones or `?`, not an error."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in lost), error.end


def print_json(value: Any) -> None:
    """Write `value` to stdout as JSON and nothing else; in ASCII if stdout is not UTF-8."""
    utf8 = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
    print(json.dumps(value, ensure_ascii=not utf8, indent=1))


def warn(*messages: str) -> None:
    """Messages that do not stop the run, a line each."""
    for message in messages:
        stderr.print("[yellow]Note:[/yellow]", end=" ")
        stderr.print(message, markup=False)


def warn_of_encoders() -> None:
    """Print warnings about faster encoders as other messages are printed."""
    show = warnings.showwarning

    def shown(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, EncoderDiffers):
            warn(str(message))
        else:
            show(message, category, *rest, **more)

    warnings.showwarning = shown


def say_written(files: Sequence[Path], out: Path | None) -> None:
    """How many files were written to `out`, if anything was."""
    if out is not None:
        stdout.print(f"{counted(len(files), 'file')} written to {out}", markup=False)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show what is being done while it is being done; nothing if stderr is not a terminal."""
    with stderr.status(what) if stderr.is_terminal else nullcontext():
        yield


@contextmanager
def drawing() -> Iterator[OnProgress]:
    """A progress bar on stderr, which appears with the first progress and is removed at the end.

    If stderr is not a terminal, there is a line every half minute instead.
    """
    if not stderr.is_terminal:
        with _in_a_log() as in_a_log:
            yield in_a_log
        return
    bar = Bar(
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr,
        transient=True,
    )
    task = bar.add_task("", total=None, visible=False, figures="")

    def on_progress(now: Progress) -> None:
        figures = _figures(now, bar.tasks[0].elapsed or 0.0)
        if now.what != bar.tasks[0].description:  # its speed is not that of the work before
            bar.reset(task)
        bar.tasks[0].total = now.total  # `update` would keep the one of the work before
        bar.update(task, description=now.what, completed=now.done, total=now.total,
                   visible=True, figures=figures)  # fmt: skip

    with bar:
        yield on_progress


@contextmanager
def _in_a_log() -> Iterator[OnProgress]:
    """Progress as lines of a log, one every `EVERY` seconds, also while nothing is reported."""
    began = last = time.monotonic()
    latest: Progress | None = None
    before: tuple[float, float | None] = 0.0, None  # done at the last line, and of what total
    over = threading.Event()

    def speak(now: Progress | None) -> None:
        nonlocal last, latest, before
        latest = now
        if now is None or time.monotonic() - last < EVERY:
            return
        seconds, last = time.monotonic() - last, time.monotonic()
        figures = f": {said}" if (said := _figures(now, last - began)) else ""
        done = now.done - before[0] if before[1] == now.total else now.done
        left = ""
        if now.total and done > 0 and now.done < now.total:
            minutes = seconds * (now.total - now.done) / done / 60
            left = f", about {max(1, round(minutes))} min left"
        before = now.done, now.total
        stderr.print(f"{now.what}{figures}, after {last - began:.0f} s{left}", markup=False)

    def watch() -> None:
        while not over.wait(EVERY or None):
            speak(latest)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield speak
    finally:
        over.set()
        watcher.join()


def _figures(now: Progress, seconds: float) -> str:
    """How far the work is, in the words that a bar uses."""
    if now.unit == "bytes" and seconds:
        return f"{now.detail}  {now.done / 1e6 / seconds:.1f} MB/s"
    if now.unit:
        return f"{now.done:,.0f}" + (f" of {now.total:,.0f}" if now.total else "") + f" {now.unit}"
    share = f"{now.done / now.total:.0%}" if now.total else ""
    return ", ".join(filter(None, (share, now.detail)))
