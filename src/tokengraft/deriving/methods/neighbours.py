"""Rows from the nearest anchors (`KNN`, `LocalLinear`), found by an exact search in blocks.

    |h − a|² = |h|² − 2 (h·a − |a|²/2)

One float32 product ranks a block of anchors for all states; only entries better than the worst kept
so far are looked at again. A mean of anchors is first subtracted from both sides: distances
stay as they are, and a product of small numbers loses less. A few candidates more than k are kept
and their distances recomputed by subtraction in float64, so an exact hit is exactly 0.

Whether an anchor that was not kept could still belong to the k nearest is then decided by a bound:
the product's rounding error is at most (dimensions + 8) 2⁻²⁴ (|h||a| + |a|²/2). A state for which
that leaves doubt (many anchors that are equal, or nearly so) is searched for once more, with an
exact distance for every anchor within the bound. Peak memory is a few blocks, whatever the number
of anchors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tokengraft.core.errors import UsageError
from tokengraft.deriving.methods import Fitted, Floats, Rows

Ints: TypeAlias = npt.NDArray[np.int64]
Exact: TypeAlias = npt.NDArray[np.float64]
_SPARE = 6  # candidates kept beyond k until distances are exact
_SAMPLE = 1024  # anchors whose mean is subtracted
_BLOCK_BYTES = 128 << 20
_CACHE_BYTES = 24 << 20  # of a block's scores, to stay in the processor's cache
_BATCH_BYTES = 64 << 20  # of a batch of small regressions
_STEP = 32  # states blended at a time: their rows stay in the processor's cache


def nearest(
    hidden: Floats, anchors: Floats, k: int, block: int | None = None, device: str = "cpu"
) -> tuple[Exact, Ints]:
    """Distances and indices (n, k) of the k anchors nearest to each state, nearest first.

    Ties go to the lower index. `anchors` may be a memory map: it is read block by block, and only
    once unless there is doubt about a state. `block` is the number of anchors looked at together;
    it does not change the result.
    """
    if not 1 <= k <= len(anchors):
        raise UsageError(f"k={k} neighbours were asked for among {len(anchors)} anchors")
    kept = min(len(anchors), k + _SPARE)
    if block is None:
        bytes_each = 4 * max(len(hidden), anchors.shape[1], 1)
        room = _CACHE_BYTES if device == "cpu" else _BLOCK_BYTES
        block = max(4 * kept, 256, room // bytes_each)
    sample = anchors[:: max(1, len(anchors) // _SAMPLE)]
    centre: Floats = np.asarray(np.mean(sample, axis=0, dtype=np.float64), np.float32)
    search = _search if device == "cpu" else _search_torch
    distances, index, worst, longest = search(hidden, anchors, centre, k, kept, block, device)
    if kept < len(anchors):
        bound = _Bound(_lengths(hidden, centre), longest, len(centre))
        doubtful = np.flatnonzero(~(worst < bound.least(distances[:, -1])))
        if len(doubtful):
            bound = replace(bound, lengths=bound.lengths[doubtful])
            near = distances[doubtful], index[doubtful]
            near = _search_again(hidden[doubtful], anchors, centre, bound, near)
            distances[doubtful], index[doubtful] = near
    return distances, index


@dataclass(frozen=True)
class _Bound:
    """How wrong a float32 score can be; lengths are of states and anchors minus the centre."""

    lengths: Exact  # of every state
    longest: float  # of all anchors
    dimensions: int

    def least(self, distances: Exact) -> Exact:
        """The least score that an anchor within this distance of its state can have got."""
        reach = np.minimum(self.lengths + distances, 1.01 * self.longest)  # of such an anchor
        slack = (self.dimensions + 8) * 2.0**-24 * (self.lengths * reach + reach**2 / 2)
        return (self.lengths**2 - distances**2) / 2 - slack


def _lengths(hidden: Floats, centre: Floats) -> Exact:
    """|h − centre| of every state, in float64."""
    step = max(1, _CACHE_BYTES // (8 * hidden.shape[1]))
    parts = [
        np.linalg.norm(np.asarray(hidden[n : n + step], np.float64) - centre, axis=1)
        for n in range(0, len(hidden), step)
    ]
    return np.concatenate([np.zeros(0), *parts])


def _search(
    hidden: Floats, anchors: Floats, centre: Floats, k: int, kept: int, block: int, _device: str
) -> tuple[Exact, Ints, Exact, float]:
    """The k nearest of the `kept` anchors with the best scores, and the worst of these scores.

    The last value is the greatest length of an anchor minus the centre.
    """
    index, worst, longest = _candidates(_centred(hidden, centre), anchors, centre, kept, block)
    return *_exact(hidden, anchors, index, k), worst.astype(np.float64), longest


def _centred(values: Floats, centre: Floats, out: Any = None) -> npt.NDArray[np.float32]:
    """`values` minus the centre, rounded to float32 only afterwards."""
    if out is None:
        out = np.empty(values.shape, np.float32)
    moved: npt.NDArray[np.float32] = np.subtract(values, centre, out=out, casting="same_kind")
    return moved


def _candidates(
    hidden: npt.NDArray[np.float32], anchors: Floats, centre: Floats, kept: int, block: int
) -> tuple[Ints, npt.NDArray[np.float32], float]:
    """Indices (n, kept) of the anchors with the greatest h·a − |a|²/2, unordered; least score."""
    longest = 0.0
    n = len(hidden)
    best = np.full((n, kept), -np.inf, np.float32)
    index = np.zeros((n, kept), np.int64)
    # One buffer for all blocks, small enough for the cache: fresh pages for each would cost time.
    buffer = np.empty((n, min(block, len(anchors))), np.float32)
    centred = np.empty((buffer.shape[1], anchors.shape[1]), np.float32)
    for start in range(0, len(anchors), block):
        given = anchors[start : start + block]
        part = _centred(given, centre, centred[: len(given)])  # (b, h)
        halves = np.einsum("ij,ij->i", part, part) / 2
        longest = max(longest, float(halves.max()))
        whole = len(part) == buffer.shape[1]
        scores = np.matmul(hidden, part.T, out=buffer if whole else None)  # (n, b)
        scores -= halves
        if start == 0 and len(part) > kept:
            index = np.argpartition(scores, -kept, axis=1)[:, -kept:]
            best = np.take_along_axis(scores, index, axis=1)
        else:
            _improve(best, index, scores, start)
    return index, best.min(axis=1), math.sqrt(2 * longest)


def _improve(
    best: npt.NDArray[np.float32], index: Ints, scores: npt.NDArray[np.float32], start: int
) -> None:
    """Put the block's scores that beat the worst kept ones into `best` and `index`."""
    kept = best.shape[1]
    rows, columns = np.nonzero(scores > best.min(axis=1)[:, None])
    changed = np.unique(rows)
    if not len(changed):
        return
    # Kept and new entries of the changed rows, sorted by row and then from best to worst.
    owner = np.concatenate((np.repeat(changed, kept), rows))
    value = np.concatenate((best[changed].ravel(), scores[rows, columns]))
    place = np.concatenate((index[changed].ravel(), columns + start))
    order = np.lexsort((-value, owner))
    begins = np.searchsorted(owner[order], changed)
    taken = order[begins[:, None] + np.arange(kept)]
    best[changed], index[changed] = value[taken], place[taken]


