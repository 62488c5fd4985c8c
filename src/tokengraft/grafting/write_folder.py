"""A checkpoint folder with new rows: only the embedding tables are rewritten.

Every other tensor is copied as bytes, shard by shard, so peak memory is the new rows and one
block, whatever the model's size. The folder appears under its name when it is complete.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import ModelError, TokengraftError
from tokengraft.core.files import write_json
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
    write_all,
)
from tokengraft.model.embedding_tables import Tables, find_layout, is_encoder
from tokengraft.model.folder import CONFIG
from tokengraft.tokenizer.insert import first_free_id

#: If more than this share of the rows is unused, the tokenizer belongs to another model.
_MOST_SPARE = 0.1
#: By name of a tensor of the base model: a function from its old values to the new ones.
Changes = Mapping[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]]
#: Files copied at a time: one core copies slower than most disks write.
_AT_ONCE = 2


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
    """What was trained besides the input rows: output rows, and weights of the body."""

    head: NDArray[np.float32] | None = None
    changes: Changes = field(default_factory=dict)


@dataclass(frozen=True)
class _Patch:
    """New rows of one table: their encoded `data`, the first of them at row `at`.

    If the table itself is new, `copy_of` is the one that its other rows come from. `change` makes
    the data of a trained weight at the time of writing.
    """

    at: int
    rows: int  # of the whole table afterwards
    data: bytes
    copy_of: Tensor | None = None
    change: Callable[[], bytes] | None = None


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
    kind, head = named(policy), learned.head
    untied = kind.trains and layout.tied and head is not None
    barred = () if is_encoder(config) else policies.barred(kind, new, layout, removed)
    needed = checkpoint.size + sum(t.with_rows(after).end - t.end for t in layout.tables)
    needed += after * layout.input.row_bytes if untied and layout.head is None else 0
    check_room(folder, needed, "the model needs")
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        trained = _trained(checkpoint, layout, learned.changes)
        changed = {table.file for table in layout.tables}
        changed |= {checkpoint.tensors[name].file for name in trained}
        jobs = [
            pool.submit(copy_file, shard.path, folder / shard.path.name)
            for shard in checkpoint.shards
            if shard.path.name not in changed
        ]
        # The rest is worked out while whole files are being copied.
        patches = trained | _patches(checkpoint, layout, rows, parts, new, kind, head)
        jobs += [
            pool.submit(_write_shard, shard, patches, folder / shard.path.name)
            for shard in checkpoint.shards
            if shard.path.name in changed
        ]
        small_files.write(model_dir, folder, base, tokenizer, (layout.rows, after), barred, untied)
        _write_index(checkpoint, layout, after, folder, untied)
        for job in as_completed(jobs):
            job.result()
    except OSError as error:
        raise TokengraftError(
            f"the model could not be written: {error.strerror or error}. "
            f"It needs {needed / 1e9:.2f} GB; nothing was left behind."
        ) from error
    finally:
        # After a failure, files not yet begun are cancelled; those under way are waited for.
        pool.shutdown(cancel_futures=True)
    return Written(
        new, layout.rows, after, layout.width, layout.input.dtype, layout.tied and not untied,
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


def _patches(
    checkpoint: Checkpoint,
    layout: Tables,
    rows: NDArray[np.float32],
    parts: Sequence[Sequence[int]],
    new: range,
    policy: OutputPolicy,
    head: NDArray[np.float32] | None,
) -> dict[str, _Patch]:
    """New rows by table. Ids between the table's end and the first new one get the mean row."""
    after = max(layout.rows, new.stop)
    gap = max(0, new.start - layout.rows)
    used = min(new.start, layout.rows)

    def patch(table: Tensor, values: NDArray[np.float32], filler: NDArray[np.float32]) -> _Patch:
        if gap:
            values = np.concatenate([np.broadcast_to(filler, (gap, *filler.shape)), values])
        return _Patch(new.start - gap, after, encode(values, table.dtype))

    input_mean = policies.mean_row(checkpoint, layout.input, used) if gap else rows[:0]
    patches = {layout.input.name: patch(layout.input, rows, input_mean)}
    if layout.tied and policy.trains and head is not None:
        own = patch(layout.input, _like(head, rows), input_mean)
        copy_of = layout.input if layout.head is None else None
        patches[layout.head_name] = replace(own, copy_of=copy_of)
    elif layout.head is not None and layout.tied:
        # A copy beside a tied table must stay a copy.
        patches[layout.head.name] = patch(layout.head, rows, input_mean)
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


