"""Hidden states of tokens and of new tokens' parts, at any set of layers in one pass.

    V_l[t] = state at layer l of old token t, read alone
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
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.lib.format import open_memmap

from tokengraft.core.errors import UsageError
from tokengraft.deriving.methods import Rows
from tokengraft.deriving.methods.mean import weights
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.libraries import require_torch, spread
from tokengraft.tokenizer.align import Ints

Layer: TypeAlias = int | Literal["norm"]
OnDone: TypeAlias = Callable[[int, int], None]
_VERSION = 1  # of the cache's format
_UNSERVED = (errno.EINVAL, errno.EOPNOTSUPP)  # from file systems that cannot reserve space


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
    pool: str = "mean",
    lengths: Sequence[int] | None = None,
    batch_tokens: int = 1 << 15,
    progress: OnDone | None = None,
) -> dict[Layer, Rows]:
    """Pooled states (len(parts), dimensions) of each new token's old parts, for each layer."""
    check_layers(layers, model.layers)
    pooled_by_layer: dict[Layer, Rows] = {
        layer: np.empty((len(parts), model.dimensions), np.float32) for layer in layers
    }
    torch = require_torch()
    done = 0
    for group in _equal_lengths(parts, batch_tokens):
        ids = torch.tensor([list(parts[n]) for n in group], device=model.device)
        mix = np.stack([weights(parts[n], pool, lengths) for n in group])
        share = torch.from_numpy(mix).to(model.device, torch.float32)
        for layer, states in layer_states(model, ids, layers).items():
            pooled = torch.einsum("bp,bpd->bd", share, states.float())
            pooled_by_layer[layer][group] = pooled.cpu().numpy()
        done += len(group)
        if progress is not None:
            progress(done, len(parts))
    return pooled_by_layer


def vocabulary_states(
    model: FrozenModel,
    layers: Sequence[Layer],
    count: int | None = None,
    batch: int = 4096,
    cache: Path | str | None = None,
    key: str = "",
    progress: OnDone | None = None,
) -> dict[Layer, Rows]:
    """V_l for the first `count` ids that have a row (all by default), each alone, for each layer.

    With a `cache` folder each layer is a memory-mapped .npy there, named by `key` (the model's
    hash), layer and version; it appears under that name only when complete. A damaged file is
    computed again.
    """
    check_layers(layers, model.layers)
    rows = len(model.weight)
    total = rows if count is None else min(count, rows)  # tokens beyond the table have no row
    shape = (total, model.dimensions)
    ready: dict[Layer, Rows] = {}
    files = {layer: _file(cache, key, layer, total, model) for layer in layers}
    for layer, file in files.items():
        if file is not None and (kept := reopen(file, shape, np.float32)) is not None:
            ready[layer] = kept
    missing = [layer for layer in layers if layer not in ready]
    if not missing:
        return ready
    arrays: dict[Layer, Rows] = {}
    scratch: dict[Layer, Path] = {}
    try:
        for layer in missing:
            file = files[layer]
            if file is None:
                arrays[layer] = np.empty(shape, np.float32)
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            scratch[layer] = file.with_name(f".{file.stem}.{os.getpid()}.npy")
            arrays[layer] = reserve(scratch[layer], shape, np.float32)
        _fill(model, arrays, total, batch, progress)
        for layer, temporary in scratch.items():
            arrays[layer].flush()  # type: ignore[attr-defined]
            file = files[layer]
            assert file is not None
            temporary.replace(file)
            arrays[layer] = np.load(file, mmap_mode="r")
    finally:
        for temporary in scratch.values():
            temporary.unlink(missing_ok=True)
    return {layer: ready.get(layer, arrays.get(layer)) for layer in layers}  # type: ignore[misc]


def mixed_states(
    model: FrozenModel, parts: Sequence[Sequence[int]], layer: Layer, count: int, seed: int = 0
) -> tuple[Rows, Rows]:
    """States at `layer` and rows of synthetic anchors: `count` mixtures of each token's part rows.

    The paper's V_0 "could in principle be augmented with any number of synthetic test embeddings".
    These lie near the row that is sought, where hardly any row of the vocabulary lies. A mixture's
    weights are drawn uniformly from all that sum to 1.
    """
    torch = require_torch()
    generator = np.random.default_rng(seed)
    table = model.weight.float().cpu().numpy()
    rows: Rows = np.concatenate(
        [generator.dirichlet(np.ones(len(one)), count) @ table[list(one)] for one in parts]
    ).astype(np.float32)
    if layer == 0:
        return rows, rows
    states = np.empty_like(rows)
    for start in range(0, len(rows), 4096):
        some = torch.from_numpy(rows[start : start + 4096]).to(model.device)
        ids = torch.arange(len(some), device=model.device)[:, None]
        read = layer_states(model, ids, [layer], NewRows(0, some))[layer]
        states[start : start + 4096] = read[:, 0].float().cpu().numpy()
    return states, rows


def _fill(
    model: FrozenModel,
    arrays: Mapping[Layer, Rows],
    total: int,
    batch: int,
    progress: OnDone | None,
) -> None:
    """Compute all states into the arrays; a batch is written while the next one is computed."""
    torch = require_torch()

    def read(member: FrozenModel, ids: Ints) -> list[Future[None]]:
        given = torch.from_numpy(ids).to(member.device)[:, None]
        states_by_layer = layer_states(member, given, list(arrays))
        rows = slice(ids[0], ids[-1] + 1)
        return [
            writer.submit(_land, arrays[layer][rows], *_send(states[:, 0]))
            for layer, states in states_by_layer.items()
        ]

    step = batch * len(model.team)
    behind: list[Future[None]] = []
    with ThreadPoolExecutor(1) as writer:
        for start in range(0, total, step):
            ids = np.arange(start, min(total, start + step))
            begun = list(chain.from_iterable(spread(model.team, ids, read)))
            for landing in behind:
                landing.result()
            behind = begun
            if progress is not None:
                progress(start + len(ids), total)
        for landing in behind:
            landing.result()


def _send(states: Any) -> tuple[Any, Any]:
    """States being copied to the CPU in the weights' type, and the event of their arrival."""
    if states.device.type != "cuda":
        return states, None
    torch = require_torch()
    # torch reuses pinned memory that has been freed, so this takes two batches in all.
    staged = torch.empty(states.shape, dtype=states.dtype, pin_memory=True)
    staged.copy_(states, non_blocking=True)
    return staged, torch.cuda.current_stream(states.device).record_event()


def _land(target: Rows, states: Any, arrived: Any) -> None:
    if arrived is not None:
        arrived.synchronize()
    require_torch().from_numpy(target).copy_(states)  # widened by all cores


def _file(
    cache: Path | str | None, key: str, layer: Layer, total: int, model: FrozenModel
) -> Path | None:
    if cache is None:
        return None
    kind = str(model.weight.dtype).removeprefix("torch.")
    return Path(cache) / f"states-{key[:16]}-{kind}-{total}-layer-{layer}-v{_VERSION}.npy"


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
