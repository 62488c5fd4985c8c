"""k nearest neighbours: the anchors' rows, weighted by inverse distance.

    row(h) = Σ w_i row_i / Σ w_i,   w_i = 1 / |h − h_i|,   i over the k nearest anchors

Reference: section "Mitigation Methods" of the paper; weights as scikit-learn's
`KNeighborsRegressor(weights="distance")` has them
(https://scikit-learn.org/stable/modules/generated/sklearn.neighbors.KNeighborsRegressor.html):
an anchor at distance 0 takes all the weight, several share it. Changed: blocks of anchors, so that
memory stays bounded.
"""

from __future__ import annotations

import numpy as np

from tokengraft.deriving.methods.neighbours import ByNeighbours, Ints
from tokengraft.deriving.methods.protocol import Floats, Rows

_STEP = 32  # states blended at a time: their rows stay in the processor's cache


class KNN(ByNeighbours):
    """Weighted mean of the nearest anchors' rows."""

    def combine(
        self, hidden: Floats, distances: Floats, index: Ints, states: Floats, rows: Floats
    ) -> Rows:
        """See `blend`."""
        return blend(distances, rows, index)


def blend(distances: Floats, rows: Floats, index: Ints) -> Rows:
    """Means of the rows (anchors, d) at `index` (n, k), by inverse distances (n, k)."""
    hit = distances == 0
    with np.errstate(divide="ignore"):
        weights = np.where(hit.any(axis=1, keepdims=True), hit, 1 / distances)
    weights = weights / weights.sum(axis=1, keepdims=True)
    means: Rows = np.empty((len(index), rows.shape[1]), np.float32)
    for start in range(0, len(index), _STEP):
        taken = slice(start, start + _STEP)
        near = np.asarray(rows[index[taken].ravel()], np.float64)
        shaped = near.reshape(*index[taken].shape, -1)
        means[taken] = np.einsum("nk,nkd->nd", weights[taken], shaped)
    return means
