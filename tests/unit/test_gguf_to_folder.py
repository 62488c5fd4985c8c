"""The converter of GGUF files (a tool): names, rotary order, and the K types to the bit."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tool = pytest.importorskip("gguf_to_folder")


def test_names():
    assert tool.name_of("token_embd.weight", "qwen2") == "model.embed_tokens.weight"
    inner = "model.layers.3."
    assert tool.name_of("blk.3.attn_q.bias", "qwen2") == inner + "self_attn.q_proj.bias"
    assert tool.name_of("blk.3.ffn_norm.weight", "llama") == inner + (
        "post_attention_layernorm.weight"
    )
    assert tool.name_of("blk.3.ffn_norm.weight", "gemma3") == inner + (
        "pre_feedforward_layernorm.weight"
    )


def test_rotary_rows_return_to_their_order():
    weight = torch.arange(8).reshape(8, 1)  # one head of 8: halves interleaved in the file
    assert tool._unpermute(weight, 1).ravel().tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


def test_tokenizers_are_mended():
    spec = {
        "model": {"vocab": {"a": 0, "[PAD1]": 1, "[PAD]": 2}},
        "added_tokens": [{"id": 3, "content": "<bos>"}],
        "pre_tokenizer": {"type": "ByteLevel"},
        "post_processor": {"single": [], "pair": [], "special_tokens": {}},
    }
    tool.mend(spec, "smollm", True, 3)
    assert spec["model"]["vocab"] == {"a": 0, "[PAD]": 2}
    assert spec["pre_tokenizer"]["pretokenizers"][0]["type"] == "Digits"
    assert spec["post_processor"]["special_tokens"]["<bos>"]["ids"] == [3]


@pytest.mark.parametrize(("name", "size"), [("Q4_K", 144), ("Q6_K", 210)])
def test_k_types_to_the_bit(name, size):
    gguf = pytest.importorskip("gguf")
    raw = np.random.default_rng(0).integers(0, 256, (3, 2 * size), dtype=np.uint8)
    for block in raw.reshape(-1, size):  # a finite scale
        at = slice(0, 4) if name == "Q4_K" else slice(208, 210)
        block[at] = np.full((at.stop - at.start) // 2, 0.01, np.float16).view(np.uint8)
    kind = gguf.GGMLQuantizationType[name]
    expected = gguf.quants.dequantize(raw, kind)
    found = tool.dequantise(raw, kind, "cpu").numpy().reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)
