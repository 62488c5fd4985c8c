"""A model's output rows, from last hidden states to next-token logits.

    z = cap · tanh(x / cap),  x = factor · (W h + b)

Most models have W alone; Cohere and Granite have a factor, Gemma 2 a cap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Head:
    """Output rows over a vocabulary, with what the model does to its logits."""

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

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Float32 logits (positions, vocabulary) of states (positions, dimensions)."""
        logits = (states.to(self.weight.dtype) @ self.weight.T).float()
        if self.bias is not None:
            logits += self.bias
        if self.factor != 1.0:
            logits *= self.factor
        return logits if self.cap is None else logits.div_(self.cap).tanh_() * self.cap

    def slope(self, logits: torch.Tensor) -> torch.Tensor | float:
        """∂logit / ∂(W h + b), from the logit."""
        if self.cap is None:
            return self.factor
        return (logits / self.cap).square_().sub_(1).mul_(-self.factor)

    def log_probabilities(self, states: torch.Tensor) -> torch.Tensor:
        """Float32 log p (positions, vocabulary)."""
        return self.logits(states).log_softmax(-1)
