"""A model folder's tensors and sizes under GGUF's names, for architectures that llama.cpp knows.

Names come from the `gguf` package. llama.cpp rotates neighbouring pairs where Llama's safetensors
rotate halves, so the rows of `q` and `k` are reordered; Gemma's norms store w, while llama.cpp
expects 1 + w. An architecture that is not in the table below needs a base GGUF (`--base`).

Quantisation is done with numpy. The `gguf` package writes Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0, but only
reads the K types; those are written here. A super-block of 256 weights holds blocks of 16 (Q6_K) or
32 (Q4_K, Q5_K), each with a scale (and a minimum) that is itself stored in 6 or 8 bits:

    Q6_K  w = d · s_b · (q − 32)          Q4_K, Q5_K  w = d · s_b · q − m · m_b

Layout: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. Values are rounded to the
nearest, row by row, so a longer table keeps the bytes of its old rows.
Changed: no search for the scale of least error, which llama.cpp does for each block. `recipe` is
llama.cpp's Q4_K_M, with its fallback for widths that are not multiples of 256.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import ModelError, UsageError, did_you_mean
from tokengraft.model.checkpoint import Checkpoint, Tensor
from tokengraft.model.embedding_tables import Tables, text_config
from tokengraft.serving.gguf_tokenizer import Fields

_WAY_OUT = "convert the base with llama.cpp's convert_hf_to_gguf.py and give it with --base"


@dataclass(frozen=True)
class Architecture:
    """How one architecture is written: llama.cpp's name for it, and how its weights change."""

    name: str
    reordered: bool = False  # reorder the rows of q and k
    shifted: bool = False  # write norms as 1 + w
    square: bool = False  # llama.cpp takes heads only that are together as wide as a state
    fields: Callable[[Mapping[str, Any]], Fields] = lambda config: {}


def _gemma3(config: Mapping[str, Any]) -> Fields:
    if config.get("query_pre_attn_scalar") != config.get("head_dim"):
        raise ModelError(f"this Gemma scales its queries in an unusual way: {_WAY_OUT}")
    return {"attention.sliding_window": int(config["sliding_window"])}


#: By the first entry of `architectures` in config.json.
ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": Architecture("llama", reordered=True),
    "MistralForCausalLM": Architecture("llama", reordered=True),
    "Qwen2ForCausalLM": Architecture("qwen2", square=True),
    "Qwen3ForCausalLM": Architecture("qwen3"),
    "Gemma3ForCausalLM": Architecture("gemma3", shifted=True, fields=_gemma3),
    "Olmo2ForCausalLM": Architecture("olmo2"),
}


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """The row of the table for a config; ModelError, with a workaround, if there is none."""
    name = next(iter(config.get("architectures") or ()), None)
    if name not in ARCHITECTURES:
        raise ModelError(
            f"{name} cannot be written as GGUF from its folder, only "
            f"{', '.join(ARCHITECTURES)}: {_WAY_OUT}"
        )
    return ARCHITECTURES[name]


def size_fields(config: Mapping[str, Any], layout: Tables) -> Fields:
    """Every GGUF key of the architecture; ModelError if the model has what is not written here."""
    kind = architecture_of(config)
    text = text_config(config)
    if layout.bias is not None or text.get("mlp_bias"):
        raise ModelError(f"this model's biases cannot be written from its folder: {_WAY_OUT}")
    heads = int(text["num_attention_heads"])
    head = int(text.get("head_dim") or layout.width // heads)
    if kind.square and heads * head != layout.width:
        raise ModelError(
            f"llama.cpp takes {kind.name} only with heads that are together as wide as a state, "
            f"not {heads * head} of {layout.width}: graft without --train lanes for it"
        )
    rope = _rope(text)
    fields: Fields = {
        "vocab_size": layout.rows,
        "context_length": int(text["max_position_embeddings"]),
        "embedding_length": layout.width,
        "block_count": int(text["num_hidden_layers"]),
        "feed_forward_length": int(text["intermediate_size"]),
        "attention.head_count": heads,
        "attention.head_count_kv": int(text.get("num_key_value_heads") or heads),
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": float(text.get("rms_norm_eps", 1e-6)),
        "rope.dimension_count": head,
        "rope.freq_base": float(rope.get("rope_theta", 10000.0)),
        **kind.fields(text),
    }
    if rope["rope_type"] == "linear":
        fields |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    return {f"{kind.name}.{key}": value for key, value in fields.items()}


def _rope(text: Mapping[str, Any]) -> dict[str, Any]:
    """The rotary settings, from either form of config; for Gemma those of full attention."""
    rope = dict(text.get("rope_parameters") or text.get("rope_scaling") or {})
    rope = dict(rope.get("full_attention") or rope)
    rope.setdefault("rope_theta", text.get("rope_theta", 10000.0))
    rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
    if rope["rope_type"] not in ("default", "linear", "llama3"):
        raise ModelError(f"rotary scaling {rope['rope_type']!r} cannot be written here: {_WAY_OUT}")
    return rope


@dataclass(frozen=True)
class Weight:
    """One tensor of the GGUF: its name, its shape and how to read it from the folder."""

    name: str
    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.float32]]
    dtype: str  # as the folder stores it


