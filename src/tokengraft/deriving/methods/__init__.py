"""The one protocol of every array method: fit on anchors, derive rows for new hidden states.

An anchor is an existing token: its hidden state at some layer and its true input row. Parameters
(`Deriver`) and what was learned (`Fitted`) are separate objects; neither changes its inputs.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating]
Rows: TypeAlias = npt.NDArray[np.float32]


class Fitted(Protocol):
    """What a method learned from the anchors."""

    def derive(self, hidden: Floats) -> Rows:
        """Rows (n, d) for hidden states (n, h)."""
        ...


class Deriver(Protocol):
    """A method with its parameters."""

    def fit(self, anchors_hidden: Floats, anchors_rows: Floats) -> Fitted:
        """Learn from anchors: hidden states (m, h) and their rows (m, d)."""
        ...
