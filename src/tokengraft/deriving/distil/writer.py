"""What training needs for writing: the new tokens' first parts, and text where none may appear.

The body is frozen and such text has no new token, so its states are the base's and are read once:
the probability that new tokens take away there depends on their output rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tokengraft.core.files import sha256
from tokengraft.deriving.distil.passages import following
from tokengraft.deriving.methods import Rows
from tokengraft.model.head_losses import Added, stray
from tokengraft.model.reading import Reader, batches
from tokengraft.tokenizer.align import Alignment, Ints

_MOST = 60_000  # tokens of protected text
_HELD_OUT = 10  # one protected passage in this many judges


class Writer:
    """The output end of the new tokens, whose old ids are `parts`.

    `protected` are passages (old ids) in which no new token belongs; `prepare` reads them. Training
    begins with the rows `start`, or else with the means of the parts' rows.
    """

    def __init__(
        self,
        reader: Reader,
        parts: Sequence[Sequence[int]],
        protected: Sequence[Ints] = (),
        shared: bool = False,
        start: Rows | None = None,
    ) -> None:
        self.reader, self.shared, self.protected = reader, shared, protected
        head, device = reader.head, reader.model.device
        self.first = torch.tensor([int(one[0]) for one in parts], device=device)
        groups = [list(map(int, one)) for one in parts]
        means = (head.weight[group].float().mean(0).cpu().numpy() for group in groups)
        self.start: Rows = np.stack(list(means)) if start is None else start
        self.unit = float(head.weight.float().square().mean().sqrt())
        self.bias = None
        if head.bias is not None:
            self.bias = torch.stack([head.bias[group].mean() for group in groups])
        self._quiet = self._judged = self._read([])

    def prepare(self, most: float) -> None:
        """Read protected passages of at most `most` tokens in all; one in ten only judges."""
        sizes = np.cumsum([len(one) for one in self.protected])
        count = int(np.searchsorted(sizes, min(most, _MOST), side="right"))
        chosen = self.protected[: max(_HELD_OUT, count)]
        lots = (
            [one for n, one in enumerate(chosen) if n % _HELD_OUT],
            [one for n, one in enumerate(chosen) if not n % _HELD_OUT],
        )
        self._quiet, self._judged = (self._read(lot) for lot in lots)

    def facts(self) -> dict[str, object]:
        """What a checkpoint's key depends on."""
        ids = b"".join(one.astype(np.int64).tobytes() for one in self.protected)
        begun = np.ascontiguousarray(self.start, np.float32).tobytes()
        return {"protected": sha256(ids), "shared": self.shared, "start": sha256(begun)}

    def added(self, rows: torch.Tensor, device: torch.device | None = None) -> Added:
        """These rows as the new part of the head, on `device`."""
        where = device or rows.device
        bias = None if self.bias is None else self.bias.to(where)
        return Added(rows if rows.device == where else rows.to(where), self.first.to(where), bias)

    def next_ids(
        self, passages: Sequence[Alignment], device: torch.device | None = None
    ) -> torch.Tensor:
        """`following` of the passages, with new tokens numbered after the head's present rows."""
        ids = np.concatenate([following(one) for one in passages])
        gap = self.reader.first_new - len(self.reader.head.weight)
        ids = np.where(ids >= self.reader.first_new, ids - gap, ids)
        return torch.from_numpy(ids).to(device or self.reader.model.device)

    def stray_gradient(self, head: torch.Tensor, count: int, seed: Sequence[int]) -> torch.Tensor:
        """Gradient for output rows of the mean stray loss at `count` positions drawn by `seed`."""
        states, base = self._quiet
        if not len(states):
            return torch.zeros_like(head)
        drawn = np.random.default_rng(seed).integers(0, len(states), min(count, len(states)))
        chosen = torch.from_numpy(drawn).to(states.device)
        _, pull = stray(
            states[chosen].float(), base[chosen], self.reader.head, self.added(head.detach())
        )
        return pull / len(chosen)

    def strays(self, head: torch.Tensor) -> float:
        """Mean stray loss in the protected passages that judge."""
        states, base = self._judged
        if not len(states):
            return 0.0
        losses, _ = stray(states.float(), base, self.reader.head, self.added(head.detach()))
        return float(losses.mean())

    @torch.no_grad()
    def _read(self, passages: Sequence[Ints]) -> tuple[torch.Tensor, torch.Tensor]:
        """States at every position (special tokens in front included), log Σ exp of old logits."""
        reader = self.reader
        whole = [Alignment(ids, ids, np.arange(len(ids)), np.arange(len(ids))) for ids in passages]
        sizes = np.fromiter((len(one.old) for one in whole), np.int64, len(whole))
        empty = torch.zeros(0, reader.model.dimensions, device=reader.model.device)
        states, sums = [empty], [empty[:, 0]]
        for numbers in batches(sizes):
            read = reader.old([whole[n] for n in numbers]).float()
            states.append(read)
            blocks = [read[n : n + 1024] for n in range(0, len(read), 1024)]
            sums += [reader.head.logits(block).logsumexp(-1) for block in blocks]
        return torch.cat(states), torch.cat(sums)
