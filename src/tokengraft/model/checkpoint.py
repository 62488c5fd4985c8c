"""A safetensors checkpoint as byte ranges: nothing is loaded, only headers are parsed.

A file is 8 bytes (little-endian length), a JSON header, then the tensors' bytes without gaps:
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.core import files
from tokengraft.core.errors import ModelError
from tokengraft.core.files import not_the_file
from tokengraft.core.untrusted import parse_json
from tokengraft.model.folder import ADAPTER, CONFIG

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
#: Bytes copied at a time. Larger blocks do not fit the caches: 16 MB is 6 times slower than `cp`.
BLOCK = 1 << 20
_MOST_HEADER = 100 << 20  # the limit of the reference reader
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16,
    "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_NOT_SERVED = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF)
#: Keys of config.json that name another file: of weights since 4.57, of the config itself.
_DETOURS = ("transformers_weights", "configuration_files")
#: What transformers 4 takes for PyTorch's; with "tf" and "flax" it converts the weights.
_FORMATS = (None, "pt", "mlx")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True)
class Tensor:
    """Where a tensor's bytes lie: offsets count from the first byte after the header."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row along the first axis."""
        return (self.end - self.begin) // self.shape[0] if self.shape and self.shape[0] else 0

    def with_rows(self, rows: int) -> Tensor:
        """The same tensor with another number of rows, its end moved accordingly."""
        end = self.begin + rows * self.row_bytes
        return replace(self, shape=(rows, *self.shape[1:]), end=end)


