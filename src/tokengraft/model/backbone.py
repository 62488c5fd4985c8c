"""A frozen causal model as derive needs it: rows in, hidden states out, nothing written.

`Backbone` hides what differs between architectures: where the blocks are, whether the embedding
module scales its rows (Gemma), whether the head is tied. Weights come from safetensors only and
no remote code is ever run.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengraft.core.errors import ModelError
from tokengraft.core.files import sha256_file
from tokengraft.model.libraries import body, load_frozen, pick_devices, require_torch

if TYPE_CHECKING:
    import torch

_PIECE = 64 << 20  # bytes of a weight that are brought to the CPU together, to be hashed


def model_hash(folder: Path | str) -> str:
    """sha256 over config and weights: what hidden states depend on."""
    folder = Path(folder)
    files = sorted([folder / "config.json", *folder.glob("*.safetensors")])
    digest = hashlib.sha256()
    for file in files:
        if not file.is_file():
            raise ModelError(f"{folder}: no {file.name}; a model folder with config.json is needed")
        found = file.stat()
        digest.update(f"{file.name} {_hash(file, found.st_size, found.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


@functools.lru_cache(maxsize=256)
def _hash(file: Path, _size: int, _changed: int) -> str:
    return sha256_file(file)


class Backbone:
    """A loaded model, frozen, without dropout."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        self.base = body(model)
        config = getattr(model.config, "text_config", model.config)
        self.layers = int(config.num_hidden_layers)
        self.dimensions = int(config.hidden_size)
        #: Positions that the model was made for; one with learned positions has no more.
        self.window: int | None = getattr(config, "max_position_embeddings", None)
        self.blocks = _blocks(self.base, self.layers)
        #: This model and its copies on other devices, which share work with it.
        self.team: tuple[Backbone, ...] = (self,)

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto", dtype: str = "auto") -> Backbone:
        """Read a model folder.

        `device` auto: every GPU that is visible, each with a copy of the model, else the CPU;
        several can also be named: `cuda:0,cuda:1`. `dtype` auto: the weights' own type on a GPU,
        float32 on a CPU, where half types are slow or inexact.
        """
        torch = require_torch()
        where, *others = pick_devices(device)
        if dtype == "auto":
            dtype = "auto" if where.type == "cuda" else "float32"
        kind: Any = dtype if dtype == "auto" else getattr(torch, dtype)
        model = load_frozen(Path(folder), kind)
        found = cls(model.to(where))
        found.team = (found, *(cls(copy.deepcopy(model).to(other)) for other in others))
        return found

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        found: torch.device = self.weight.device
        return found

    @property
    def embedding(self) -> Any:
        """The input embedding module."""
        return self.model.get_input_embeddings()

    @property
    def weight(self) -> torch.Tensor:
        """Input rows as they are stored, unscaled (vocabulary, dimensions)."""
        found: torch.Tensor = self.embedding.weight
        return found

    @property
    def scale(self) -> float:
        """What the embedding module multiplies its rows by (Gemma 3: √dimensions)."""
        scale: Any = getattr(self.embedding, "embed_scale", 1.0)
        return float(scale)

    def fingerprint(self) -> str:
        """sha256 over the config and every weight as it is loaded, name and type included.

        Two models with one fingerprint give the same states, up to rounding. Half a second a GB.
        """
        config = self.model.config.to_dict()
        config.pop("_name_or_path", None)  # where it was read from says nothing
        digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
        for name, held in (*self.model.named_parameters(), *self.model.named_buffers()):
            digest.update(f"{name} {held.dtype} {tuple(held.shape)}\n".encode())
            flat = held.detach().reshape(-1).view(require_torch().uint8)
            for start in range(0, len(flat), _PIECE):
                digest.update(flat[start : start + _PIECE].cpu().numpy())
        return digest.hexdigest()

    def run(self, ids: Any = None, rows: Any = None) -> torch.Tensor:
        """Last hidden states after the final norm (batch, length, dimensions).

        `rows` are unscaled input rows in place of ids. No mask is given: shorter sequences are
        filled at the right, where causal attention cannot see the filling.
        """
        found: torch.Tensor
        if rows is None:
            found = self.base(input_ids=ids, use_cache=False).last_hidden_state
        else:
            rows = (rows * self.scale).to(self.weight.dtype)
            found = self.base(inputs_embeds=rows, use_cache=False).last_hidden_state
        return found


def _blocks(base: Any, count: int) -> Sequence[Any]:
    torch = require_torch()
    for module in base.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return list(module)
    raise ModelError(f"{type(base).__name__}: no list of {count} blocks found in this architecture")
