"""Hidden states of tokens and parts, on tiny random models of several architectures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokengraft.core.errors import (  # noqa: E402
    ModelError,
    UsageError,
)
from tokengraft.deriving.states import part_states, shares  # noqa: E402
from tokengraft.model.divergence import Head  # noqa: E402
from tokengraft.model.frozen import FrozenModel, NewRows  # noqa: E402
from tokengraft.model.libraries import pick_devices  # noqa: E402
from tokengraft.paper.grid import paper_layers, paper_rows  # noqa: E402
from tokengraft.paper.linear import Linear  # noqa: E402
from tokengraft.paper.neighbours import KNN  # noqa: E402
from tokengraft.paper.states import vocabulary_states  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
SHAPE = {"vocab_size": 120, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
LLAMA = {**SHAPE, "intermediate_size": 32, "num_key_value_heads": 2, "head_dim": 8}


def make(kind: str):
    torch.manual_seed(0)
    configs = {
        "llama": lambda: transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True),
        "qwen2": lambda: transformers.Qwen2Config(**LLAMA, tie_word_embeddings=False),
        "gemma3": lambda: transformers.Gemma3TextConfig(**LLAMA),
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=120, n_embd=16, n_layer=3, n_head=2, n_positions=64
        ),
    }
    return transformers.AutoModelForCausalLM.from_config(configs[kind]())


@pytest.fixture(params=["llama", "qwen2", "gemma3", "gpt2"])
def model(request):
    return FrozenModel(make(request.param))


@pytest.fixture
def llama():
    return FrozenModel(make("llama"))


def test_layers_are_those_of_transformers(model):
    ids = torch.arange(7)[:, None]
    theirs = model.body(input_ids=ids, output_hidden_states=True).hidden_states
    states = vocabulary_states(model, [0, 1, 2, 3, "norm"], 7)
    for layer in (1, 2):
        assert np.allclose(states[layer], theirs[layer][:, 0].numpy(), atol=1e-5)
    assert np.allclose(states["norm"], theirs[3][:, 0].numpy(), atol=1e-5)
    assert not np.allclose(states[3], states["norm"], atol=1e-3)
    assert np.array_equal(states[0], model.weight[:7].numpy())


def test_rows_in_place_of_ids_are_read_alike(model):
    ids = torch.tensor([[5, 9, 2], [7, 7, 1]])
    with torch.no_grad():
        by_ids = model.states(ids)
        by_rows = model.states(ids, new=NewRows(0, model.weight))
        head = Head.of(model.model).logits(by_ids)
        theirs = model.model(input_ids=ids).logits
    assert torch.allclose(by_ids, by_rows, atol=1e-5)
    assert torch.allclose(head, theirs, atol=1e-4)


def test_a_part_alone_is_the_vocabulary_state(model):
    known = vocabulary_states(model, [0, 2], 20)
    parts = part_states(model, [[n] for n in range(20)], [0, 2])
    for layer in (0, 2):
        assert np.allclose(known[layer], parts[layer], atol=1e-5)


def test_parts_are_averaged_over_positions(llama):
    parts = [[5, 9, 2], [7], [1, 1], [4, 8, 8]]
    found = part_states(llama, parts, [1])[1]
    for number, one in enumerate(parts):
        states = llama.body(input_ids=torch.tensor([one]), output_hidden_states=True)
        expected = states.hidden_states[1][0].mean(0).numpy()
        assert np.allclose(found[number], expected, atol=1e-5)


@pytest.mark.parametrize(("pool", "expected"), [("first", 0), ("last", 2)])
def test_pools_take_one_part(llama, pool, expected):
    found = part_states(llama, [[5, 9, 2]], [0], pool)[0][0]
    assert np.allclose(found, llama.weight[[5, 9, 2][expected]].numpy())


def test_a_pool_may_be_any_weights(llama):
    found = part_states(llama, [[5, 9]], [0], lambda _: shares(np.array([1.0, 3.0])))[0][0]
    assert np.allclose(found, (llama.weight[5] + 3 * llama.weight[9]).numpy() / 4, atol=1e-6)


def test_batch_size_is_irrelevant(llama):
    parts = [[n, (3 * n) % 120, 1][: 1 + n % 3] for n in range(40)]
    whole, small = (part_states(llama, parts, [3], batch_tokens=n)[3] for n in (10_000, 4))
    assert np.allclose(whole, small, atol=1e-5)
    a, b = (vocabulary_states(llama, [3], batch=n)[3] for n in (7, 1000))
    assert np.allclose(a, b, atol=1e-5)


def test_ids_behind_the_table_have_no_state(llama):
    assert vocabulary_states(llama, [0, 2], 125)[2].shape == (120, 16)


def test_float32_whatever_the_weights(llama):
    llama.model.bfloat16()
    assert vocabulary_states(llama, [0, 2], 10)[2].dtype == np.float32
    assert part_states(llama, [[1, 2]], [2])[2].dtype == np.float32


def test_cache_is_used_and_complete(llama, tmp_path):
    first = vocabulary_states(llama, [0, 2], cache=tmp_path, key="model")
    calls = []
    again = vocabulary_states(
        llama, [0, 2], cache=tmp_path, key="model", progress=lambda *done: calls.append(done)
    )
    assert not calls
    assert all(np.array_equal(first[layer], again[layer]) for layer in (0, 2))
    more = vocabulary_states(llama, [0, 1, 2], cache=tmp_path, key="model")
    assert more[1].shape == (120, 16)
    assert len(list(tmp_path.iterdir())) == 3


def test_interrupted_pass_leaves_no_cache(llama, tmp_path):
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vocabulary_states(llama, [2], batch=8, cache=tmp_path, key="m", progress=stop)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_a_damaged_cache_is_made_anew(llama, tmp_path, size):
    whole = vocabulary_states(llama, [2], cache=tmp_path, key="model")[2].copy()
    (file,) = tmp_path.iterdir()
    kept = file.read_bytes()
    file.unlink()
    file.write_bytes(kept[:size])
    assert np.array_equal(vocabulary_states(llama, [2], cache=tmp_path, key="model")[2], whole)
    assert file.read_bytes() == kept


FULL = """
import sys
from test_derive_states import FrozenModel, make, vocabulary_states
model = make("llama")
model.resize_token_embeddings(4000)
try:
    vocabulary_states(FrozenModel(model), [0, 2], cache=sys.argv[1], key="model")
