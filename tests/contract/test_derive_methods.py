"""One suite over every registered method: a new row is tested by being there.

Array methods are run on arrays, all of them on a tiny model with text.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokengraft.paper  # noqa: F401 - adds its methods
from tokengraft.deriving.known_methods import METHODS
from tokengraft.paper.methods import FromStates
from tokengraft.paper.neighbours import KNN, LocalLinear

ARRAY_METHODS = {
    name: method.derive for name, method in METHODS.items() if isinstance(method.derive, FromStates)
}
DERIVERS = {name: derive.make(5, "cpu") for name, derive in ARRAY_METHODS.items()} | {
    "one neighbour": KNN(1),
    "two neighbours": LocalLinear(2),
}
BLOCKED = {name: deriver for name, deriver in DERIVERS.items() if hasattr(deriver, "block")}
OPTIONS = {"minutes", "steps", "own", "by-text", "start", "checkpoint-dir"}
TAKEN = {"layer", "k", "synthetic", "cache"}
each_deriver = pytest.mark.parametrize("deriver", DERIVERS.values(), ids=DERIVERS)


@pytest.fixture
def arrays():
    generator = np.random.default_rng(0)
    hidden = generator.normal(size=(400, 24)).astype(np.float32)
    rows = (hidden @ generator.normal(size=(24, 24)) * 0.2 + 0.1).astype(np.float32)
    queries = generator.normal(size=(17, 24)).astype(np.float32)
    return hidden, rows, queries


@each_deriver
def test_shape_type_and_finite(deriver, arrays):
    hidden, rows, queries = arrays
    derived = deriver.fit(hidden, rows).derive(queries)
    assert derived.shape == (17, 24)
    assert derived.dtype == np.float32
    assert np.isfinite(derived).all()


@each_deriver
def test_same_input_same_output(deriver, arrays):
    hidden, rows, queries = arrays
    first = deriver.fit(hidden, rows).derive(queries)
    second = deriver.fit(hidden, rows).derive(queries)
    assert np.array_equal(first, second)


@each_deriver
def test_each_state_alone_gives_the_same_row(deriver, arrays):
    hidden, rows, queries = arrays
    fitted = deriver.fit(hidden, rows)
    together = fitted.derive(queries)
    alone = np.concatenate([fitted.derive(query[None]) for query in queries])
    assert np.allclose(together, alone, atol=1e-5)


@each_deriver
def test_inputs_are_left_alone(deriver, arrays):
    copies = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    derived = deriver.fit(arrays[0], arrays[1]).derive(arrays[2])
    derived += 1
    assert all(np.array_equal(a, b) for a, b in zip(arrays, copies, strict=True))


@each_deriver
def test_no_new_tokens_give_no_rows(deriver, arrays):
    hidden, rows, queries = arrays
    assert deriver.fit(hidden, rows).derive(queries[:0]).shape == (0, 24)


@pytest.mark.parametrize("block", [7, 64, 399, 400, 10_000])
@pytest.mark.parametrize("deriver", BLOCKED.values(), ids=BLOCKED)
def test_block_size_is_irrelevant(deriver, block, arrays):
    hidden, rows, queries = arrays
    plain = deriver.fit(hidden, rows).derive(queries)
    blocks = dataclasses.replace(deriver, block=block).fit(hidden, rows).derive(queries)
    assert np.allclose(plain, blocks, atol=1e-5)


@each_deriver
def test_memory_mapped_anchors(deriver, arrays, tmp_path):
    hidden, rows, queries = arrays
    np.save(tmp_path / "v.npy", hidden)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    plain = deriver.fit(hidden, rows).derive(queries)
    assert np.array_equal(deriver.fit(mapped, rows).derive(queries), plain)


@pytest.mark.parametrize("name", METHODS)
def test_a_row_says_what_it_is_and_where_it_comes_from(name):
    method = METHODS[name]
    assert method.name == name
    assert method.reference.startswith("https://")
    assert method.summary and not method.summary.endswith(".")
    assert set(method.uses) <= OPTIONS and set(method.takes) <= TAKEN
    assert (method.needs == "states") == isinstance(method.derive, FromStates)
    assert name in ("mean", "mean-late", "distil") or name.startswith("paper.")


LEVEL = {
    "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
}  # fmt: skip
MERGES = ("ab", "ba", "cab", "abba", "dab")
#: Whole words that byte tokens spell too: what `split-anchor` learns from.
WORDS = [chr(0x531 + n) + chr(0x561 + m) for n in range(6) for m in range(6)] + [
    chr(0x410 + n) + chr(0x430 + m) for n in range(6) for m in range(6)
]


def tokenizer(merged: bool) -> dict[str, Any]:
    """Bytes, words of two scripts, and with `merged` five new tokens behind them."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    byte_level = ByteLevel(add_prefix_space=False)
    words = ["".join(piece for piece, _ in byte_level.pre_tokenize_str(word)) for word in WORDS]
    pieces = [*letters, *words, *(MERGES if merged else ())]
    merges = [["a", "b"], ["b", "a"], ["c", "ab"], ["ab", "ba"], ["d", "ab"]] if merged else []
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "post_processor": None, "decoder": LEVEL,
        "pre_tokenizer": LEVEL,
        "model": {"type": "BPE", "vocab": {piece: n for n, piece in enumerate(pieces)},
                  "merges": merges},
    }  # fmt: skip


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> Iterator[dict[str, Any]]:
    torch = pytest.importorskip("torch", reason="a model is read with torch")
    transformers = pytest.importorskip("transformers")
    folder: Path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256 + len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    base = tokenizer(merged=False)
    (folder / "tokenizer.json").write_text(json.dumps(base))
    spell = [base["model"]["vocab"][letter] for letter in "abcd"]
    parts = [[spell["abcd".index(letter)] for letter in piece] for piece in MERGES]
    generator = np.random.default_rng(0)
    words = generator.choice([*MERGES, "a", "cd", "dd"], size=(60, 12))
    yield {
        "model": folder, "parts": parts, "text": [" ".join(line) for line in words],
        "tokenizer": tokenizer(merged=True),
    }  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_every_method_derives_rows_for_a_model(name, task):
    from tokengraft.core.options import options_from
    from tokengraft.deriving.derive import derive_rows
    from tokengraft.deriving.task import Deriving

    more = {key: value for key, value in (("layer", "1"), ("k", 3)) if key in METHODS[name].takes}
    options = options_from(Deriving, {"more": more, "steps": 2, "passages": 4})
    before = [list(one) for one in task["parts"]]
    stages: list[str] = []

    def derived() -> Any:
        return derive_rows(
            method=name, options=options, progress=lambda now: stages.append(now.what), **task
        )

    first, second = derived(), derived()
    assert first.rows.shape == (len(MERGES), 16) and first.rows.dtype == np.float32
    assert np.isfinite(first.rows).all()
    assert np.array_equal(first.rows, second.rows)
    assert first.method == name and first.seconds > 0
    assert task["parts"] == before
    assert ("layer" in first.params) == ("layer" in more or name == "paper.split-anchor")
    assert (first.held_out is not None) == (name == "distil")
    assert json.dumps(dict(first.params), default=float)
    assert len(np.unique(first.rows, axis=0)) > 1


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if "synthetic" in m.takes])
def test_synthetic_anchors_are_used_and_are_mixtures_of_parts(name, task):
    from tokengraft.deriving.derive import derive_rows
    from tokengraft.deriving.task import Deriving
    from tokengraft.model.frozen import FrozenModel
    from tokengraft.paper.states import mixed_states

    model = FrozenModel.load(task["model"])
    plain, mixed = (
        derive_rows(model, task["parts"], name, options=Deriving(more=more)).rows
        for more in ({"layer": 1}, {"layer": 1, "synthetic": "40"})
    )
    assert not np.allclose(plain, mixed, atol=1e-7)
    states, rows = mixed_states(model, [[5], [7, 9]], 1, 3)
    single = model.weight[5].numpy()
    assert np.allclose(rows[:3], single, atol=1e-6) and np.allclose(states[0], states[1], atol=1e-5)
    ends = model.weight[[7, 9]].numpy()
    share = np.linalg.lstsq(ends.T, rows[3:].T, rcond=None)[0]
    assert np.allclose(share.sum(0), 1, atol=1e-4) and (share > -1e-5).all()


