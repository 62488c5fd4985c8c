"""A distillation in progress as one safetensors file: written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tokengraft.files import writing

_NAME = "distil.safetensors"


def save(folder: Path, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
    """Write tensors and facts into `folder`."""
    from safetensors.torch import save_file

    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with writing(folder / _NAME) as temporary:
        save_file(held, temporary, metadata={"facts": json.dumps(facts)})


def load(folder: Path, key: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """What was saved under the same `key` (model, text, recipe), or None."""
    from safetensors import safe_open

    file = folder / _NAME
    if not file.is_file():
        return None
    with safe_open(file, "pt") as opened:
        facts: dict[str, Any] = json.loads((opened.metadata() or {}).get("facts", "{}"))
        if facts.get("key") != key:
            return None
        return {name: opened.get_tensor(name) for name in opened.keys()}, facts  # noqa: SIM118