except OSError as error:
    sys.exit(error.strerror)
"""


def test_a_full_disk_under_the_cache(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(tmp_path)]
    if os.getuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs a small disk of its own")
    try:
        done = subprocess.run(
            [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True,
            check=False, cwd=Path(__file__).parent,
        )  # fmt: skip
        assert done.returncode == 1, done.stderr
        assert done.stderr.endswith("No space left on device\n")
        assert not list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", str(tmp_path)], check=False)


@pytest.mark.parametrize("layer", [-1, 4, "last"])
def test_unknown_layers_are_refused(llama, layer):
    with pytest.raises(UsageError, match="no layer"):
        part_states(llama, [[1]], [layer])


def test_token_without_parts_is_refused(llama):
    with pytest.raises(UsageError, match="no old parts"):
        part_states(llama, [[1], []], [0])


def test_pickled_weights_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="safetensors"):
        FrozenModel.load(tmp_path)


def test_linear_at_layer_0_is_the_mean(llama):
    parts = [[5, 9, 2], [7, 3], [1, 1, 4, 8]]
    rows = vocabulary_states(llama, [0])[0]
    mean = part_states(llama, parts, [0])[0]
    assert np.allclose(Linear().fit(rows, rows).derive(mean), mean, atol=1e-6)


def test_knn_2_at_layer_0_is_the_mean_of_two_parts_unless_another_row_is_nearer(llama):
    rows = vocabulary_states(llama, [0])[0]
    parts = [[a, b] for a in range(0, 60, 3) for b in range(61, 120, 7)]
    mean = part_states(llama, parts, [0])[0]
    found = KNN(2).fit(rows, rows).derive(mean)
    own = np.linalg.norm(rows[[a for a, _ in parts]] - mean, axis=1)
    others = np.linalg.norm(rows[None] - mean[:, None], axis=2)
    nearer = (others < own[:, None] * (1 - 1e-6)).any(axis=1)
    assert np.allclose(found[~nearer], mean[~nearer], atol=1e-5)


def test_grid_has_the_papers_forty(llama):
    parts = [[5, 9, 2], [7, 3], [1, 4]]
    cells = dict(paper_rows(llama, parts))
    assert len(cells) == 40
    assert paper_layers(16) == (0, 1, 15, "norm") and paper_layers(16, False) == (0, 1, 15, 16)
    named = {str(cell): rows for cell, rows in cells.items()}
    mean = part_states(llama, parts, [0])[0]
    assert np.allclose(named["linear layer 0"], mean, atol=1e-5)
    # The paper's last layer is what the output table multiplies; before the norm it is another.
    for layer in ("norm", 3):
        states = vocabulary_states(llama, [0, layer])
        hidden = part_states(llama, parts, [layer])[layer]
        alone = KNN(5).fit(states[layer], states[0]).derive(hidden)
        own = {
            str(cell): r for cell, r in paper_rows(llama, parts, paper_layers(3, layer == "norm"))
        }
        assert np.allclose(own[f"knn k=5 layer {layer}"], alone, atol=1e-6)
    assert "knn k=5 layer 3" not in named


@pytest.mark.parametrize("name", ["cuda:7", "cuda,cpu", "gpu"])
def test_devices_that_are_not_there(name):
    if torch.cuda.is_available() and name != "gpu":
        pytest.skip("there is a GPU here")
    with pytest.raises(UsageError, match="device"):
        pick_devices(name)
