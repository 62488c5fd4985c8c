"""Distil: new rows that make the frozen model read the new tokens as it read the old ones.

    rows* = argmin  mean over aligned positions of
            a |h_new − h_old|² / mean|h_old|²  +  b (1 − cos(h_new, h_old))  +  c KL(p_old ‖ p_new)

h = last hidden states after the final norm, p = next-token distribution over the old vocabulary.
Only the new rows are optimised; the model is frozen and reads both tokenizations of one text.

Reference: embeddings alone can carry a change of tokenizer, de Vries & Nissim 2021
(https://aclanthology.org/2021.findings-acl.74/); matching the states of the old tokenization,
Dobler et al. 2025, AweDist (https://arxiv.org/abs/2505.20133). Changed here: states and
distributions are matched at every position where both tokenizations end at the same byte; teacher
states are computed once and kept; rows share what they have in common (`bridge`), and a token's
own part moves only in steps that see it; the learning rate is relative to the size of the model's
rows, so one recipe serves models of any scale; some passages change from one tokenization to the
other midway, and if only rows are trained, and only for reading, p there is in part the text's
actual next token.

With a `Writer` the new tokens are written too: output rows are trained beside the input rows by
the terms of `model.head_losses`,

    reading_weight · (the loss above)  +  KL(p ‖ G(q))  −  log q(next) / G(q)(first part of next)
    +  stray · KL(p ‖ q) in text that holds no new token

with q over old and new tokens and G(q) each new token counted with its first part. Related: chunk
likelihoods of both tokenizations matched, Minixhofer et al. 2025
(https://arxiv.org/abs/2503.20083). Changed: the pooled term is dense over the vocabulary and needs
no further pass of the model; only the split within a pool is learned from the text itself.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from tokengraft.core.lock import hold
from tokengraft.deriving.distil import training_state
from tokengraft.deriving.distil.branches import Branches
from tokengraft.deriving.distil.bridge import Composed, Ends, features
from tokengraft.deriving.distil.lanes import Laned, begin
from tokengraft.deriving.distil.matching import continued, gradient, judge, unrelated
from tokengraft.deriving.distil.passages import Lots, Mixture, choose, evenly, shuffled_batches
from tokengraft.deriving.distil.recipe import SETTLED, CurvePoint, Distillation, HeldOut, Recipe
from tokengraft.deriving.distil.replay import Replay
from tokengraft.deriving.distil.student import (
    Weights,
    compile_blocks,
    halved,
    look_apart,
    save_memory,
    scarce,
    twin,
)
from tokengraft.deriving.distil.teacher import Teacher
from tokengraft.deriving.distil.writer import Writer
from tokengraft.deriving.methods import Rows
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.libraries import quick_in_half
from tokengraft.model.reading import Reader
from tokengraft.tokenizer.align import Alignment, Ints

_PLAIN = ("steps", "seconds", "stopped", "reading", "judged", "passages")
_SAVED = 20.0  # seconds of training after which a checkpoint is written even without a check
_MANY, _LONG = 300, 3.0  # steps and minutes from which blocks are compiled
_HEAD_BETAS = (0.9, 0.99)  # an output row's gradients are small except where its token is next
_TRIES = 3  # to keep the promise by keeping less of what was learned


class Distiller:
    """One training of rows for fixed passages; `run` may be interrupted and run again.

    `parts` are the old ids of each new token, from which the bridge's φ is made; without them rows
    share nothing. In a folder for `checkpoints` one is kept under a key made from model, passages,
    parts, start and recipe; with `keep_states`, the teacher's states too.
    """

    def __init__(
        self,
        reader: Reader,
        lots: Lots,
        start: Rows,
        recipe: Recipe,
        parts: Sequence[Sequence[int]] | None = None,
        checkpoints: Path | str | None = None,
        writer: Writer | None = None,
        replay: Replay | None = None,
        *,
        keep_states: bool = True,
    ) -> None:
        self.reader, self.lots, self.recipe, self.writer = reader, lots, recipe, writer
        self.replay = replay
        self.device = reader.model.device
        self.key, self.folder = "", None
        self._save_at = 0.0
        self._saver = training_state.Saver()
        self._whole = True  # whether rows, moments and outcome belong to the same step
        if checkpoints is not None:
            self.key = training_state.key(reader, lots, start, recipe, parts, writer, replay)
            self.folder = Path(checkpoints) / self.key[:16]
            self._lock = hold(self.folder)
        self._states = self.folder if keep_states else None
        branches = None
        if writer is not None and parts is not None and recipe.by_base:
            branches = Branches(parts, reader.first_new)
        self._halves: dict[int, torch.nn.Parameter] = {}  # of frozen weights
        self._learner = self._in_half(reader)  # what gradients are computed with
        self.teacher = Teacher(self._learner, lots.train, self._states, branches=branches)
        self.sizes: Ints = np.fromiter((len(p.new) for p in lots.train), np.int64)
        weight = reader.model.weight[: reader.first_new]
        self.unit = float(weight.float().square().mean().sqrt())
        self._head_unit = self.unit if writer is None else writer.unit
        self._start = torch.from_numpy(np.array(start, np.float32)).to(self.device)
        self._phi = self._head_phi = None
        if parts is not None and recipe.share:
            self._phi = torch.from_numpy(features(reader.model, parts)).to(self.device)
            if writer is not None and recipe.head_share:
                table = reader.head.weight.float().cpu().numpy()
                phi = features(reader.model, parts, table)
                self._head_phi = torch.from_numpy(phi).to(self.device)
        self.student: Reader = reader
        self.weights: Weights | None = None
        if replay is not None:
            replay.open(self._states)
            self.teach(self._twin(replay), replay.adapting.rate)

    def teach(self, student: FrozenModel, rate: float) -> None:
        """Also train what `student` has to learn; at first it must read as the base does.

        If it has lanes, rows that have none get some to begin with.
        """
        if isinstance(student, Laned) and self._start.shape[1] == student.dimensions:
            lanes = begin(len(self._start), self._phi, student.lanes, self.recipe.seed)
            self._start = torch.cat([self._start, self.unit * lanes.to(self._start)], 1)
        self.student = Reader(student, self.reader.first_new, self.reader.prefix)
        self.weights, self._body_rate = Weights(self.student), rate
        self._learner = self._in_half(self.student)
        if self.replay is not None:
            self._learner.head = self.student.head  # protected text moves by less than rounding

    def _in_half(self, reader: Reader) -> Reader:
        """The same reader in bfloat16 if that is faster and can be had."""
        model = reader.model
        whole = model.weight.dtype == torch.float32
        if not (
            model.can_be_halved and whole and quick_in_half(self.device) and len(reader.team) == 1
        ):
            return reader
        return Reader(halved(model, self._halves), reader.first_new, reader.prefix)

    def _judges(self) -> tuple[Reader, Reader]:
        """Base and student as held-out text is read with: in float32 if it is protected text too.

        Rounding alone changes 1 in 100 of the likeliest tokens there. For new tokens it is small
        beside what is judged, and a CPU would spend a fifth of some minutes on judging.
        """
        exact = self.replay is not None
        return (self.reader, self.student) if exact else (self.teacher.reader, self._learner)

    def _twin(self, replay: Replay) -> FrozenModel:
        """The student: it reads as the base does, its adapters begun in useful directions."""
        adapting, reader = replay.adapting, self.reader
        model = twin(reader.model, adapting, self.recipe.seed)
        if scarce(reader.model, model, adapting):
            save_memory(model)
        if adapting.apart and replay.passages:
            generator = np.random.default_rng([self.recipe.seed, 4])
            planned, protected = (
                [ids[n] for n in generator.permutation(len(ids))[:512]]
                for ids in ([p.new for p in self.lots.train], [p.old for p in replay.passages])
            )
            look_apart(model, planned, NewRows(reader.first_new, self._start), protected)
        return model

    def _ends(self) -> Ends:
        """The rows at the start of a run, with their optimisers."""
        width = self.reader.model.dimensions
        rows = Composed(self._start, self._phi, self.recipe.share, width)
        if self.weights is not None:
            self.weights.reset()
        if self.replay is not None:
            self.replay.reset()
        if self.writer is None or self.writer.shared:
            return Ends(rows, shared=0 if self.writer is None else width, weights=self.weights)
        start = torch.from_numpy(self.writer.start).to(self.device)
        share = self.recipe.head_share
        head = Composed(start, self._head_phi, share, width, _HEAD_BETAS)
        return Ends(rows, head, weights=self.weights)

    def run(
        self,
        progress: Callable[[CurvePoint], None] | None = None,
        teaching: Callable[[int, int], None] | None = None,
        stepping: Callable[[Distillation], None] | None = None,
    ) -> Distillation:
        """Train from the start, or continue from the last checkpoint under the same key.

        `progress` is called with every held-out check, `stepping` at the start and after every
        step, `teaching` while the teacher's held-out states are computed. Teacher states of
        training passages are computed when first needed. A checkpoint is written with every
        check, and between two after `_SAVED` seconds, or more if writing takes long.
        """
        begun = time.monotonic()
        self.tokens = 0  # read since then
        ends = self._ends()
        out = self._resumed(ends)
        if out is None:
            reading = self._affordable()
            judged = self._judge(reading / 10, teaching)
            score = self._score(ends)
            out = Distillation(_array(self._start), score, score, reading=reading, judged=judged)
            out.head = _maybe(ends.head())
            out.weights = {} if self.weights is None else self.weights.values()
            out.passages = self._fitting()
        else:
            self._judge(out.reading / 10, teaching, out.judged)
        begun -= out.seconds
        if self._compiles(out):
            compile_blocks(self._learner.model)
        self._use(out.reading)
        self._save_at = time.monotonic() + _SAVED
        try:
            while out.stopped == "steps":
                if stepping is not None:
                    stepping(out)
                if self._due(out):
                    self._check(ends, out)
                    if out.stopped != "steps" or self.done(out.steps, out.seconds) >= 1:
                        self._save(ends, out)
                    if progress is not None:
                        progress(out.curve[-1])
                elif out.steps < self.recipe.steps:
                    self._step(ends, out, begun)
                else:
                    break
                if time.monotonic() >= self._save_at:
                    self._save(ends, out)
        except BaseException:
            if self._whole:
                with contextlib.suppress(OSError):  # a full disk is what may have ended training
                    self._save(ends, out)
                    self._saver.wait()
            raise
        self._saver.wait()
        out.unseen = len(out.rows) - len(self._seen(self._read(out)))
        if self.weights is not None and out.weights:
            self.weights.take(out.weights)
        return out

    def excess(self, rows: Rows) -> float | None:
        """`HeldOut.excess` of these rows."""
        return continued(self._judges()[1], self.judge_mixed, torch.from_numpy(rows))

    def floor(self) -> HeldOut:
        """What can be scored without knowing the new tokens: the better of two such readings.

        One has the mean of all old rows for every new token; the other is the base's, at another
        position of another passage (for `excess`: after another passage's beginning).
        """
        mean = self.reader.model.weight[: self.reader.first_new].float().mean(0)
        rows = mean.expand(len(self._start), -1)
        base, _ = self._judges()
        lost = [continued(base, self.judge_mixed, one) for one in (rows, None)]
        known = [one for one in lost if one is not None]
        same_row, (kl, same, cosine) = judge(base, self.judge, rows), unrelated(self.judge)
        return replace(
            same_row, excess=min(known, default=None), kl=min(same_row.kl, kl),
            agreement=max(same_row.agreement, same), cosine=max(same_row.cosine, cosine),
        )  # fmt: skip

    def _compiles(self, out: Distillation) -> bool:
        """Whether compiling, which takes a GPU some twenty seconds, is worth it."""
        minutes = math.inf if self.recipe.max_minutes is None else self.recipe.max_minutes
        long = self.recipe.steps - out.steps >= _MANY and minutes - out.seconds / 60 >= _LONG
        alone = self.device.type == "cuda" and len(self.reader.team) == 1
        recomputes = any(block.training for block in self._learner.model.blocks)
        return alone and long and not recomputes

    def _due(self, out: Distillation) -> bool:
        """Whether the present rows have to be judged: a function of the outcome alone."""
        if not out.steps or (out.curve and out.curve[-1].step == out.steps):
            return False
        return not out.steps % self.recipe.check_every or self.done(out.steps, out.seconds) >= 1

    def _check(self, ends: Ends, out: Distillation) -> None:
        shrinks = self.weights is not None and self.replay is not None
        learned = self.weights.values() if self.weights is not None and shrinks else None
        self._whole = learned is None  # training cannot continue from weights shrunk for judging
        score = self._within(ends)
        self._whole = False
        over = self.done(out.steps, out.seconds) >= 1
        out.curve.append(CurvePoint(out.steps, out.seconds, score))
        if score.loss < out.score.loss:
            out.score, out.rows, out.head = score, _array(ends.rows()), _maybe(ends.head())
            out.weights = {} if self.weights is None else self.weights.values()
        if over and out.steps < self.recipe.steps:
            out.stopped = "max_minutes"
        elif self.recipe.patience and _stale(out) >= self.recipe.patience:
            out.stopped = SETTLED
        if self.weights is not None and learned is not None:
            self.weights.take(learned)
        self._whole = True

    def _within(self, ends: Ends) -> HeldOut:
        """The score after shrinking what the body learned until the promise is kept."""
        score = self._score(ends)
        if self.weights is None or self.replay is None:
            return score
        for _ in range(_TRIES):
            assert score.kept is not None and score.kept_top1 is not None
            share = self.replay.share(score.kept, score.kept_top1)
            if share >= 1:
                break
            self.weights.shrink(share)
            score = self._score(ends)
        return score

    def _step(self, ends: Ends, out: Distillation, begun: float) -> None:
        recipe, step = self.recipe, out.steps
        done = self.done(step, time.monotonic() - begun)
        numbers = self._batch(step, out.passages)
        self.tokens += int(self.sizes[numbers].sum())
        grads = self._gradients(ends, numbers, step)
        warm = min(1.0, (step + 1) / max(1, recipe.warmup))
        shape = warm * 0.5 * (1 + math.cos(math.pi * done))
        rate = recipe.learning_rate * shape
        seen = self._seen([self.lots.train[n] for n in numbers])
        self._whole = False
        if self.replay is not None:
            seed = recipe.seed, 5, step
            self.replay.watch(self.student, ends.head(), seed, self._share(numbers))
            self.replay.control(shape, done)
        body = 0.0 if self.weights is None else self._body_rate * shape
        head = rate * recipe.head_rate * self._head_unit
        ends.step(grads, seen, rate * self.unit, head, body)
        out.steps, out.seconds = step + 1, time.monotonic() - begun
        self._whole = True

    def _score(self, ends: Ends) -> HeldOut:
        return judge(
            self._judges()[1], self.judge, ends.rows(), writer=self.writer, head=ends.head(),
            mixed=self.judge_mixed, recipe=self.recipe, replay=self.replay,
        )  # fmt: skip

    def _gradients(
        self, ends: Ends, numbers: Ints, step: int
    ) -> tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
        recipe, head = self.recipe, ends.head()
        grad, other, slopes = gradient(
            self._learner, self.teacher, numbers, ends.rows(), recipe, self.writer, head
        )
        if self.replay is not None:
            drawn = self.replay.drawn((recipe.seed, 2, step), self._share(numbers))
            back, held = self.replay.gradient(self._learner, head, drawn)
            weight = self.replay.weight
            slopes = [one.add_(more, alpha=weight) for one, more in zip(slopes, held, strict=True)]
            if other is not None and back is not None:
                other += weight * back
        elif self.writer is not None and head is not None and other is not None and recipe.stray:
            seed = (recipe.seed, 2, step)
            other += recipe.stray * self.writer.stray_gradient(head, recipe.strays, seed)
        return grad, other, slopes

    def _share(self, numbers: Ints) -> float:
        """What share of a full step these passages are."""
        return min(1.0, len(numbers) / self.recipe.passages)

    def done(self, step: int, seconds: float) -> float:
        """The share of the run that is done, by steps or by time, whichever is more."""
        share = step / self.recipe.steps
        if self.recipe.max_minutes is not None:
            share = max(share, seconds / (60 * self.recipe.max_minutes))
        return min(1.0, share)

    def _affordable(self) -> float:
        """How many old tokens the teacher can read in its share of the time, by trial."""
        if self.recipe.max_minutes is None:
            return math.inf
        sample = self.lots.held_out[: self._trial]
        reader = self.teacher.reader
        reader.old(sample[:1] if self.device.type == "cpu" else sample).cpu()  # the first is slow
        begun = time.monotonic()
        reader.old(sample).cpu()
        speed = sum(len(one.old) for one in sample) / (time.monotonic() - begun)
        return speed * 60 * self.recipe.max_minutes * self.recipe.teaching

    def _fitting(self) -> int:
        """Passages in a step: fewer than the recipe's if time would not allow enough steps."""
        recipe = self.recipe
        if recipe.max_minutes is None:
            return recipe.passages
        sample = np.arange(min(self._trial, len(self.lots.train)))
        for _ in range(2):  # the first pass is slow everywhere
            begun = time.monotonic()
            self._gradients(self._ends(), sample, 0)[0].cpu()
        each = (time.monotonic() - begun) / len(sample)
        seconds = 60 * recipe.max_minutes * (1 - recipe.teaching)
        fitting = int(seconds / (recipe.enough * each))
        return min(recipe.passages, max(4, fitting))

    @property
    def _trial(self) -> int:
        """How many passages to time: a GPU takes as long for few as for many."""
        return 8 if self.device.type == "cpu" else self.recipe.passages

    def _judge(
        self, most: float, teaching: Callable[[int, int], None] | None, count: int = 0
    ) -> int:
        """Read evenly spaced held-out passages: `count`, or as many as fit into `most` tokens."""
        held = self.lots.held_out
        if not count:
            total = sum(len(one.old) for one in held)
            count = max(min(8, len(held)), int(len(held) * min(1.0, most / total)))
        even = np.linspace(0, len(held) - 1, count).round().astype(int)
        passages = [held[n] for n in even]
        base, _ = self._judges()
        self.judge = Teacher(base, passages, self._states, "held-out")
        self.judge.fill(progress=teaching)
        if self.writer is not None and self.replay is None:
            self.writer.prepare(most)
        mixed = self.lots.mixed[: count // 2]
        self.judge_mixed = Teacher(base, mixed, self._states, "held-out-mixed")
        return count

    def _use(self, most: float) -> None:
        self._turn = -1
        self._used = np.arange(len(self.sizes))
        if self.teacher.sizes.sum() > most:
            whole = [one for one in self.lots.train if not isinstance(one, Mixture)]
            whose = self.lots.languages[: len(whole)]
            chosen = choose(whole, self.reader.first_new, most, self.recipe.seed, whose)
            self._used = self.teacher.kin(chosen)
        if self.lots.languages:
            languages = np.array(self.lots.languages)[self._used]
            self._used = self._used[evenly(languages, self.sizes[self._used])]

    def _batch(self, step: int, passages: int) -> Ints:
        """The step's passages: a function of seed and step alone, so a resumed run is the same."""
        per_pass = -(-len(self._used) // passages)
        turn, place = divmod(step, per_pass)
        if turn != self._turn:
            generator = np.random.default_rng([self.recipe.seed, turn])
            sizes = self.sizes[self._used]
            self._order = shuffled_batches(sizes, passages, generator)
            self._turn = turn
        return self._used[self._order[place]]

    def _read(self, out: Distillation) -> list[Alignment]:
        """The passages that were trained on: all of them, or those of the few steps taken."""
        numbers = self._used
        if out.steps * out.passages < len(numbers):
            few = [self._batch(step, out.passages) for step in range(out.steps)]
            numbers = np.concatenate([numbers[:0], *few])
        return [self.lots.train[n] for n in numbers]

    def _seen(self, passages: Sequence[Alignment]) -> torch.Tensor:
        ids = np.unique(np.concatenate([np.empty(0, np.int64), *(one.new for one in passages)]))
        first = self.reader.first_new
        return torch.from_numpy(ids[ids >= first] - first).to(self.device)

    def _save(self, ends: Ends, out: Distillation) -> None:
        if self.folder is None:
            return
        facts = {
            "key": self.key,
            **{name: getattr(out, name) for name in _PLAIN},
            "score": asdict(out.score),
            "start": asdict(out.start),
            "curve": [asdict(check) for check in out.curve],
            "replay": None if self.replay is None else self.replay.state,
        }
        begun = time.monotonic()
        self._saver.wait()
        best = {"best": torch.from_numpy(out.rows)}
        best |= {f"best.{name}": held for name, held in out.weights.items()}
        if out.head is not None:
            best["best_head"] = torch.from_numpy(out.head)
        self._saver.save(self.folder, best | ends.tensors(), facts)
        ended = time.monotonic()
        self._save_at = ended + max(_SAVED, 30 * (ended - begun))  # at most 3% of the time

    def _resumed(self, ends: Ends) -> Distillation | None:
        saved = None if self.folder is None else training_state.load(self.folder, self.key)
        if saved is None:
            return None
        tensors, facts = saved
        best, head = tensors.pop("best"), tensors.pop("best_head", None)
        start = "best."
        weights = {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
        ends.restore({name: one.to(self.device) for name, one in tensors.items()})
        if self.replay is not None:
            self.replay.state = facts["replay"]
        curve = [CurvePoint(c["step"], c["seconds"], HeldOut(**c["score"])) for c in facts["curve"]]
        return Distillation(
            _array(best), HeldOut(**facts["score"]), HeldOut(**facts["start"]),
            head=_maybe(head), weights=weights, curve=curve,
            **{name: facts[name] for name in _PLAIN},
        )  # fmt: skip


def _array(rows: torch.Tensor) -> Rows:
    array: Rows = rows.detach().cpu().numpy().copy()
    return array


def _maybe(rows: torch.Tensor | None) -> Rows | None:
    return None if rows is None else _array(rows)


def _stale(out: Distillation) -> int:
    """Checks since the best one."""
    scores = [check.score.loss for check in out.curve]
    return len(scores) - 1 - int(np.argmin(scores))
