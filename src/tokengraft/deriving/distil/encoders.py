"""Rows for an encoder, taught by how it read the text in old tokens, or reads a translation.

    loss = (1 − cos(m, m*)) + (1 − cos(c, c*))  +  |h − h*|² / mean |h*|²  at common positions

m is the mean of a line's last hidden states, special tokens included, and c the state of its first
token: sentence vectors are made from one or the other. The teacher (*) is the base, reading the
same line in old tokens. If those were UNK, it has read nothing, and there is nothing to learn; then
a translation of each line into a language that it reads can teach instead. The last term is then
how well a line's own translation is told apart from those of the other lines in a step,

    − log softmax over translations t of  cos(m, m*_t) / τ

Only the new rows move.

Reference: a student that gives a translation its teacher's vector, Reimers & Gurevych 2020
(https://aclanthology.org/2020.emnlp-main.365/); translations told apart, Feng et al. 2022
(https://aclanthology.org/2022.acl-long.62/). Changed: the student is the teacher with new rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.core.progress import Progress
from tokengraft.deriving.distil.bridge import Composed, features
from tokengraft.deriving.distil.passages import is_held_out, shorten
from tokengraft.deriving.methods import Rows
from tokengraft.deriving.task import Task
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.reading import fill
from tokengraft.tokenizer.align import Aligner, Alignment, Ints

_HELD_OUT, _MOST_JUDGED, _TOKENS = 0.05, 256, 128
_APART = 0.05  # τ


@dataclass
class _Lesson:
    """A line in new tokens, what the teacher reads, and where both end at the same byte.

    For a translation, the teacher's `vectors` (m*, c*) are kept once computed.
    """

    new: Ints
    taught: Ints
    common: Alignment | None
    vectors: torch.Tensor | None = None


def distil_encoder(task: Task) -> Rows:
    """Rows trained from the task's start; results on held-out lines go into its notes."""
    recipe, model = task.options.recipe, task.model
    train, judged = _lessons(task)
    start = torch.from_numpy(task.start(task)).to(model.device)
    phi = torch.from_numpy(features(model, task.parts)).to(model.device)
    rows = Composed(start, phi, recipe.share, start.shape[1])
    unit = float(model.weight.float().square().mean().sqrt())
    best, first = rows.rows(), _judge(task, judged, rows.rows())
    score, begun, generator = first, time.monotonic(), np.random.default_rng(recipe.seed)
    steps, limit = 0, math.inf if recipe.max_minutes is None else 60 * recipe.max_minutes
    for steps in range(1, recipe.steps + 1):
        done = max(steps / recipe.steps, (time.monotonic() - begun) / limit)
        some = [train[n] for n in generator.permutation(len(train))[: recipe.passages]]
        at = rows.rows().detach().requires_grad_()
        (grad,) = torch.autograd.grad(_loss(task, some, at).mean(), at)
        ids = np.unique(np.concatenate([one.new for one in some]))
        seen = torch.from_numpy(ids[ids >= task.first_new] - task.first_new).to(model.device)
        warm = min(1.0, steps / max(1, recipe.warmup))
        shape = warm * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        rows.step(grad, seen, recipe.learning_rate * shape * unit)
        if not steps % recipe.check_every or done >= 1:
            now = _judge(task, judged, rows.rows())
            if now < score:
                best, score = rows.rows(), now
            if task.progress is not None:
                told = f"held-out loss {now:.3f}"
                task.progress(Progress("training", 100 * done, 100, detail=told))
        if done >= 1:
            break
    mean = model.weight[: task.first_new].float().mean(0).expand_as(best)
    task.notes.append(
        f"held-out loss (0 is the teacher's own reading): {score:.3f}, at the start {first:.3f}, "
        f"with one row for all tokens {_judge(task, judged, mean):.3f}"
    )
    task.params = {**asdict(recipe), "steps_done": steps, "training_passages": len(train)}
    kept: Rows = best.detach().cpu().numpy().astype(np.float32)
    return kept


