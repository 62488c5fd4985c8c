"""What methods share that derive a row from the anchors nearest to its state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tokengraft.deriving.methods.neighbours import Ints, nearest
from tokengraft.deriving.methods.protocol import Fitted, Floats, Rows


@dataclass(frozen=True)
class ByNeighbours(ABC):
    """`k` neighbours; `block` anchors at a time; `device` cpu or a GPU, for the search."""

    k: int = 5
    block: int | None = None
    device: str = "cpu"

    def fit(self, anchors_hidden: Floats, anchors_rows: Floats) -> Fitted:
        """Keep the anchors; nothing is computed."""
        return _Fitted(self, anchors_hidden, anchors_rows)

    @abstractmethod
    def combine(
        self, hidden: Floats, distances: Floats, index: Ints, states: Floats, rows: Floats
    ) -> Rows:
        """Rows from each state's nearest anchors (n, k), given all anchors' states and rows."""


@dataclass(frozen=True)
class _Fitted:
    """The anchors themselves."""

    method: ByNeighbours
    states: Floats
    rows: Floats

    def derive(self, hidden: Floats) -> Rows:
        """Search the nearest anchors of each state and combine them."""
        method = self.method
        distances, index = nearest(hidden, self.states, method.k, method.block, method.device)
        return method.combine(hidden, distances, index, self.states, self.rows)
