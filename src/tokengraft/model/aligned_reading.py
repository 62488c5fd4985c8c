"""The frozen model reading passages under either tokenization, aligned positions out.

Passages of like length are filled up at the right and read as one batch; what is returned are the
last hidden states (after the final norm) at aligned positions only, passage after passage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from tokengraft.model.backbone import Backbone
from tokengraft.model.head import Head
from tokengraft.tokenizer.align import Alignment, Ints


class Reader:
    """Old and new readings of passages by one model.

    `first_new` is the id of the first new token; ids below it are the old vocabulary, over which
    distributions are compared. `prefix` are the special tokens every text begins with (BOS).
    """

    def __init__(self, backbone: Backbone, first_new: int, prefix: Sequence[int] = ()) -> None:
        self.backbone = backbone
        self.first_new = first_new
        self.prefix = np.asarray(prefix, np.int64)
        #: This reader and those of the model's copies on other devices.
        self.team: tuple[Reader, ...] = (
            self,
            *(Reader(other, first_new, prefix) for other in backbone.team[1:]),
        )
        self.head = Head.of(backbone.model, first_new)

    @torch.no_grad()
    def old(self, passages: Sequence[Alignment]) -> torch.Tensor:
        """States of the old tokenization (aligned positions, dimensions), in the model's type."""
        states = self.backbone.run(ids=self.pad_old(passages))
        return states[self.positions([one.old_at for one in passages])]

    def new(self, passages: Sequence[Alignment], rows: torch.Tensor) -> torch.Tensor:
        """States of the new tokenization, differentiable in `rows` (new tokens, dimensions)."""
        ids = self._pad([one.new for one in passages])
        is_new = ids >= self.first_new
        known = self.backbone.weight[ids.masked_fill(is_new, 0)]
        added = rows[(ids - self.first_new).clamp_(min=0)].to(known.dtype)
        states = self.backbone.run(rows=torch.where(is_new[..., None], added, known))
        return states[self.positions([one.new_at for one in passages])]

    def pad_old(self, passages: Sequence[Alignment]) -> torch.Tensor:
        """Old ids (passages, length), filled at the right."""
        return self._pad([one.old for one in passages])

    def _pad(self, sequences: Sequence[Ints]) -> torch.Tensor:
        start = len(self.prefix)
        longest = max(len(one) for one in sequences)
        ids = np.zeros((len(sequences), start + longest), np.int64)
        ids[:, :start] = self.prefix
        for row, one in zip(ids, sequences, strict=True):
            row[start : start + len(one)] = one
        return torch.from_numpy(ids).to(self.backbone.device)

    def positions(self, at: Sequence[Ints]) -> tuple[torch.Tensor, torch.Tensor]:
        """Index of aligned positions into a batch (passages, length)."""
        counts = [len(one) for one in at]
        rows = np.repeat(np.arange(len(at)), counts)
        columns = np.concatenate(at) + len(self.prefix)
        device = self.backbone.device
        return torch.from_numpy(rows).to(device), torch.from_numpy(columns).to(device)


def by_tokens(sizes: Ints, most: int) -> Iterator[Ints]:
    """Passages from long to short in batches of at most `most` tokens, filling included."""
    order = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(order):
        width = max(1, most // max(1, int(sizes[order[start]])))
        yield order[start : start + width]
        start += width