@dataclass(frozen=True)
class WeightFile:
    """One file: its tensors in the order of their bytes, and the header's free metadata."""

    path: Path
    start: int  # of the data, after the header
    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes of its tensors together."""
        return self.tensors[-1].end if self.tensors else 0

    def blocks(self, begin: int, end: int) -> Iterator[bytes]:
        """Bytes `begin` to `end` of the data, in blocks of at most `BLOCK`."""
        with self.path.open("rb") as file:
            file.seek(self.start + begin)
            left = end - begin
            while left > 0:
                block = file.read(min(BLOCK, left))
                if not block:
                    raise ModelError(f"{self.path.name} became shorter while it was read")
                left -= len(block)
                yield block


@dataclass(frozen=True)
class Checkpoint:
    """Every weight file of a model folder, and the tensors by name."""

    folder: Path
    shards: tuple[WeightFile, ...]
    index: Mapping[str, Any] | None  # the parsed index file, None for a single file

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return {tensor.name: tensor for shard in self.shards for tensor in shard.tensors}

    @property
    def size(self) -> int:
        """Bytes of all tensors together."""
        return sum(shard.size for shard in self.shards)

    def shard_of(self, tensor: Tensor) -> WeightFile:
        """The file that holds `tensor`."""
        return next(shard for shard in self.shards if shard.path.name == tensor.file)

    def rows(self, tensor: Tensor, first: int, last: int) -> NDArray[np.float32]:
        """Rows `first` to `last` of a floating-point table, as float32."""
        begin = tensor.begin + first * tensor.row_bytes
        data = b"".join(self.shard_of(tensor).blocks(begin, tensor.begin + last * tensor.row_bytes))
        return decode(data, tensor.dtype).reshape(last - first, *tensor.shape[1:])


def read_checkpoint(folder: Path) -> Checkpoint:
    """The weights in `folder` that every supported transformers loads, from checked headers.

    transformers takes `model.safetensors` before an index, another file if the config names one,
    every tensor of each shard, and an adapter if one lies there. Where versions of it, or other
    programs, could read different weights, this raises ModelError; as it does if there is no
    checkpoint (pickled weights are never opened), or a file is missing, truncated or mislabelled.
    """
    _refuse_detours(folder)
    index = None
    if (folder / INDEX).is_file():
        if os.path.lexists(folder / SINGLE):
            raise ModelError(
                f"{folder.name} holds both {SINGLE} and {INDEX}, and programs differ in which they "
                "read: remove the one that is not the model's"
            )
        index = read_json(folder / INDEX)
        listed = index.get("weight_map")
        if not isinstance(listed, dict) or not listed:
            raise ModelError(f"{INDEX} has no weight_map; fetch the model again")
        bad = [n for n in listed.values() if not isinstance(n, str) or Path(n).name != n]
        if bad:
            raise ModelError(f"{INDEX} names a file outside the folder: {bad[0]!r}")
        names = sorted(set(listed.values()))
    elif (folder / SINGLE).is_file():
        names = [SINGLE]
    else:
        raise ModelError(_no_weights(folder))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelError(f"the checkpoint lacks {', '.join(missing)}; fetch the model again")
    checkpoint = Checkpoint(folder, tuple(read_shard(folder / name) for name in names), index)
    if index is not None:
        _compare_with_index(checkpoint, index["weight_map"])
    return checkpoint


def _refuse_detours(folder: Path) -> None:
    """ModelError if some version of transformers would load other files than the usual ones."""
    if os.path.lexists(folder / ADAPTER):
        raise ModelError(
            f"{folder.name} holds {ADAPTER}, and transformers would load that adapter with the "
            "model: merge it (`merge_and_unload()`), or remove it"
        )
    config = read_if_there(folder / CONFIG)
    inner = [config, *(value for value in config.values() if isinstance(value, dict))]
    for key in _DETOURS:
        if any(one.get(key) is not None for one in inner):
            raise ModelError(
                f"{CONFIG} of {folder.name} has {key}, which sends some versions of transformers "
                "to other files: remove it, and give the files their usual names"
            )


def _compare_with_index(checkpoint: Checkpoint, listed: Mapping[str, str]) -> None:
    """ModelError unless each tensor is in one file, the one that the index lists for it."""
    file_of: dict[str, str] = {}
    for tensor in (tensor for shard in checkpoint.shards for tensor in shard.tensors):
        first = file_of.setdefault(tensor.name, tensor.file)
        if first != tensor.file:
            raise ModelError(f"{tensor.name} lies in two files, {first} and {tensor.file}")
    if wrong := sorted(name for name, file in listed.items() if file_of.get(name) != file):
        raise ModelError(f"{INDEX} lists {wrong[0]} in a file that does not hold it")
    if unlisted := sorted(file_of.keys() - listed.keys()):
        raise ModelError(f"{INDEX} does not list {unlisted[0]}, which {file_of[unlisted[0]]} holds")


def _no_weights(folder: Path) -> str:
    pickled = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
    if pickled:
        return (
            f"{folder.name} holds pickled weights ({pickled[0]}), which can run code when opened. "
            "Only safetensors is read: convert it with `model.save_pretrained(DIR)`."
        )
    gguf = sorted(folder.glob("*.gguf"))
    if gguf:
        return f"{folder.name} holds {gguf[0].name}; only safetensors is read, GGUF is not"
    return f"{folder.name} holds no {SINGLE} and no {INDEX}"


def read_shard(path: Path) -> WeightFile:
    """Parse and check one file's header."""
    length = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        size = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if head[:2] in (b"\x80\x02", b"PK"):
            raise ModelError(f"{path.name} is a pickle, not safetensors: it is not opened")
        if not 2 <= size <= min(_MOST_HEADER, length - 8):
            why = not_the_file(head + file.read(91)) or "fetch it again"
            raise ModelError(f"{path.name} is truncated or no safetensors file; {why}")
        raw = file.read(size)
    try:
        header = parse_json(raw)
        json.dumps(header, ensure_ascii=False).encode()  # fails on lone surrogates
        metadata = header.pop("__metadata__", {})
        if not all(isinstance(word, str) for pair in metadata.items() for word in pair):
            raise ValueError("its metadata does not map strings to strings")
        if metadata.get("format") not in _FORMATS:
            raise ValueError(f"its format is {metadata['format']!r}, not 'pt'")
        tensors = [
            Tensor(name, path.name, t["dtype"], tuple(t["shape"]), *t["data_offsets"])
            for name, t in header.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path.name} has a broken safetensors header: {error!r}") from None
    if not all(map(_is_sound, tensors)):
        raise ModelError(f"{path.name} has a broken safetensors header: bad type, shape or offsets")
    tensors.sort(key=lambda tensor: (tensor.begin, tensor.end))
    at = 0
    for tensor in tensors:
        bits = _BITS.get(tensor.dtype)
        count = int(np.prod(tensor.shape, dtype=object)) if tensor.shape else 1
        if bits is None:
            raise ModelError(f"{path.name}: {tensor.name} has the unknown type {tensor.dtype!r}")
        if tensor.begin != at or (tensor.end - tensor.begin) * 8 != count * bits:
            raise ModelError(f"{path.name}: the bytes of {tensor.name} do not fit its shape")
        at = tensor.end
    if length != 8 + size + at:
        state = "truncated" if length < 8 + size + at else "longer than its header says"
        raise ModelError(
            f"{path.name} is {state}: {length:,} bytes instead of {8 + size + at:,}; fetch it again"
        )
    return WeightFile(path, 8 + size, tuple(tensors), metadata)


