"""How far a long verb has got: one type for all of them, whoever displays it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Progress:
    """What is being done, and how much of it is done; `total` is None if unknown.

    `unit` names what is counted (`lines`, `bytes`, `cells`); if empty, only the share done means
    anything. `detail` is a further figure in words.
    """

    what: str
    done: float
    total: float | None = None
    unit: str = ""
    detail: str = ""


OnProgress: TypeAlias = Callable[[Progress], None]


def by_lines(progress: OnProgress | None) -> Callable[[str, str, int, int], None] | None:
    """An adapter for code that reports (tokenizer, language, lines done, lines in all)."""
    if progress is None:
        return None
    return lambda one, other, done, total: progress(
        Progress(f"{one} · {other}" if one else "done", done, total, "lines")
    )


def by_stages(
    progress: OnProgress | None, unit: str = ""
) -> Callable[[str, float, float], None] | None:
    """An adapter for code that reports (stage, done, total); a total of 0 is unknown."""
    if progress is None:
        return None
    return lambda what, done, total: progress(Progress(what, done, total or None, unit))
