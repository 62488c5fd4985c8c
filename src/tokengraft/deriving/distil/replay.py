"""Protected text while the body learns: how far it moves, and the weight that holds it back.

    loss = (terms of the new tokens)  +  λ KL(p ‖ q) in protected text
    strain = max(KL / promised KL, (1 − top-1) / (1 − promised top-1)),  averaged over looks
    r = strain / allowed,  between 1/e and e;   allowed = aim · (1 + slack · s⁴)
    log level ← log level + rate · d · log r;   λ = level · r³
    s the share of the learning rate that is left, d the share of the run that a step is

p is the base's and q the student's, over all that can be written, at every position of whole
passages. No weight is right for two models or two languages; the promise is, so the weight is
moved until it holds: a dual variable, ascended, and at once where r is not 1, without which it
swings (rootstock, Hindi: 1,000, 49 and 419, a thousand steps apart). Large steps shake protected
text, which passes as they get smaller: held down to the promise at once, λ runs away and nothing is
learned (rootstock: to 1e5, and reading no better than rows alone). But what is to hold in the end
has to hold while steps can still do something about it, so the slack is gone with s⁴: with s², and
a rate that knows nothing of the run's length, the strain ended at 1.3 to 1.45 (1,600 steps).

The strain is that of passages that are never replayed, looked at every few steps: others move
further than those that are (rootstock 1.4 times, a model of 1.5 billion weights 3 to 4 times as
far), and steered by these no more than .7 or .3 of what was learned could be kept in the end. Other
passages again judge, and whatever λ has reached, no more of what was learned is kept than the
promise allows: a share of it costs about that share in top-1, its square in KL.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from tokengraft.deriving.distil.recipe import Adapting
from tokengraft.deriving.distil.teacher import Teacher
from tokengraft.deriving.distil.writer import Writer
from tokengraft.model.libraries import spread
from tokengraft.model.pooling import kept
from tokengraft.model.reading import BATCH_TOKENS, Reader, batches
from tokengraft.tokenizer.align import Alignment, Ints

_HELD_OUT = 10  # one protected passage in so many judges, and one is looked at,
_JUDGES = 240  # and no more than these: some ten thousand positions
_LOOKED = 4  # steps between two looks, of as many passages as a step replays,
_LEAST = 8  # and no fewer
_AIM = 0.6  # of the promise: English unlike what is replayed moves up to 1.65 times as far
_RATE = 30.0  # in a whole run
_SLACK = 2.0
_MEMORY = 0.8  # of the strain so far
_BOUNDS = (1.0, 1000.0)  # of the weight: beyond, an adapter learns nothing but to keep still
_LOWEST = 10.0  # of the level: from further down it is not back in time


class Replay:
    """Protected passages (old ids) as the base reads them, and the weight they have."""

    def __init__(
        self,
        reader: Reader,
        passages: Sequence[Ints],
        adapting: Adapting,
        writer: Writer | None = None,
    ) -> None:
        self.reader, self.adapting, self.writer = reader, adapting, writer
        whole = [Alignment(ids, ids, np.arange(len(ids)), np.arange(len(ids))) for ids in passages]
        every = max(_HELD_OUT, len(whole) // _JUDGES)
        self.judged, self.looked = whole[::every], whole[every // 2 :: every]
        self.passages = [one for n, one in enumerate(whole) if n % every not in (0, every // 2)]
        self.open(None)
        self.reset()

    def open(self, folder: Path | None) -> None:
        """Keep the base's reading in `folder`, or in memory."""
        self.train = Teacher(self.reader, self.passages, folder, "protected")
        self.judging = Teacher(self.reader, self.judged, folder, "protected-held-out")
        self.looking = Teacher(self.reader, self.looked, folder, "protected-looked-at")

    def reset(self) -> None:
        """Back to the start."""
        self.weight = self.level = self.adapting.replay
        self.strain = self.done = 0.0

    @property
    def state(self) -> tuple[float, float, float, float]:
        """What a checkpoint has to hold."""
        return self.level, self.weight, self.strain, self.done

    @state.setter
    def state(self, values: tuple[float, float, float, float]) -> None:
        self.level, self.weight, self.strain, self.done = values

    def facts(self) -> dict[str, object]:
        """What a checkpoint's key has to know."""
        every = (*self.passages, *self.looked, *self.judged)
        ids = b"".join(one.old.astype(np.int64).tobytes() for one in every)
        settings = {**asdict(self.adapting), "protect": None}
        return {"protected": hashlib.sha256(ids).hexdigest(), **settings}

    def strained(self, kl: float, top1: float) -> float:
        """How much of the promise is used up: 1 is all of it."""
        adapting = self.adapting
        return max(kl / adapting.keep_kl, (1 - top1) / (1 - adapting.keep_top1))

    def share(self, kl: float, top1: float) -> float:
        """How much of what was learned may be kept where it moved held-out text by so much.

        Half of it at least: new tokens that stray there are not the body's doing.
        """
        adapting = self.adapting
        by_kl = math.sqrt(_AIM * adapting.keep_kl / max(kl, 1e-9))
        by_top1 = _AIM * (1 - adapting.keep_top1) / max(1 - top1, 1e-9)
        return min(1.0, max(0.5, min(by_kl, by_top1)))

    def look(
        self, student: Reader, head: torch.Tensor | None, seed: Sequence[int], share: float = 1.0
    ) -> None:
        """See, every few steps (the last of `seed`), how far some of the text has moved."""
        if self.looked and seed[-1] % _LOOKED == 0:
            count = max(_LEAST, math.ceil(share * self.adapting.replayed))
            numbers = _some(len(self.looked), count, seed)
            seen = self.strained(*self._moved(self.looking, numbers, student, head))
            self.strain = _MEMORY * self.strain + (1 - _MEMORY) * seen

    def control(self, pace: float, done: float) -> None:
        """Raise or lower the weight by what was seen.

        Steps are of size `pace`, and a share `done` of the run is over.
        """
        allowed = _AIM * (1 + _SLACK * pace**4)
        ratio = min(math.e, max(1 / math.e, self.strain / allowed))
        low, high = _BOUNDS
        self.level *= ratio ** (_RATE * (done - self.done))
        self.level, self.done = min(high, max(_LOWEST, self.level)), done
        self.weight = min(high, max(low, self.level * ratio**3))

    def drawn(self, seed: Sequence[int], share: float = 1.0) -> Ints:
        """Passages of a step, in order; a smaller step has its share of them."""
        return _some(len(self.passages), math.ceil(share * self.adapting.replayed), seed)

    def gradient(
        self, student: Reader, head: torch.Tensor | None, numbers: Ints
    ) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """Gradients of the passages' mean KL at output rows and at what the student learns."""
        whole = self.train.states(numbers)
        positions = len(whole)

        def slope(member: Reader, share: Ints) -> tuple[torch.Tensor, ...]:
            device = member.model.device
            old = whole if len(share) == len(numbers) else self.train.states(share, device)
            with torch.enable_grad():
                new = _states(member, [self.train.passages[n] for n in share])
                added = None if self.writer is None or head is None else (
                    self.writer.added(head.detach(), device))  # fmt: skip
                _, _, pull, other = kept(new.detach(), old, member.head, added)
                learning = list(member.model.learning.values())
                grads = torch.autograd.grad((new * pull).sum() / positions, learning)
            more = () if other is None else (other / positions,)
            return tuple(one.to(whole.device) for one in (*more, *grads))

        tables = zip(*spread(student.team, numbers, slope), strict=True)
        sums = [torch.stack(one).sum(0) if len(one) > 1 else one[0] for one in tables]
        if self.writer is None or head is None:
            return None, sums
        return sums[0], sums[1:]

    def judge(self, student: Reader, head: torch.Tensor | None) -> tuple[float, float]:
        """KL and top-1 on the held-out passages; 0 and 1 where there are none."""
        if not self.judged:
            return 0.0, 1.0
        return self._moved(self.judging, np.arange(len(self.judged)), student, head)

    @torch.no_grad()
    def _moved(
        self, teacher: Teacher, among: Ints, student: Reader, head: torch.Tensor | None
    ) -> tuple[float, float]:
        """KL and top-1 on passages of a teacher."""
        totals = np.zeros(3)

        def score(member: Reader, numbers: Ints) -> tuple[float, float, int]:
            device = member.model.device
            old = teacher.states(numbers, device)
            new = _states(member, [teacher.passages[n] for n in numbers])
            added = None if self.writer is None or head is None else (
                self.writer.added(head.detach(), device))  # fmt: skip
            losses, same, _, _ = kept(new, old, member.head, added)
            return float(losses.sum()), float(same.sum()), len(losses)

        for numbers in batches(teacher.sizes[among], BATCH_TOKENS * len(student.team)):
            for sums in spread(student.team, among[numbers], score):
                totals += sums
        return float(totals[0] / totals[2]), float(totals[1] / totals[2])


def _some(of: int, count: int, seed: Sequence[int]) -> Ints:
    """Numbers of passages, in order, none twice."""
    return np.sort(np.random.default_rng(seed).choice(of, min(count, of), replace=False))


def _states(member: Reader, passages: Sequence[Alignment]) -> torch.Tensor:
    """The member's own reading of old ids, differentiable in what it learns."""
    states = member.model.states(member.pad_old(passages))
    return states[member.positions([one.old_at for one in passages])].float()
