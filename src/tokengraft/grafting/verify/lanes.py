"""A body with lanes: proof that text without a new token cannot meet what was learned.

    old weights           the top left of wider ones, byte for byte (`Narrow`)
    input rows            lanes of old ids are 0
    v, gate               new rows are 0 over old columns, and in a bias
    o, down               rows of lanes are 0 over old columns, and in a bias
    norms                 the base's, times sqrt(d / (d + k)) and rounded; the last is 0 in lanes
    all that was added    finite and no larger than `_MOST`; the activation of 0 is 0

By induction over blocks: if lanes are 0 before a block, so are the new head's values and the new
neurons' gates, hence all that they write. Lanes are 0 after it, and the old dimensions are what the
base makes of them: zeros do not add to a norm, and its scale undoes that of a mean over d + k.
0 times infinity is not 0, so what was learned must not let queries, keys or neurons overflow: with
numbers of at most `_MOST` nothing does in float32 or bfloat16 (in float16 any head may).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.grafting.verify.tensors import first_found
from tokengraft.model.checkpoint import BLOCK, Checkpoint, Tensor, WeightFile, decode
from tokengraft.model.embedding_tables import Tables
from tokengraft.model.folder import CONFIG

_LAYERS = re.compile(r"\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)\.(weight|bias)$")
_BARRED = re.compile(r"\.(self_attn\.[vo]_proj|mlp\.(gate|down)_proj)\.(weight|bias)$")
_NORMS = re.compile(r"(\.(input|post_attention)_layernorm|^model\.norm)\.weight$")
_LAST = "model.norm.weight"
_GROWN = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "rms_norm_eps",
)  # fmt: skip
#: Most relative error of a rounded number, and the least number that has no more.
_ROUNDED = {"BF16": (2.0**-8, 1e-37), "F16": (2.0**-11, 1e-4), "F32": (2.0**-22, 1e-37)}
_MOST = 1e4  # learned numbers are below 10; a query of ten thousand such inputs is below 1e12
_CHUNK = 1 << 20  # numbers looked at at a time


def lanes_in(old: Mapping[str, Any], new: Mapping[str, Any]) -> int:
    """By how many dimensions a graft's config is wider than its base's."""
    widths = [config.get("hidden_size") for config in (old, new)]
    before, after = (width if isinstance(width, int) else 0 for width in widths)
    return max(0, after - before)


def narrow_config(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A wider config with the base's sizes instead of its own."""
    rest = {key: value for key, value in new.items() if key not in _GROWN}
    return rest | {key: old[key] for key in _GROWN if key in old}


def config_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """What is wrong with the sizes of a config with lanes, in words, or None."""
    width, heads = old["hidden_size"], old["num_attention_heads"]
    groups = old.get("num_key_value_heads") or heads
    head = old.get("head_dim") or width // heads
    if new.get("head_dim") != head:
        return f"{CONFIG}: head_dim is {new.get('head_dim')}, the base's heads have {head}"
    for name, least in (("num_key_value_heads", groups), ("intermediate_size", 0)):
        if not isinstance(new.get(name), int) or new[name] < max(least, old.get(name) or 0):
            return f"{CONFIG}: {name} is {new.get(name)}, less than the base's"
    if new["num_attention_heads"] * groups != heads * new["num_key_value_heads"]:
        return f"{CONFIG}: not as many queries share a key as in the base"
    scaled = old.get("rms_norm_eps", 1e-6) * width / new["hidden_size"]
    if not math.isclose(new.get("rms_norm_eps", 0.0), scaled, rel_tol=1e-9):
        return f"{CONFIG}: rms_norm_eps is {new.get('rms_norm_eps')}, not {scaled}"
    import torch
    from transformers.activations import ACT2FN

    activation = new.get("hidden_act", "silu")
    if not isinstance(activation, str) or activation not in ACT2FN:
        return f"{CONFIG}: {activation!r} is no activation that transformers knows"
    if ACT2FN[activation](torch.zeros(1)).any():
        return f"{CONFIG}: {activation} of 0 is not 0, so new neurons act on every text"
    return None


