"""Affine maps from hidden states to rows: by least squares, or a rotation and one scale.

    row(h) = ȳ + (h − x̄) B
    linear, ridge   B = argmin Σ |ȳ + (h_i − x̄) B − row_i|²  (+ λ |B|²)
    procrustes      B = s U Vᵀ,   U Σ Vᵀ the SVD of XᵀY,   s = tr(Σ) / |X|²

References: ordinary least squares as in the paper's section "Mitigation Methods"; ridge, Hoerl &
Kennard 1970 (https://doi.org/10.1080/00401706.1970.10488634); Procrustes, Schönemann 1966
(https://doi.org/10.1007/BF02289451), which cannot bend the space to fit the anchors and so stays
sane far from them, where least squares does not. At layer 0 states are rows, least squares gives
the identity, and the result is the mean of the parts' rows. Changed: normal equations are summed
in float64 block by block, so a memory-mapped V_l is read once and never held in memory; if anchors
do not span the space, the solution of minimum norm is taken; λ is relative to the states' mean
variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import linalg

from tokengraft.deriving.methods import Floats, Rows
from tokengraft.paper.deriver import Fitted

Matrix = npt.NDArray[np.float64]
_BLOCK = 8192


@dataclass(frozen=True)
class Linear:
    """Affine least squares; `ridge` > 0 shrinks the map; reads `block` anchors at a time."""

    ridge: float = 0.0
    block: int = _BLOCK

    def fit(self, anchors_hidden: Floats, anchors_rows: Floats) -> Fitted:
        """Solve for the map."""
        x_mean, y_mean, gram, cross = moments(anchors_hidden, anchors_rows, self.block)
        return Affine(x_mean, y_mean, _solve(gram, cross, self.ridge, len(anchors_hidden)))


@dataclass(frozen=True)
class Procrustes:
    """Rotation and scale; reads `block` anchors at a time."""

    block: int = _BLOCK

    def fit(self, anchors_hidden: Floats, anchors_rows: Floats) -> Fitted:
        """Solve for rotation and scale."""
        x_mean, y_mean, gram, cross = moments(anchors_hidden, anchors_rows, self.block)
        u, s, vt = np.linalg.svd(cross, full_matrices=False)
        return Affine(x_mean, y_mean, (s.sum() / np.trace(gram)) * (u @ vt))


@dataclass(frozen=True)
class Affine:
    """ȳ + (h − x̄) B."""

    x_mean: Matrix
    y_mean: Matrix
    matrix: Matrix

    def derive(self, hidden: Floats) -> Rows:
        """Apply the map."""
        moved = np.asarray(hidden, np.float64) - self.x_mean
        rows: Rows = (self.y_mean + moved @ self.matrix).astype(np.float32)
        return rows


def moments(x: Floats, y: Floats, block: int = _BLOCK) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Means of x and y, and the centred XᵀX and XᵀY, in float64."""
    x_mean, y_mean = _mean(x, block), _mean(y, block)
    gram = np.zeros((x.shape[1], x.shape[1]))
    cross = np.zeros((x.shape[1], y.shape[1]))
    for start in range(0, len(x), block):
        xs = np.asarray(x[start : start + block], np.float64) - x_mean
        gram += xs.T @ xs
        cross += xs.T @ (np.asarray(y[start : start + block], np.float64) - y_mean)
    return x_mean, y_mean, gram, cross


def _mean(x: Floats, block: int) -> Matrix:
    total = np.zeros(x.shape[1])
    for start in range(0, len(x), block):
        total += np.asarray(x[start : start + block]).sum(axis=0, dtype=np.float64)
    return total / len(x)


def _solve(gram: Matrix, cross: Matrix, ridge: float, count: int) -> Matrix:
    values, vectors = linalg.eigh(gram)
    # The Gram matrix squares singular values: what is below this is rounding.
    floor = values[-1] * max(count, len(values)) * np.finfo(np.float64).eps
    keep = values > max(floor, 0.0)
    values, vectors = values[keep], vectors[:, keep]
    shrunk = values + ridge * values.sum() / len(gram)
    matrix: Matrix = vectors @ ((vectors.T @ cross) / shrunk[:, None])
    return matrix
