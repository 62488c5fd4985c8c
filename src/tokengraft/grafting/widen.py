"""A graft whose body has lanes: the folder of a plain graft, made wider in place.

Tensors are rewritten one at a time (tables a few rows at a time) in their own dtype and order, each
shard into a file of its own that then takes the shard's name. What was there stays as the top left
of a wider tensor, byte for byte; only the norms are scaled (`deriving.distil.lanes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import ModelError, TokengraftError
from tokengraft.core.files import write_json, writing
from tokengraft.deriving.distil.lanes import Wider, new_lanes, widened, wider_config
from tokengraft.grafting.write_folder import Written, check_room
from tokengraft.model.checkpoint import (
    INDEX,
    Checkpoint,
    Tensor,
    WeightFile,
    encode,
    header_bytes,
    read_checkpoint,
    read_json,
    write_all,
)
from tokengraft.model.embedding_tables import find_layout
from tokengraft.model.folder import CONFIG
from tokengraft.model.frozen import FrozenModel

_CHUNK = 1 << 22  # bytes of a table that are rewritten at a time


@dataclass(frozen=True)
class _Table:
    """The lanes of a table: `lanes` from row `first` on, 0 elsewhere; `width` of them."""

    width: int
    first: int
    lanes: NDArray[np.float32]


def widen(folder: Path, written: Written, student: FrozenModel) -> Written:
    """Make the graft in `folder` as wide as the student, with all that its lanes learned.

    `written` says what is there; it is given back with the new width and the tensors that grew.
    """
    config, checkpoint = read_json(folder / CONFIG), read_checkpoint(folder)
    layout, body = find_layout(config, checkpoint), widened(student)
    if missing := sorted(body.keys() - checkpoint.tensors.keys()):
        raise ModelError(f"{missing[0]} was trained, but the checkpoint holds no such weight")
    lanes = new_lanes(student)
    own = _Table(lanes.shape[1], written.new.start, lanes)
    tables = {layout.input.name: own}
    if layout.head is not None:  # a copy beside a tied table must stay a copy
        tables[layout.head.name] = own if layout.tied else replace(own, lanes=lanes[:0])
    wider = replace(
        checkpoint, shards=tuple(_widened(shard, body, tables) for shard in checkpoint.shards)
    )
    check_room(folder, _peak(checkpoint, wider), "with lanes the model needs another")
    try:
        for shard, target in zip(checkpoint.shards, wider.shards, strict=True):
            _rewrite(checkpoint, shard, target, body, tables)
    except OSError as error:
        raise TokengraftError(
            f"the model could not be written: {error.strerror or error}. Nothing was left behind."
        ) from error
    if checkpoint.index is not None:
        metadata = dict(checkpoint.index.get("metadata") or {})
        weights = sum(math.prod(tensor.shape) for tensor in wider.tensors.values())
        totals = {"total_size": wider.size, "total_parameters": weights}
        metadata |= {key: total for key, total in totals.items() if key in metadata}
        write_json(folder / INDEX, {**checkpoint.index, "metadata": metadata})
    write_json(folder / CONFIG, wider_config(config, student))
    return replace(written, width=written.width + own.width, trained=tuple(sorted(body)))


def _widened(
    shard: WeightFile, body: Mapping[str, Wider], tables: Mapping[str, _Table]
) -> WeightFile:
    """The shard as it will be: its tensors wider, in the same order."""
    placed: list[Tensor] = []
    end = 0
    for tensor in shard.tensors:
        shape = tensor.shape
        if tensor.name in body:
            shape = body[tensor.name].shape
        elif tensor.name in tables:
            shape = (shape[0], shape[1] + tables[tensor.name].width)
        size = (tensor.end - tensor.begin) // max(1, math.prod(tensor.shape)) * math.prod(shape)
        placed.append(replace(tensor, shape=shape, begin=end, end=end + size))
        end += size
    header = header_bytes(tuple(placed), shard.metadata)
    return replace(shard, start=len(header), tensors=tuple(placed))


def _peak(old: Checkpoint, new: Checkpoint) -> int:
    """Bytes that are needed besides while shard after shard is replaced by its wider one."""
    most = more = 0
    for before, after in zip(old.shards, new.shards, strict=True):
        more += after.start + after.size
        most = max(most, more)
        more -= before.start + before.size
    return most


def _rewrite(
    checkpoint: Checkpoint,
    shard: WeightFile,
    target: WeightFile,
    body: Mapping[str, Wider],
    tables: Mapping[str, _Table],
) -> None:
    """Put a wider shard, `target`, in the place of `shard`."""
    mode = shard.path.stat().st_mode
    with writing(shard.path) as temporary, temporary.open("wb", 0) as out:
        write_all(out, header_bytes(target.tensors, target.metadata))
        for tensor in shard.tensors:
            if tensor.name in body:
                old = checkpoint.rows(tensor, 0, tensor.shape[0])
                write_all(out, encode(body[tensor.name].values(old), tensor.dtype))
                continue
            table = tables.get(tensor.name)
            blocks = shard.blocks(tensor.begin, tensor.end)
            for block in blocks if table is None else _rows(shard, tensor, table):
                write_all(out, block)
        temporary.chmod(mode)


def _rows(shard: WeightFile, tensor: Tensor, table: _Table) -> Iterator[bytes]:
    """The rows of a table with their lanes, in blocks."""
    count, size = tensor.shape[0], tensor.row_bytes
    step = max(1, _CHUNK // size)
    for first in range(0, count, step):
        last = min(count, first + step)
        at = tensor.begin + first * size
        old = b"".join(shard.blocks(at, at + (last - first) * size))
        lanes = np.zeros((last - first, table.width), np.float32)
        rows = np.arange(first, last) - table.first
        inside = (rows >= 0) & (rows < len(table.lanes))
        lanes[inside] = table.lanes[rows[inside]]
        parts = [
            np.frombuffer(data, np.uint8).reshape(last - first, -1)
            for data in (old, encode(lanes, tensor.dtype))
        ]
        yield np.concatenate(parts, axis=1).tobytes()
