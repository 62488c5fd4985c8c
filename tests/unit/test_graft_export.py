"""Export: every architecture loads in plain transformers and scores old text as its base does."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.tiny_models import (
    BUDGET,
    CASES,
    edit,
    grow,
    load,
    make,
    new_rows,
    scores,
    texts,
    tokenizer_json,
    torch,
    transformers,
)
from tokengraft.core.errors import ModelError
from tokengraft.model.checkpoint import (
    decode,
    encode,
    read_checkpoint,
    read_json,
    read_shard,
)
from tokengraft.model.embedding_tables import find_layout

OLD = 320


def english() -> list[int]:
    from tokenizers import Tokenizer

    ids: list[int] = Tokenizer.from_str(tokenizer_json()).encode(texts()["eng_Latn"][0]).ids[:40]
    return ids


@pytest.mark.parametrize("case", CASES)
def test_old_text_is_scored_as_before(case: str, tmp_path: Path) -> None:
    base = make(tmp_path / "base", case)
    written = grow(base, tmp_path / "out")
    before, after = scores(base, english()), scores(tmp_path / "out", english())
    assert after.shape[-1] == OLD + BUDGET == written.rows_after
    assert torch.allclose(before, after[:, :OLD], rtol=0, atol=1e-5)
    model = load(tmp_path / "out")
    assert np.array_equal(model.get_input_embeddings().weight[OLD:].detach().numpy(), new_rows())
    inputs, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert (inputs.data_ptr() == head.data_ptr()) == written.tied
    assert written.tied == (case in ("llama-tied", "qwen2", "gemma3", "gpt2"))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_shards_keep_their_type_and_places(dtype: str, tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-untied", dtype=dtype, shard="14KB")
    old = read_checkpoint(base)
    assert len(old.shards) >= 2
    grow(base, tmp_path / "out")
    new = read_checkpoint(tmp_path / "out")
    assert [s.path.name for s in new.shards] == [s.path.name for s in old.shards]
    assert new.tensors["lm_head.weight"].dtype == {"bfloat16": "BF16", "float16": "F16"}[dtype]
    grown = 2 * BUDGET * 16 * 2
    metadata = [read_json(d / "model.safetensors.index.json")["metadata"] for d in
                (base, tmp_path / "out")]  # fmt: skip
    assert metadata[1]["total_size"] - metadata[0]["total_size"] == grown == new.size - old.size
    before, after = scores(base, english()), scores(tmp_path / "out", english())
    assert torch.allclose(before, after[:, :OLD], rtol=0, atol=1e-4)


@pytest.mark.parametrize(("rows", "after"), [(OLD + 64, OLD + 64), (OLD + 8, OLD + BUDGET)])
def test_spare_rows_are_used_first(rows: int, after: int, tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-tied", rows=rows)
    written = grow(base, tmp_path / "out")
    assert written.rows_after == after
    assert read_json(tmp_path / "out" / "config.json")["vocab_size"] == after
    old, new = (load(d).get_input_embeddings().weight for d in (base, tmp_path / "out"))
    assert torch.equal(old[:OLD], new[:OLD])
    assert np.array_equal(new[OLD : OLD + BUDGET].detach().numpy(), new_rows())
    assert torch.equal(old[OLD + BUDGET :], new[OLD + BUDGET : rows])


def test_a_special_token_behind_the_table_gets_a_barred_row(tmp_path: Path) -> None:
    """As Gemma 3's image token: id 320 of a table with 320 rows."""
    base = make(tmp_path / "base", "llama-tied")

    def add(value: dict[str, Any]) -> None:
        value["added_tokens"].append({**value["added_tokens"][0], "id": OLD, "content": "<image>"})

    edit(base / "tokenizer.json", add)
    tokenizer = json.loads((base / "tokenizer.json").read_text())
    vocab = {f"new{i}": OLD + 1 + i for i in range(BUDGET)}
    tokenizer["model"]["vocab"] |= vocab
    written = grow(base, tmp_path / "out", tokenizer=tokenizer, policy="paper.shared")
    assert written.new == range(OLD + 1, OLD + 1 + BUDGET)
    assert written.barred == (OLD,)
    weight = load(tmp_path / "out").get_input_embeddings().weight.detach()
    assert np.array_equal(weight[OLD + 1 :].numpy(), new_rows())
    assert torch.allclose(weight[OLD], weight[:OLD].mean(0), atol=1e-6)