@dataclass(frozen=True)
class Narrow(Checkpoint):
    """A wider checkpoint as its base would see it: layers, norms and tables cut to `shapes`."""

    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, wide: Checkpoint, base: Checkpoint, layout: Tables) -> Narrow:
        """Cut what lanes may widen, and nothing else."""
        shapes = {
            name: tensor.shape
            for name, tensor in base.tensors.items()
            if _LAYERS.search(name) or _NORMS.search(name)
        }
        for name in (layout.input.name, layout.head_name):
            if name in wide.tensors:
                shapes[name] = (wide.tensors[name].shape[0], layout.width)
        return cls(wide.folder, wide.shards, wide.index, shapes)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name; one that was cut begins at 0."""
        return {name: self._cut(tensor) for name, tensor in super().tensors.items()}

    def _cut(self, tensor: Tensor) -> Tensor:
        shape = self.shapes.get(tensor.name, tensor.shape)
        smaller = all(a <= b for a, b in zip(shape, tensor.shape, strict=False))
        if shape == tensor.shape or len(shape) != len(tensor.shape) or not smaller:
            return tensor
        size = (tensor.end - tensor.begin) // math.prod(tensor.shape)
        return replace(tensor, shape=shape, begin=0, end=size * math.prod(shape))

    def shard_of(self, tensor: Tensor) -> WeightFile:
        """What gives the bytes of `tensor`."""
        wide = super().tensors[tensor.name]
        file = super().shard_of(wide)
        if wide.shape == tensor.shape:
            return file
        return _Columns(file.path, file.start, file.tensors, file.metadata, wide, tensor)


@dataclass(frozen=True)
class _Columns(WeightFile):
    """The first columns of one tensor, as if they were a file."""

    wide: Tensor
    narrow: Tensor

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """Whole rows' bytes `begin` to `end`, in blocks of at most `BLOCK`."""
        kept, whole, at = self.narrow.row_bytes, self.wide.row_bytes, self.wide.begin
        rows = range(begin // kept, end // kept, max(1, BLOCK // whole))
        held = b""
        for row in rows:
            last = min(row + rows.step, end // kept)
            data = b"".join(super().blocks(at + row * whole, at + last * whole))
            held += np.frombuffer(data, np.uint8).reshape(-1, whole)[:, :kept].tobytes()
            while len(held) >= BLOCK:
                yield held[:BLOCK]
                held = held[BLOCK:]
        if held:
            yield held


def norms(base: Checkpoint) -> list[str]:
    """The tensors whose old values are scaled."""
    return [name for name in base.tensors if _NORMS.search(name)]


def leak(base: Checkpoint, wide: Checkpoint, layout: Tables, new: range) -> str | None:
    """Where text without a new token could meet what was learned, in words, or None.

    `wide` is the graft's checkpoint as it is, `new` the ids of its new tokens.
    """
    olds, tensors = base.tensors, wide.tensors
    lanes = tensors[layout.input.name].shape[1] - layout.width

    def look(name: str) -> str | None:
        old, tensor = olds[name], tensors.get(name)
        if tensor is None or len(tensor.shape) != len(old.shape):
            return f"{name} is missing, or has another number of axes"
        if _large(wide, tensor, old.shape):
            return f"{name}: an added number is not finite, or over {_MOST:g}"
        if _BARRED.search(name):
            columns = slice(old.shape[1]) if old.shape[1:] else slice(None)
            if _filled(wide, tensor, range(old.shape[0], tensor.shape[0]), columns):
                return f"{name}: what is new reads more than the lanes"
        elif _NORMS.search(name):
            if tensor.shape != (layout.width + lanes,):
                return f"{name} has shape {list(tensor.shape)}, not [{layout.width + lanes}]"
            if not _scaled(base, old, wide, tensor):
                return f"{name} is not the base's, scaled by the wider mean"
        return None

    if (wrong := first_found(look, olds)) is not None:
        return wrong
    last = tensors.get(_LAST)
    if last is None or _filled(wide, last, range(layout.width, last.shape[0]), slice(None)):
        return f"{_LAST} lets lanes through to the head"
    table = tensors[layout.input.name]
    for rows in (range(new.start), range(new.stop, table.shape[0])):
        if _filled(wide, table, rows, slice(layout.width, None)):
            return f"an old row of {table.name} has lanes"
    return None


def _filled(checkpoint: Checkpoint, tensor: Tensor, rows: range, columns: slice) -> bool:
    """Whether any of these numbers is not 0."""
    return any(np.any(block) for block in _blocks(checkpoint, tensor, rows, columns))


def _large(checkpoint: Checkpoint, tensor: Tensor, old: tuple[int, ...]) -> bool:
    """Whether a number beside or below the `old` shape is not finite or too large to multiply."""
    parts = [(range(old[0], tensor.shape[0]), slice(None))]
    if tensor.shape[1:] != old[1:]:
        parts.append((range(min(old[0], tensor.shape[0])), slice(old[1], None)))
    return any(
        not np.all(np.abs(block) <= _MOST)
        for part in parts
        for block in _blocks(checkpoint, tensor, *part)
    )


def _blocks(
    checkpoint: Checkpoint, tensor: Tensor, rows: range, columns: slice
) -> Iterator[NDArray[np.float32]]:
    """These numbers, some rows at a time; a bias or a norm has no columns."""
    step = max(1, _CHUNK // max(1, math.prod(tensor.shape[1:])))
    shard, size = checkpoint.shard_of(tensor), tensor.row_bytes
    for first in range(rows.start, rows.stop, step):
        last = min(rows.stop, first + step)
        data = b"".join(shard.blocks(tensor.begin + first * size, tensor.begin + last * size))
        if tensor.shape[1:]:  # only what is wanted is decoded
            wide = np.frombuffer(data, np.uint8).reshape(last - first, tensor.shape[1], -1)
            data = wide[:, columns].tobytes()
        yield decode(data, tensor.dtype)


def _scaled(base: Checkpoint, old: Tensor, wide: Checkpoint, tensor: Tensor) -> bool:
    """Whether a norm's old weights are the base's, scaled as a mean over more numbers asks for."""
    error, least = _ROUNDED.get(tensor.dtype, (0.0, 0.0))
    was = base.rows(old, 0, old.shape[0]).astype(np.float64)
    now = wide.rows(tensor, 0, old.shape[0]).astype(np.float64)
    wanted = was * math.sqrt(old.shape[0] / tensor.shape[0])
    return bool(np.all(np.abs(now - wanted) <= error * np.maximum(np.abs(wanted), least)))
