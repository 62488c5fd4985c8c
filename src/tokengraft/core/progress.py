"""How far a long verb is: one shape for all of them, whoever draws it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Progress:
    """What is being done, and how much of it is; `total` is None where nobody knows.

    `unit` names what is counted (`lines`, `bytes`, `cells`), empty for a share; `detail` is a
    further figure in words.
    """

    what: str
    done: float
    total: float | None = None
    unit: str = ""
    detail: str = ""


OnProgress: TypeAlias = Callable[[Progress], None]


def by_lines(progress: OnProgress | None) -> Callable[[str, str, int, int], None] | None:
    """For what counts lines of one thing in another: a tokenizer and a language, say."""
    if progress is None:
        return None
    return lambda one, other, done, total: progress(
        Progress(f"{one} · {other}" if one else "done", done, total, "lines")
    )


def by_stages(
    progress: OnProgress | None, unit: str = ""
) -> Callable[[str, float, float], None] | None:
    """For what goes stage by stage."""
    if progress is None:
        return None
    return lambda what, done, total: progress(Progress(what, done, total or None, unit))
