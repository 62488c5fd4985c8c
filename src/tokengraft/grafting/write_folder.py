"""A model folder with new rows: only tensors that were learned differ from the base's.

Every other tensor is copied as bytes, several at a time, so memory is the new rows and some blocks,
whatever the model's size. A body with lanes (`deriving.distil.lanes`) is written wider in the same
pass: what was there is the top left of a wider matrix, byte for byte, and only norms are scaled.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import ModelError, TokengraftError
from tokengraft.core.files import write_json
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.grafting import output_policies as policies
from tokengraft.grafting import small_files
from tokengraft.grafting.output_policies import DEFAULT, OutputPolicy, named
from tokengraft.model import tokenizer_files
from tokengraft.model.checkpoint import (
    INDEX,
    Checkpoint,
    Tensor,
    WeightFile,
    copy_file,
    copy_range,
    encode,
    header_bytes,
    read_checkpoint,
    read_json,
    write_at,
)
from tokengraft.model.embedding_tables import Tables, find_layout, is_encoder
from tokengraft.model.folder import CONFIG
from tokengraft.tokenizer.insert import first_free_id

if TYPE_CHECKING:
    from tokengraft.deriving.distil.lanes import Wider
    from tokengraft.model.frozen import FrozenModel

#: If more than this share of the rows is unused, the tokenizer belongs to another model.
_MOST_SPARE = 0.1
#: By name of a tensor of the base model: a function from its old values to the new ones.
Changes = Mapping[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]]
_CHUNK = 1 << 22  # bytes of a tensor that are rewritten at a time
_COPIED = 1 << 28  # bytes that one thread copies
_MOST_THREADS = 16
_Bytes: TypeAlias = NDArray[np.uint8]  # rows of encoded numbers


@dataclass(frozen=True)
class Written:
    """What an export did, for the card and the manifest."""

    new: range  # ids of the new tokens
    rows_before: int
    rows_after: int
    width: int
    dtype: str
    tied: bool
    barred: tuple[int, ...]
    trained: tuple[str, ...] = ()  # tensors that moved, besides the tables' new rows


@dataclass(frozen=True)
class Learned:
    """What was trained besides the input rows: output rows, and weights of the body.

    `laned` is a student with lanes, which make the model wider.
    """

    head: NDArray[np.float32] | None = None
    changes: Changes = field(default_factory=dict)
    laned: FrozenModel | None = None


@dataclass(frozen=True)
class _Rewrite:
    """A tensor that is not the base's: its shape, and its bytes, made when it is written."""

    shape: tuple[int, ...]
    blocks: Callable[[], Iterator[bytes]]


@dataclass(frozen=True)
class _NewRows:
    """New rows of one table, the first of them at row `at`, and their lanes, if there are any.

    `copy_of` is the table that a new one takes its other rows from.
    """

    at: int
    data: bytes
    lanes: NDArray[np.float32] | None = None
    copy_of: Tensor | None = None


