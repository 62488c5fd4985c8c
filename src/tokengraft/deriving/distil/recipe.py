"""How a distillation is run, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from tokengraft.core.errors import UsageError
from tokengraft.deriving.methods import Rows

if TYPE_CHECKING:
    import torch

#: What a graft may train besides choosing tokens.
TRAINED = ("rows", "lora", "all")


@dataclass(frozen=True)
class Recipe:
    """How to train.

    `learning_rate` is relative to the root mean square of the old rows and falls to 0 by a cosine
    over `steps`, or over `max_minutes` where that is sooner; `share` is the bridge's part of it,
    `head_share` that of the output rows' bridge.
    Under `max_minutes` only as much text is used as the teacher can read in `teaching` of the time
    (a tenth of that for held-out text), so that passages are seen more than once, and steps have
    fewer than `passages` passages where there would be less than `enough` of them. `patience`
    held-out checks without a better score end the run (0: never).

    The base writes `own` passages itself, to be trained on beside the text that is given.
    For every passage there are `mixed` more that change their spelling midway, twice as many where
    only reading is trained, and twice that, with `kl` counting four times, where rows are all that
    learns; at most `rest` old tokens follow where they change, matched at `places` of them: the
    first `near` of those places, the others drawn evenly. Where rows are all that learns, a share
    `by_text` of what is to follow there is the text's word, the rest the base's, and on a CPU under
    `max_minutes` they are trained otherwise (`as_method`). Where the new tokens are written too
    (`Writing`), the reading loss counts `reading_weight` times, beside the pooled divergence, the
    split of each pool, and what new tokens take in text that is not theirs, at `strays` positions a
    step.
    `by_base` is how much of the split is the base's word instead of the text's (`branches`); output
    rows move at `head_rate` times the learning rate.
    """

    steps: int = 1500
    max_minutes: float | None = None
    teaching: float = 0.35
    enough: int = 200
    passages: int = 48
    learning_rate: float = 0.045
    share: float = 0.36
    head_share: float = 0.36
    warmup: int = 20
    mse: float = 1.0
    cosine: float = 1.0
    kl: float = 1.0
    own: int = 0
    mixed: float = 0.5
    rest: int = 128
    places: int = 48
    near: float = 0.5
    by_text: float = 0.5
    reading_weight: float = 3.4
    pooled: float = 1.0
    split: float = 2.5
    by_base: float = 0.7
    head_rate: float = 0.7
    stray: float = 100.0
    strays: int = 2048
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
class Writing:
    """That the model is to write the new tokens, too.

    `protect` is text in which they must stay silent, besides English and code that are always
    there. With `shared` one row serves both ends of a token; else output rows are trained beside
    the input rows, which needs a head of its own.
    """

    protect: tuple[str, ...] = ()
    shared: bool = False


@dataclass(frozen=True)
class Adapting:
    """That the body learns too: by adapters of `rank` (`lora`), or every weight of it (`all`).

    Adapters are in the lowest `depth` of the blocks, where new tokens are first made sense of.

    `protect` is text whose reading must stay the base's, besides English and code that are always
    there: on held-out passages of it KL at most `keep_kl` nats and the same likeliest token at
    least at `keep_top1` of the positions. Of at most `protected` passages `replayed` are read in
    every step of as many passages as the recipe has; their weight in the loss begins at `replay`
    and is raised or lowered until that holds. `rate` is Adam's. An adapter of `apart` looks where
    protected text is small (see `student`).
    """

    train: str = "lora"
    rank: int = 32
    depth: float = 0.5
    rate: float = 1e-3
    protect: tuple[str, ...] = ()
    keep_kl: float = 0.003
    keep_top1: float = 0.97
    replayed: int = 32
    replay: float = 60.0
    protected: int = 4800
    apart: bool = True

    def __post_init__(self) -> None:
        if self.train not in TRAINED[1:]:
            raise UsageError(f"no {self.train!r} to train; known: {', '.join(TRAINED)}")

    def keeping(self, share: float) -> Adapting:
        """The same with another promise: top-1 `share`, and the KL that goes with it.

        Text that moves half as far in top-1 moves a quarter as far in KL.
        """
        if not 0 < share < 1:
            raise UsageError(
                f"keep {share:g}: give a share below 1, as 0.97; to keep all of it train rows only"
            )
        times = (1 - share) / (1 - self.keep_top1)
        return replace(self, keep_top1=share, keep_kl=self.keep_kl * times**2)

    def promise(self) -> dict[str, object]:
        """What a manifest says of it."""
        rank = {"rank": self.rank} if self.train == "lora" else {}
        return {
            "train": self.train,
            **rank,
            "promised": {"kl": self.keep_kl, "top1": self.keep_top1},
        }


@dataclass(frozen=True)
class HeldOut:
    """KL in nats over the old vocabulary, top-1 agreement, cosine of last hidden states.

    `mixed` is the KL in passages of mixed spelling; `writing` is pooled divergence and split, in
    nats a position, and `stray` −log(1 − mass of the new tokens) in text that is not theirs, where
    they are written too. `kept` and `kept_top1` are KL and agreement in protected text, where the
    body learns. `loss` is what training is stopped by and rows are chosen by. `excess` is how many
    more bits than the base's the rest of a passage takes in old tokens after a beginning in new
    ones, known of the rows in the end, of the floor, and along the way where it is trained for.
    """

    kl: float
    agreement: float
    cosine: float
    positions: int
    mixed: float | None = None
    writing: float | None = None
    stray: float | None = None
    loss: float = 0.0
    kept: float | None = None
    kept_top1: float | None = None
    excess: float | None = None


@dataclass(frozen=True)
class CurvePoint:
    """A held-out score along the way."""

    step: int
    seconds: float
    score: HeldOut


@dataclass
class Distillation:
    """The best rows seen, their score, the start's score, and the curve between."""

    rows: Rows
    score: HeldOut
    start: HeldOut
    head: Rows | None = None  # output rows, where they are trained
    weights: dict[str, torch.Tensor] = field(default_factory=dict)  # of the body, where it learns
    steps: int = 0
    seconds: float = 0.0
    curve: list[CurvePoint] = field(default_factory=list)
    stopped: str = "steps"
    reading: float = math.inf  # old tokens of training text that were used at most
    judged: int = 0  # held-out passages
    passages: int = 0  # a step
    unseen: int = 0  # new tokens in no passage that was trained on: only the bridge moved them


Progress: TypeAlias = Callable[[CurvePoint], None]
