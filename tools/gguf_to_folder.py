"""Convert a GGUF file to a plain model folder: config, tokenizer and bfloat16 safetensors.

    python tools/gguf_to_folder.py MODEL.gguf OUT [--weights-only] [--device cuda]

Needs `pip install gguf` besides torch and transformers (and `accelerate`, which transformers
requires to read a GGUF header). Weights are dequantised from the file, so the folder is the
quantised model, not the original. Architectures: llama, qwen2, gemma3. What transformers leaves out
of the tokenizers is put back: SmolLM's digits, Qwen's NFC, Gemma's BOS; names that the GGUF makes
up for spare rows are dropped. `--weights-only` writes model.safetensors alone and needs no
accelerate.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LICENSES = {"qwen2": "apache-2.0"}  # files that do not state theirs
_ROWS = 8192  # dequantised at a time


def main() -> None:
    """Convert one file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights-only", action="store_true")
    parser.add_argument("--device", default="cpu", help="where K types are dequantised")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.weights_only:
        write_side_files(options.gguf, options.out)
    count = write_weights(options.gguf, options.out / "model.safetensors", options.device)
    print(f"{options.out.name}: {count} tensors")


def write_weights(source: Path, target: Path, device: str) -> int:
    """Write all tensors under transformers' names, in bfloat16; return how many there are."""
    import torch
    from safetensors.torch import save_file

    gguf: Any = importlib.import_module("gguf")
    reader = gguf.GGUFReader(source)
    kind = str(reader.fields["general.architecture"].contents())
    heads = {
        name: int(reader.fields[f"{kind}.attention.{key}"].contents())
        for name, key in (("attn_q", "head_count"), ("attn_k", "head_count_kv"))
    }
    named: dict[str, Any] = {}
    for tensor in reader.tensors:
        shape = tuple(int(n) for n in reversed(tensor.shape))
        whole = torch.empty(shape, dtype=torch.bfloat16)
        for start in range(0, shape[0], _ROWS):
            rows = slice(start, start + _ROWS)
            part = dequantise(tensor.data[rows], tensor.tensor_type, device)
            if kind == "gemma3" and tensor.name.endswith("norm.weight"):
                part = part - 1  # the file holds 1 + w
            whole[rows] = part.to(torch.bfloat16).reshape(whole[rows].shape).cpu()
        piece = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if kind == "llama" and piece in heads:
            whole = _unpermute(whole, heads[piece])
        named[name_of(tensor.name, kind)] = whole
    save_file(named, target, metadata={"format": "pt"})
    return len(named)


def dequantise(data: Any, kind: Any, device: str) -> Any:
    """Float32 values, bit for bit those of the gguf package; K types are computed on `device`."""
    import torch

    if kind.name not in ("Q4_K", "Q6_K"):
        gguf: Any = importlib.import_module("gguf")
        return torch.from_numpy(np.array(gguf.quants.dequantize(data, kind)))
    size = 144 if kind.name == "Q4_K" else 210
    blocks = torch.from_numpy(np.array(data)).to(device).reshape(-1, size)
    return (_q4_k if kind.name == "Q4_K" else _q6_k)(blocks)


def _q4_k(blocks: Any) -> Any:
    import torch

    count = len(blocks)
    scale, least = (blocks[:, n : n + 2].contiguous().view(torch.float16).float() for n in (0, 2))
    d, m, both = blocks[:, 4:16].reshape(count, 3, 4).unbind(1)
    scales = torch.cat((d & 0x3F, (both & 0x0F) | ((d >> 2) & 0x30)), -1).float()
    offsets = torch.cat((m & 0x3F, (both >> 4) | ((m >> 2) & 0x30)), -1).float()
    packed = blocks[:, 16:].reshape(count, -1, 1, 32)
    values = torch.cat((packed & 0x0F, packed >> 4), 2).reshape(count, -1, 32).float()
    return values * (scale * scales)[..., None] - (least * offsets)[..., None]


