"""Rows from the nearest anchors (`KNN`, `LocalLinear`), found by an exact search in blocks.

Distances are ranked by |a|² − 2 h·a in float64, after the mean of some anchors is subtracted from
both sides; those of a few more than `k` are then computed from the differences, as `_exact` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tokengraft.core.errors import UsageError
from tokengraft.deriving.methods import Floats, Rows
from tokengraft.model.libraries import require_torch
from tokengraft.paper.deriver import Fitted

Ints: TypeAlias = npt.NDArray[np.int64]
Exact: TypeAlias = npt.NDArray[np.float64]
_SPARE = 64  # candidates kept beyond k until distances are exact: equal anchors are among them
_SAMPLE = 1024  # anchors whose mean is subtracted
_BLOCK_BYTES = 128 << 20
_BATCH_BYTES = 64 << 20  # of a batch of small regressions
_STEP = 32  # states blended at a time: their rows stay in the processor's cache


def nearest(
    hidden: Floats, anchors: Floats, k: int, block: int | None = None, device: str = "cpu"
) -> tuple[Exact, Ints]:
    """Distances and indices (n, k) of the k anchors nearest to each state, nearest first.

    Ties go to the lower index. `anchors` may be a memory map, which is read once, block by block.
    `block` is the number of anchors looked at together; it does not change the result.
    """
    if not 1 <= k <= len(anchors):
        raise UsageError(f"k={k} neighbours were asked for among {len(anchors)} anchors")
    torch = require_torch()
    kept = min(len(anchors), k + _SPARE)
    block = block or max(4 * kept, _BLOCK_BYTES // (8 * max(len(hidden), hidden.shape[1], 1)))
    centre = np.mean(anchors[:: max(1, len(anchors) // _SAMPLE)], axis=0, dtype=np.float64)
    states = torch.from_numpy(np.asarray(hidden, np.float64) - centre).to(device)
    best = torch.empty((len(hidden), 0), dtype=torch.float64, device=device)
    index = torch.empty((len(hidden), 0), dtype=torch.int64, device=device)
    for start in range(0, len(anchors), block):
        some = torch.from_numpy(np.asarray(anchors[start : start + block], np.float64) - centre)
        some = some.to(device)
        scores = torch.cat([best, some.square().sum(1) - 2 * states @ some.T], 1)
        numbers = torch.arange(start, start + len(some), device=device).expand(len(states), -1)
        best, order = scores.topk(min(kept, scores.shape[1]), largest=False)
        index = torch.cat([index, numbers], 1).gather(1, order)
    return _exact(hidden, anchors, index.cpu().numpy(), k)


def _exact(hidden: Floats, anchors: Floats, index: Ints, k: int) -> tuple[Exact, Ints]:
    distances = np.empty(index.shape, np.float64)
    step = max(1, _BATCH_BYTES // (24 * index.shape[1] * hidden.shape[1]))
    for start in range(0, len(index), step):
        near = _gather(anchors, index[start : start + step])
        gap = near - np.asarray(hidden[start : start + step], np.float64)[:, None]
        distances[start : start + step] = np.sqrt(np.einsum("nkh,nkh->nk", gap, gap))
    order = np.lexsort((index, distances), axis=1)[:, :k]
    return np.take_along_axis(distances, order, 1), np.take_along_axis(index, order, 1)


@dataclass(frozen=True)
class KNN:
    """`blend` of the `k` nearest anchors, searched for in blocks of `block` on `device`."""

    k: int = 5
    block: int | None = None
    device: str = "cpu"

    def fit(self, anchors_hidden: Floats, anchors_rows: Floats) -> Fitted:
        """Keep the anchors; nothing is computed."""
        return _Fitted(self, anchors_hidden, anchors_rows)


@dataclass(frozen=True)
class LocalLinear(KNN):
    """`regress` on the `k` nearest anchors."""


@dataclass(frozen=True)
class _Fitted:
    """The anchors themselves."""

    method: KNN
    states: Floats
    rows: Floats

    def derive(self, hidden: Floats) -> Rows:
        """Search the nearest anchors of each state and combine them."""
        method = self.method
        distances, index = nearest(hidden, self.states, method.k, method.block, method.device)
        if isinstance(method, LocalLinear):
            return regress(hidden, distances, self.states, self.rows, index)
        return blend(distances, self.rows, index)


def blend(distances: Floats, rows: Floats, index: Ints) -> Rows:
    """Means of the rows (anchors, d) at `index` (n, k), by inverse distances (n, k).

        row(h) = Σ w_i row_i / Σ w_i,   w_i = 1 / |h − h_i|

    Reference: section "Mitigation Methods" of the paper; weights as scikit-learn's
    `KNeighborsRegressor(weights="distance")` has them
    (https://scikit-learn.org/stable/modules/generated/sklearn.neighbors.KNeighborsRegressor.html):
    an anchor at distance 0 takes all the weight, several share it.
    """
    hit = distances == 0
    with np.errstate(divide="ignore"):
        weights = np.where(hit.any(axis=1, keepdims=True), hit, 1 / distances)
    weights = weights / weights.sum(axis=1, keepdims=True)
    means: Rows = np.empty((len(index), rows.shape[1]), np.float32)
    for start in range(0, len(index), _STEP):
        taken = slice(start, start + _STEP)
        means[taken] = np.einsum("nk,nkd->nd", weights[taken], _gather(rows, index[taken]))
    return means


def regress(
    hidden: Floats, distances: Floats, anchors_hidden: Floats, anchors_rows: Floats, index: Ints
) -> Rows:
    """Rows (n, d) by an affine map fitted to each state's own nearest anchors, `index` (n, k).

        w_i = exp(−|h − h_i|),   row(h) = ȳ + (h − x̄) Xᵀ(XXᵀ)⁺ Y,   X, Y centred, weighted by √w

    Reference: the paper's section "Mitigation Methods"; local regression, Cleveland & Devlin 1988
    (https://doi.org/10.1080/01621459.1988.10478639). k is far below the dimension, so the map of
    minimum norm is taken, by singular vectors of k × h matrices, many states in a batch. Changed:
    weights are exp(d_min − d): a common factor changes nothing, and exp(−d) would be 0 for every
    neighbour if hidden states are large.
    """
    rows = np.empty((len(hidden), anchors_rows.shape[1]), np.float32)
    width = anchors_hidden.shape[1] + anchors_rows.shape[1]
    step = max(1, _BATCH_BYTES // (8 * index.shape[1] * width))
    for start in range(0, len(hidden), step):
        taken = slice(start, start + step)
        rows[taken] = _regress_batch(
            np.asarray(hidden[taken], np.float64),
            distances[taken],
            _gather(anchors_hidden, index[taken]),
            _gather(anchors_rows, index[taken]),
        )
    return rows


def _gather(values: Floats, index: Ints) -> Floats:
    """The rows of `values` at `index` (n, k), in float64 (n, k, width)."""
    gathered: Floats = np.asarray(values[index.ravel()], np.float64).reshape(*index.shape, -1)
    return gathered


def _regress_batch(h: Floats, distances: Floats, x: Floats, y: Floats) -> Floats:
    weights = np.exp(distances.min(axis=1, keepdims=True) - distances)
    weights /= weights.sum(axis=1, keepdims=True)
    x_mean = np.einsum("nk,nkh->nh", weights, x)
    y_mean = np.einsum("nk,nkd->nd", weights, y)
    root = np.sqrt(weights)[..., None]
    u, s, vt = np.linalg.svd((x - x_mean[:, None]) * root, full_matrices=False)
    floor = np.finfo(np.float64).eps * max(x.shape[1:]) * s.max(axis=1, keepdims=True)
    inverse = np.divide(1.0, s, out=np.zeros_like(s), where=s > floor)
    along = np.einsum("nsh,nh->ns", vt, h - x_mean) * inverse
    pull = np.einsum("nks,ns->nk", u, along)[..., None] * root
    rows: Floats = y_mean + np.einsum("nkz,nkd->nd", pull, y - y_mean[:, None])
    return rows
