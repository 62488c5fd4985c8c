"""Tiny random models and tokenizers for the other graft tests, made in a second."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengraft.core.files import writing_folder
from tokengraft.corpus import udhr
from tokengraft.grafting.write_folder import write_model
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Planning, with_plan

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

torch.set_num_threads(1)  # threads that wait for each other cost more than these models
WIDTH = 16
BUDGET = 24
END = "<|endoftext|>"
TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
_SIZES = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2,
          "num_attention_heads": 2, "max_position_embeddings": 256}  # fmt: skip
_GROUPED = {**_SIZES, "num_key_value_heads": 1, "head_dim": 8}
#: name: config class, arguments
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-tied": ("LlamaConfig", {**_GROUPED, "tie_word_embeddings": True}),
    "llama-untied": ("LlamaConfig", {**_GROUPED, "tie_word_embeddings": False}),
    "mistral": ("MistralConfig", {**_GROUPED, "tie_word_embeddings": False}),
    "qwen2": ("Qwen2Config", {**_SIZES, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {**_GROUPED, "tie_word_embeddings": False}),
    "gemma3": ("Gemma3TextConfig", dict(_GROUPED)),
    "olmo2": ("Olmo2Config", {**_SIZES, "tie_word_embeddings": False}),
    "phi-biased": ("PhiConfig", {**_SIZES, "tie_word_embeddings": False}),
    "gpt2": ("GPT2Config", {"n_embd": WIDTH, "n_layer": 2, "n_head": 2, "n_positions": 256}),
}


@functools.cache
def texts() -> dict[str, list[str]]:
    corpus = udhr.load(["eng", "amh", "tam"])
    return {code: corpus.lines(code)[:25] for code in corpus.languages}


@functools.cache
def tokenizer_json() -> str:
    """Byte-level BPE with a few English merges; the special token comes first."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts()["eng_Latn"], trainer)
    return tokenizer.to_str()


@functools.cache
def plan(budget: int = BUDGET) -> Plan:
    given = {code: lines for code, lines in texts().items() if code != "eng_Latn"}
    return plan_tokens(
        json.loads(tokenizer_json()), given, Planning(budget=budget), test=_parallel()
    )


def _parallel() -> Mapping[str, list[str]]:
    shortest = min(len(lines) for lines in texts().values())
    return {code: lines[:shortest] for code, lines in texts().items()}


def parts() -> list[tuple[int, ...]]:
    return [token.parts for token in plan().tokens]


def new_rows(seed: int = 1, width: int = WIDTH) -> np.ndarray[Any, np.dtype[np.float32]]:
    generator = np.random.default_rng(seed)
    return generator.normal(0, 0.5, (len(plan().tokens), width)).astype(np.float32)


def make(
    folder: Path, case: str, *, rows: int = 320, dtype: str = "float32", shard: str = "1GB"
) -> Path:
    """Save a random model of `case` with `rows` rows and its tokenizer into `folder`."""
    name, arguments = CASES[case]
    config = getattr(transformers, name)(
        vocab_size=rows, bos_token_id=0, eos_token_id=0, pad_token_id=None, **arguments
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # scores far enough apart that no greedy step ties
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END,
        "model_max_length": 256, "chat_template": TEMPLATE,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "LICENSE").write_text("Tiny licence\n", encoding="utf-8")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Base\n", encoding="utf-8")
    return folder


def grow(base: Path, out: Path, rows: Any = None, tokenizer: Any = None, **options: Any) -> Any:
    """Write the model with the tiny plan's tokens, whole or not at all."""
    tokenizer = tokenizer or with_plan(json.loads(tokenizer_json()), plan())
    rows = new_rows() if rows is None else rows
    with writing_folder(out) as folder:
        return write_model(base, tokenizer, rows, folder, parts=parts(), **options)


def load(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, torch_dtype=torch.float32
    ).eval()


def scores(folder: Path, ids: list[int]) -> Any:
    with torch.no_grad():
        return load(folder)(input_ids=torch.tensor([ids])).logits[0]


def copy(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target


def edit(path: Path, change: Any) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    result = change(value)
    path.write_text(json.dumps(value if result is None else result), encoding="utf-8")
