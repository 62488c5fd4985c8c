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
