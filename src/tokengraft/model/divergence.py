"""KL(p_old ‖ p_new) of next-token distributions from hidden states, with its gradient.

    z = W h + b,   KL = Σ_v p_v (log p_v − log q_v),   ∂KL/∂h_new = Wᵀ (q − p)

p from the old states, q from the new, over the old vocabulary's output rows W. The gradient is
formed in the forward pass, block by block, so that no (positions × vocabulary) array outlives its
block: three products with W for a position, and a fixed amount of memory, at most three float32
arrays of a block (four where logits are capped).
"""

from __future__ import annotations

from typing import Any

import torch

from tokengraft.model.head import Head

# Entries of one (positions, vocabulary) block; on a GPU a block's arrays then take 0.8 GB.
_BLOCK = {"cpu": 1 << 24, "cuda": 1 << 26}


@torch.no_grad()
def compare(new: torch.Tensor, old: torch.Tensor, head: Head) -> tuple[torch.Tensor, torch.Tensor]:
    """KL and top-1 agreement of each position."""
    kl, same = [new.new_zeros(0)], [new.new_zeros(0, dtype=torch.bool)]
    for here in _blocks(len(new), head):
        p, q = head.log_probabilities(old[here]), head.log_probabilities(new[here])
        same.append(p.argmax(-1) == q.argmax(-1))
        kl.append(q.neg_().add_(p).mul_(p.exp_()).sum(-1))
    return torch.cat(kl), torch.cat(same)


@torch.no_grad()
def slopes(new: torch.Tensor, old: torch.Tensor, head: Head) -> tuple[torch.Tensor, torch.Tensor]:
    """KL of each position, and ∂KL/∂new (positions, dimensions)."""
    kl, found = [new.new_zeros(0)], [new.new_zeros(0, new.shape[1])]
    for here in _blocks(len(new), head):
        logits = head.logits(new[here])
        bend = head.slope(logits)
        q = logits.log_softmax(-1)
        del logits  # before the next array of its size
        p = head.log_probabilities(old[here])
        gap = p - q
        kl.append(gap.mul_(p.exp_()).sum(-1))
        del gap
        pull = q.exp_().sub_(p).mul_(bend).to(head.weight.dtype)
        found.append((pull @ head.weight).float())
    return torch.cat(kl), torch.cat(found)


def _blocks(count: int, head: Head) -> list[slice]:
    most = _BLOCK.get(head.weight.device.type, 1 << 24)
    step = max(1, most // len(head.weight))
    return [slice(start, start + step) for start in range(0, count, step)]


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, new: torch.Tensor, old: torch.Tensor, head: Head) -> torch.Tensor:
        kl, slope = slopes(new, old, head)
        ctx.save_for_backward(slope)
        return kl

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, None, None]:
        (slope,) = ctx.saved_tensors
        return grads[0][:, None] * slope, None, None


def divergence(new: torch.Tensor, old: torch.Tensor, head: Head) -> torch.Tensor:
    """KL of each position (positions,), differentiable in `new`."""
    found: torch.Tensor = _Divergence.apply(new, old, head)  # type: ignore[no-untyped-call]
    return found
