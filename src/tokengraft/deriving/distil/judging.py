"""How close the new reading of text is to the old one, at aligned positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tokengraft.deriving.distil.teacher import Teacher
from tokengraft.model.devices import spread
from tokengraft.model.divergence import TRAINING, Distributions, compare
from tokengraft.model.reading import Reader, batches
from tokengraft.tokenizer.align import Ints


@dataclass(frozen=True)
class HeldOut:
    """KL in nats over the old vocabulary, top-1 agreement, cosine of last hidden states."""

    kl: float
    agreement: float
    cosine: float
    positions: int


def judge(
    reader: Reader, teacher: Teacher, rows: torch.Tensor, batch_tokens: int = 8192
) -> HeldOut:
    """Score rows on the teacher's passages: means over all aligned positions."""
    teacher.fill()
    totals = [0.0] * 4
    sizes = np.fromiter((len(one.new) for one in teacher.passages), np.int64)

    def score(member: Reader, numbers: Ints) -> tuple[float, ...]:
        device = member.model.device
        with torch.no_grad():
            new = member.new([teacher.passages[n] for n in numbers], rows.to(device)).float()
        old = teacher.states(numbers, device)
        apart = compare(Distributions(old, member.head), new, member.head, 1, TRAINING)
        cosine = torch.cosine_similarity(new, old, dim=-1)
        return apart.kl.sum().item(), apart.top1.sum().item(), cosine.sum().item(), len(new)

    for numbers in batches(sizes, batch_tokens * len(reader.team)):
        for found in spread(reader.team, numbers, score):
            totals = [total + one for total, one in zip(totals, found, strict=True)]
    count = totals[3]
    return HeldOut(totals[0] / count, totals[1] / count, totals[2] / count, int(count))
