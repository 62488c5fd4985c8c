"""How a distillation is run, and what comes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tokengraft.core.errors import UsageError
from tokengraft.deriving.methods import Rows

#: Why training stopped, where that was for no better score, and not for time or steps.
SETTLED = "held-out score no longer better"
#: Separate q, k, v and o, a gated MLP, norms that only multiply, rows that are not scaled.
WIDENED = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")

if TYPE_CHECKING:
    import torch

#: What a graft may train besides choosing tokens.
_LEAST_KEPT = 0.7
TRAINED = ("rows", "lanes", "lora")


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Under `max_minutes` only as much text is used as the teacher can read in its share of the time
    (`teaching`, and a tenth of that for held-out text), so that passages are seen more than once.
    Mixtures are passages that change their spelling midway (`passages.mix`). Where only reading is
    trained there are twice as many as `mixed` says; where, besides, only rows and lanes learn,
    twice that, `kl` counts four times, and a CPU with some minutes has settings of its own
    (`as_method`).
    """

    steps: int = 1500
    max_minutes: float | None = None
    teaching: float = 0.35  # of `max_minutes`, for the teacher
    enough: int = 200  # steps: where time allows fewer, a step has fewer passages
    passages: int = 48  # a step
    # Relative to the root mean square of the old rows; falls by a cosine over steps or minutes.
    learning_rate: float = 0.045
    share: float = 0.36  # the bridge's part of it,
    head_share: float = 0.36  # and that of the output rows' bridge
    warmup: int = 20
    # The terms of the loss in `distiller`.
    mse: float = 1.0
    cosine: float = 1.0
    kl: float = 1.0
    own: int = 0  # passages that the base writes itself, to be trained on beside the text
    mixed: float = 0.5  # mixtures for each passage,
    rest: int = 128  # old tokens after the change at most,
    places: int = 48  # of which so many are matched,
    near: float = 0.5  # this share of them right after the change
    # How much of p there is the text's own next token, instead of the base's distribution. None:
    # half where only rows and lanes learn, and only to be read; elsewhere nothing, and no number is
    # taken.
    by_text: float | None = None
    # Where new tokens are written too (`Writing`, `model.head_losses`): the weights of the terms.
    reading_weight: float = 3.4
    pooled: float = 1.0
    split: float = 2.5
    by_base: float = 0.7  # how much of the split the base decides, not the text (`branches`)
    head_rate: float = 0.7  # learning rate of output rows, relative to that of input rows
    stray: float = 100.0
    strays: int = 2048  # positions a step in text where new tokens must stay silent
    check_every: int = 100  # steps between two held-out scores
    patience: int = 5  # scores in a row without a better one that end the run; 0: never
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise UsageError(
                f"in {self.max_minutes:g} minutes nothing can be learned: give more, leave the "
                "limit away, or take a method that needs no training"
            )


@dataclass(frozen=True)
class Writing:
    """Asks that the model write the new tokens too.

    `protect` is text in which they must stay silent, besides the English and code that always are.
    With `shared` one row is both input and output row of a token; otherwise output rows are trained
    beside the input rows, and the model needs a head of its own.
    """

    protect: tuple[str, ...] = ()
    shared: bool = False


@dataclass(frozen=True)
class Adapting:
    """Asks that the body learn too: `lanes`, or adapters of `rank` (`lora`).

    `lanes` are that many dimensions or a few more, with a head and so many `neurons` in each block,
    which only new tokens use (see `lanes`): English cannot change, and nothing below is needed.

    Adapters are in the lowest `depth` of the blocks, where new tokens are first made sense of; with
    `apart` they begin in directions that protected text hardly uses (`student`). `rate` is Adam's;
    that of lanes is `lanes_rate` divided by the model's width.

    The promise: on held-out passages of `protect`, and of the English and code that are always
    protected, KL to the base is at most `keep_kl` nats and the likeliest token is the base's at
    `keep_top1` of the positions or more. To that end a full step replays `replayed` of at most
    `protected` such passages; their weight in the loss begins at `replay` and is then steered by
    the promise (`Replay`).
    """

    train: str = "lora"
    rank: int = 32
    depth: float = 0.5
    # Four minutes of a CPU core, held-out KL: with 64 and 256 .136 in Amharic and .401 in Hindi,
    # with 32 and 128 .146 and .404. On a GPU (1,300 steps of 32 passages, dev) .074 and .167, and
    # .072 and .149 with 160 and 1,024, which make the blocks 2.8 times as large instead of 1.5.
    lanes: int = 64
    neurons: int = 256
    # Divided by the width of a state: .003 for rootstock's 320. With .003 a model 1,536 wide
    # diverges (Tamil, 24 small steps: held-out KL 3.4; .82 with .001, .74 with .0005).
    lanes_rate: float = 0.96
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

    @property
    def grows(self) -> bool:
        """Whether the body gets lanes, and all that was there stays."""
        return self.train == "lanes"

    def keeping(self, share: float) -> Adapting:
        """The same with another promise: a top-1 of `share`, and the KL that goes with it.

        Where half as many likeliest tokens change, KL is about a quarter.
        """
        if not _LEAST_KEPT <= share < 1:  # `verify` takes less for no promise
            raise UsageError(
                f"keep {share:g}: give a share from {_LEAST_KEPT} up and below 1, as 0.97; to keep "
                "all of it train rows or lanes"
            )
        times = (1 - share) / (1 - self.keep_top1)
        return replace(self, keep_top1=share, keep_kl=self.keep_kl * times**2)

    def promise(self) -> dict[str, object]:
        """What a manifest says of it; of lanes nothing has to be promised."""
        if self.grows:
            return {"train": self.train, "neurons": self.neurons}
        return {
            "train": self.train,
            "rank": self.rank,
            "promised": {"kl": self.keep_kl, "top1": self.keep_top1},
        }


@dataclass(frozen=True)
class HeldOut:
    """What rows reach on held-out text, as means over aligned positions."""

    kl: float  # nats, over the old vocabulary
    agreement: float  # share of positions with the base's likeliest token
    cosine: float  # of last hidden states
    positions: int
    mixed: float | None = None  # KL in passages of mixed spelling
    # Where new tokens are written: pooled divergence and split, in nats; and −log(1 − their mass)
    # in text that is not theirs.
    writing: float | None = None
    stray: float | None = None
    loss: float = 0.0  # by which rows are chosen and training is stopped
    kept: float | None = None  # KL in protected text, where the body learns,
    kept_top1: float | None = None  # and agreement
    # How many more bits the rest of a passage takes after a beginning in new tokens, relative to
    # the base's (`matching.continued`). Along the way it is known only where it is trained for.
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
    reading: float = math.inf  # most old tokens of training text that may be used
    judged: int = 0  # held-out passages
    passages: int = 0  # a step
    unseen: int = 0  # new tokens in no passage that was trained on: only the bridge moved them
