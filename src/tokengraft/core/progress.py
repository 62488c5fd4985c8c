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