def _lessons(task: Task) -> tuple[list[_Lesson], list[_Lesson]]:
    """Lines to train on and lines to judge by, each with at least one new token."""
    assert task.new is not None and task.text is not None
    translation = task.options.translation
    if translation is not None and len(translation) != len(task.text):
        raise UsageError(
            f"the text has {len(task.text)} lines, its translation {len(translation)}: they must "
            "be the same sentences, line by line"
        )
    room = min(_TOKENS, task.model.window) - len(task.model.prefix) - len(task.model.suffix)
    lots: tuple[list[_Lesson], list[_Lesson]] = ([], [])
    pairs = [shorten(one, room) for one in Aligner(task.old, task.new)(list(task.text))]
    taught = None if translation is None else task.old.encode(list(translation))
    unknown = list(task.old.vocabulary.unknown)
    unread = 0
    for number, (line, pair) in enumerate(zip(task.text, pairs, strict=True)):
        if not (pair.new >= task.first_new).any():
            continue
        lot = lots[is_held_out(line, _HELD_OUT)]
        if taught is not None:
            lot.append(_Lesson(pair.new, np.asarray(taught[number][:room], np.int64), None))
        elif np.isin(pair.old, unknown).any():
            unread += 1
        else:
            lot.append(_Lesson(pair.new, pair.old, pair))
    if not all(lots):
        raise CorpusError(
            f"{len(lots[0])} lines to learn from, {len(lots[1])} to be judged by; {unread} lines "
            "are partly UNK, so the model never read them: give the same lines in a language "
            "that it reads (--translation FILE), more text, or take --method mean-late"
        )
    return lots[0], lots[1][:_MOST_JUDGED]


def _loss(task: Task, lessons: Sequence[_Lesson], rows: torch.Tensor) -> torch.Tensor:
    """The loss of each line, differentiable in the rows."""
    model = task.model
    new, ours = _read(model, [one.new for one in lessons], NewRows(task.first_new, rows))
    vectors = torch.stack([_mean(new, ours), new[:, 0].float()], 1)
    if lessons[0].common is None:
        taught = _taught(model, lessons)
        loss = (1 - torch.cosine_similarity(vectors, taught, -1)).sum(1)
        mean, their = (
            torch.nn.functional.normalize(one[:, 0], dim=-1) for one in (vectors, taught)
        )
        own = torch.arange(len(lessons), device=model.device)
        apart = torch.nn.functional.cross_entropy(mean @ their.T / _APART, own, reduction="none")
        return loss + apart
    with torch.no_grad():
        old, theirs = _read(model, [one.taught for one in lessons])
    taught = torch.stack([_mean(old, theirs), old[:, 0].float()], 1)
    loss = (1 - torch.cosine_similarity(vectors, taught, -1)).sum(1)
    start = len(model.prefix)
    misses = []
    for number, lesson in enumerate(lessons):
        assert lesson.common is not None
        here = new[number, start + lesson.common.new_at].float()
        there = old[number, start + lesson.common.old_at].float()
        misses.append((here - there).square().sum() / there.square().sum())
    return loss + torch.stack(misses)


@torch.no_grad()
def _taught(model: FrozenModel, lessons: Sequence[_Lesson]) -> torch.Tensor:
    """The teacher's vectors (lessons, 2, dimensions), computed where not yet known."""
    unread = [one for one in lessons if one.vectors is None]
    if unread:
        states, mask = _read(model, [one.taught for one in unread])
        for one, mean, first in zip(unread, _mean(states, mask), states[:, 0].float(), strict=True):
            one.vectors = torch.stack([mean, first])
    return torch.stack([one.vectors for one in lessons if one.vectors is not None])


def _read(
    model: FrozenModel, sequences: Sequence[Ints], new: NewRows | None = None
) -> tuple[torch.Tensor, Any]:
    ids, mask = fill(model, sequences, model.prefix, model.suffix)
    return model.states(ids, mask, new), mask


def _mean(states: torch.Tensor, mask: Any) -> torch.Tensor:
    weight = mask[..., None].float()
    mean: torch.Tensor = (states.float() * weight).sum(1) / weight.sum(1)
    return mean


@torch.no_grad()
def _judge(task: Task, lessons: Sequence[_Lesson], rows: torch.Tensor) -> float:
    losses = [_loss(task, lessons[n : n + 32], rows) for n in range(0, len(lessons), 32)]
    return float(torch.cat(losses).mean())
