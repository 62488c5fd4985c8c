"""How alike vectors are, and what they are held against: arrays in, arrays out.

    cosine   x·y / √(x·x · y·y)                 exactly 1.0 for x = y, in float64
    rank     1 + how many other sentences lie nearer

√(a·a) is exactly a in IEEE arithmetic, which the usual x/|x| · y/|y| is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengraft.model.libraries import require_torch
from tokengraft.tokenizer.align import Floats, Ints

_TIE = 1e-9  # similarities that differ by rounding only are equal


def cosines(x: Any, y: Any) -> Floats:
    """Cosine of paired rows, arrays or tensors; NaN where a row is NaN or of no length."""
    torch = require_torch()
    a, b = (torch.as_tensor(v).double() for v in (x, y))
    values: Floats = ((a * b).sum(-1) / torch.sqrt((a * a).sum(-1) * (b * b).sum(-1))).cpu().numpy()
    return values


@dataclass(frozen=True)
class Ranks:
    """Line by line, 1 is best.

    `mutual` is the paper's wish: the mean of the new vector's rank among the old sentence's
    neighbours and of the old vector's rank among the new one's; `first` says whether a search by
    the new vector among all old sentences finds its own.
    """

    mutual: Floats
    first: Floats


def ranks(old: Floats, new: Floats) -> Ranks:
    """Ranks among all old sentences; a line with NaN stays NaN."""
    there = ~(np.isnan(old).any(1) | np.isnan(new).any(1))
    mutual, first = np.full(len(old), np.nan), np.full(len(old), np.nan)
    a, b = _unit(old[there]), _unit(new[there])
    own = np.einsum("nd,nd->n", a, b)
    apart = ~np.eye(len(a), dtype=bool)
    nearer_old = ((a @ a.T > own[:, None] + _TIE) & apart).sum(1)
    nearer_new = ((b @ a.T > own[:, None] + _TIE) & apart).sum(1)
    mutual[there] = 1 + (nearer_old + nearer_new) / 2
    first[there] = nearer_new == 0
    return Ranks(mutual, first)


def centred(vectors: Floats) -> Floats:
    """Vectors less their own mean over sentences; lines with NaN stay NaN.

    States share a few large directions, which leave all sentences near each other; a graft that
    moves all of them alike then looks as if it had mixed them up.
    """
    there = ~np.isnan(vectors).any(1)
    mean = vectors[there].mean(0) if there.any() else 0.0
    return np.asarray(vectors - mean, np.float64)


def derangement(count: int, seed: int = 0) -> Ints:
    """A permutation in which nothing keeps its place (for two and more)."""
    order = np.random.default_rng(seed).permutation(count)
    moved = np.empty(count, np.int64)
    moved[order] = np.roll(order, 1)
    return moved


def _unit(x: Floats) -> Floats:
    unit: Floats = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit
