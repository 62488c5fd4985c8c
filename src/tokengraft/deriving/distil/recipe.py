"""How a distillation is run, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tokengraft.core.errors import UsageError
from tokengraft.deriving.methods.protocol import Rows

if TYPE_CHECKING:
    from tokengraft.deriving.distil.judging import HeldOut


@dataclass(frozen=True)
class Recipe:
    """How to train.

    `learning_rate` is relative to the root mean square of the old rows and falls to 0 by a cosine
    over `steps`, or over `max_minutes` where that is sooner; `share` is the bridge's part of it.
    Under `max_minutes` only as much text is used as the teacher can read in `teaching` of the time
    (a tenth of that for held-out text), so that passages are seen more than once, and steps have
    fewer than `passages` passages where there would be less than 200 of them. `patience`
    held-out checks without a better KL end the run (0: never).
    """

    steps: int = 1500
    max_minutes: float | None = None
    teaching: float = 0.35
    passages: int = 48
    learning_rate: float = 0.045
    share: float = 0.36
    warmup: int = 20
    mse: float = 1.0
    cosine: float = 1.0
    kl: float = 1.0
    check_every: int = 100
    patience: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise UsageError(
                f"in {self.max_minutes:g} minutes nothing can be learned: give more, leave the "
                "limit away, or take a method that needs no training"
            )


@dataclass(frozen=True)
class Check:
    """A held-out score along the way."""

    step: int
    seconds: float
    score: HeldOut


@dataclass
class Outcome:
    """The best rows seen, their score, the start's score, and the curve between."""

    rows: Rows
    score: HeldOut
    start: HeldOut
    steps: int = 0
    seconds: float = 0.0
    curve: list[Check] = field(default_factory=list)
    stopped: str = "steps"
    reading: float = math.inf  # old tokens of training text that were used at most
    judged: int = 0  # held-out passages
    passages: int = 0  # a step
    unseen: int = 0  # new tokens in no passage that was trained on: only the bridge moved them


Progress: TypeAlias = Callable[[Check], None]
