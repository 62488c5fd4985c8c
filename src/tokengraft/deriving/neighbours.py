"""Exact nearest neighbours among all anchors, in blocks of bounded memory.

    |h − a|² = |h|² − 2 (h·a − |a|²/2)

One matrix product a block (BLAS, or the GPU's) ranks a block of anchors for all states; only
entries better than the worst kept so far are looked at again. The expansion cancels where h ≈ a,
so a few candidates more than k are kept and their distances recomputed by subtraction in float64:
an exact hit is then exactly 0. Peak memory is two blocks, whatever the number of anchors.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tokengraft.deriving.protocol import Floats
from tokengraft.errors import UsageError

Ints: TypeAlias = npt.NDArray[np.int64]
_SPARE = 6  # candidates kept beyond k until distances are exact
_BLOCK_BYTES = 128 << 20
_CACHE_BYTES = 24 << 20  # scores of a block stay in the processor's cache


def nearest(
    hidden: Floats, anchors: Floats, k: int, block: int | None = None, device: str = "cpu"
) -> tuple[npt.NDArray[np.float64], Ints]:
    """Distances and indices (n, k) of the k anchors nearest to each state, nearest first.

    Ties go to the lower index. `anchors` may be a memory map: it is read once, block by block.
    `block` is the number of anchors looked at together; it does not change the result.
    """
    if not 1 <= k <= len(anchors):
        raise UsageError(f"k={k} neighbours were asked for among {len(anchors)} anchors")
    kept = min(len(anchors), k + _SPARE)
    if block is None:
        bytes_each = 4 * max(len(hidden), anchors.shape[1], 1)
        room = _CACHE_BYTES if device == "cpu" else _BLOCK_BYTES
        block = max(4 * kept, 256, room // bytes_each)
    if device != "cpu":
        return _nearest_torch(hidden, anchors, k, kept, block, device)
    return _exact(
        hidden, anchors, _candidates(np.asarray(hidden, np.float32), anchors, kept, block), k
    )


def _candidates(hidden: npt.NDArray[np.float32], anchors: Floats, kept: int, block: int) -> Ints:
    """Indices (n, kept) of the anchors with the greatest h·a − |a|²/2, in no order."""
    n = len(hidden)
    best = np.full((n, kept), -np.inf, np.float32)
    index = np.zeros((n, kept), np.int64)
    # One buffer for all blocks, small enough for the cache: fresh pages for each cost time.
    buffer = np.empty((n, min(block, len(anchors))), np.float32)
    for start in range(0, len(anchors), block):
        part = np.asarray(anchors[start : start + block], np.float32)  # (b, h)
        whole = len(part) == buffer.shape[1]
        scores = np.matmul(hidden, part.T, out=buffer if whole else None)  # (n, b)
        scores -= np.einsum("ij,ij->i", part, part) / 2
        if start == 0 and len(part) > kept:
            index = np.argpartition(scores, -kept, axis=1)[:, -kept:]
            best = np.take_along_axis(scores, index, axis=1)
        else:
            _improve(best, index, scores, start)
    return index


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


def _nearest_torch(
    hidden: Floats, anchors: Floats, k: int, kept: int, block: int, device: str
) -> tuple[npt.NDArray[np.float64], Ints]:
    """The same on a GPU; anchors are sent once and stay there where they fit."""
    from tokengraft.deriving.backbone import require_torch

    torch = require_torch()

    def send(values: Floats) -> Any:
        # A read-only map cannot be wrapped without a warning; copying one block is cheap.
        held = values if values.flags.writeable else np.array(values)
        return torch.from_numpy(np.ascontiguousarray(held)).to(device).float()

    free = torch.cuda.mem_get_info(device)[0] if "cuda" in device else 0
    whole = send(anchors) if anchors.size * 4 < free / 3 else None
    queries = send(np.asarray(hidden))
    best = torch.full((len(queries), kept), torch.inf, device=device)
    index = torch.zeros((len(queries), kept), dtype=torch.int64, device=device)
    for start in range(0, len(anchors), block):
        stop = start + block
        part = send(anchors[start:stop]) if whole is None else whole[start:stop]
        scores = torch.addmm((part * part).sum(1), queries, part.T, alpha=-2)
        values, places = scores.topk(min(kept, len(part)), dim=1, largest=False)
        values = torch.cat((best, values), 1)
        places = torch.cat((index, places + start), 1)
        best, order = values.topk(kept, dim=1, largest=False)
        index = places.gather(1, order)
    if whole is None:
        return _exact(hidden, anchors, index.cpu().numpy(), k)
    index = index.sort(dim=1).values  # so that equal distances leave the lower index first
    gaps = [
        (whole[index[n : n + 256]].double() - queries[n : n + 256, None].double()).norm(dim=2)
        for n in range(0, len(queries), 256)
    ]
    distances, order = torch.cat(gaps).sort(dim=1, stable=True)
    return distances[:, :k].cpu().numpy(), index.gather(1, order)[:, :k].cpu().numpy()


def _exact(
    hidden: Floats, anchors: Any, index: Ints, k: int
) -> tuple[npt.NDArray[np.float64], Ints]:
    distances = np.empty(index.shape, np.float64)
    step = max(1, _CACHE_BYTES // (24 * index.shape[1] * hidden.shape[1]))
    for start in range(0, len(index), step):
        rows = index[start : start + step]
        near = np.asarray(anchors[rows.ravel()], np.float64).reshape(*rows.shape, -1)
        gap = near - np.asarray(hidden[start : start + step], np.float64)[:, None]
        distances[start : start + step] = np.sqrt(np.einsum("nkh,nkh->nk", gap, gap))
    order = np.lexsort((index, distances), axis=1)[:, :k]
    return np.take_along_axis(distances, order, 1), np.take_along_axis(index, order, 1)
