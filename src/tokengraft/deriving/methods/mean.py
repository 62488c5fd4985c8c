"""Means of the parts' rows, plain or weighted.

    row = Σ w_i row(part_i) / Σ w_i
    mean: w_i = 1    bytes: w_i = bytes of part i    late: w_i = 1.2^i   last: the last part alone
    calibrated: row ← row · target / |row|,   target = mean |row| of the anchors

References: the plain mean is the paper's best ("LinReg layer 0") and the customary start for new
tokens (Hewitt 2021, https://nlp.stanford.edu/~johnhew/vocab-expansion.html). `late` follows the
observation that in a causal model the last part is where the whole token is first known.
A mean of unrelated rows is shorter than any of them; calibrated, it is as long as the model's rows
usually are (also Hewitt). On rootstock that makes KL worse (Shan 0.69 → 1.16): to the model a short
row means uncertainty, rightly so here. Hence it is not the default. Changed: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokengraft.core.errors import UsageError
from tokengraft.deriving.methods import Deriver, Fitted, Floats, Rows

# Chosen on FLORES dev, between 1.15 (beats the mean in all twelve languages; mean KL 1.609) and 1.3
# (in all but Shan; 1.561). At 1, the mean itself: 1.757 (results/fidelity-rootstock/mean-late.md).
_LATE = 1.2
POOLS = ("mean", "late", "first", "last", "bytes")


@dataclass(frozen=True)
class Mean:
    """The identity: at layer 0 the pooled state is already the mean of the rows."""

    def fit(self, anchors_hidden: Floats, anchors_rows: Floats) -> Fitted:
        """Nothing to learn."""
        return self

    def derive(self, hidden: Floats) -> Rows:
        """The states themselves."""
        return np.array(hidden, np.float32)


@dataclass(frozen=True)
class Calibrated:
    """Another method with its rows rescaled; a zero row stays zero."""

    inner: Deriver

    def fit(self, anchors_hidden: Floats, anchors_rows: Floats) -> Fitted:
        """Fit the inner method and measure the anchors' norms."""
        target = float(np.linalg.norm(np.asarray(anchors_rows, np.float32), axis=1).mean())
        return _FittedCalibrated(self.inner.fit(anchors_hidden, anchors_rows), target)


@dataclass(frozen=True)
class _FittedCalibrated:
    inner: Fitted
    target: float

    def derive(self, hidden: Floats) -> Rows:
        rows = self.inner.derive(hidden)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        factor = np.divide(self.target, norms, out=np.ones_like(norms), where=norms > 0)
        rescaled: Rows = (rows * factor).astype(np.float32)
        return rescaled


def weights(parts: Sequence[int], pool: str, lengths: Sequence[int] | None = None) -> Floats:
    """Weights of a token's parts, summing to 1; `lengths` are those of all old tokens in bytes."""
    n = len(parts)
    raw: Floats
    if pool == "mean":
        raw = np.ones(n)
    elif pool == "late":
        raw = _LATE ** np.arange(1 - n, 1)
    elif pool in ("first", "last"):
        raw = np.zeros(n)
        raw[0 if pool == "first" else -1] = 1
    elif pool == "bytes" and lengths is not None:
        raw = np.array([max(1, lengths[part]) for part in parts], float)
    elif pool == "bytes":
        raise UsageError("pool 'bytes' needs the byte lengths of the old tokens")
    else:
        raise UsageError(f"unknown pool {pool!r}; known: {', '.join(POOLS)}")
    normal: Floats = raw / raw.sum()
    return normal
