"""The header of a GGUF file, and its tensors as maps of the file.

The `gguf` package reads one too, with a numpy array for every string: half a minute for Gemma's
262,144 tokens. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import ModelError

_SIMPLE = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)
_Held = TypeVar("_Held")


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
    """The file's keys and tensors; ModelError where it is no such file, or damaged."""
    if not path.is_file():
        raise ModelError(f"no file {path}")
    try:
        return _read(np.memmap(path, np.uint8, "r"), path.name)
    except (struct.error, KeyError, ValueError) as error:
        raise ModelError(f"{path.name} is damaged or cut short ({error!r})") from None


def _read(whole: NDArray[np.uint8], name: str) -> Gguf:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    file = _Cursor(whole.data)
    magic, version = file.take(4), file.number("I")
    if magic != b"GGUF" or version not in _VERSIONS:
        raise ModelError(f"{name} is not a GGUF file of version 2 or 3")
    count, keys = file.number("Q"), file.number("Q")
    values = _unique((file.text(), file.value(file.number("I"))) for _ in range(keys))
    infos = []
    for _ in range(count):
        tensor, axes = file.text(), file.number("I")
        shape = tuple(file.number("Q") for _ in range(axes))[::-1]
        infos.append((tensor, shape, file.number("I"), file.number("Q")))
    alignment = values["general.alignment"].value if "general.alignment" in values else 32
    if type(alignment) is not int or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}")
    start = file.at + -file.at % alignment
    tensors = []
    for tensor, shape, kind, offset in infos:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        if not shape or shape[-1] % block:
            raise ValueError(f"{tensor} of shape {list(shape)} in blocks of {block}")
        rows, row = math.prod(shape[:-1]), shape[-1] // block * size
        data = whole[start + offset : start + offset + rows * row].reshape(rows, row)
        tensors.append((tensor, Stored(tensor, kind, shape, data)))
    return Gguf(values, _unique(tensors))


def _unique(pairs: Iterable[tuple[str, _Held]]) -> dict[str, _Held]:
    """The pairs as a mapping; ValueError where a name comes twice."""
    held: dict[str, _Held] = {}
    for name, one in pairs:
        if name in held:
            raise ValueError(f"{name} is there twice")
        held[name] = one
    return held


class _Cursor:
    """A place in the file's bytes, moved on by what is read there: no more than there is."""

    def __init__(self, data: memoryview) -> None:
        self._data, self.at = data, 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes; ValueError where the file ends before."""
        piece = self._data[self.at : self.at + size]
        if len(piece) != size:
            raise ValueError("it ends too early")
        self.at += size
        return bytes(piece)

    def number(self, code: str) -> Any:
        """The next number, by struct's letter for its type."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        """The next text."""
        return self.take(self.number("Q")).decode("utf-8")

    def value(self, kind: int) -> Value:
        """The next value of this type."""
        if kind == _STRING:
            return Value(self.text(), kind)
        if kind != _ARRAY:
            return Value(self.number(_SIMPLE[kind]), kind)
        inner, count = self.number("I"), self.number("Q")
        if inner == _STRING:
            return Value([self.text() for _ in range(count)], kind, inner)
        if inner == _ARRAY:
            raise ModelError("a GGUF with arrays of arrays is not read here")
        layout = struct.Struct(f"<{count}{_SIMPLE[inner]}")
        return Value(list(layout.unpack(self.take(layout.size))), kind, inner)
