"""A model folder's tensors and sizes in GGUF's words, for the architectures llama.cpp also knows.

Names come from the `gguf` package. llama.cpp rotates pairs of neighbours where Llama's files in
safetensors rotate halves, so the rows of `q` and `k` are reordered; Gemma's norms hold w, llama.cpp
wants 1 + w. Whatever is not in the table below goes through a base GGUF (`--base`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import ModelError
from tokengraft.model.checkpoint import Checkpoint, Tensor
from tokengraft.model.embedding_tables import Layout, text_config
from tokengraft.serving.gguf_tokenizer import Fields

_WAY_OUT = "convert the base with llama.cpp's convert_hf_to_gguf.py and give it with --base"


@dataclass(frozen=True)
class Architecture:
    """How one architecture is written: llama.cpp's name, and what its weights need."""

    name: str
    reordered: bool = False  # rows of q and k
    shifted: bool = False  # norms as 1 + w
    fields: Callable[[Mapping[str, Any]], Fields] = lambda config: {}


def _gemma3(config: Mapping[str, Any]) -> Fields:
    if config.get("query_pre_attn_scalar") != config.get("head_dim"):
        raise ModelError(f"this Gemma scales its queries in a way of its own: {_WAY_OUT}")
    return {"attention.sliding_window": int(config["sliding_window"])}


#: By the first of `architectures` in config.json.
ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": Architecture("llama", reordered=True),
    "MistralForCausalLM": Architecture("llama", reordered=True),
    "Qwen2ForCausalLM": Architecture("qwen2"),
    "Qwen3ForCausalLM": Architecture("qwen3"),
    "Gemma3ForCausalLM": Architecture("gemma3", shifted=True, fields=_gemma3),
    "Olmo2ForCausalLM": Architecture("olmo2"),
}


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """The row of the table for a config; ModelError, with the way out, where there is none."""
    name = next(iter(config.get("architectures") or ()), None)
    if name not in ARCHITECTURES:
        raise ModelError(
            f"a GGUF of {name} is not written from its folder (written are "
            f"{', '.join(ARCHITECTURES)}): {_WAY_OUT}"
        )
    return ARCHITECTURES[name]


def size_fields(config: Mapping[str, Any], layout: Layout) -> Fields:
    """Every key of the architecture; ModelError for what cannot be said in a GGUF here."""
    kind = architecture_of(config)
    text = text_config(config)
    if layout.bias is not None or text.get("mlp_bias"):
        raise ModelError(f"biases of this model are not written from its folder: {_WAY_OUT}")
    heads = int(text["num_attention_heads"])
    head = int(text.get("head_dim") or layout.width // heads)
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
    """The rotary settings, in either way of writing them; Gemma's are those of full attention."""
    rope = dict(text.get("rope_parameters") or text.get("rope_scaling") or {})
    rope = dict(rope.get("full_attention") or rope)
    rope.setdefault("rope_theta", text.get("rope_theta", 10000.0))
    rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
    if rope["rope_type"] not in ("default", "linear", "llama3"):
        raise ModelError(f"rotary scaling {rope['rope_type']!r} is not written here: {_WAY_OUT}")
    return rope


@dataclass(frozen=True)
class Weight:
    """One tensor of the file: its name, its shape and how to read it."""

    name: str
    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.float32]]
    dtype: str  # as the folder stores it


def weights(config: Mapping[str, Any], checkpoint: Checkpoint, layout: Layout) -> Iterator[Weight]:
    """Every tensor under GGUF's name, read when it is asked for."""
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
    """Llama 3.1's scaling as llama.cpp takes it: what each frequency is divided by."""
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
