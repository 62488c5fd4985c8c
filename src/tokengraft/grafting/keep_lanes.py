"""Train a graft with lanes further, and keep them out of text without new tokens.

Old text cannot meet what lanes learned because certain weights are 0 (`verify.lanes`). Gradients
are not 0 there, so training as usual lets lanes reach all text after one step. Here these gradients
are set to 0; an optimizer that moves each number by its own gradients (Adam, SGD …) then leaves it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tokengraft.core.errors import UsageError
from tokengraft.grafting.manifest import new_ids, read_manifest
from tokengraft.model.folder import MANIFEST

_PART = re.compile(
    r"(?:^|\.)(embed_tokens|[vo]_proj|gate_proj|down_proj|model\.norm)"
    r"(?:\.modules_to_save\.\w+|\.base_layer)?\.(?:weight|bias)$"
)
_ADAPTED = re.compile(r"\.([vo]_proj|gate_proj|down_proj|embed_tokens)\.lora_")


def keep_lanes(model: Any, folder: str | Path) -> list[Any]:
    """Keep old text from the lanes of `model`, loaded from the graft in `folder`, in training.

    Call it once before training; it returns the hooks' handles (`remove()` undoes each). Adapters
    by peft must be on the model before. UsageError if the graft has no lanes, or if adapters lie
    where they would let lanes through: use `target_modules=["q_proj", "k_proj", "up_proj"]`.
    """
    manifest = read_manifest(Path(folder)) or {}
    lanes = (manifest.get("trained") or {}).get("lanes")
    if not lanes:
        raise UsageError(f"{Path(folder).name} has no lanes by its {MANIFEST}: nothing to keep")
    names = [name for name, _ in model.named_parameters()]
    if adapted := next(filter(None, map(_ADAPTED.search, names)), None):
        raise UsageError(
            f"an adapter on {adapted[1]} would let lanes reach text without new tokens: give peft "
            'target_modules=["q_proj", "k_proj", "up_proj"]'
        )
    config = model.config
    width, groups = config.hidden_size - lanes, config.num_key_value_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    old = {
        "v_proj": head * (groups - 1),
        "o_proj": head * config.num_attention_heads // groups * (groups - 1),
    }
    handles = []
    for name, parameter in model.named_parameters():
        match = _PART.search(name)
        if match is None or not parameter.requires_grad:
            continue
        part, zeros = match[1], parameter.detach().new_zeros(parameter.shape).bool()
        if part in ("gate_proj", "down_proj") and part not in old:
            old |= dict.fromkeys(("gate_proj", "down_proj"), _old_neurons(model, width))
        if part == "embed_tokens":  # old tokens have no lanes
            zeros[:, width:] = True
            zeros[list(new_ids(manifest)), width:] = False
        elif part == "model.norm":  # the head reads no lanes
            zeros[width:] = True
        elif part in ("v_proj", "gate_proj"):  # new values and gates read nothing but lanes
            zeros[(slice(old[part], None), slice(width))[: zeros.ndim]] = True
        else:  # old heads and neurons write nothing into lanes
            zeros[(slice(width, None), slice(old[part]))[: zeros.ndim]] = True
        handles.append(parameter.register_hook(lambda grad, at=zeros: grad.masked_fill(at, 0)))
    return handles


def _old_neurons(model: Any, width: int) -> int:
    """How many neurons the base has: those behind them read none of the old dimensions."""
    gates = next(one for name, one in model.named_parameters() if "gate_proj" in name)
    return int(gates.detach()[:, :width].any(1).nonzero().max()) + 1