def test_a_nested_language_model(tmp_path: Path) -> None:
    inner = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 8,
             "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": OLD}  # fmt: skip
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
              "num_attention_heads": 1, "image_size": 28, "patch_size": 14}  # fmt: skip
    config = transformers.Gemma3Config(
        text_config=inner, vision_config=vision, mm_tokens_per_image=4, tie_word_embeddings=True
    )
    base = make(tmp_path / "base", "gemma3")
    (base / "model.safetensors").unlink()
    transformers.Gemma3ForConditionalGeneration(config).save_pretrained(base)
    assert grow(base, tmp_path / "out").rows_after == OLD + BUDGET
    assert read_json(tmp_path / "out" / "config.json")["text_config"]["vocab_size"] == OLD + BUDGET
    before, after = scores(base, english()), scores(tmp_path / "out", english())
    assert torch.allclose(before, after[:, :OLD], rtol=0, atol=1e-5)


def test_openais_gpt2_files_have_no_prefix(tmp_path: Path) -> None:
    base = make(tmp_path / "base", "gpt2")
    edit_header(base / "model.safetensors", lambda name: name.removeprefix("transformer."))
    layout = find_layout(read_json(base / "config.json"), read_checkpoint(base))
    assert layout.input.name == "wte.weight"
    assert layout.tied
    grow(base, tmp_path / "out")
    assert load(tmp_path / "out").get_input_embeddings().weight.shape[0] == OLD + BUDGET


def edit_header(path: Path, rename: Any) -> None:
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = {rename(k): v for k, v in json.loads(raw[8 : 8 + size]).items()}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size :])


def test_small_files(tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-tied")
    (base / "vocab.json").write_text("{}")
    (base / "modeling_own.py").write_text("raise SystemExit")
    (base / "chat_template.jinja").write_text("{{ messages }}")
    (base / "pytorch_model.bin.index.json").write_text("{}")
    grow(base, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"LICENSE", "chat_template.jinja", "config.json", "tokenizer_config.json"} <= names
    gone = {"README.md", "vocab.json", "modeling_own.py", "pytorch_model.bin.index.json"}
    assert not gone & names
    assert read_json(tmp_path / "out" / "tokenizer_config.json")["chat_template"]


def test_the_safetensors_library_reads_what_was_written(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    base = make(tmp_path / "base", "gpt2")
    grow(base, tmp_path / "out")
    old, new = (safetensors.load_file(d / "model.safetensors") for d in (base, tmp_path / "out"))
    assert old.keys() == new.keys()
    for name, tensor in old.items():
        assert torch.equal(new[name][: len(tensor)] if "wte" in name else new[name], tensor)


def test_bfloat16_rounds_as_torch_does() -> None:
    values = np.random.default_rng(0).normal(0, 3, 10_000).astype(np.float32)
    expected = torch.from_numpy(values).to(torch.bfloat16)
    assert encode(values, "BF16") == expected.view(torch.int16).numpy().tobytes()
    assert np.array_equal(decode(encode(values, "BF16"), "BF16"), expected.float().numpy())


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_rows_that_do_not_fit_are_refused(value: float) -> None:
    with pytest.raises(ModelError, match="not finite"):
        encode(np.full((1, 2), value, np.float32), "F16")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[:-3], "truncated"),
        (lambda raw: raw[:20], "truncated"),
        (lambda raw: raw + b"x", "longer than its header"),
        (lambda raw: b"\x80\x02" + raw[2:], "pickle"),
        (lambda raw: raw[:8] + b"x" + raw[9:], "broken"),
    ],
)
def test_damaged_weights(change: Any, message: str, tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-tied")
    path = base / "model.safetensors"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ModelError, match=message):
        grow(base, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pickled_weights_are_never_opened(tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-tied")
    (base / "model.safetensors").rename(base / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled weights"):
        grow(base, tmp_path / "out")


def test_a_missing_shard(tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-untied", shard="14KB")
    sorted(base.glob("*.safetensors"))[0].unlink()
    with pytest.raises(ModelError, match="lacks model-00001"):
        grow(base, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"auto_map": {"AutoModel": "own.Model"}}, "auto_map"),
        ({"architectures": ["LlamaForCausal"]}, "Did you mean LlamaForCausalLM"),
        ({"vocab_size": 400}, "belong to different models"),
        ({"tie_word_embeddings": False}, "lm_head.weight is missing"),
    ],
)
def test_models_that_are_not_served(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-tied")
    edit(base / "config.json", lambda value: {**value, **change})
    with pytest.raises(ModelError, match=message):
        grow(base, tmp_path / "out")


def test_another_models_tokenizer(tmp_path: Path) -> None:
    for rows in (300, 6000):
        base = make(tmp_path / f"base{rows}", "llama-tied", rows=rows)
        with pytest.raises(ModelError, match="another model's tokenizer"):
            grow(base, tmp_path / "out")


def test_rows_of_another_shape(tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-tied")
    with pytest.raises(ModelError, match=r"need rows of shape \[24, 16\]"):
        grow(base, tmp_path / "out", new_rows(width=8))


def test_every_shard_is_checked_against_its_length(tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-tied")
    shard = read_shard(base / "model.safetensors")
    assert shard.tensors[-1].end + shard.start == shard.path.stat().st_size
