"""Hidden states of the old vocabulary, and of mixtures of its rows: what array methods fit on.

V_l[t] = state at layer l of old token t, read alone
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tokengraft.core.files import writing
from tokengraft.deriving.methods import Rows
from tokengraft.deriving.states import Layer, OnDone, check_layers, layer_states, reopen, reserve
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.libraries import require_torch

_VERSION = 1  # of the cache's format


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
    files = {layer: _file(cache, key, layer, total, model) for layer in layers}
    ready = {
        layer: None if file is None else reopen(file, shape, np.float32)
        for layer, file in files.items()
    }
    missing = {layer: files[layer] for layer, states in ready.items() if states is None}
    with contextlib.ExitStack() as stack:
        arrays: dict[Layer, Rows] = {}
        for layer, file in missing.items():
            if file is None:
                arrays[layer] = np.empty(shape, np.float32)
            else:
                temporary = stack.enter_context(writing(file))
                arrays[layer] = reserve(temporary, shape, np.float32)
        if arrays:
            _fill(model, arrays, total, batch, progress)
    return {layer: arrays.get(layer, ready[layer]) for layer in layers}  # type: ignore[misc]


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
    """Compute all states into the arrays, batch by batch."""
    torch = require_torch()
    for start in range(0, total, batch):
        ids = torch.arange(start, min(total, start + batch), device=model.device)[:, None]
        for layer, states in layer_states(model, ids, list(arrays)).items():
            arrays[layer][start : start + len(ids)] = states[:, 0].float().cpu().numpy()
        if progress is not None:
            progress(start + len(ids), total)


def _file(
    cache: Path | str | None, key: str, layer: Layer, total: int, model: FrozenModel
) -> Path | None:
    if cache is None:
        return None
    kind = str(model.weight.dtype).removeprefix("torch.")
    return Path(cache) / f"states-{key[:16]}-{kind}-{total}-layer-{layer}-v{_VERSION}.npy"