def write_model(
    model_dir: Path,
    tokenizer: dict[str, Any],
    rows: NDArray[np.float32],
    folder: Path,
    *,
    parts: Sequence[Sequence[int]],
    policy: str = DEFAULT,
    learned: Learned = Learned(),  # noqa: B008 - frozen
    removed: Sequence[int] = (),
    progress: OnProgress | None = None,
) -> Written:
    """Write the model in `model_dir` with `tokenizer` and an input row per new token.

    `folder` is empty; the caller completes it and gives it its name (`writing_folder`). New tokens
    are those of `tokenizer` (a parsed tokenizer.json) with ids after the base's. Guarantees: every
    old row and every tensor that was not trained is byte-identical; the tables keep their dtype;
    spare rows are used before a table grows, and none shrinks; shards are as in the source.
    `parts` are each new token's old ids. A `learned` head gives rows for an untied output table
    and, under `write`, unties a tied one: the head becomes a separate table with the same old rows.
    """
    config = read_json(model_dir / CONFIG)
    checkpoint = read_checkpoint(model_dir)
    layout = find_layout(config, checkpoint)
    base = tokenizer_files.base_tokenizer(model_dir)
    new = _appended_ids(base, tokenizer, layout)
    _check_rows(rows, parts, new, layout)
    after = max(layout.rows, new.stop)
    kind, head, laned = named(policy), learned.head, learned.laned
    untied = kind.trains and layout.tied and head is not None
    barred = () if is_encoder(config) else policies.barred(kind, new, layout, removed)
    trained = _trained(checkpoint, layout, learned.changes)
    width = layout.width
    if laned is not None:
        from tokengraft.deriving.distil.lanes import widened

        trained |= _widened(checkpoint, widened(laned))
    tables = _new_rows(checkpoint, layout, rows, parts, new, kind, head, laned)
    rewrites = trained | {
        name: _table(checkpoint, table.copy_of or checkpoint.tensors[name], table, after)
        for name, table in tables.items()
    }
    wanted = [_placed(shard, rewrites, tables) for shard in checkpoint.shards]
    needed = sum(shard.size for shard in wanted)
    check_room(folder, needed, "the model needs")
    try:
        _write_shards(checkpoint, wanted, rewrites, folder, progress)
        small_files.write(model_dir, folder, base, tokenizer, (layout.rows, after), barred, untied)
        _write_index(checkpoint, wanted, folder)
        if laned is not None:
            from tokengraft.deriving.distil.lanes import wider_config

            write_json(folder / CONFIG, wider_config(read_json(folder / CONFIG), laned))
            width += laned.body.norm.lanes
    except OSError as error:
        raise TokengraftError(
            f"the model could not be written: {error.strerror or error}. "
            f"It needs {needed / 1e9:.2f} GB; nothing was left behind."
        ) from error
    return Written(
        new, layout.rows, after, width, layout.input.dtype, layout.tied and not untied,
        barred, tuple(sorted(trained)),
    )  # fmt: skip


def check_room(folder: Path, needed: int, what_needs: str) -> None:
    """Raise TokengraftError if fewer than `needed` bytes are free where `folder` is."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise TokengraftError(
            f"{what_needs} {needed / 1e9:.2f} GB, {free / 1e9:.2f} GB are free: nothing written"
        )


def _appended_ids(base: dict[str, Any], tokenizer: dict[str, Any], layout: Tables) -> range:
    """Ids that `tokenizer` has after the base's; ModelError if the base's is not this model's."""
    first, last = first_free_id(base), first_free_id(tokenizer)
    if last <= first:
        raise ModelError("the new tokenizer has no more tokens than the model's own")
    # An added token may lie beyond the table (Gemma 3's image token); a plain one may not.
    plain = base["model"]["vocab"]
    highest = len(plain) - 1 if isinstance(plain, list) else max(plain.values(), default=-1)
    if highest >= layout.rows:
        raise ModelError(
            f"the tokenizer has ids up to {highest}, the model {layout.rows} rows: "
            "the folder holds another model's tokenizer"
        )
    if layout.rows - first > max(2048, _MOST_SPARE * layout.rows):
        raise ModelError(
            f"the tokenizer uses {first} ids, the model has {layout.rows} rows: "
            "the folder holds another model's tokenizer"
        )
    return range(first, last)


def _check_rows(
    rows: NDArray[np.float32], parts: Sequence[Sequence[int]], new: range, layout: Tables
) -> None:
    if rows.shape != (len(new), layout.width):
        raise ModelError(
            f"{len(new)} new tokens need rows of shape [{len(new)}, {layout.width}]; "
            f"got {list(rows.shape)}"
        )
    if len(parts) != len(new) or not all(parts):
        raise ModelError(f"each of the {len(new)} new tokens needs its old parts")
    wrong = [part for group in parts for part in group if not 0 <= part < layout.rows]
    if wrong:
        raise ModelError(f"a part has id {wrong[0]}, but the model has {layout.rows} rows")


