"""Next-token distributions from hidden states: how far apart two are, and the gradient of that.

    z = W h + b,   KL = Σ_v p_v (log p_v − log q_v),   ∂KL/∂h_new = Wᵀ (q − p)
    top-k = |top_k(p) ∩ top_k(q)| / k

p comes from the old states, q from the new ones, both over W, the output rows of the old
vocabulary; KL is in nats. Everything is done block by block, so that no (positions × vocabulary)
array outlives its block. The gradient is computed in the forward pass: three products with W per
position, and memory for at most two float32 arrays of a block (three if logits are capped).

`Head` computes logits as the model itself does:

    z = cap · tanh(x / cap),  x = factor · (W h + b)

Most models have W alone; Cohere and Granite have a factor, Gemma 2 a cap.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengraft.model.libraries import require_torch
from tokengraft.tokenizer.align import Floats, Ints

if TYPE_CHECKING:
    import torch


#: Most entries of one (positions, vocabulary) block, by device. A CPU wants blocks that stay in its
#: cache (`slopes` at 971 positions of rootstock: 124 ms instead of 197 with 1 << 24), a GPU large
#: ones; in training, whose backward pass needs GPU memory too, a block's arrays then take 0.8 GB.
TRAINING = {"cpu": 1 << 20, "cuda": 1 << 26}
#: The same for measuring.
MEASURING = {"cpu": 1 << 22, "cuda": 1 << 28}
_LEAST = 128  # positions per block; with fewer, reading a large vocabulary's rows dominates
TOP = 10
_ALIGNED = 64  # output rows: with another number, an H200 takes four times as long


@dataclass(frozen=True)
class Divergence:
    """At each position: KL in nats, whether the likeliest token agrees, share of the top k kept."""

    kl: torch.Tensor
    top1: torch.Tensor
    top10: torch.Tensor


class Distributions:
    """The base model's next-token distributions at `states`.

    Computed once if they fit into `most_bytes`, otherwise anew for each block that is asked for.
    """

    def __init__(self, states: torch.Tensor, head: Head, most_bytes: int = 0) -> None:
        self.states, self.head = states, head
        self._kept: Any = None
        if 0 < 4 * len(states) * len(head.weight) <= most_bytes:
            blocks = list(vocabulary_blocks(head, len(states), MEASURING))
            cat = require_torch().cat
            self._kept = cat([head.log_probabilities(states[block]) for block in blocks])
            self._best = cat([_top(self._kept[block], TOP) for block in blocks])

    def __call__(self, block: slice, top: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Float32 log p of a block of positions, and the ids of its `top` likeliest tokens."""
        if self._kept is not None:
            return self._kept[block], self._best[block, :top]
        logs = self.head.log_probabilities(self.states[block])
        return logs, _top(logs, top)


def compare(
    old: Distributions,
    new: torch.Tensor,
    head: Head,
    top: int = TOP,
    sizes: Mapping[str, int] = MEASURING,
) -> Divergence:
    """Compare distributions at paired positions; `head` turns the `new` states into logits."""
    torch = require_torch()
    kl, first, among = ([new.new_zeros(0, dtype=torch.float32)] for _ in range(3))
    with torch.inference_mode():
        for block in vocabulary_blocks(head, len(new), sizes):
            p, theirs = old(block, top)
            q = head.log_probabilities(new[block])
            ours = _top(q, top)
            first.append((ours[:, 0] == theirs[:, 0]).float())
            among.append((ours[:, :, None] == theirs[:, None, :]).any(-1).float().mean(-1))
            kl.append(q.neg_().add_(p).mul_(p.exp()).sum(-1))
    return Divergence(*map(torch.cat, (kl, first, among)))


def likelihoods(states: torch.Tensor, targets: Ints, head: Head) -> Floats:
    """Log p in nats of one target id at each state."""
    torch = require_torch()
    parts = [states.new_zeros(0, dtype=torch.float32)]
    with torch.inference_mode():
        wanted = torch.from_numpy(np.asarray(targets, np.int64)).to(states.device)
        for block in vocabulary_blocks(head, len(states), MEASURING):
            logs = head.log_probabilities(states[block])
            parts.append(logs.gather(1, wanted[block][:, None])[:, 0])
    values: Floats = torch.cat(parts).double().cpu().numpy()
    return values


