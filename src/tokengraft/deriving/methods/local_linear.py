"""Local linear regression: an affine map fitted to each state's own k nearest anchors.

    w_i = exp(−|h − h_i|),   row(h) = ȳ + (h − x̄) Xᵀ(XXᵀ)⁺ Y,   X, Y centred and weighted by √w

Reference: the paper's section "Mitigation Methods"; local regression, Cleveland & Devlin 1988
(https://doi.org/10.1080/01621459.1988.10478639). k is far below the dimension, so the map of
minimum norm is taken, which the singular vectors of k × h matrices give, all states in batches.
Changed: weights are exp(d_min − d); a common factor changes nothing, and exp(−d) is 0 for every
neighbour where hidden states are large.
"""

from __future__ import annotations

import numpy as np

from tokengraft.deriving.methods.neighbours import ByNeighbours, Ints
from tokengraft.deriving.methods.protocol import Floats, Rows

_BATCH_BYTES = 64 << 20


class LocalLinear(ByNeighbours):
    """One small regression for each state."""

    def combine(
        self, hidden: Floats, distances: Floats, index: Ints, states: Floats, rows: Floats
    ) -> Rows:
        """See `regress`."""
        return regress(hidden, distances, states, rows, index)


def regress(
    hidden: Floats, distances: Floats, anchors_hidden: Floats, anchors_rows: Floats, index: Ints
) -> Rows:
    """Rows (n, d) from neighbours given by distances and indices (n, k)."""
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
