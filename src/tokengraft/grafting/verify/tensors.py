"""Weights of base and graft, compared as bytes, a block at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.progress import OnProgress, Progress
from tokengraft.model.checkpoint import Checkpoint, Tensor
from tokengraft.model.embedding_tables import Tables

#: A new row may be at most this many times as long as the longest old one.
OUTSIZED = 10
_CHUNK = 1 << 22  # bytes of a table read at a time


def other_weights(
    base: Checkpoint,
    new: Checkpoint,
    layout: Tables,
    first: int,
    untied: bool = False,
    trained: Collection[str] = (),
) -> str | None:
    """What differs apart from the tables' rows from `first` on, in words, or None.

    If the graft is `untied`, its head is a separate table with the input table's old rows. Weights
    that were `trained` may have other values; old rows never may.
    """
    tables = {table.name for table in layout.tables}
    old_tensors, new_tensors = base.tensors, new.tensors
    if missing := sorted(old_tensors.keys() - new_tensors.keys()):
        return f"{missing[0]} is missing"
    own = {layout.head_name} if untied and layout.head is None else set()
    if own and (wrong := _other_head(base, new, layout, first)):
        return wrong
    if extra := sorted(new_tensors.keys() - old_tensors.keys() - own):
        return f"{extra[0]} is not in the base model"

    def difference(name: str) -> str | None:
        old, copy = old_tensors[name], new_tensors[name]
        if old.dtype != copy.dtype or old.shape[1:] != copy.shape[1:]:
            return f"{name} is {copy.dtype}{list(copy.shape)}, was {old.dtype}{list(old.shape)}"
        if name in tables:
            if copy.shape[0] < old.shape[0]:
                return f"{name} has {copy.shape[0]} rows, had {old.shape[0]}"
            rows = min(first, old.shape[0])
            row = different_row(base, old, new, copy, 0, rows)
            return None if row is None else f"old row {row} of {name} differs"
        if old.shape != copy.shape:
            return f"{name} has shape {list(copy.shape)}, was {list(old.shape)}"
        same = name in trained or _equal(base, old, new, copy)
        return None if same else f"{name} differs"

    return first_found(difference, old_tensors)


def first_found(
    look: Callable[[str], str | None], names: Iterable[str], progress: OnProgress | None = None
) -> str | None:
    """What `look` finds wrong with the first of the tensors that has something wrong, or None.

    Several are looked at at a time: files are read faster by more than one core.
    """
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        found = [pool.submit(look, name) for name in names]
        try:
            for done, job in enumerate(found):
                if (wrong := job.result()) is not None:
                    return wrong
                if progress is not None:
                    progress(Progress("verifying: old weights", done, len(found), "tensors"))
        finally:
            for job in found:
                job.cancel()
    return None


def _other_head(base: Checkpoint, new: Checkpoint, layout: Tables, first: int) -> str | None:
    """How a head that is now a separate table differs from the one it was tied to, or None."""
    head, table = new.tensors.get(layout.head_name), layout.input
    if head is None:
        return f"{layout.head_name} is missing: the config says that the head is not tied"
    grown = new.tensors[table.name]
    if (head.dtype, head.shape) != (grown.dtype, grown.shape):
        return f"{head.name} is {head.dtype}{list(head.shape)}, {table.name} {list(grown.shape)}"
    row = different_row(base, table, new, head, 0, min(first, table.shape[0]))
    return None if row is None else f"old row {row} of {head.name} is not that of {table.name}"


def different_row(
    base: Checkpoint, old: Tensor, new: Checkpoint, copy: Tensor, first: int, last: int
) -> int | None:
    """The first row from `first` up to `last` that differs between two tables, or None."""
    size = old.row_bytes
    left, right = (
        checkpoint.shard_of(table).blocks(table.begin + first * size, table.begin + last * size)
        for checkpoint, table in ((base, old), (new, copy))
    )
    read = 0
    for a, b in zip(left, right, strict=True):
        if a != b:
            unequal = np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)
            return first + (read + int(unequal.argmax())) // size
        read += len(a)
    return None


def dead_rows(new: Checkpoint, name: str, ids: range) -> list[int]:
    """New ids whose row in the table `name` is missing, not finite or all zero."""
    table = new.tensors.get(name)
    rows = table.shape[0] if table and table.shape else 0
    there = range(ids.start, max(ids.start, min(ids.stop, rows)))
    bad: list[int] = []
    if table and there:
        norms = _norms(new, table, there)
        bad = [there[int(i)] for i in np.flatnonzero(~np.isfinite(norms) | (norms == 0))]
    return bad + list(range(there.stop, ids.stop))


def outsized_row(base: Checkpoint, new: Checkpoint, layout: Tables, ids: range) -> str | None:
    """What is wrong, if a new row of input or head is too long to come from old ones, or None.

    Every method here blends or predicts old rows, so its rows are about as long as those. A head
    that only the graft has is compared with the input table, from which its old rows come.
    """
    head = layout.head or layout.input
    for name, old in ((layout.input.name, layout.input), (layout.head_name, head)):
        table = new.tensors.get(name)
        if table is None or table.shape[0] < ids.stop:
            continue  # other checks say so
        lengths = _norms(base, old, range(min(ids.start, old.shape[0])))
        most = float(lengths[np.isfinite(lengths)].max(initial=0.0))
        norms = _norms(new, table, ids)
        wrong = np.flatnonzero(~(norms <= OUTSIZED * most))
        if most and len(wrong):
            first = int(wrong[0])
            return (
                f"{len(wrong)} new rows of {name} are over {OUTSIZED} times as long as the "
                f"longest old one ({most:.3g}), first id {ids[first]}: {norms[first]:.3g}"
            )
    return None


def loud_bias(base: Checkpoint, new: Checkpoint, layout: Tables, ids: range) -> str | None:
    """What is wrong, if the head's bias for a new id is above all old ones, or None.

    It is the mean of its parts' or far below; such a token would be written where none fits.
    """
    for old in layout.biases:
        copy = new.tensors.get(old.name)
        if copy is None or copy.shape[0] < ids.stop:
            continue  # other checks say so
        most = float(base.rows(old, 0, min(ids.start, old.shape[0])).max(initial=-np.inf))
        values = new.rows(copy, ids.start, ids.stop)
        wrong = np.flatnonzero(~(values <= most + 0.01 * abs(most)))  # a mean is rounded
        if len(wrong):
            first = int(wrong[0])
            return (
                f"{old.name} of {len(wrong)} new ids is above all old ones ({most:.3g}), "
                f"first id {ids[first]}: {values[first]:.3g}"
            )
    return None


def _norms(checkpoint: Checkpoint, table: Tensor, ids: range) -> NDArray[np.float64]:
    """Lengths of these rows, a few megabytes at a time."""
    step = max(1, _CHUNK // max(1, table.row_bytes))
    squares = np.empty(len(ids))
    for first in range(ids.start, ids.stop, step):
        block = checkpoint.rows(table, first, min(ids.stop, first + step))
        at = first - ids.start
        squares[at : at + len(block)] = np.square(block, dtype=np.float64).sum(axis=1)
    return np.sqrt(squares)


def moved(base: Checkpoint, new: Checkpoint, trained: Collection[str]) -> tuple[int, float]:
    """How many `trained` weights differ, and the largest ‖new − old‖ / ‖old‖ among them."""
    count, most = 0, 0.0
    for name in trained:
        old, copy = base.tensors[name], new.tensors[name]
        if _equal(base, old, new, copy):
            continue
        count += 1
        rows = [c.rows(t, 0, t.shape[0]).astype(np.float64) for c, t in ((base, old), (new, copy))]
        size = float(np.linalg.norm(rows[0]))
        most = max(most, float(np.linalg.norm(rows[1] - rows[0])) / max(size, 1e-12))
    return count, most


def _equal(base: Checkpoint, old: Tensor, new: Checkpoint, copy: Tensor) -> bool:
    left = base.shard_of(old).blocks(old.begin, old.end)
    right = new.shard_of(copy).blocks(copy.begin, copy.end)
    return all(a == b for a, b in zip(left, right, strict=True))
