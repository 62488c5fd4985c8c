"""Weights compared as bytes, in blocks: nothing is decoded, nothing is held."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokengraft.grafting.layout import Layout
from tokengraft.grafting.weights import Checkpoint, Tensor


def other_weights(base: Checkpoint, new: Checkpoint, layout: Layout, first: int) -> str | None:
    """What differs outside the rows from `first` on of the tables, or None where nothing does."""
    tables = {table.name for table in layout.tables}
    old_tensors, new_tensors = base.tensors, new.tensors
    if missing := sorted(old_tensors.keys() - new_tensors.keys()):
        return f"{missing[0]} is missing"
    if extra := sorted(new_tensors.keys() - old_tensors.keys()):
        return f"{extra[0]} is not in the base model"
    for name, old in old_tensors.items():
        copy = new_tensors[name]
        if old.dtype != copy.dtype or old.shape[1:] != copy.shape[1:]:
            return f"{name} is {copy.dtype}{list(copy.shape)}, was {old.dtype}{list(old.shape)}"
        if name in tables:
            rows = min(first, old.shape[0], copy.shape[0])
            if (row := different_row(base, old, new, copy, 0, rows)) is not None:
                return f"old row {row} of {name} differs"
        elif old.shape != copy.shape:
            return f"{name} has shape {list(copy.shape)}, was {list(old.shape)}"
        elif not all(a == b for a, b in _pairs(base, old, new, copy)):
            return f"{name} differs"
    return None


def different_row(
    base: Checkpoint, old: Tensor, new: Checkpoint, copy: Tensor, first: int, last: int
) -> int | None:
    """The first row of `first` to `last` that differs between two tables, or None."""
    size = old.row_bytes
    at = first
    begin = (old.begin + first * size, copy.begin + first * size)
    end = (old.begin + last * size, copy.begin + last * size)
    left = base.shard_of(old).blocks(begin[0], end[0])
    right = new.shard_of(copy).blocks(begin[1], end[1])
    read = 0
    for a, b in zip(left, right, strict=True):
        if a != b:
            unequal = np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)
            return at + (read + int(unequal.argmax())) // size
        read += len(a)
    return None


def dead_rows(new: Checkpoint, layout: Layout, ids: range) -> list[int]:
    """New ids whose input row is not finite or all zero."""
    table = new.tensors[layout.input.name]
    rows = new.rows(table, ids.start, min(ids.stop, table.shape[0]))
    bad = ~np.isfinite(rows).all(axis=1) | ~rows.any(axis=1)
    short = range(max(ids.start, table.shape[0]), ids.stop)
    return [ids.start + int(i) for i in np.flatnonzero(bad)] + list(short)


def _pairs(
    base: Checkpoint, old: Tensor, new: Checkpoint, copy: Tensor
) -> Iterator[tuple[bytes, bytes]]:
    left = base.shard_of(old).blocks(old.begin, old.end)
    right = new.shard_of(copy).blocks(copy.begin, copy.end)
    return zip(left, right, strict=True)
