"""A frozen model reading text under either tokenization, in batches of similar length.

`read` goes through many lines and keeps states at wanted positions, for measuring; `Reader` reads
batches of aligned passages, for training: its new reading is differentiable in the new rows.

Rounding depends on the shape of a batch. Sequences that two readings have in common are therefore
batched apart from the others, in the same batches on both sides: a text that a graft does not touch
then gets bitwise identical states, and every figure for it is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokengraft.core.errors import ModelError
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.libraries import require_torch
from tokengraft.tokenizer.align import Alignment, Floats, Ints

if TYPE_CHECKING:
    import torch

OnRead: TypeAlias = Callable[[int], None]  # sequences read since the last call
BATCH_TOKENS = 8192


@dataclass(frozen=True)
class LineStates:
    """The states of some lines.

    `states` are float32 at the wanted positions, line after line, `counts[i]` of them for line i;
    `pooled` is the mean over every position, special tokens included (the paper's vector).
    """

    states: torch.Tensor  # (positions, dimensions)
    counts: Ints  # (lines,)
    pooled: Floats  # (lines, dimensions)

    def means(self) -> Floats:
        """The mean over wanted positions only (lines, dimensions); NaN for a line without any."""
        torch = require_torch()
        every: Floats = np.full(self.pooled.shape, np.nan)
        some = self.counts > 0
        if some.any():
            # One call for all lines: with one per line we would wait for a shared GPU each time.
            sizes = torch.from_numpy(self.counts[some]).to(self.states.device)
            means = torch.segment_reduce(self.states.double(), "mean", lengths=sizes, axis=0)
            every[some] = means.cpu().numpy()
        return every


def batches(
    sizes: Ints, tokens: int = BATCH_TOKENS, apart: Sequence[bool] | None = None
) -> list[Ints]:
    """Batches of sequence indices, longest first: at most `tokens` or a single sequence each.

    Those marked `apart` come first, in batches of their own.
    """
    kept = np.zeros(len(sizes), bool) if apart is None else np.asarray(apart, bool)
    made: list[Ints] = []
    for group in (np.flatnonzero(kept), np.flatnonzero(~kept)):
        order = group[np.argsort(-sizes[group], kind="stable")]
        start = 0
        while start < len(order):
            width = max(1, tokens // max(1, int(sizes[order[start]])))
            made.append(order[start : start + width])
            start += width
    return made


def fill(
    model: FrozenModel,
    sequences: Sequence[Ints],
    prefix: Sequence[int] = (),
    suffix: Sequence[int] = (),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of a batch: special tokens around each sequence, padding on the right."""
    torch = require_torch()
    start, more = len(prefix), len(prefix) + len(suffix)
    ids = np.full((len(sequences), more + max(map(len, sequences))), model.pad, np.int64)
    mask = np.zeros(ids.shape, np.int64)
    ids[:, :start] = prefix
    for row, seen, one in zip(ids, mask, sequences, strict=True):
        row[start : start + len(one)] = one
        row[start + len(one) : more + len(one)] = suffix
        seen[: more + len(one)] = 1
    return torch.from_numpy(ids).to(model.device), torch.from_numpy(mask).to(model.device)


def read(
    model: FrozenModel,
    sequences: Sequence[Ints],
    at: Sequence[Ints],
    *,
    same: Sequence[bool] | None = None,
    new: NewRows | None = None,
    tokens: int = BATCH_TOKENS,
    progress: OnRead | None = None,
) -> LineStates:
    """Read `sequences` (without special tokens) and keep the states at the positions `at` of each.

    `same` marks those that the other reading has too, which are batched apart. ModelError if a
    state is not a number: figures would leave out the lines that a damaged model cannot read.
    """
    torch = require_torch()
    counts = _sizes(at)
    starts = np.cumsum(counts) - counts
    states: Any = None
    pooled = np.zeros((len(sequences), model.weight.shape[1]))
    with torch.inference_mode():
        for numbers in batches(_sizes(sequences), tokens, same):
            ids, mask = fill(model, [sequences[n] for n in numbers], model.prefix, model.suffix)
            batch = model.states(ids, mask, new)
            if states is None:
                shape = (int(counts.sum()), batch.shape[-1])
                states = torch.empty(shape, dtype=torch.float32, device=batch.device)
                pooled = np.zeros((len(sequences), batch.shape[-1]))
            weight = mask[..., None].double()
            mean = (batch.double() * weight).sum(1) / weight.sum(1)
            pooled[numbers] = mean.cpu().numpy()
            places = np.concatenate(
                [np.arange(starts[n], starts[n] + counts[n]) for n in numbers]
            ).astype(np.int64)
            wanted = _index([at[n] for n in numbers], len(model.prefix), batch.device)
            states[torch.from_numpy(places).to(batch.device)] = batch[wanted].float()
            if progress is not None:
                progress(len(numbers))
    if broken := int((~np.isfinite(pooled).all(1)).sum()):
        raise ModelError(
            f"{model.name or 'the model'}: nan or infinite states in {broken:,} of "
            f"{len(sequences):,} lines. Either its weights are damaged (`tokengraft verify` finds "
            "such rows of a graft), or its numbers exceed the type it is read in (--dtype float32)."
        )
    if states is None:
        states = torch.empty((0, pooled.shape[1]), device=model.device)
    return LineStates(states, counts, pooled)


class Reader:
    """Old and new readings of aligned passages: states at their common positions only.

    `first_new` is the id of the first new token; ids below it are the old vocabulary, over which
    distributions are compared. `prefix` are the special tokens every text begins with (BOS).
    """

    def __init__(self, model: FrozenModel, first_new: int, prefix: Sequence[int] = ()) -> None:
        self.model, self.first_new, self.prefix = model, first_new, tuple(prefix)
        self.head = model.head(first_new)
        #: This reader and those of the model's copies on other devices.
        self.team: tuple[Reader, ...] = (
            self,
            *(Reader(copy, first_new, prefix) for copy in model.team[1:]),
        )

    def old(self, passages: Sequence[Alignment]) -> torch.Tensor:
        """States of the old tokenization (common positions, dimensions), in the model's type."""
        with require_torch().no_grad():
            states = self.model.states(self.pad_old(passages))
        return states[self.positions([one.old_at for one in passages])]

    def new(self, passages: Sequence[Alignment], rows: torch.Tensor) -> torch.Tensor:
        """States of the new tokenization, differentiable in `rows` (new tokens, dimensions)."""
        ids, _ = fill(self.model, [one.new for one in passages], self.prefix)
        states = self.model.states(ids, new=NewRows(self.first_new, rows))
        return states[self.positions([one.new_at for one in passages])]

    def pad_old(self, passages: Sequence[Alignment]) -> torch.Tensor:
        """Old ids (passages, length), padded on the right."""
        return fill(self.model, [one.old for one in passages], self.prefix)[0]

    def positions(self, at: Sequence[Ints]) -> tuple[torch.Tensor, torch.Tensor]:
        """An index that picks the positions `at` from a batch (passages, length)."""
        return _index(at, len(self.prefix), self.model.device)


def _index(
    at: Sequence[Ints], start: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    torch = require_torch()
    rows = np.repeat(np.arange(len(at)), _sizes(at))
    columns = np.concatenate(at).astype(np.int64) + start
    return torch.from_numpy(rows).to(device), torch.from_numpy(columns).to(device)


def _sizes(sequences: Sequence[Ints]) -> Ints:
    return np.fromiter(map(len, sequences), np.int64, len(sequences))