def weights(config: Mapping[str, Any], checkpoint: Checkpoint, layout: Tables) -> Iterator[Weight]:
    """Every tensor under its GGUF name; values are read when `read` is called."""
    import gguf

    kind = architecture_of(config)
    text = text_config(config)
    heads = int(text["num_attention_heads"])
    known = int(text.get("num_key_value_heads") or heads)
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == kind.name)
    names = gguf.get_tensor_name_map(arch, int(text["num_hidden_layers"]))
    rope = _rope(text)
    if rope["rope_type"] == "llama3":
        factors = _llama3_factors(rope, int(text.get("head_dim") or layout.width // heads))
        yield Weight("rope_freqs.weight", factors.shape, lambda: factors, "F32")
    for tensor in checkpoint.tensors.values():
        if tensor.name.endswith("rotary_emb.inv_freq"):
            continue
        if layout.tied and layout.head is not None and tensor.name == layout.head.name:
            continue
        name = names.get_name(tensor.name, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise ModelError(f"llama.cpp has no place for {tensor.name}: {_WAY_OUT}")
        order = None
        if kind.reordered and ".self_attn." in tensor.name:
            order = heads if ".q_proj." in tensor.name else None
            order = known if ".k_proj." in tensor.name else order
        shifted = kind.shifted and "norm" in tensor.name
        read = _reader(checkpoint, tensor, order, shifted)
        yield Weight(name, tensor.shape, read, tensor.dtype)


def _reader(
    checkpoint: Checkpoint, tensor: Tensor, heads: int | None, shifted: bool
) -> Callable[[], NDArray[np.float32]]:
    def read() -> NDArray[np.float32]:
        values = checkpoint.rows(tensor, 0, tensor.shape[0])
        if heads is not None:
            halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        return values + 1 if shifted else values

    return read


def _llama3_factors(rope: Mapping[str, Any], head: int) -> NDArray[np.float32]:
    """Llama 3.1's rotary scaling as llama.cpp takes it: a divisor for each frequency."""
    base, factor = float(rope["rope_theta"]), float(rope["factor"])
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    context = float(rope["original_max_position_embeddings"])
    factors = []
    for i in range(0, head, 2):
        length = 2 * math.pi * base ** (i / head)
        smooth = (context / length - low) / (high - low)
        if length < context / high:
            factors.append(1.0)
        elif length > context / low:
            factors.append(factor)
        else:
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


SUPER = 256
#: Values of `--quantize`, named after the type that most tensors of such a file have.
KINDS = ("F32", "F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "Q6_K", "Q4_K_M")
#: llama.cpp's numbers for the kinds (`general.file_type`).
FILE_TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q4_K_M": 15,
    "Q6_K": 18, "BF16": 32,
}  # fmt: skip
_NARROW = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
_K_TYPES = tuple(_NARROW)


def check_kind(name: str) -> str:
    """`name` as one of KINDS, in any case of letters; UsageError that lists them otherwise."""
    if name.upper() not in KINDS:
        known = ", ".join(KINDS)
        hint = did_you_mean(name.upper(), KINDS)
        raise UsageError(
            f"no kind of file {name!r} (--quantize); known: {known}.{hint} For another kind "
            "quantise the base with llama.cpp's llama-quantize and give it with --base."
        )
    return name.upper()


def recipe(kind: str, name: str, width: int, blocks: int, tied: bool) -> str:
    """The type of the tensor `name` (GGUF's name), with rows of `width`, in a file of `kind`."""
    wanted = kind
    if kind == "Q4_K_M":
        wanted = "Q4_K"
        block = re.match(r"blk\.(\d+)\.(attn_v|ffn_down)\.weight", name)
        head = name == "output.weight" or (tied and name == "token_embd.weight")
        if head or (block and _more_bits(int(block[1]), blocks)):
            wanted = "Q6_K"
    if width % SUPER:
        wanted = _NARROW.get(wanted, wanted)
    return "F16" if width % 32 and wanted not in ("F32", "BF16") else wanted


def _more_bits(block: int, blocks: int) -> bool:
    """Whether a block's tensors get more bits: first and last eighth, every third between."""
    eighth = blocks // 8
    return block < eighth or block >= 7 * blocks // 8 or (block - eighth) % 3 == 2


def quantize(rows: NDArray[np.float32], kind: str) -> NDArray[Any]:
    """Rows in a GGUF type, quantised ones as bytes; UsageError if it cannot be written."""
    import gguf

    if kind == "F32":
        return np.ascontiguousarray(rows, np.float32)
    if kind in _K_TYPES:
        blocks = rows.reshape(-1, SUPER).astype(np.float32)
        packed = _q6_k(blocks) if kind == "Q6_K" else _q45_k(blocks, kind == "Q5_K")
        return packed.reshape(*rows.shape[:-1], -1)
    try:
        made: NDArray[Any] = gguf.quants.quantize(rows, gguf.GGMLQuantizationType[kind])
    except NotImplementedError:
        raise UsageError(
            f"rows of type {kind} cannot be written here: give a base GGUF of another kind "
            f"({', '.join(KINDS)})"
        ) from None
    return made


def _q6_k(blocks: NDArray[np.float32]) -> NDArray[np.uint8]:
    """(n, 256) to (n, 210): low bits, high bits, scales, d."""
    groups = blocks.reshape(-1, 16, 16)
    at = np.abs(groups).argmax(axis=2)[..., None]
    scales = np.take_along_axis(groups, at, 2)[..., 0] / -32  # the largest weight becomes −32
    d = (np.abs(scales).max(axis=1, keepdims=True) / 127).astype(np.float16)
    s = np.clip(np.rint(_divided(scales, d)), -128, 127)
    steps = (d.astype(np.float32) * s)[..., None]
    q = np.clip(np.rint(_divided(groups, steps)), -32, 31).astype(np.int16) + 32
    four = q.astype(np.uint8).reshape(-1, 2, 4, 32)
    low, high = four & 15, four >> 4
    ql = np.concatenate([low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], 2)
    qh = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    n = len(blocks)
    parts = (ql.reshape(n, -1), qh.reshape(n, -1), s.astype(np.int8).view(np.uint8), _bytes(d))
    return np.concatenate(parts, axis=1)


def _q45_k(blocks: NDArray[np.float32], five: bool) -> NDArray[np.uint8]:
    """(n, 256) to (n, 144) or, with a fifth bit, (n, 176): d, m, scales and minima, bits."""
    n = len(blocks)
    top = 31 if five else 15
    groups = blocks.reshape(n, 8, 32)
    least = np.minimum(groups.min(axis=2), 0)
    scales, minima = (groups.max(axis=2) - least) / top, -least
    d = (scales.max(axis=1, keepdims=True) / 63).astype(np.float16)
    m = (minima.max(axis=1, keepdims=True) / 63).astype(np.float16)
    s, b = (
        np.clip(np.rint(_divided(values, unit)), 0, 63).astype(np.uint8)
        for values, unit in ((scales, d), (minima, m))
    )
    steps = (d.astype(np.float32) * s)[..., None]
    lifted = groups + (m.astype(np.float32) * b)[..., None]
    q = np.clip(np.rint(_divided(lifted, steps)), 0, top).astype(np.uint8)
    packed = [
        s[:, :4] | (s[:, 4:] >> 4) << 6,
        b[:, :4] | (b[:, 4:] >> 4) << 6,
        (s[:, 4:] & 15) | (b[:, 4:] & 15) << 4,
    ]
    low = (q & 15).reshape(n, 4, 2, 32)
    bits = [(low[:, :, 0] | low[:, :, 1] << 4).reshape(n, -1)]
    if five:
        fifth = (q >> 4).reshape(n, 8, 32) << np.arange(8, dtype=np.uint8)[None, :, None]
        bits.insert(0, np.bitwise_or.reduce(fifth, axis=1))
    return np.concatenate([_bytes(d), _bytes(m), *packed, *bits], axis=1)


def _divided(values: NDArray[Any], units: NDArray[Any]) -> NDArray[np.float32]:
    """Values divided by units, 0 where a unit is 0."""
    unit = np.broadcast_to(units.astype(np.float32), values.shape)
    quotients: NDArray[np.float32]
    quotients = np.divide(values, unit, out=np.zeros_like(values, np.float32), where=unit != 0)
    return quotients


def _bytes(halves: NDArray[np.float16]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(halves, "<f2").view(np.uint8)