def _new_rows(
    checkpoint: Checkpoint,
    layout: Tables,
    rows: NDArray[np.float32],
    parts: Sequence[Sequence[int]],
    new: range,
    policy: OutputPolicy,
    head: NDArray[np.float32] | None,
    laned: FrozenModel | None,
) -> dict[str, _NewRows]:
    """New rows by table. Ids between the table's end and the first new one get the mean row."""
    gap = max(0, new.start - layout.rows)
    used = min(new.start, layout.rows)
    lanes = None
    if laned is not None:
        from tokengraft.deriving.distil.lanes import new_lanes

        lanes = new_lanes(laned)
        lanes = np.concatenate([np.zeros((gap, lanes.shape[1]), np.float32), lanes])

    def patch(
        table: Tensor, values: NDArray[np.float32], filler: NDArray[np.float32], reads: bool = False
    ) -> _NewRows:
        """The table's new rows; a table that is read has their lanes beside them."""
        if gap:
            values = np.concatenate([np.broadcast_to(filler, (gap, *filler.shape)), values])
        beside = lanes if lanes is None or reads else np.zeros_like(lanes)
        beside = None if len(table.shape) < 2 else beside
        return _NewRows(new.start - gap, encode(values, table.dtype), beside)

    input_mean = policies.mean_row(checkpoint, layout.input, used) if gap else rows[:0]
    patches = {layout.input.name: patch(layout.input, rows, input_mean, reads=True)}
    if layout.tied and policy.trains and head is not None:
        own = patch(layout.input, _like(head, rows), input_mean)
        copy_of = layout.input if layout.head is None else None
        patches[layout.head_name] = replace(own, copy_of=copy_of)
    elif layout.head is not None and layout.tied:
        # A copy beside a tied table must stay a copy.
        patches[layout.head.name] = patch(layout.head, rows, input_mean, reads=True)
    elif layout.head is not None:
        filler = policies.mean_row(checkpoint, layout.head, used)
        if head is not None and policy.writes:
            values = _like(head, rows)
        else:
            values = policies.head_rows(policy, checkpoint, layout.head, parts, filler)
        patches[layout.head.name] = patch(layout.head, values, filler)
    for bias in layout.biases:
        values = policies.new_bias(policy, checkpoint, bias, parts)
        patches[bias.name] = patch(bias, values, np.array(policies.BARRED_BIAS, np.float32))
    return patches


