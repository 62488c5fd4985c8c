"""The header of a GGUF file, and its tensors as maps of the file.

The `gguf` package reads one too, with a numpy array for every string: half a minute for Gemma's
262,144 tokens. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import ModelError

_SIMPLE = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)


@dataclass(frozen=True)
class Value:
    """A key's value and its types: the value's own, and that of an array's members."""

    value: Any
    kind: int
    inner: int | None = None


@dataclass(frozen=True)
class Stored:
    """A tensor: its type's number, its shape (outermost axis first) and its bytes by row."""

    name: str
    kind: int
    shape: tuple[int, ...]
    data: NDArray[np.uint8]  # (rows, bytes of a row)


@dataclass(frozen=True)
class Gguf:
    """A file's keys and tensors, in the file's order."""

    values: dict[str, Value]
    tensors: dict[str, Stored]

    def get(self, key: str) -> Any:
        """The value of a key, None where there is none."""
        entry = self.values.get(key)
        return None if entry is None else entry.value


def read_gguf(path: Path) -> Gguf:
    """The file's keys and tensors; ModelError where it is no such file, or cut short."""
    if not path.is_file():
        raise ModelError(f"no file {path}")
    with path.open("rb") as file:
        try:
            return _read(file, path)
        except (struct.error, UnicodeDecodeError, KeyError, ValueError) as error:
            raise ModelError(f"{path.name} is damaged or cut short ({error!r})") from None


def _read(file: BinaryIO, path: Path) -> Gguf:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    magic, version = file.read(4), _number(file, "I")
    if magic != b"GGUF" or version not in _VERSIONS:
        raise ModelError(f"{path.name} is not a GGUF file of version 2 or 3")
    count, keys = _number(file, "Q"), _number(file, "Q")
    values = {_text(file): _value(file, _number(file, "I")) for _ in range(keys)}
    infos = []
    for _ in range(count):
        name, axes = _text(file), _number(file, "I")
        shape = tuple(_number(file, "Q") for _ in range(axes))[::-1]
        infos.append((name, shape, _number(file, "I"), _number(file, "Q")))
    alignment = values.get("general.alignment")
    start = file.tell() + -file.tell() % (alignment.value if alignment else 32)
    whole = np.memmap(path, np.uint8, "r")
    tensors = {}
    for name, shape, kind, offset in infos:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        rows, row = int(np.prod(shape[:-1], dtype=np.int64)), shape[-1] // block * size
        data = whole[start + offset : start + offset + rows * row].reshape(rows, row)
        tensors[name] = Stored(name, kind, shape, data)
    return Gguf(values, tensors)


def _value(file: BinaryIO, kind: int) -> Value:
    if kind == _STRING:
        return Value(_text(file), kind)
    if kind != _ARRAY:
        return Value(_number(file, _SIMPLE[kind]), kind)
    inner, count = _number(file, "I"), _number(file, "Q")
    if inner == _STRING:
        return Value([_text(file) for _ in range(count)], kind, inner)
    if inner == _ARRAY:
        raise ModelError("a GGUF with arrays of arrays is not read here")
    layout = struct.Struct(f"<{count}{_SIMPLE[inner]}")
    return Value(list(layout.unpack(file.read(layout.size))), kind, inner)


def _number(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))[0]


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    data = file.read(length)
    if len(data) != length:
        raise ValueError("a text is cut short")
    return data.decode("utf-8")
