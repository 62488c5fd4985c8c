"""A model reading many sequences: states at wanted positions, and the mean of all of them.

Batched sums round differently in batches of another shape. Sequences that two readings have in
common are therefore batched apart from the others, in the same batches on both sides: a text that
a graft does not touch then gets bitwise the same states, and every figure for it is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokengraft.evaluating.score import Floats
from tokengraft.model.libraries import require_torch
from tokengraft.model.subject import Subject, with_specials
from tokengraft.tokenizer.align import Ints

if TYPE_CHECKING:
    import torch

Progress: TypeAlias = Callable[[int], None]  # sequences read since the last call
BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Reading:
    """What a model made of some lines.

    `states` are float32 at the wanted positions, line after line, `counts` of them in each;
    `pooled` is the mean over every position, special tokens included (the paper's vector).
    """

    states: torch.Tensor  # (positions, dimensions)
    counts: Ints  # (lines,)
    pooled: Floats  # (lines, dimensions)

    def means(self) -> Floats:
        """The mean over wanted positions only (lines, dimensions); NaN for a line without any."""
        torch = require_torch()
        found: Floats = np.full(self.pooled.shape, np.nan)
        some = self.counts > 0
        if some.any():
            # One call for all lines: a GPU that others use too would be waited for at each.
            sizes = torch.from_numpy(self.counts[some]).to(self.states.device)
            means = torch.segment_reduce(self.states.double(), "mean", lengths=sizes, axis=0)
            found[some] = means.cpu().numpy()
        return found


@dataclass(frozen=True)
class NewRows:
    """Input rows for ids from `first` on, in place of what the model's table holds there."""

    first: int
    rows: torch.Tensor  # (new tokens, dimensions), unscaled


def batches(
    sequences: Sequence[Ints], same: Sequence[bool] | None = None, tokens: int = BATCH_TOKENS
) -> list[Ints]:
    """Numbers of sequences in batches of like length and at most `tokens` tokens, longest first.

    Those marked `same` come in batches of their own.
    """
    sizes = np.fromiter((len(one) for one in sequences), np.int64, len(sequences))
    kept = np.zeros(len(sequences), bool) if same is None else np.asarray(same, bool)
    found: list[Ints] = []
    for group in (np.flatnonzero(kept), np.flatnonzero(~kept)):
        order = group[np.argsort(-sizes[group], kind="stable")]
        start = 0
        while start < len(order):
            width = max(1, tokens // max(1, int(sizes[order[start]])))
            found.append(order[start : start + width])
            start += width
    return found


def read(
    subject: Subject,
    sequences: Sequence[Ints],
    at: Sequence[Ints],
    *,
    same: Sequence[bool] | None = None,
    new: NewRows | None = None,
    tokens: int = BATCH_TOKENS,
    progress: Progress | None = None,
) -> Reading:
    """Read `sequences` (without special tokens); keep states at the positions `at` of each."""
    torch = require_torch()
    counts = np.fromiter((len(one) for one in at), np.int64, len(at))
    starts = np.cumsum(counts) - counts
    dimensions = int(subject.embedding.weight.shape[1])
    states: Any = None
    pooled = np.zeros((len(sequences), dimensions))
    for numbers, found, mask in _run(subject, sequences, same, new, tokens):
        if states is None:
            shape = (int(counts.sum()), found.shape[-1])
            states = torch.empty(shape, dtype=torch.float32, device=found.device)
            pooled = np.zeros((len(sequences), found.shape[-1]))
        weight = mask[..., None].double()
        mean = (found.double() * weight).sum(1) / weight.sum(1)
        pooled[numbers] = mean.cpu().numpy()
        rows = np.repeat(np.arange(len(numbers)), counts[numbers])
        columns = np.concatenate([at[n] for n in numbers]) + len(subject.prefix)
        places = np.concatenate(
            [np.arange(starts[n], starts[n] + counts[n]) for n in numbers]
        ).astype(np.int64)
        picked = found[torch.from_numpy(rows), torch.from_numpy(columns.astype(np.int64))]
        states[torch.from_numpy(places).to(found.device)] = picked.float()
        if progress is not None:
            progress(len(numbers))
    if states is None:
        states = torch.empty((0, dimensions), device=subject.device)
    return Reading(states, counts, pooled)


def _run(
    subject: Subject,
    sequences: Sequence[Ints],
    same: Sequence[bool] | None,
    new: NewRows | None,
    tokens: int,
) -> Iterator[tuple[Ints, Any, Any]]:
    torch = require_torch()
    with torch.inference_mode():
        for numbers in batches(sequences, same, tokens):
            whole = [with_specials(subject, sequences[n]) for n in numbers]
            longest = max(map(len, whole))
            ids = np.full((len(whole), longest), subject.pad, np.int64)
            mask = np.zeros((len(whole), longest), np.int64)
            for row, one in enumerate(whole):
                ids[row, : len(one)] = one
                mask[row, : len(one)] = 1
            given = torch.from_numpy(ids).to(subject.device)
            seen = torch.from_numpy(mask).to(subject.device)
            rows = None if new is None else embed(subject, given, new)
            yield numbers, subject.states(given, seen, rows), seen


def embed(subject: Subject, ids: Any, new: NewRows) -> Any:
    """Rows of `ids` as the model's embedding module gives them, new ones from `new`."""
    torch = require_torch()
    is_new = ids >= new.first
    known = subject.embedding(ids.masked_fill(is_new, 0))
    added = new.rows[(ids - new.first).clamp_(min=0)] if len(new.rows) else known
    added = (added * subject.scale).to(known.dtype) if len(new.rows) else known
    return torch.where(is_new[..., None], added, known)
