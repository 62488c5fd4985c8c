"""A bridge: what all new rows have in common, learned once for all of them.

    row_s = start_s + φ(s) Θ + δ_s

φ(s): mean, first and last row of the parts of s, and the state at its last part half way up, each
scaled to size 1. Θ is shared by all tokens, δ_s belongs to the token alone. A step that sees one
token then also helps every token like it, so rare tokens, even ones that are not in the text,
learn from the frequent ones.

Reference: predicting rows from parts by one learned function, Minixhofer et al. 2024, Zero-Shot
Tokenizer Transfer (https://arxiv.org/abs/2405.07883). Changed: the function is one matrix on fixed
features, trained together with the rows by the same loss, and folded into them at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tokengraft.deriving.distil.student import Weights
from tokengraft.deriving.methods import Rows
from tokengraft.deriving.states import part_states
from tokengraft.model.frozen import FrozenModel


class RowAdam:
    """Adam over (n, d) rows that leaves a row alone in steps that do not see it.

        m ← β₁m + (1−β₁)g,  v ← β₂v + (1−β₂)g²,  row ← row − lr · m̂ / (√v̂ + ε)     for rows seen

    Reference: Kingma & Ba 2015 (https://arxiv.org/abs/1412.6980). Changed: moments and bias
    correction count only steps that see the row. Plain Adam keeps moving a row by old momentum
    after its last use, and most new tokens are in few steps (of 2,000 for Shan, half occur at most
    27 times in 1.5 MB).
    """

    def __init__(self, rows: torch.Tensor, betas: tuple[float, float] = (0.9, 0.98)) -> None:
        self.betas = betas
        self.mean = torch.zeros_like(rows)
        self.square = torch.zeros_like(rows)
        self.count = torch.zeros(len(rows), device=rows.device)

    @torch.no_grad()
    def step(self, rows: torch.Tensor, grad: torch.Tensor, seen: torch.Tensor, lr: float) -> None:
        """Move `rows[seen]` by their gradients `grad[seen]`, in place."""
        first, second = self.betas
        slope = grad[seen]
        self.count[seen] += 1
        count = self.count[seen, None]
        mean = torch.lerp(slope, self.mean[seen], first)
        square = torch.lerp(slope * slope, self.square[seen], second)
        self.mean[seen], self.square[seen] = mean, square
        mean = mean / (1 - first**count)
        square = square / (1 - second**count)
        rows[seen] -= lr * mean / (square.sqrt() + 1e-12)

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint has to hold."""
        return {"mean": self.mean, "square": self.square, "count": self.count}


def features(model: FrozenModel, parts: Sequence[Sequence[int]], table: Rows | None = None) -> Rows:
    """φ: (new tokens, 4 · dimensions), each quarter of root mean square 1.

    From the input rows, or from another `table` over the old vocabulary (the head).
    """
    middle = max(1, model.layers // 2)
    if table is None:
        blocks = [part_states(model, parts, [0], pool)[0] for pool in ("mean", "first", "last")]
    else:
        blocks = [np.stack([table[list(one)].mean(0) for one in parts])]
        blocks += [table[[one[end] for one in parts]] for end in (0, -1)]
    blocks.append(part_states(model, parts, [middle], "last")[middle])
    scaled = [block / np.sqrt(np.mean(np.square(block, dtype=np.float64))) for block in blocks]
    stacked: Rows = np.concatenate(scaled, axis=1).astype(np.float32)
    return stacked


class Composed:
    """Rows as start + φΘ + δ, with their optimiser; without features, start + δ.

    Θ has `width` dimensions. What rows have beyond, lanes, is start + δ: with lanes in Θ, which
    moves all of them together, Qwen2.5-Coder-1.5B diverged (KL 8 after four steps).
    """

    def __init__(
        self, start: torch.Tensor, phi: torch.Tensor | None, share: float, width: int,
        betas: tuple[float, float] = (0.9, 0.98),
    ) -> None:  # fmt: skip
        self.start, self.phi, self.share = start, phi, share
        self.own = torch.zeros_like(start)
        self.own_adam = RowAdam(self.own, betas)
        self.map = start.new_zeros((0 if phi is None else phi.shape[1], width))
        self.map_adam = RowAdam(self.map)

    def rows(self) -> torch.Tensor:
        """The present rows (new tokens, dimensions)."""
        rows = self.start + self.own
        if self.phi is not None:
            rows[:, : self.map.shape[1]].addmm_(self.phi, self.map)
        return rows

    def step(self, grad: torch.Tensor, seen: torch.Tensor, rate: float) -> None:
        """Move by the gradient at the rows; `seen` are the tokens in this step."""
        self.own_adam.step(self.own, grad, seen, rate)
        if self.phi is not None:
            every = torch.arange(len(self.map), device=self.map.device)
            # A row moves |φ| ~ √width times as far as an entry of Θ.
            shared_rate = rate * self.share / len(self.map) ** 0.5
            slope = self.phi[seen].T @ grad[seen, : self.map.shape[1]]
            self.map_adam.step(self.map, slope, every, shared_rate)

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint has to hold."""
        named = {"own": self.own, "map": self.map}
        for name, adam in (("own", self.own_adam), ("map", self.map_adam)):
            named |= {f"{name}.{key}": value for key, value in adam.tensors().items()}
        return named

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take back what `tensors` gave."""
        self.own, self.map = tensors["own"], tensors["map"]
        for name, adam in (("own", self.own_adam), ("map", self.map_adam)):
            adam.mean, adam.square, adam.count = (
                tensors[f"{name}.{key}"] for key in ("mean", "square", "count")
            )


class Ends:
    """Both ends of the new tokens: input rows, and output rows if they are trained too.

    `weights` of the body in between may learn as well. Output rows move in every step, since every
    new token has a score at every position. The first `shared` dimensions of input rows, if there
    are any, are output rows too, and move by the sum of both gradients.
    """

    def __init__(
        self,
        rows: Composed,
        head: Composed | None = None,
        shared: int = 0,
        weights: Weights | None = None,
    ) -> None:
        self.composed, self.head_composed, self.shared = rows, head, shared
        self.weights = weights

    def rows(self) -> torch.Tensor:
        """The present input rows."""
        return self.composed.rows()

    def head(self) -> torch.Tensor | None:
        """The present output rows; None if none are trained."""
        if self.shared:
            return self.composed.rows()[:, : self.shared]
        return None if self.head_composed is None else self.head_composed.rows()

    def step(
        self, grads: tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]],
        seen: torch.Tensor, rate: float, head_rate: float, body_rate: float = 0.0,
    ) -> None:  # fmt: skip
        """Move by the gradients of both tables and the body; `seen` are the tokens read."""
        grad, other, slopes = grads
        if self.weights is not None:
            self.weights.step(slopes, body_rate)
        if other is not None:
            every = torch.arange(len(grad), device=grad.device)
            if self.shared:
                grad[:, : self.shared] += other
                seen = every
            elif self.head_composed is not None:
                self.head_composed.step(other, every, head_rate)
        self.composed.step(grad, seen, rate)

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint has to hold."""
        held = {} if self.head_composed is None else self.head_composed.tensors()
        named = self.composed.tensors() | {f"head.{name}": one for name, one in held.items()}
        return named if self.weights is None else named | self.weights.tensors()

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take back what `tensors` gave."""
        self.composed.restore(tensors)
        if self.weights is not None:
            self.weights.restore(tensors)
        if self.head_composed is not None:
            start = "head."
            held = {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
            self.head_composed.restore(held)