def _q6_k(blocks: Any) -> Any:
    import torch

    count = len(blocks)
    low, high, scales, scale = blocks.split((128, 64, 16, 2), 1)
    factor = scale.contiguous().view(torch.float16).float() * scales.view(torch.int8).float()
    packed = low.reshape(count, -1, 1, 64)
    values = torch.cat((packed & 0x0F, packed >> 4), 2).reshape(count, -1, 32)
    packed = high.reshape(count, -1, 1, 32)
    tops = torch.cat([(packed >> n) & 3 for n in (0, 2, 4, 6)], 2).reshape(count, -1, 32)
    whole = (values | (tops << 4)).to(torch.int8) - 32
    return whole.reshape(count, 16, -1).float() * factor[..., None]


def name_of(name: str, kind: str) -> str:
    """The tensor's name in transformers."""
    first, *rest = name.split(".")
    if first != "blk":
        return ".".join([_OUTER[first], *rest])
    number, what, last = rest
    inner = _GEMMA.get(what) if kind == "gemma3" else None
    return f"model.layers.{number}.{inner or _BLOCK[what]}.{last}"


def _unpermute(weight: Any, heads: int) -> Any:
    """Rows of a rotary projection in transformers' order."""
    half = weight.shape[0] // heads // 2
    moved = weight.reshape(heads, half, 2, *weight.shape[1:]).swapaxes(2, 1)
    return moved.reshape(weight.shape).contiguous()


def write_side_files(source: Path, out: Path) -> None:
    """Write config, generation config, tokenizer, and a card with the licence the file states."""
    gguf: Any = importlib.import_module("gguf")
    auto: Any = importlib.import_module("transformers")
    given = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    config = auto.AutoConfig.from_pretrained(**given)
    config.dtype = "bfloat16"
    config.architectures = [type(auto.AutoModelForCausalLM.from_config(_tiny(config))).__name__]
    config.save_pretrained(out)
    auto.GenerationConfig.from_model_config(config).save_pretrained(out)
    auto.AutoTokenizer.from_pretrained(**given).save_pretrained(out)
    fields = gguf.GGUFReader(source).fields

    def field(key: str, default: Any = None) -> Any:
        return fields[key].contents() if key in fields else default

    path = out / "tokenizer.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    mend(spec, field("tokenizer.ggml.pre"), field("tokenizer.ggml.add_bos_token", False),
         int(field("tokenizer.ggml.bos_token_id", -1)))  # fmt: skip
    path.write_text(json.dumps(spec, ensure_ascii=False, indent=1), encoding="utf-8")
    kind = field("general.architecture")
    license = field("general.license") or _LICENSES.get(kind, "unknown")
    said = f"{field('general.name')}, converted from {source.name}"
    (out / "README.md").write_text(f"---\nlicense: {license}\n---\n\n{said}\n", encoding="utf-8")


def _tiny(config: Any) -> Any:
    """A small config of the same architecture, to find its class."""
    data = {**config.to_dict(), "num_hidden_layers": 1, "vocab_size": 8, "hidden_size": 8}
    data |= {"intermediate_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1}
    data |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "layer_types"))
    data |= {"max_window_layers": 1}
    return type(config).from_dict(data)


def mend(spec: dict[str, Any], pre: str | None, add_bos: bool, bos: int) -> None:
    """Put back what transformers' conversion leaves out, as the original tokenizers have it."""
    known = spec["model"]["vocab"]
    for name, number in list(known.items()):
        if name == f"[PAD{number}]":  # a spare row's, made up by the GGUF
            del known[name]
    if pre == "smollm":
        digits = {"type": "Digits", "individual_digits": True}
        spec["pre_tokenizer"] = {
            "type": "Sequence", "pretokenizers": [digits, spec["pre_tokenizer"]],
        }  # fmt: skip
    if pre == "qwen2":
        spec["normalizer"] = {"type": "NFC"}
    if add_bos:
        name = next(t["content"] for t in spec["added_tokens"] if t["id"] == bos)
        first = {"SpecialToken": {"id": name, "type_id": 0}}
        processor = spec["post_processor"]
        processor["single"].insert(0, first)
        processor["pair"].insert(0, first)
        processor["special_tokens"] = {name: {"id": name, "ids": [bos], "tokens": [name]}}


if __name__ == "__main__":
    main()
