"""Hidden states of new tokens' parts, at any set of layers in one pass.

    h_l[s] = Σ_i w_i · state at layer l of part i of s, its parts read in order, no special tokens

Layers count as in the paper: 0 = input rows, 1 … n = output of that block. `"norm"` is block n
followed by the final norm, which HF gives as the last entry of `output_hidden_states`; layer n here
is the output of the block itself, which HF does not give. Layer 0 is the stored row, before any
scale (Gemma) or position (GPT-2) is applied, so it lives in the space of the rows to be derived.

States are computed in the weights' type and returned as float32. Tokens are batched with others of
as many parts, so nothing is padded. Results may still differ between batch sizes by the rounding
of matrix products: relative 1e-5 in float32, 2e-2 in bfloat16.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.lib.format import open_memmap

from tokengraft.core.errors import UsageError
from tokengraft.deriving.methods import Floats, Rows
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.libraries import require_torch

Layer: TypeAlias = int | Literal["norm"]
OnDone: TypeAlias = Callable[[int, int], None]
_UNSERVED = (errno.EINVAL, errno.EOPNOTSUPP)  # from file systems that cannot reserve space


#: Weights of a token's parts, summing to 1.
Pool: TypeAlias = Callable[[Sequence[int]], Floats]
# Chosen on FLORES dev, between 1.15 (beats the mean in all twelve languages; mean KL 1.609) and 1.3
# (in all but Shan; 1.561). At 1, the mean itself: 1.757 (results/fidelity-rootstock/mean-late.md).
_LATE = 1.2


def shares(weights: Floats) -> Floats:
    """The weights, divided by their sum."""
    normal: Floats = weights / weights.sum()
    return normal


def _only(end: int) -> Pool:
    return lambda parts: np.eye(len(parts))[end]


POOLS: Mapping[str, Pool] = {
    "mean": lambda parts: shares(np.ones(len(parts))),
    "late": lambda parts: shares(_LATE ** np.arange(1 - len(parts), 1)),
    "first": _only(0),
    "last": _only(-1),
}


class _Enough(Exception):
    """Stops a forward pass: no higher layer is wanted."""


def check_layers(layers: Sequence[Layer], count: int) -> None:
    """UsageError unless every layer exists in a model of `count` blocks."""
    for layer in layers:
        if layer != "norm" and not (isinstance(layer, int) and 0 <= layer <= count):
            raise UsageError(f"no layer {layer!r}: this model has 0 to {count} and 'norm'")


def part_states(
    model: FrozenModel,
    parts: Sequence[Sequence[int]],
    layers: Sequence[Layer],
    pool: str | Pool = "mean",
    batch_tokens: int = 1 << 15,
    progress: OnDone | None = None,
) -> dict[Layer, Rows]:
    """Pooled states (len(parts), dimensions) of each new token's old parts, for each layer."""
    check_layers(layers, model.layers)
    weights = POOLS[pool] if isinstance(pool, str) else pool
    pooled_by_layer: dict[Layer, Rows] = {
        layer: np.empty((len(parts), model.dimensions), np.float32) for layer in layers
    }
    torch = require_torch()
    done = 0
    for group in _equal_lengths(parts, batch_tokens):
        ids = torch.tensor([list(parts[n]) for n in group], device=model.device)
        mix = np.stack([weights(parts[n]) for n in group])
        share = torch.from_numpy(mix).to(model.device, torch.float32)
        for layer, states in layer_states(model, ids, layers).items():
            pooled = torch.einsum("bp,bpd->bd", share, states.float())
            pooled_by_layer[layer][group] = pooled.cpu().numpy()
        done += len(group)
        if progress is not None:
            progress(done, len(parts))
    return pooled_by_layer


def _equal_lengths(parts: Sequence[Sequence[int]], tokens: int) -> Iterator[list[int]]:
    by_length: dict[int, list[int]] = {}
    for number, one in enumerate(parts):
        if not len(one):
            raise UsageError(f"new token {number} has no old parts")
        by_length.setdefault(len(one), []).append(number)
    for length, numbers in sorted(by_length.items()):
        step = max(1, tokens // length)
        for start in range(0, len(numbers), step):
            yield numbers[start : start + step]


def layer_states(
    model: FrozenModel, ids: Any, layers: Sequence[Layer], new: NewRows | None = None
) -> dict[Layer, Any]:
    """States (batch, length, dimensions) by layer; blocks above the highest one are not run."""
    torch = require_torch()
    states_by_layer: dict[Layer, Any] = {}
    if 0 in layers:
        states_by_layer[0] = model.weight[ids]
    blocks = [layer for layer in layers if isinstance(layer, int) and layer > 0]
    if not blocks and "norm" not in layers:
        return states_by_layer
    handles = []
    highest = max(blocks, default=0)

    def keep(layer: int) -> Callable[[Any, Any, Any], None]:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            states_by_layer[layer] = output[0] if isinstance(output, tuple) else output
            if layer == highest and "norm" not in layers:
                raise _Enough

        return hook

    for layer in blocks:
        handles.append(model.blocks[layer - 1].register_forward_hook(keep(layer)))
    try:
        with torch.no_grad():
            final = model.states(ids, new=new)
            if "norm" in layers:
                states_by_layer["norm"] = final
    except _Enough:
        pass
    finally:
        for handle in handles:
            handle.remove()
    return states_by_layer


def reserve(file: Path, shape: tuple[int, ...], kind: type) -> np.ndarray[Any, Any]:
    """A new file of zeros, mapped for writing; OSError, and no file, if it does not fit.

    Its space is reserved first: a map over a sparse file kills the process (SIGBUS) when the disk
    runs full.
    """
    try:
        made: np.ndarray[Any, Any] = open_memmap(file, mode="w+", dtype=kind, shape=shape)
        with file.open("r+b") as opened:
            _take(opened.fileno(), file.stat().st_size)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from error
    return made


def _take(descriptor: int, size: int) -> None:
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in _UNSERVED:
            raise


def reopen(
    file: Path, shape: tuple[int, ...], kind: type, mode: Literal["r", "r+"] = "r"
) -> np.ndarray[Any, Any] | None:
    """The array in a file, or None if it has another shape or type or the file is damaged."""
    with contextlib.suppress(OSError, ValueError, EOFError):
        array: np.ndarray[Any, Any] = open_memmap(file, mode="r")  # r+ would lengthen a cut file
        if array.shape == shape and array.dtype == np.dtype(kind):
            return array if mode == "r" else open_memmap(file, mode=mode)
    return None
