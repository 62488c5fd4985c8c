"""A model folder as one GGUF file: from the folder alone, or from its base's GGUF.

With a base, every old tensor and every old row of the embedding tables is copied byte for byte;
only rows, tokens, merges (or scores), token types and barred ids are added. The file's layout:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

A base is read here, its tensors memory-mapped. The `gguf` package could do it, but makes a numpy
array of every string, which takes half a minute for Gemma's 262,144 tokens.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import ModelError, optional
from tokengraft.core.files import writing
from tokengraft.grafting.manifest import read_manifest
from tokengraft.model.checkpoint import Checkpoint, Tensor, read_checkpoint, read_json
from tokengraft.model.embedding_tables import find_layout
from tokengraft.model.folder import CONFIG
from tokengraft.model.tokenizer_files import TOKENIZER
from tokengraft.serving import gguf_layers
from tokengraft.serving.gguf_tokenizer import (
    Fields,
    GgufVocabulary,
    gguf_vocabulary,
    suppressed,
    tokenizer_fields,
)
from tokengraft.tokenizer.insert import first_free_id
from tokengraft.tokenizer.sentence_piece import scores_below

_ALIKE = 0.9  # least cosine of a dequantised row with the folder's; 2-bit files reach 0.93
_PROBES = 64  # old rows by which a base is recognised


@dataclass(frozen=True)
class _Block:
    """A tensor to be written; `make` gives its bytes when their turn comes."""

    name: str
    kind: str  # GGUF's name of the type
    shape: tuple[int, ...]
    make: Callable[[], NDArray[Any]]


def library() -> Any:
    """The `gguf` package; MissingExtra if it is not installed."""
    return optional("gguf", "A GGUF", "serve")


def write_gguf(folder: Path, out: Path, *, pre: str | None = None, kind: str | None = None) -> None:
    """Write the model of `folder`, quantised as `kind` (default: in the folder's types).

    `pre` names llama.cpp's split pattern. Raises ModelError for an unsupported architecture.
    """
    gguf = library()
    config, checkpoint = read_json(folder / CONFIG), read_checkpoint(folder)
    layout = find_layout(config, checkpoint)
    tokenizer = read_json(folder / TOKENIZER)
    arch = gguf_layers.architecture_of(config).name
    fields: Fields = {
        "general.name": folder.resolve().name,
        "general.file_type": gguf_layers.FILE_TYPES.get(kind or layout.input.dtype, 0),
        **({"general.quantization_version": gguf.GGML_QUANT_VERSION} if kind else {}),
        **gguf_layers.size_fields(config, layout),
        **tokenizer_fields(folder, tokenizer, layout.rows, pre),
    }
    count = int(fields[f"{arch}.block_count"])
    blocks = []
    for weight in gguf_layers.weights(config, checkpoint, layout):
        flat = len(weight.shape) == 1 or "norm" in weight.name
        target = "F32" if flat else weight.dtype
        if kind is not None and not flat:
            target = gguf_layers.recipe(kind, weight.name, weight.shape[-1], count, layout.tied)
        make = functools.partial(_quantised, weight, target)
        blocks.append(_Block(weight.name, target, weight.shape, make))
    _write(out, arch, fields, blocks)


def _quantised(weight: gguf_layers.Weight, kind: str) -> NDArray[Any]:
    return gguf_layers.quantize(weight.read(), kind)


def write_from_base(base: Gguf, folder: Path, out: Path, *, pre: str | None = None) -> None:
    """Write the graft as its base's GGUF with more rows and tokens; ModelError if not its base."""
    gguf = library()
    manifest = read_manifest(folder)
    if manifest is None:
        raise ModelError(f"{folder.name} has no tokengraft.json: --base is for grafted folders")
    if "places" in manifest:
        raise ModelError(
            f"{folder.name} has its base's size and its new tokens have old ids, so the base's "
            "GGUF cannot be extended with them; export it without --base"
        )
    new = range(*manifest["output"]["new"])
    config, checkpoint = read_json(folder / CONFIG), read_checkpoint(folder)
    layout = find_layout(config, checkpoint)
    arch = str(base.get("general.architecture"))
    spelled = gguf_vocabulary(read_json(folder / TOKENIZER), layout.rows)
    changed = _changed(base, spelled, new)
    if f"{arch}.vocab_size" in base.values:
        changed[f"{arch}.vocab_size"] = layout.rows
    if pre is not None and spelled.model == "gpt2":
        changed["tokenizer.ggml.pre"] = pre
    changed |= suppressed(folder)
    tables = {
        "token_embd.weight": layout.input,
        "output.weight": layout.head or layout.input,
        "output.bias": layout.bias,
    }
    if layout.head is not None and not layout.tied and "output.weight" not in base.tensors:
        raise ModelError("the base GGUF ties its tables, the graft does not: it is another model's")
    blocks = []
    for tensor in base.tensors.values():
        table = tables.get(tensor.name)
        data: NDArray[Any] = tensor.data
        if table is not None:
            if tensor.name == "token_embd.weight":
                _check_rows(tensor, checkpoint, table, new.start)
            data = _grown(tensor, checkpoint, table, new)
        shape = (len(data), *tensor.shape[1:]) if table is not None else tensor.shape
        kind = gguf.GGMLQuantizationType(tensor.kind)
        make = functools.partial(np.asarray, data)
        blocks.append(_Block(tensor.name, kind.name, shape, make))
    fields = {name: one.value for name, one in base.values.items()} | changed
    del fields["general.architecture"]
    types = {name: (one.kind, one.inner) for name, one in base.values.items()}
    _write(out, arch, fields, blocks, types)


def _grown(tensor: Stored, checkpoint: Checkpoint, table: Tensor, new: range) -> NDArray[np.uint8]:
    """A table of the base with the graft's new rows, in the base's type."""
    kind = library().GGMLQuantizationType(tensor.kind).name
    data = tensor.data.reshape(tensor.shape[0], -1)  # a bias has one number per row
    first = min(new.start, len(data))
    rows = gguf_layers.quantize(checkpoint.rows(table, first, new.stop), kind)
    added = rows.reshape(len(rows), -1).view(np.uint8)
    return np.concatenate([data[:first], added, data[new.stop :]])


def _changed(base: Gguf, spelled: GgufVocabulary, new: range) -> Fields:
    """The base's keys that change; ModelError if its tokens or merges are not the graft's."""
    tokens, kind = base.get("tokenizer.ggml.tokens"), base.get("tokenizer.ggml.model")
    if tokens is None or kind != spelled.model:
        raise ModelError(
            f"the base GGUF has a tokenizer of kind {kind!r}, the graft's is {spelled.model!r}: "
            "it is another model's, or an early conversion; convert the base again"
        )
    for number, (theirs, ours) in enumerate(zip(tokens, spelled.tokens, strict=False)):
        if number not in new and theirs != ours and not ours.startswith("[PAD"):
            raise ModelError(
                f"token {number} is {theirs!r} in the base GGUF, {ours!r} in the graft: "
                "it is another model's"
            )
    size = len(tokens)
    types = [*(base.get("tokenizer.ggml.token_type") or spelled.types[:size])]
    tokens, types = [*tokens, *spelled.tokens[size:]], [*types, *spelled.types[size:]]
    for number in new:
        tokens[number], types[number] = spelled.tokens[number], spelled.types[number]
    changed: Fields = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    if spelled.model == "gpt2":
        merges = base.get("tokenizer.ggml.merges") or []
        if spelled.merges[: len(merges)] != merges:
            raise ModelError("the merges of the base GGUF are not those of the graft's base")
        return changed | {"tokenizer.ggml.merges": spelled.merges}
    scores = [*base.get("tokenizer.ggml.scores"), *[0.0] * (len(tokens) - size)]
    ranked = sorted(new, key=lambda number: -spelled.scores[number])
    # New merges come after every old one, in their own order.
    for number, score in zip(ranked, scores_below(min(scores), len(ranked)), strict=True):
        scores[number] = score
    return changed | {"tokenizer.ggml.scores": scores}


def _check_rows(tensor: Stored, checkpoint: Checkpoint, table: Tensor, old: int) -> None:
    """ModelError unless the base's rows equal the graft's first `old` ones, up to quantisation."""
    gguf = library()
    if tensor.shape[-1] != table.shape[1]:
        raise ModelError(
            f"the base GGUF has width {tensor.shape[-1]}, the graft {table.shape[1]}: it is "
            "another base's, or has lanes, which make it wider. Export it without --base."
        )
    at = np.linspace(0, min(old, len(tensor.data)) - 1, _PROBES).astype(int)
    kind = gguf.GGMLQuantizationType(tensor.kind)
    theirs = gguf.quants.dequantize(np.ascontiguousarray(tensor.data[at]), kind)
    ours = np.concatenate([checkpoint.rows(table, i, i + 1) for i in at.tolist()])
    lengths = np.linalg.norm(theirs, axis=1) * np.linalg.norm(ours, axis=1)
    alike = np.where(lengths > 0, (theirs * ours).sum(1) / np.maximum(lengths, 1e-30), 1.0)
    if float(np.median(alike)) < _ALIKE:
        raise ModelError("the rows of the base GGUF are not those of the graft's base")


def write_probe(folder: Path, out: Path, pre: str | None) -> None:
    """Write the folder's tokenizer with a tiny one-layer model, to try the split pattern `pre`."""
    tokenizer = read_json(folder / TOKENIZER)
    rows = first_free_id(tokenizer)
    width = 32
    shape = {
        "vocab_size": rows, "context_length": 512, "embedding_length": width, "block_count": 1,
        "feed_forward_length": width, "attention.head_count": 1, "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 1e-5, "rope.dimension_count": width,
    }  # fmt: skip
    fields: Fields = {f"llama.{key}": value for key, value in shape.items()}
    fields |= tokenizer_fields(folder, tokenizer, rows, pre)
    sizes = {"token_embd": (rows, width), "output_norm": (width,)}
    sizes |= {f"blk.0.{part}_norm": (width,) for part in ("attn", "ffn")}
    squares = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    sizes |= {f"blk.0.{part}": (width, width) for part in squares}
    blocks = [
        _Block(f"{name}.weight", "F32", size, functools.partial(np.zeros, size, np.float32))
        for name, size in sizes.items()
    ]
    _write(out, "llama", fields, blocks)


def _write(
    out: Path,
    arch: str,
    fields: Mapping[str, Any],
    blocks: Sequence[_Block],
    types: Mapping[str, tuple[Any, Any]] | None = None,
) -> None:
    """Write the file, completely or not at all; tensors are made one at a time."""
    gguf = library()
    with writing(out) as temporary:
        writer = gguf.GGUFWriter(temporary, arch)
        writer.data_alignment = int(fields.get("general.alignment", writer.data_alignment))
        for name, value in fields.items():
            kind, inner = (types or {}).get(name) or _types(name, value)
            inside = {} if inner is None else {"sub_type": gguf.GGUFValueType(inner)}
            writer.add_key_value(name, value, gguf.GGUFValueType(kind), **inside)
        for block in blocks:
            number = gguf.GGMLQuantizationType[block.kind]
            shape = gguf.quants.quant_shape_to_byte_shape(block.shape, number)
            size = int(np.prod(shape, dtype=np.int64))
            writer.add_tensor_info(block.name, shape, np.dtype(np.uint8), size, raw_dtype=number)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for block in blocks:
            writer.write_tensor_data(np.ascontiguousarray(block.make()).view(np.uint8))
        writer.close()


def _types(name: str, value: Any) -> tuple[Any, Any]:
    """The GGUF types that llama.cpp expects for a key: the value's, and an array's members'."""
    kinds = library().GGUFValueType
    signed = name in ("tokenizer.ggml.token_type", "tokenizer.ggml.suppress_tokens")
    simple = {bool: kinds.BOOL, str: kinds.STRING, float: kinds.FLOAT32}
    if isinstance(value, list):
        inner = kinds.INT32 if signed else simple.get(type(value[0]), kinds.UINT32)
        return kinds.ARRAY, inner
    return simple.get(type(value), kinds.UINT32), None


_SIMPLE = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_UINT32, _STRING, _ARRAY = 4, 8, 9
_VERSIONS = (2, 3)
_Entry = TypeVar("_Entry")


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
        """The value of a key, or None."""
        entry = self.values.get(key)
        return None if entry is None else entry.value


def read_gguf(path: Path) -> Gguf:
    """The file's keys and tensors; ModelError if it is not a GGUF or damaged."""
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
    said = values.get("general.alignment", Value(32, _UINT32))
    alignment = said.value
    if said.kind != _UINT32 or alignment.bit_count() != 1:
        raise ValueError(f"general.alignment is {alignment!r}, no power of two of 32 bits")
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


def _unique(pairs: Iterable[tuple[str, _Entry]]) -> dict[str, _Entry]:
    """The pairs as a dict; ValueError if a name comes twice."""
    entries: dict[str, _Entry] = {}
    for name, one in pairs:
        if name in entries:
            raise ValueError(f"{name} is there twice")
        entries[name] = one
    return entries


class _Cursor:
    """A position in the file's bytes that advances with every read, never past the end."""

    def __init__(self, data: memoryview) -> None:
        self._data, self.at = data, 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes; ValueError if the file ends before."""
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
            raise ModelError("a GGUF with arrays of arrays cannot be read here")
        layout = struct.Struct(f"<{count}{_SIMPLE[inner]}")
        return Value(list(layout.unpack(self.take(layout.size))), kind, inner)