def _trained(checkpoint: Checkpoint, layout: Tables, changes: Changes) -> dict[str, _Patch]:
    """Patches for the trained weights, by their names in the checkpoint."""
    tables = {table.name for table in layout.tables}
    known = {name: tensor for name, tensor in checkpoint.tensors.items() if name not in tables}

    def patch(tensor: Tensor, change: Callable[[Any], Any]) -> _Patch:
        def data() -> bytes:
            old = checkpoint.rows(tensor, 0, tensor.shape[0])
            values = np.asarray(change(old), np.float32)
            if values.shape != old.shape:
                raise ModelError(
                    f"{tensor.name} has shape {list(old.shape)}, what was learned for it "
                    f"{list(values.shape)}"
                )
            return encode(values, tensor.dtype)

        return _Patch(0, tensor.shape[0], b"", change=data)

    return {
        (name := _stored(called, known)): patch(known[name], change)
        for called, change in changes.items()
    }


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


def _write_index(
    checkpoint: Checkpoint, layout: Tables, after: int, folder: Path, untied: bool
) -> None:
    if checkpoint.index is None:
        return
    index = dict(checkpoint.index)
    grown = [(table.with_rows(after), table) for table in layout.tables]
    added = {
        "total_size": sum(new.end - old.end for new, old in grown),
        "total_parameters": sum(math.prod(new.shape) - math.prod(old.shape) for new, old in grown),
    }
    if untied and layout.head is None:
        index["weight_map"] = {**index["weight_map"], layout.head_name: layout.input.file}
        more = layout.input.with_rows(after)
        added["total_size"] += more.end - more.begin
        added["total_parameters"] += math.prod(more.shape)
    metadata = dict(index.get("metadata") or {})
    for key, more_of_it in added.items():
        if isinstance(metadata.get(key), int | float):
            metadata[key] = int(metadata[key]) + more_of_it
    write_json(folder / INDEX, {**index, "metadata": metadata})


def _write_shard(shard: WeightFile, patches: Mapping[str, _Patch], target: Path) -> None:
    """Write a shard with its tables patched."""
    moved: list[Tensor] = []
    shift = 0
    for tensor in shard.tensors:
        placed = replace(tensor, begin=tensor.begin + shift, end=tensor.end + shift)
        if tensor.name in patches:
            placed = placed.with_rows(patches[tensor.name].rows)
            shift = placed.end - tensor.end
        moved.append(placed)
    copies = [
        (name, own, own.copy_of)
        for name, own in patches.items()
        if own.copy_of is not None and own.copy_of.file == shard.path.name
    ]
    for name, own, table in copies:
        begin = moved[-1].end
        end = begin + own.rows * table.row_bytes
        shape = (own.rows, *table.shape[1:])
        moved.append(Tensor(name, shard.path.name, table.dtype, shape, begin, end))
    with shard.path.open("rb", 0) as source, target.open("wb", 0) as out:
        write_all(out, header_bytes(tuple(moved), shard.metadata))
        at = 0  # everything in the source before it is written
        for tensor in shard.tensors:
            if (patch := patches.get(tensor.name)) is None:
                continue
            cut = tensor.begin + patch.at * tensor.row_bytes
            copy_range(source, out, shard.start + at, cut - at)
            data = patch.data if patch.change is None else patch.change()
            write_all(out, data)
            # If the table did not have to grow, its spare rows after the new ones are kept.
            at = min(cut + len(data), tensor.end)
        copy_range(source, out, shard.start + at, shard.tensors[-1].end - at)
        for _, own, table in copies:
            first, size = shard.start + table.begin, own.at * table.row_bytes
            copy_range(source, out, first, size)
            write_all(out, own.data)
            rest = size + len(own.data)
            copy_range(source, out, first + rest, max(0, table.end - table.begin - rest))
