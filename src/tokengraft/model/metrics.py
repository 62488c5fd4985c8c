"""The measures themselves: arrays in, arrays out.

    cosine   x·y / √(x·x · y·y)                          exactly 1.0 for x = y, in float64
    KL       Σ_v p_v (log p_v − log q_v)                 p the base's, q the graft's, in nats
    top-k    |top_k(p) ∩ top_k(q)| / k
    rank     1 + how many other sentences lie nearer

over the old vocabulary's output rows. √(a·a) is exactly a in IEEE arithmetic, which the usual
x/|x| · y/|y| is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengraft.evaluating.score import Floats
from tokengraft.model.head import Head
from tokengraft.model.libraries import require_torch
from tokengraft.model.subject import Subject
from tokengraft.tokenizer.align import Ints

if TYPE_CHECKING:
    import torch

# Entries of one (positions, vocabulary) block; more gains nothing on a CPU, a GPU wants it large.
_BLOCK = {"cpu": 1 << 22, "cuda": 1 << 28}
_LEAST = 128  # positions of a block: with fewer, reading a large vocabulary's rows takes the time
_TIE = 1e-9  # similarities that differ by rounding only are equal
TOP = 10


def head_of(subject: Subject, size: int | None = None) -> Head:
    """The first `size` output rows of a causal model (all by default), in float32."""
    return Head.of(subject.model, size).exact()


def _blocks(head: Head, count: int) -> Iterator[slice]:
    """Positions in blocks whose log p fit into a bounded amount of memory."""
    most = _BLOCK.get(head.weight.device.type, 1 << 25)
    step = max(_LEAST, most // len(head.weight))
    for start in range(0, count, step):
        yield slice(start, min(count, start + step))


@dataclass(frozen=True)
class Divergence:
    """Position by position: KL in nats, whether the likeliest token agrees, share of the ten."""

    kl: Floats
    top1: Floats
    top10: Floats


class Distributions:
    """The base model's next-token distributions at given states, computed once where they fit."""

    def __init__(self, states: torch.Tensor, head: Head, most_bytes: int = 0) -> None:
        torch = require_torch()
        self.states, self.head = states, head
        self._kept: Any = None
        if 4 * len(states) * len(head.weight) <= most_bytes:
            parts = [head.log_probabilities(states[b]) for b in _blocks(head, len(states))]
            self._kept = torch.cat(parts) if parts else None
            if self._kept is not None:
                self._best = torch.cat(
                    [self._top(self._kept[b]) for b in _blocks(head, len(states))]
                )

    def likeliest(self, block: slice, logs: Any) -> Any:
        """Ids of the likeliest tokens of a block whose log p is at hand."""
        return self._top(logs) if self._kept is None else self._best[block]

    @staticmethod
    def _top(logs: Any) -> Any:
        return logs.topk(min(TOP, logs.shape[-1])).indices

    def __call__(self, block: slice) -> Any:
        """Float32 log p of a block of positions."""
        if self._kept is not None:
            return self._kept[block]
        return self.head.log_probabilities(self.states[block])


def diverge(old: Distributions, new: torch.Tensor, head: Head) -> Divergence:
    """Compare distributions at paired positions; `head` belongs to the new states."""
    torch = require_torch()
    found: list[list[Any]] = [[], [], []]
    with torch.inference_mode():
        for block in _blocks(head, len(new)):
            p, q = old(block), head.log_probabilities(new[block])
            found[0].append((p.exp() * (p - q)).sum(-1))
            theirs = old.likeliest(block, p)
            ours = q.topk(theirs.shape[-1]).indices
            found[1].append((ours[:, 0] == theirs[:, 0]).float())
            both = (ours[:, :, None] == theirs[:, None, :]).any(-1)
            found[2].append(both.float().mean(-1))
    return Divergence(*(_array(parts) for parts in found))


def likelihoods(states: torch.Tensor, targets: Ints, head: Head) -> Floats:
    """Log p in nats of one target id at each state."""
    torch = require_torch()
    parts = []
    with torch.inference_mode():
        wanted = torch.from_numpy(np.asarray(targets, np.int64)).to(states.device)
        for block in _blocks(head, len(states)):
            found = head.log_probabilities(states[block])
            parts.append(found.gather(1, wanted[block][:, None])[:, 0])
    return _array(parts)


def cosines(x: Any, y: Any) -> Floats:
    """Cosine of paired rows, arrays or tensors; NaN where a row is NaN or of no length."""
    torch = require_torch()
    a, b = (torch.as_tensor(v).double() for v in (x, y))
    found = (a * b).sum(-1) / torch.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    result: Floats = found.cpu().numpy()
    return result


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


def derangement(count: int, seed: int = 0) -> Ints:
    """A permutation in which nothing keeps its place (for two and more)."""
    order = np.random.default_rng(seed).permutation(count)
    found = np.empty(count, np.int64)
    found[order] = np.roll(order, 1)
    return found


def _unit(x: Floats) -> Floats:
    found: Floats = x / np.linalg.norm(x, axis=1, keepdims=True)
    return found


def _array(parts: list[Any]) -> Floats:
    torch = require_torch()
    if not parts:
        return np.zeros(0)
    found: Floats = torch.cat(parts).double().cpu().numpy()
    return found
