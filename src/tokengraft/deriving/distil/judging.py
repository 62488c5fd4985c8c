"""How close the new reading of text is to the old one, at aligned positions."""

from __future__ import annotations

import numpy as np
import torch

from tokengraft.deriving.distil.recipe import HeldOut, Recipe
from tokengraft.deriving.distil.replay import Replay
from tokengraft.deriving.distil.teacher import Teacher
from tokengraft.deriving.distil.writer import Writer
from tokengraft.model.devices import spread
from tokengraft.model.divergence import TRAINING, Distributions, compare
from tokengraft.model.pooling import terms
from tokengraft.model.reading import BATCH_TOKENS, Reader, batches
from tokengraft.tokenizer.align import Ints

_BROKEN = 100.0  # nats for as much again as was promised: a hundredth more costs one


def judge(
    reader: Reader,
    teacher: Teacher,
    rows: torch.Tensor,
    *,
    writer: Writer | None = None,
    head: torch.Tensor | None = None,
    mixed: Teacher | None = None,
    recipe: Recipe | None = None,
    replay: Replay | None = None,
) -> HeldOut:
    """Score rows on the teacher's passages: means over all aligned positions.

    Where the body learns (`replay`), a promise broken by a little costs much, but less than to
    have learned nothing.
    """
    kl, same, cosine, writes, count = _means(reader, teacher, rows, writer, head)
    recipe = recipe or Recipe()
    loss, other, stray = kl, None, None
    if writer is not None and head is not None:
        stray = writer.strays(head) if replay is None else 0.0
        loss = recipe.reading_weight * kl + writes + recipe.stray * stray
    if mixed is not None and len(mixed.passages):
        other = _means(reader, mixed, rows, None, None)[0]
        loss += recipe.mixed * other * (1.0 if writer is None else recipe.reading_weight)
    writing = None if writer is None else writes
    kept = () if replay is None else replay.judge(reader, head)
    if replay is not None and kept and (strain := replay.strained(*kept)) > 1:
        loss += _BROKEN * (strain - 1)
    return HeldOut(kl, same, cosine, int(count), other, writing, stray, loss, *kept)


def _means(
    reader: Reader,
    teacher: Teacher,
    rows: torch.Tensor,
    writer: Writer | None,
    head: torch.Tensor | None,
) -> tuple[float, float, float, float, float]:
    """KL, agreement, cosine and writing as means over positions, and how many there are."""
    teacher.fill()
    totals = np.zeros(5)
    sizes = np.fromiter((len(one.new) for one in teacher.passages), np.int64)

    def score(member: Reader, numbers: Ints) -> tuple[float, ...]:
        device = member.model.device
        passages = [teacher.passages[n] for n in numbers]
        with torch.no_grad():
            new = member.new(passages, rows.to(device)).float()
        old = teacher.states(numbers, device)
        cosine = torch.cosine_similarity(new, old, dim=-1).sum().item()
        if writer is None or head is None:
            apart = compare(Distributions(old, member.head), new, member.head, 1, TRAINING)
            return apart.kl.sum().item(), apart.top1.sum().item(), cosine, 0.0, len(new)
        read = terms(new, old, member.head, writer.added(head, device), writer.next_ids(passages))
        writes = (read.pooled.sum() + read.split.sum()).item()
        return (
            read.reading.sum().item(), read.same.sum().item(), cosine, writes, len(read.same)
        )  # fmt: skip

    for numbers in batches(sizes, BATCH_TOKENS * len(reader.team)):
        for sums in spread(reader.team, numbers, score):
            totals += sums
    kl, same, cosine, writes = (totals[:4] / totals[4]).tolist()
    return kl, same, cosine, writes, float(totals[4])
