"""The paper's 40 strategies in one call: states are computed once, neighbours once per layer.

    4 layers {0, 1, n−1, n} × [knn k = 1, 2, 3, 5, 10; linear; local-linear k = 2, 3, 5, 10]

Reference: the paper's table of document cosine similarities. The k nearest of a larger k are the
nearest of a smaller one, so one search for k = 10 serves all nine neighbour methods of a layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokengraft.deriving.methods.knn import blend
from tokengraft.deriving.methods.linear import Linear
from tokengraft.deriving.methods.local_linear import regress
from tokengraft.deriving.methods.neighbours import nearest
from tokengraft.deriving.methods.protocol import Floats, Rows
from tokengraft.deriving.states import Layer, Progress, part_states, vocabulary_states
from tokengraft.model.frozen import FrozenModel

KNN_K = (1, 2, 3, 5, 10)
LOCAL_K = (2, 3, 5, 10)


@dataclass(frozen=True)
class Strategy:
    """One strategy of the grid; k is None for linear regression."""

    layer: Layer
    method: str
    k: int | None

    def __str__(self) -> str:
        return f"{self.method}{'' if self.k is None else f' k={self.k}'} layer {self.layer}"


def paper_layers(layers: int) -> tuple[int, ...]:
    """{0, 1, n−1, n}, each once."""
    return tuple(dict.fromkeys((0, 1, layers - 1, layers)))


def grid(
    model: FrozenModel,
    parts: Sequence[Sequence[int]],
    layers: Sequence[Layer] | None = None,
    anchors: int | None = None,
    cache: Path | str | None = None,
    key: str = "",
    device: str = "cpu",
    progress: Progress | None = None,
) -> Iterator[tuple[Strategy, Rows]]:
    """Rows of every strategy, one at a time; `anchors` limits the old ids used (all by default)."""
    chosen: Sequence[Layer] = paper_layers(model.layers) if layers is None else layers
    wanted: list[Layer] = list(dict.fromkeys((0, *chosen)))
    known = vocabulary_states(model, wanted, anchors, cache=cache, key=key, progress=progress)
    hidden = part_states(model, parts, chosen)
    for layer in chosen:
        for cell, rows in grid_arrays(hidden[layer], known[layer], known[0], device):
            yield Strategy(layer, cell.method, cell.k), rows


def grid_arrays(
    hidden: Floats, anchors_hidden: Floats, anchors_rows: Floats, device: str = "cpu"
) -> Iterator[tuple[Strategy, Rows]]:
    """The ten strategies of one layer, from arrays; cells carry layer 0."""
    most = min(max(*KNN_K, *LOCAL_K), len(anchors_hidden))
    distances, index = nearest(hidden, anchors_hidden, most, device=device)
    for k in KNN_K:
        if k <= most:
            yield Strategy(0, "knn", k), blend(distances[:, :k], anchors_rows, index[:, :k])
    fitted = Linear(device=device).fit(anchors_hidden, anchors_rows)
    yield Strategy(0, "linear", None), fitted.derive(hidden)
    for k in LOCAL_K:
        if k <= most:
            near = distances[:, :k], anchors_hidden, anchors_rows, index[:, :k]
            yield Strategy(0, "local-linear", k), regress(hidden, *near)