def test_superstrings_are_what_a_slow_search_finds():
    from tokengraft.paper.superstrings import superstrings

    pieces = [b"ab", b"abc", b"xabab", b"", b"b", b"cab"]
    strings = [b"ab", b"b", b"zz", b"ab", b"xabab"]
    slow = [[n for n, p in enumerate(pieces) if s in p and s != p] for s in strings]
    assert superstrings(pieces, strings) == slow


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.needs == "text"])
def test_a_method_that_learns_from_text_asks_for_it(name, task):
    from tokengraft.core.errors import UsageError
    from tokengraft.deriving.derive import derive_rows

    with pytest.raises(UsageError, match="give some with --text"):
        derive_rows(task["model"], task["parts"], name)


@pytest.mark.parametrize(
    ("name", "more", "match"),
    [
        ("paper.knn", {"k": "many"}, "k 'many': give a whole number"),
        ("paper.linear", {"layer": "last"}, "layer 'last': give a number from 0, or norm"),
        ("paper.linear", {"k": 3}, "has no option 'k': it takes layer, synthetic, cache"),
        ("mean", {"layer": 1}, "has no option 'layer': it takes none"),
        ("knn", {}, "method 'knn' is called paper.knn now"),
        ("meen", {}, "Did you mean mean"),
    ],
)
def test_what_a_method_does_not_take_is_refused(name, more, match, task):
    from tokengraft.core.errors import UsageError
    from tokengraft.deriving.derive import derive_rows
    from tokengraft.deriving.task import Deriving

    with pytest.raises(UsageError, match=match):
        derive_rows(task["model"], task["parts"], name, options=Deriving(more=more))