def _search_again(
    hidden: Floats, anchors: Floats, centre: Floats, bound: _Bound, known: tuple[Exact, Ints]
) -> tuple[Exact, Ints]:
    """The k nearest by exact distance, then index; `known` are the k nearest found so far."""
    distances, index = known
    queries = _centred(hidden, centre)
    block = max(1, _CACHE_BYTES // (4 * max(len(hidden), anchors.shape[1])))
    for start in range(0, len(anchors), block):
        part = _centred(anchors[start : start + block], centre)
        scores = queries @ part.T - np.einsum("ij,ij->i", part, part) / 2
        rows, columns = np.nonzero(scores >= bound.least(distances[:, -1])[:, None])
        begins = np.flatnonzero(np.diff(rows, prepend=-1))
        for first, last in pairwise([*begins.tolist(), len(rows)]):
            row, places = rows[first], columns[first:last] + start
            kept = index[row]
            others = places[~np.isin(places, kept)]
            if not len(others):
                continue
            far, near = _exact(hidden[row : row + 1], anchors, others[None], len(kept))
            both = np.concatenate((distances[row], far[0]))
            names = np.concatenate((kept, near[0]))
            order = np.lexsort((names, both))[: len(kept)]
            distances[row], index[row] = both[order], names[order]
    return distances, index


def _search_torch(
    hidden: Floats, anchors: Floats, centre: Floats, k: int, kept: int, block: int, device: str
) -> tuple[Exact, Ints, Exact, float]:
    """`_search` on a GPU; anchors are sent once and stay there if they fit."""
    from tokengraft.model.libraries import require_torch

    torch = require_torch()

    def send(values: Floats) -> Any:
        # A read-only map cannot be wrapped without a warning; copying one block is cheap.
        held = values if values.flags.writeable else np.array(values)
        return torch.from_numpy(np.ascontiguousarray(held)).to(device)

    free = torch.cuda.mem_get_info(device)[0] if "cuda" in device else 0
    whole = send(anchors) if anchors.nbytes < free / 3 else None
    states, middle = send(np.asarray(hidden)), send(centre)
    queries = (states - middle).float()
    best = torch.full((len(queries), kept), torch.inf, device=device)
    index = torch.zeros((len(queries), kept), dtype=torch.int64, device=device)
    longest = torch.zeros((), device=device)
    for start in range(0, len(anchors), block):
        stop = start + block
        part = send(anchors[start:stop]) if whole is None else whole[start:stop]
        part = (part - middle).float()
        squares = (part * part).sum(1)
        longest = torch.maximum(longest, squares.max())
        scores = torch.addmm(squares, queries, part.T, alpha=-2)
        values, places = scores.topk(min(kept, len(part)), dim=1, largest=False)
        values = torch.cat((best, values), 1)
        places = torch.cat((index, places + start), 1)
        best, order = values.topk(kept, dim=1, largest=False)
        index = places.gather(1, order)
    worst = best.max(dim=1).values.cpu().numpy().astype(np.float64) / -2
    length = math.sqrt(float(longest))
    if whole is None:
        return *_exact(hidden, anchors, index.cpu().numpy(), k), worst, length
    index = index.sort(dim=1).values  # so that equal distances leave the lower index first
    gaps = [
        (whole[index[n : n + 256]].double() - states[n : n + 256, None].double()).norm(dim=2)
        for n in range(0, len(queries), 256)
    ]
    distances, order = torch.cat(gaps).sort(dim=1, stable=True)
    distances, index = distances[:, :k], index.gather(1, order)[:, :k]
    return distances.cpu().numpy().copy(), index.cpu().numpy().copy(), worst, length


def _exact(hidden: Floats, anchors: Any, index: Ints, k: int) -> tuple[Exact, Ints]:
    distances = np.empty(index.shape, np.float64)
    step = max(1, _CACHE_BYTES // (24 * index.shape[1] * hidden.shape[1]))
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
