"""Protected text while the body learns: how far it moves, and the weight that holds it back.

    loss = (terms of the new tokens)  +  λ KL(p ‖ q) in protected text
    strain = max(KL / promised KL, (1 − top-1) / (1 − promised top-1)),  a running mean
    r = strain / allowed,  between 1/e and e;   allowed = aim · (1 + slack · s⁴)
    log level ← log level + rate · d · log r;   λ = level · r³
    s = learning rate now / learning rate at its highest,   d = share of the run that a step is

p is the base's distribution and q the student's, over all tokens that can be written, at every
position of whole passages. No one λ suits all models and languages, but one promise does, so λ is
raised and lowered until the promise holds: `level` is a dual variable, ascended step by step. The
factor r³ responds at once; without it λ swings (rootstock, Hindi: 1,000, 49 and 419, a thousand
steps apart). Large steps disturb protected text, and that passes as they get smaller. If the
promise had to hold from the start, λ would run away and nothing would be learned (rootstock: λ 1e5,
reading no better than with rows alone), hence the slack. It shrinks with s⁴, so that it is gone
while steps are still large enough to repair what is left: with s², and a rate that did not depend
on the length of the run, the strain ended at 1.3 to 1.45 (1,600 steps).

Protected passages are split in three. Most are replayed: their KL is in the loss. Some are watched:
the strain is measured on them every few steps. Watched ones are never replayed, since text that is
not replayed moves further (1.4 times as far on rootstock, 3 to 4 times on a model of 1.5 billion
weights); when replayed passages set λ, only .7 or .3 of what was learned could be kept in the end.
The rest judge what is kept. Whatever λ has become, no more of what was learned is kept than
the promise allows: keeping a share of it costs about that share in top-1, and its square in KL.
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
from tokengraft.model.head_losses import Added, kept
from tokengraft.model.libraries import spread
from tokengraft.model.reading import BATCH_TOKENS, Reader, batches
from tokengraft.tokenizer.align import Alignment, Ints

_HELD_OUT = 10  # of this many protected passages one judges and one is watched,
_JUDGES = 240  # but at most this many of either: some ten thousand positions
_WATCHED_EVERY = 4  # steps; then as many passages are read as a step replays,
_LEAST_WATCHED = 8  # but no fewer than these
_AIM = 0.6  # of the promise: English unlike what is replayed moves up to 1.65 times as far
_RATE = 30.0  # over a whole run
_SLACK = 2.0
_MEMORY = 0.8  # weight of the strain so far in its running mean
_BOUNDS = (1.0, 1000.0)  # of λ: above, an adapter learns only to keep still
_LOWEST = 10.0  # of the level: from lower it would not recover in time


class Replay:
    """Protected passages as the base reads them, and the weight λ of their KL in the loss.

    As old ids: `passages` are replayed, others are `watched` or `judged`.
    """

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
        self.passages = [one for n, one in enumerate(whole) if n % every not in (0, every // 2)]
        self.judged = whole[::every]
        # A handful of passages cannot be split: watching replayed ones is better than nothing.
        self.watched = whole[every // 2 :: every] or self.passages
        self.open(None)
        self.reset()

    def open(self, folder: Path | None) -> None:
        """Keep the base's reading in `folder`, or in memory."""
        self._replaying = Teacher(self.reader, self.passages, folder, "protected")
        self._judging = Teacher(self.reader, self.judged, folder, "protected-held-out")
        self._watching = Teacher(self.reader, self.watched, folder, "protected-watched")

    def reset(self) -> None:
        """Back to the start."""
        self.weight = self.level = self.adapting.replay
        self.strain = self.done = 0.0

    @property
    def state(self) -> tuple[float, float, float, float]:
        """What a checkpoint must hold."""
        return self.level, self.weight, self.strain, self.done

    @state.setter
    def state(self, values: tuple[float, float, float, float]) -> None:
        self.level, self.weight, self.strain, self.done = values

    def facts(self) -> dict[str, object]:
        """What a checkpoint's key depends on."""
        every = (*self.passages, *self.watched, *self.judged)
        ids = b"".join(one.old.astype(np.int64).tobytes() for one in every)
        settings = {**asdict(self.adapting), "protect": None}
        return {"protected": hashlib.sha256(ids).hexdigest(), **settings}

    def strained(self, kl: float, top1: float) -> float:
        """How much of the promise is used up: 1 is all of it."""
        adapting = self.adapting
        return max(kl / adapting.keep_kl, (1 - top1) / (1 - adapting.keep_top1))

    def share(self, kl: float, top1: float) -> float:
        """Which share of what was learned may be kept, if all of it moves protected text this far.

        Never less than half: new tokens that stray into that text are not the body's doing.
        """
        adapting = self.adapting
        by_kl = math.sqrt(_AIM * adapting.keep_kl / max(kl, 1e-9))
        by_top1 = _AIM * (1 - adapting.keep_top1) / max(1 - top1, 1e-9)
        return min(1.0, max(0.5, min(by_kl, by_top1)))

    def watch(
        self, student: Reader, head: torch.Tensor | None, seed: Sequence[int], share: float = 1.0
    ) -> None:
        """Measure the strain on some of the watched passages, in every fourth step.

        The last number of `seed` is the step; a smaller step reads only its `share` of passages.
        """
        if self.watched and seed[-1] % _WATCHED_EVERY == 0:
            count = max(_LEAST_WATCHED, math.ceil(share * self.adapting.replayed))
            numbers = _draw(len(self.watched), count, seed)
            strain = self.strained(*self._moved(self._watching, numbers, student, head))
            self.strain = _MEMORY * self.strain + (1 - _MEMORY) * strain

    def control(self, pace: float, done: float) -> None:
        """Set the weight by the strain, at relative learning rate `pace` (s above).

        `done` is the share of the run that is over.
        """
        allowed = _AIM * (1 + _SLACK * pace**4)
        ratio = min(math.e, max(1 / math.e, self.strain / allowed))
        low, high = _BOUNDS
        self.level *= ratio ** (_RATE * (done - self.done))
        self.level, self.done = min(high, max(_LOWEST, self.level)), done
        self.weight = min(high, max(low, self.level * ratio**3))

    def drawn(self, seed: Sequence[int], share: float = 1.0) -> Ints:
        """Numbers of the passages that a step replays; a smaller step only its `share` of them."""
        return _draw(len(self.passages), math.ceil(share * self.adapting.replayed), seed)

    def gradient(
        self, student: Reader, head: torch.Tensor | None, numbers: Ints
    ) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """Gradients of the replayed passages' mean KL, for output rows and the body's weights.

        None for the output rows if there are none.
        """
        whole = self._replaying.states(numbers)
        positions = len(whole)

        def slope(member: Reader, share: Ints) -> tuple[torch.Tensor, ...]:
            device = member.model.device
            old = whole if len(share) == len(numbers) else self._replaying.states(share, device)
            with torch.enable_grad():
                new = _states(member, [self.passages[n] for n in share])
                added = self._added(head, device)
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
        """KL and top-1 on the held-out passages; 0 and 1 if there are none."""
        if not self.judged:
            return 0.0, 1.0
        return self._moved(self._judging, np.arange(len(self.judged)), student, head)

    @torch.no_grad()
    def _moved(
        self, teacher: Teacher, chosen: Ints, student: Reader, head: torch.Tensor | None
    ) -> tuple[float, float]:
        """KL and top-1 on the `chosen` of a teacher's passages."""
        totals = np.zeros(3)

        def score(member: Reader, numbers: Ints) -> tuple[float, float, int]:
            device = member.model.device
            old = teacher.states(numbers, device)
            new = _states(member, [teacher.passages[n] for n in numbers])
            losses, same, _, _ = kept(new, old, member.head, self._added(head, device))
            return float(losses.sum()), float(same.sum()), len(losses)

        for places in batches(teacher.sizes[chosen], BATCH_TOKENS * len(student.team)):
            for sums in spread(student.team, chosen[places], score):
                totals += sums
        return float(totals[0] / totals[2]), float(totals[1] / totals[2])

    def _added(self, head: torch.Tensor | None, device: torch.device) -> Added | None:
        """The output rows `head` on a device; None if new tokens are not written."""
        if self.writer is None or head is None:
            return None
        return self.writer.added(head.detach(), device)


def _draw(of: int, count: int, seed: Sequence[int]) -> Ints:
    """At most `count` distinct numbers below `of`, in order."""
    return np.sort(np.random.default_rng(seed).choice(of, min(count, of), replace=False))


def _states(member: Reader, passages: Sequence[Alignment]) -> torch.Tensor:
    """The member's states of the passages' old ids, differentiable in what it learns."""
    states = member.model.states(member.pad_old(passages))
    return states[member.positions([one.old_at for one in passages])].float()
