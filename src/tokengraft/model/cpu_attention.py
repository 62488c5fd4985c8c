"""Causal attention in bfloat16 on a CPU, by plain products.

    softmax(Q Kᵀ · scale + mask) V,     some heads at a time, so that their scores stay in the cache

torch's own kernel for CPUs computes the same block by block, and its backward pass computes the
scores again. At the lengths that are trained on, that is slow: forward and backward take 44 ms for
16 sequences of 140 tokens (6 heads of 64, one core of an AMD Zen 5, torch 2.13) and 9 ms here; at
512 tokens 183 and 75 ms, forward alone 64 and 27 ms. Scores are rounded to bfloat16 here, and to
float32 there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

_SCORES = 1 << 22  # at a time
MOST_SCORES = 1 << 25  # if they are kept for a backward pass: 64 MB for each block of the model


class CpuAttention(TorchFunctionMode):
    """Within it, models that call torch's attention get this one wherever it is the faster one."""

    def __torch_function__(
        self, func: Callable[..., Any], _: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call `func`, or `causal` in its place."""
        given = kwargs or {}
        if func is scaled_dot_product_attention and _suits(*args, **given):
            return causal(args[0], args[1], args[2], given.get("scale"))
        return func(*args, **given)


def causal(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    """Every position looks at itself and those before it (batch, heads, length, size).

    There may be fewer keys' heads than queries'; each then serves as many queries' in a row.
    """
    batch, heads, length, size = query.shape
    if key.shape[1] < heads:
        key, value = (one.repeat_interleave(heads // key.shape[1], 1) for one in (key, value))
    queries, keys, values = (one.reshape(batch * heads, length, -1) for one in (query, key, value))
    ahead = query.new_full((1, length, length), -torch.inf).triu_(1)
    by = 1 / math.sqrt(size) if scale is None else scale
    some = max(1, _SCORES // length**2)
    read = [
        torch.baddbmm(ahead, q, k.transpose(1, 2), alpha=by).softmax(-1) @ v
        for q, k, v in zip(
            *(torch.split(one, some) for one in (queries, keys, values)), strict=True
        )
    ]
    return torch.cat(read).view(batch, heads, length, -1)


def _suits(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **_: Any,
) -> bool:
    whole = query.ndim == 4 and query.shape[2] == key.shape[2] == value.shape[2]
    if not (is_causal and whole) or attn_mask is not None or dropout_p:
        return False
    kept = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
    scores = query.shape[0] * query.shape[1] * query.shape[2] ** 2
    here = query.device.type == "cpu" and query.dtype == torch.bfloat16
    return here and not (kept and scores > MOST_SCORES)