def _table(checkpoint: Checkpoint, old: Tensor, new: _NewRows, rows: int) -> _Rewrite:
    """A table of so many `rows`: the old ones, the new ones, and 0 in lanes that none has."""
    size, step = old.row_bytes, max(1, _CHUNK // max(1, old.row_bytes))
    data: _Bytes = np.frombuffer(new.data, np.uint8).reshape(-1, size)
    more = 0 if new.lanes is None else new.lanes.shape[1]
    shard = checkpoint.shard_of(old)

    def blocks() -> Iterator[bytes]:
        for first in range(0, rows, step):
            last = min(rows, first + step)
            held = np.zeros((last - first, size), np.uint8)
            there = min(last, old.shape[0])
            if there > first:
                begin = old.begin + first * size
                known = b"".join(shard.blocks(begin, old.begin + there * size))
                held[: there - first] = np.frombuffer(known, np.uint8).reshape(-1, size)
            numbers = np.arange(first, last) - new.at
            inside = (numbers >= 0) & (numbers < len(data))
            held[inside] = data[numbers[inside]]
            if new.lanes is not None:
                lanes = np.zeros((last - first, more), np.float32)
                lanes[inside] = new.lanes[numbers[inside]]
                held = np.concatenate([held, _encoded(lanes, old.dtype)], axis=1)
            yield held.tobytes()

    shape = (rows, old.shape[1] + more) if len(old.shape) > 1 else (rows,)
    return _Rewrite(shape, blocks)


def _encoded(values: NDArray[np.float32], dtype: str) -> _Bytes:
    """Rows of bytes."""
    return np.frombuffer(encode(values, dtype), np.uint8).reshape(len(values), -1)


def _trained(checkpoint: Checkpoint, layout: Tables, changes: Changes) -> dict[str, _Rewrite]:
    """The trained weights, by their names in the checkpoint."""
    tables = {table.name for table in layout.tables}
    known = {name: tensor for name, tensor in checkpoint.tensors.items() if name not in tables}

    def rewrite(tensor: Tensor, change: Callable[[Any], Any]) -> _Rewrite:
        def blocks() -> Iterator[bytes]:
            old = checkpoint.rows(tensor, 0, tensor.shape[0])
            values = np.asarray(change(old), np.float32)
            if values.shape != old.shape:
                raise ModelError(
                    f"{tensor.name} has shape {list(old.shape)}, what was learned for it "
                    f"{list(values.shape)}"
                )
            yield encode(values, tensor.dtype)

        return _Rewrite(tensor.shape, blocks)

    return {
        (name := _stored(called, known)): rewrite(known[name], change)
        for called, change in changes.items()
    }


def _widened(checkpoint: Checkpoint, body: Mapping[str, Wider]) -> dict[str, _Rewrite]:
    """The layers and norms of a body with lanes."""
    tensors = checkpoint.tensors
    if missing := sorted(body.keys() - tensors.keys()):
        raise ModelError(f"{missing[0]} was trained, but the checkpoint holds no such weight")

    def rewrite(tensor: Tensor, wider: Wider) -> _Rewrite:
        def vector() -> Iterator[bytes]:
            yield encode(wider.values(checkpoint.rows(tensor, 0, tensor.shape[0])), tensor.dtype)

        def matrix() -> Iterator[bytes]:
            size, shard = tensor.row_bytes, checkpoint.shard_of(tensor)
            right, step = wider.right(), max(1, _CHUNK // size)
            for first in range(0, tensor.shape[0], step):
                last = min(tensor.shape[0], first + step)
                begin = tensor.begin + first * size
                known = b"".join(shard.blocks(begin, tensor.begin + last * size))
                rows: _Bytes = np.frombuffer(known, np.uint8).reshape(-1, size)
                more = _encoded(right[first:last], tensor.dtype)
                yield np.concatenate([rows, more], axis=1).tobytes()
            yield encode(wider.below(), tensor.dtype)

        return _Rewrite(wider.shape, matrix if len(tensor.shape) > 1 else vector)

    return {name: rewrite(tensors[name], wider) for name, wider in body.items()}


def _stored(called: str, known: Mapping[str, Tensor]) -> str:
    """The checkpoint's name for a weight of the loaded model: prefixes differ between versions."""
    if called in known:
        return called
    words = called.split(".")

    def likeness(name: str) -> tuple[int, int]:
        theirs = name.split(".")
        pairs = zip(reversed(words), reversed(theirs), strict=False)
        return sum(1 for _ in takewhile(lambda p: p[0] == p[1], pairs)), len({*words} & {*theirs})

    best = max(known, key=likeness, default="")
    if likeness(best)[0] < min(4, len(words), len(best.split("."))):
        raise ModelError(f"{called} was trained, but the checkpoint holds no such weight")
    return best


def _like(head: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    if head.shape != rows.shape:
        raise ModelError(f"output rows need shape {list(rows.shape)}; got {list(head.shape)}")
    return head


def second_table(model_dir: Path) -> int:
    """Bytes of old rows in the head that untying a model adds; 0 if it has a head."""
    layout = find_layout(read_json(model_dir / CONFIG), read_checkpoint(model_dir))
    return layout.rows * layout.input.row_bytes if layout.tied and layout.head is None else 0


def _placed(
    shard: WeightFile, rewrites: Mapping[str, _Rewrite], tables: Mapping[str, _NewRows]
) -> WeightFile:
    """The shard as it will be: the same order, a new table at the end."""
    added = [
        replace(table.copy_of, name=name)
        for name, table in tables.items()
        if table.copy_of is not None and table.copy_of.file == shard.path.name
    ]
    placed: list[Tensor] = []
    end = 0
    for tensor in (*shard.tensors, *added):
        size, shape = tensor.end - tensor.begin, tensor.shape
        if tensor.name in rewrites:
            shape = rewrites[tensor.name].shape
            size = size // max(1, math.prod(tensor.shape)) * math.prod(shape)
        placed.append(replace(tensor, shape=shape, begin=end, end=end + size))
        end += size
    header = header_bytes(tuple(placed), shard.metadata)
    return WeightFile(shard.path, len(header), tuple(placed), shard.metadata)


def _write_shards(
    checkpoint: Checkpoint,
    wanted: Sequence[WeightFile],
    rewrites: Mapping[str, _Rewrite],
    folder: Path,
    progress: OnProgress | None,
) -> None:
    """Write every shard, several tensors at a time."""
    total, done = sum(shard.size for shard in wanted), 0
    pool = ThreadPoolExecutor(min(_MOST_THREADS, max(2, os.cpu_count() or 1)))
    sizes: dict[Future[None], int] = {}
    try:
        for shard, target in zip(checkpoint.shards, wanted, strict=True):
            path = folder / shard.path.name
            if not any(tensor.name in rewrites for tensor in target.tensors):
                sizes[pool.submit(copy_file, shard.path, path)] = shard.size
                continue
            with path.open("wb", 0) as out:
                write_at(out.fileno(), header_bytes(target.tensors, target.metadata), 0)
                out.truncate(target.start + target.size)
            for job in _jobs(shard, target, rewrites):
                sizes[pool.submit(_write_tensors, shard, target, path, *job)] = job[1]
        for finished in as_completed(sizes):
            finished.result()
            done += sizes[finished]
            if progress is not None:
                progress(Progress("writing the model", done / 1e6, total / 1e6, "MB"))
    finally:
        # After a failure, tensors not yet begun are cancelled; those under way are waited for.
        pool.shutdown(cancel_futures=True)


_Job: TypeAlias = tuple[int, int, "int | Callable[[], Iterator[bytes]]"]


def _jobs(
    shard: WeightFile, target: WeightFile, rewrites: Mapping[str, _Rewrite]
) -> Iterator[_Job]:
    """Where to write how many bytes, and what: the source's from an offset on, or made ones."""
    old = {tensor.name: tensor for tensor in shard.tensors}
    run: tuple[int, int, int] | None = None  # of neighbours that are copied
    for tensor in target.tensors:
        size = tensor.end - tensor.begin
        if tensor.name in rewrites:
            yield tensor.begin, size, rewrites[tensor.name].blocks
            continue
        begin = old[tensor.name].begin
        if run is not None and run[1] < _COPIED and run[2] + run[1] == begin:
            run = (run[0], run[1] + size, run[2])
            continue
        if run is not None:
            yield run
        run = (tensor.begin, size, begin)
    if run is not None:
        yield run


def _write_tensors(
    shard: WeightFile, target: WeightFile, path: Path, at: int, count: int,
    what: int | Callable[[], Iterator[bytes]],
) -> None:  # fmt: skip
    with path.open("r+b", 0) as out:
        place = target.start + at
        if isinstance(what, int):
            with shard.path.open("rb", 0) as source:
                copy_range(source.fileno(), out.fileno(), shard.start + what, place, count)
            return
        for block in what():
            write_at(out.fileno(), block, place)
            place += len(block)
        if place != target.start + at + count:
            raise ModelError(f"{path.name}: a tensor has other bytes than its shape says")


def _write_index(checkpoint: Checkpoint, wanted: Sequence[WeightFile], folder: Path) -> None:
    if checkpoint.index is None:
        return
    index = dict(checkpoint.index)
    tensors = [tensor for shard in wanted for tensor in shard.tensors]
    listed = {
        tensor.name: tensor.file for tensor in tensors if tensor.name not in checkpoint.tensors
    }
    index["weight_map"] = {**index["weight_map"], **listed}
    before = checkpoint.tensors.values()
    added = {
        "total_size": sum(shard.size for shard in wanted) - checkpoint.size,
        "total_parameters": sum(math.prod(tensor.shape) for tensor in tensors)
        - sum(math.prod(tensor.shape) for tensor in before),
    }
    metadata = dict(index.get("metadata") or {})
    for key, more_of_it in added.items():
        if isinstance(metadata.get(key), int | float):
            metadata[key] = int(metadata[key]) + more_of_it
    write_json(folder / INDEX, {**index, "metadata": metadata})
