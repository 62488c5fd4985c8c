"""Each part of a check by itself, on damage that only that part can see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from helpers.tiny_models import make, plan, tokenizer_json
from tokengraft.grafting import output_policies
from tokengraft.grafting.verify.loading import PlainModels, examine
from tokengraft.grafting.verify.small_files import (
    config_difference,
    generation_difference,
    insertion_difference,
    strange_file,
    tokenizer_difference,
)
from tokengraft.grafting.verify.tensors import other_weights
from tokengraft.grafting.verify.tokens import EncodedBoth, Pair, _only_found, unproven, untouched
from tokengraft.model.checkpoint import read_checkpoint
from tokengraft.model.embedding_tables import Tables, find_layout
from tokengraft.planning.plan import with_plan

OLD = 320
NEW = range(OLD, OLD + 24)


def base_tokenizer() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(tokenizer_json())
    return value


def added(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda new: new["added_tokens"].append({**new["added_tokens"][0], **values})


DIFFERENT: dict[str, tuple[Callable[..., Any], Callable[[dict[str, Any]], Any], str]] = {
    "a special token": (
        tokenizer_difference,
        added(id=OLD, content="x", special=True),
        "is not a token of the graft",
    ),
    "an added token with an old id": (
        tokenizer_difference,
        added(id=5, content="x", special=False),
        "is not a token of the graft",
    ),
    "a setting of the model": (
        tokenizer_difference,
        lambda new: new["model"].update(dropout=0.1),
        "dropout was",
    ),
    "a setting beside it": (
        tokenizer_difference,
        lambda new: new.update(padding={"length": 4}),
        "padding was",
    ),
    "an id beyond the new ones": (
        insertion_difference,
        lambda new: new["model"]["vocab"].update(zz=400),
        "'zz' has id 400, which is not a new one",
    ),
    "an old merge once more": (
        insertion_difference,
        lambda new: new["model"]["merges"].append(new["model"]["merges"][3]),
        "is there twice, and only its last place counts",
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_no_insertion_does_to_a_tokenizer(what: str) -> None:
    difference, change, message = DIFFERENT[what]
    old = base_tokenizer()
    new = with_plan(base_tokenizer(), plan())
    assert difference(old, new, NEW) is None
    change(new)
    assert message in difference(old, new, NEW)


def test_a_piece_with_another_score_is_seen() -> None:
    old, new = (
        {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", score]]}}
        for score in (-1.0, -2.0)
    )
    assert "piece 1 was ['a', -1.0]" in (insertion_difference(old, new, range(2, 3)) or "")


def test_an_inner_config_is_compared() -> None:
    layout: Any = SimpleNamespace(head=None, tied=True)
    old, new = (
        {"tie_word_embeddings": True, "text_config": {"vocab_size": rows, "hidden_size": width}}
        for rows, width in ((4, 2), (8, 3))
    )
    assert "hidden_size was '2', is '3'" in (config_difference(old, new, layout, 8) or "")
    new["text_config"] = {"vocab_size": 8, "hidden_size": 2}
    assert config_difference(old, new, layout, 8) is None


def test_a_base_without_a_generation_config_may_get_one(tmp_path: Path) -> None:
    config = {"model_type": "llama", "eos_token_id": 0, "bos_token_id": 0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "graft").mkdir()
    written = output_policies.generation_config(None, config, [OLD])
    (tmp_path / "graft" / "generation_config.json").write_text(json.dumps(written))
    assert generation_difference(tmp_path, tmp_path / "graft") is None


@pytest.mark.parametrize("barred", [[], [7], [OLD], [7, OLD]])
def test_a_base_may_bar_ids_itself(barred: list[int], tmp_path: Path) -> None:
    old = {"suppress_tokens": [7], "eos_token_id": 0, "_from_model_config": True}
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "generation_config.json").write_text(json.dumps(old))
    (tmp_path / "graft").mkdir()
    file = tmp_path / "graft" / "generation_config.json"
    written = output_policies.generation_config(old, {}, barred) or {}
    file.write_text(json.dumps(written))
    assert generation_difference(tmp_path, tmp_path / "graft") is None
    file.write_text(json.dumps({**written, "renormalize_logits": False}))
    assert generation_difference(tmp_path, tmp_path / "graft")


def test_files_that_are_the_bases_and_files_that_may_be_read(tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "graft"
    folder.mkdir()
    base.mkdir()
    (base / "preprocessor_config.json").write_text("{}")
    assert strange_file(base, folder, []) == "preprocessor_config.json is not the base's"
    (folder / "preprocessor_config.json").write_text("[]")
    assert strange_file(base, folder, []) == "preprocessor_config.json is not the base's"
    (folder / "preprocessor_config.json").write_text("{}")
    assert strange_file(base, folder, []) is None
    (folder / "v1.0").mkdir()
    assert strange_file(base, folder, []) == "the folder v1.0 has no place in a graft"


TABLE = np.arange(8, dtype=np.float32).reshape(4, 2) + 1
BIGGER = np.concatenate([TABLE, TABLE])
WEIGHTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "nothing": ({}, None),
    "no norm": ({"norm": None}, "norm is missing"),
    "another type": ({"norm": np.ones(2, np.float16)}, "norm is F16[2], was F32[2]"),
    "a longer norm": ({"norm": np.ones(3, np.float32)}, "norm has shape [3], was [2]"),
    "tied, fewer rows": ({"table": TABLE[:3], "head": None}, "table has 3 rows, had 4"),
    "no head": ({"head": None}, "head is missing: the config says that the head is not tied"),
    "a smaller head": ({"head": TABLE}, "head is F32[4, 2], table [8, 2]"),
    "another head": ({"head": BIGGER[::-1].copy()}, "old row 0 of head is not that of table"),
}


@pytest.mark.parametrize("what", WEIGHTS)
def test_weights_are_held_against_the_bases(what: str, tmp_path: Path) -> None:
    """A tied base whose graft has a head of its own, unless said otherwise."""
    change, message = WEIGHTS[what]
    grown = {"table": BIGGER, "norm": np.ones(2, np.float32), "head": BIGGER} | change
    given = {"base": {"table": TABLE, "norm": np.ones(2, np.float32)}, "graft": grown}
    for name, tensors in given.items():
        (tmp_path / name).mkdir()
        kept = {key: value for key, value in tensors.items() if value is not None}
        save_file(kept, tmp_path / name / "model.safetensors")
    base, new = (read_checkpoint(tmp_path / name) for name in given)
    layout = Tables(base.tensors["table"], None, (), True, 4, 2, "head")
    untied = not what.startswith("tied")
    assert other_weights(base, new, layout, 4, untied) == message


def test_tokens_that_are_cut_out_of_the_text_first() -> None:
    old = base_tokenizer()
    new = base_tokenizer()
    added(id=OLD, content="ሰ", special=False)(new)
    pair = Pair(old, new)
    assert pair.literal and not Pair(old, old).literal
    assert unproven(pair, range(OLD, OLD + 1), ["a"], set()) == []


def test_text_that_no_new_token_touches_keeps_its_ids() -> None:
    pair = Pair(base_tokenizer(), base_tokenizer())
    before = [[1, 2]]
    assert untouched(pair, EncodedBoth(["ab"], before, [[1, OLD]]), NEW)[0]
    assert untouched(pair, EncodedBoth(["ab"], before, [[9]]), NEW)[0]  # shorter, of old tokens
    kept, message = untouched(pair, EncodedBoth(["ab"], before, [[2, 1]]), NEW)
    assert not kept and "had ids [1, 2], has [2, 1]" in message


@pytest.mark.parametrize(
    ("after", "found"),
    [("a x c", True), ("axyc", True), ("b x c", False), ("a x d", False), ("a c", True)],
)
def test_text_that_was_unknown_may_come_back(after: str, found: bool) -> None:
    assert _only_found("a [UNK] c", after, "[UNK]") is found
    assert not _only_found("a c", after, "[UNK]")
    assert not _only_found("a [UNK] b [UNK] c", "axyc", "[UNK]")


def test_a_loaded_model_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "model", "llama-tied")
    config = json.loads((folder / "config.json").read_text())
    layout = find_layout(config, read_checkpoint(folder))
    untied: Any = SimpleNamespace(tied=False)

    def wrong(rows: int, tables: Any = layout) -> str:
        return examine(PlainModels(), folder, tables, rows, [0, 1])[0] or ""

    assert not wrong(OLD) and "has 320 rows, not 321" in wrong(OLD + 1)
    assert "does not tie its tables as the base does" in wrong(OLD, untied)
    with monkeypatch.context() as patch:
        patch.setattr("tokengraft.grafting.verify.loading.fits_memory", lambda size: False)
        assert not wrong(OLD) and "wants a table of [320, 16]" in wrong(OLD + 1)
    tensors = load_file(folder / "model.safetensors")
    name = "model.norm.weight"
    damaged = {**tensors, name: np.full_like(tensors[name], np.nan)}
    save_file(damaged, folder / "model.safetensors", {"format": "pt"})
    assert "is not finite over 320 tokens" in wrong(OLD)
    tensors.pop(name)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert f"missing keys: {name}" in wrong(OLD)