def slopes(
    new: torch.Tensor, old: torch.Tensor, head: Head, after: Ints | None = None, share: float = 0.0
) -> torch.Tensor:
    """∂KL/∂new at each position (positions, dimensions).

    Where `after` gives the text's next id (not -1), p becomes (1 − share) p + share · [v = after].
    """
    torch = require_torch()
    slope = new.new_zeros(new.shape)
    known = None
    if after is not None and share:
        known = torch.from_numpy(np.asarray(after, np.int64)).to(new.device)[:, None]
    with torch.no_grad():
        for block in vocabulary_blocks(head, len(new), TRAINING):
            logits = head.logits(new[block])
            bend = head.slope(logits)
            q = logits.softmax(-1)
            del logits  # before the next array of its size
            p = head.logits(old[block]).softmax(-1)
            if known is not None:
                by_text = share * (known[block] >= 0).to(p)
                p.mul_(1 - by_text).scatter_add_(1, known[block].clamp(min=0), by_text)
            slope[block] = head.at_states(q.sub_(p).mul_(bend))
    return slope


def vocabulary_blocks(head: Head, count: int, sizes: Mapping[str, int]) -> Iterator[slice]:
    """`count` positions in blocks of at most `sizes` entries, but at least `_LEAST` positions."""
    step = max(_LEAST, sizes.get(head.weight.device.type, sizes["cpu"]) // max(1, len(head.weight)))
    for start in range(0, count, step):
        yield slice(start, min(count, start + step))


def _top(logs: torch.Tensor, top: int) -> torch.Tensor:
    return logs.topk(min(top, logs.shape[-1])).indices


@dataclass(frozen=True)
class Head:
    """Output rows of a vocabulary, and how the model turns their products into logits."""

    weight: torch.Tensor  # (vocabulary, dimensions)
    bias: torch.Tensor | None = None
    cap: float | None = None
    factor: float = 1.0

    @classmethod
    def of(cls, model: Any, size: int | None = None) -> Head:
        """The first `size` output rows of a causal model (all by default), in the weights' type."""
        output = model.get_output_embeddings()
        bias = getattr(output, "bias", None)
        config = getattr(model.config, "text_config", model.config)
        factor = float(getattr(config, "logit_scale", None) or 1.0)  # Cohere
        factor /= float(getattr(config, "logits_scaling", None) or 1.0)  # Granite
        return cls(
            output.weight.detach()[:size],
            None if bias is None else bias.detach()[:size].float(),
            getattr(config, "final_logit_softcapping", None),
            factor,
        )

    def exact(self) -> Head:
        """The same with float32 rows, so that products are float32 too."""
        return replace(self, weight=self.weight.float())

    @functools.cached_property
    def _aligned(self) -> torch.Tensor:
        """The rows, and on a GPU rows of 0 up to a number that its fast kernels want."""
        more = -len(self.weight) % _ALIGNED if self.weight.device.type == "cuda" else 0
        rows: torch.Tensor = require_torch().nn.functional.pad(self.weight, (0, 0, 0, more))
        return rows

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Float32 logits (positions, vocabulary) of states (positions, dimensions)."""
        logits = states.to(self.weight.dtype) @ self._aligned.T
        logits = logits.float()[:, : len(self.weight)]
        if self.bias is not None:
            logits += self.bias
        if self.factor != 1.0:
            logits *= self.factor
        return logits if self.cap is None else logits.div_(self.cap).tanh_() * self.cap

    def at_states(self, slope: torch.Tensor) -> torch.Tensor:
        """What a gradient at W h + b is at h."""
        rows = self._aligned
        if len(rows) == len(self.weight):
            return slope.to(rows.dtype) @ rows
        wide = rows.new_zeros(len(slope), len(rows))
        wide[:, : slope.shape[1]] = slope
        return wide @ rows

    def slope(self, logits: torch.Tensor) -> torch.Tensor | float:
        """∂logit / ∂(W h + b), from the logit."""
        if self.cap is None:
            return self.factor
        return (logits / self.cap).square_().sub_(1).mul_(-self.factor)

    def log_probabilities(self, states: torch.Tensor) -> torch.Tensor:
        """Float32 log p (positions, vocabulary)."""
        return self.logits(states).log_softmax(-1)
