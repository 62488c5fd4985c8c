"""KL(p_old ‖ p_new) of next-token distributions from hidden states, with its gradient.

    z = W h + b,   KL = Σ_v p_v (log p_v − log q_v),   ∂KL/∂h_new = Wᵀ (q − p)

p from the old states, q from the new, over the old vocabulary's output rows W. The gradient is
formed in the forward pass, block by block, so that no (positions × vocabulary) array outlives its
block: three products with W for a position, and a fixed amount of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

_BLOCK = {"cpu": 1 << 24, "cuda": 1 << 27}  # entries of one (positions, vocabulary) block


@dataclass(frozen=True)
class Head:
    """Output rows of the old vocabulary, with what a model does to its logits."""

    weight: torch.Tensor  # (vocabulary, dimensions)
    bias: torch.Tensor | None = None
    cap: float | None = None

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Float32 logits of states (positions, dimensions)."""
        found = (states.to(self.weight.dtype) @ self.weight.T).float()
        if self.bias is not None:
            found += self.bias
        return found if self.cap is None else self.cap * torch.tanh(found / self.cap)

    def slope(self, logits: torch.Tensor) -> torch.Tensor | float:
        """∂logit / ∂(its value before the cap)."""
        return 1.0 if self.cap is None else 1 - (logits / self.cap) ** 2


@torch.no_grad()
def compare(
    new: torch.Tensor, old: torch.Tensor, head: Head, gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """KL and top-1 agreement of each position, and ∂KL/∂new where asked for."""
    most = _BLOCK.get(new.device.type, 1 << 24)
    block = max(1, most // len(head.weight))
    kl, same, slopes = [], [], []
    for start in range(0, len(new), block):
        ours = head.logits(new[start : start + block])
        theirs = head.logits(old[start : start + block])
        same.append(ours.argmax(-1) == theirs.argmax(-1))
        bend = head.slope(ours)
        p = torch.softmax(theirs, -1)
        ours = torch.log_softmax(ours, -1)
        theirs = torch.log_softmax(theirs, -1)
        kl.append((p * (theirs - ours)).sum(-1))
        if gradient:
            pull = ((ours.exp_() - p) * bend).to(head.weight.dtype)
            slopes.append((pull @ head.weight).float())
    empty = new.new_zeros(0)
    return (
        torch.cat(kl) if kl else empty,
        torch.cat(same) if same else empty.bool(),
        torch.cat(slopes) if slopes else None,
    )


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, new: torch.Tensor, old: torch.Tensor, head: Head) -> torch.Tensor:
        kl, _, slope = compare(new, old, head, gradient=True)
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
