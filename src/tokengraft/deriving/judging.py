"""How close the new reading of text is to the old one, at aligned positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tokengraft.deriving.divergence import compare
from tokengraft.deriving.reading import Reader, by_tokens
from tokengraft.deriving.teacher import Teacher


@dataclass(frozen=True)
class HeldOut:
    """KL in nats over the old vocabulary, top-1 agreement, cosine of last hidden states."""

    kl: float
    agreement: float
    cosine: float
    positions: int


@torch.no_grad()
def judge(
    reader: Reader, teacher: Teacher, rows: torch.Tensor, batch_tokens: int = 8192
) -> HeldOut:
    """Score rows on the teacher's passages: means over all aligned positions."""
    totals = [0.0] * 4
    sizes = np.fromiter((len(one.new) for one in teacher.passages), np.int64)
    for numbers in by_tokens(sizes, batch_tokens):
        new = reader.new([teacher.passages[n] for n in numbers], rows).float()
        old = teacher.states(numbers)
        kl, same, _ = compare(new, old, reader.head)
        cosine = torch.cosine_similarity(new, old, dim=-1)
        found = (kl.sum().item(), same.sum().item(), cosine.sum().item(), len(kl))
        totals = [total + one for total, one in zip(totals, found, strict=True)]
    count = totals[3]
    return HeldOut(totals[0] / count, totals[1] / count, totals[2] / count, int(count))
