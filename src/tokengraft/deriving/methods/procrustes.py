"""Procrustes: a rotation, one scale and a shift from hidden states to rows.

    row(h) = ȳ + s (h − x̄) R,   R = U Vᵀ of the SVD of XᵀY,   s = tr(Σ) / |X|²

Reference: Schönemann 1966 (https://doi.org/10.1007/BF02289451). Changed: nothing; moments are
gathered in blocks as for `linear`. It cannot bend the space to the anchors, so it stays sane far
from them, where least squares does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokengraft.deriving.methods.linear import Affine, moments
from tokengraft.deriving.methods.protocol import Fitted, Floats


@dataclass(frozen=True)
class Procrustes:
    """`block` anchors at a time."""

    block: int = 8192

    def fit(self, anchors_hidden: Floats, anchors_rows: Floats) -> Fitted:
        """Solve for rotation and scale."""
        x_mean, y_mean, gram, cross = moments(anchors_hidden, anchors_rows, self.block)
        u, s, vt = np.linalg.svd(cross, full_matrices=False)
        return Affine(x_mean, y_mean, (s.sum() / np.trace(gram)) * (u @ vt))