def _is_sound(tensor: Tensor) -> bool:
    numbers = (*tensor.shape, tensor.begin, tensor.end)
    return isinstance(tensor.dtype, str) and all(type(n) is int and n >= 0 for n in numbers)


def header_bytes(tensors: tuple[Tensor, ...], metadata: Mapping[str, str]) -> bytes:
    """The length field and header of a file with these tensors in this order, padded to 8 bytes."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    for tensor in tensors:
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [tensor.begin, tensor.end],
        }
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw


def copy_file(source: Path, target: Path) -> None:
    """Copy a whole file; XFS and Btrfs share its blocks instead of copying them (reflink)."""
    left = source.stat().st_size
    with source.open("rb", 0) as file, target.open("wb", 0) as to:
        copy = getattr(os, "copy_file_range", None)
        while left and copy is not None:
            try:
                done = copy(file.fileno(), to.fileno(), min(left, 1 << 30))
            except OSError as error:
                if error.errno not in _NOT_SERVED:
                    raise
                break
            left -= done
            if not done:
                break
        if left:
            done = source.stat().st_size - left
            copy_range(file.fileno(), to.fileno(), done, done, left)


def copy_range(source: int, target: int, begin: int, at: int, count: int) -> None:
    """Copy `count` bytes from `begin` in one file to `at` in another, both given by descriptor.

    In-kernel copies are slower here, because ranges are not page-aligned in the target.
    """
    end = begin + count
    while begin < end:
        block = os.pread(source, min(BLOCK, end - begin), begin)
        if not block:
            raise ModelError("a weight file became shorter while it was copied")
        write_at(target, block, at)
        begin, at = begin + len(block), at + len(block)


def write_at(target: int, data: bytes, at: int) -> None:
    """Write every byte at an offset of a file, which may take several calls."""
    view = memoryview(data)
    while view:
        done = os.pwrite(target, view, at)
        view, at = view[done:], at + done


def decode(data: bytes, dtype: str) -> NDArray[np.float32]:
    """Floating-point bytes as float32; exact for all types but F64, which is rounded."""
    if dtype == "BF16":
        wide = np.frombuffer(data, "<u2").astype("<u4") << 16
        return wide.view("<f4").astype(np.float32, copy=False)
    if dtype in _FLOATS:
        return np.frombuffer(data, _FLOATS[dtype]).astype(np.float32)
    raise ModelError(f"rows of type {dtype} cannot be read; supported: {', '.join(SERVED)}")


def encode(rows: NDArray[np.float32], dtype: str) -> bytes:
    """float32 rows as bytes of `dtype`, rounded to nearest even.

    Raises ModelError if `dtype` is not in `SERVED`, or a value is not finite or overflows in it.
    """
    if dtype not in SERVED:
        raise ModelError(f"rows of type {dtype} cannot be written; supported: {', '.join(SERVED)}")
    values = np.ascontiguousarray(rows, dtype="<f4")
    if dtype == "BF16":
        bits = values.view("<u4")
        rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
        data: bytes = rounded.tobytes()
    else:
        with np.errstate(over="ignore"):
            data = values.astype(_FLOATS[dtype]).tobytes()
    if not np.isfinite(values).all() or not np.isfinite(decode(data, dtype)).all():
        raise ModelError(f"the new rows hold values that are not finite in {dtype}")
    return data


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the model; ModelError if it is not one."""
    return files.read_json(path, ModelError)


def read_if_there(path: Path) -> dict[str, Any]:
    """Like `read_json`, but empty if there is no such file."""
    return read_json(path) if path.is_file() else {}


_FLOATS = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
SERVED = ("BF16", *_FLOATS)
