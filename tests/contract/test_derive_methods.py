"""One suite over every array method: shapes, determinism, block sizes, inputs untouched."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tokengraft.deriving.methods.calibrate import Calibrated
from tokengraft.deriving.methods.knn import KNN
from tokengraft.deriving.methods.linear import Linear
from tokengraft.deriving.methods.local_linear import LocalLinear
from tokengraft.deriving.methods.mean import Mean
from tokengraft.deriving.methods.procrustes import Procrustes
from tokengraft.deriving.registry import METHODS

DERIVERS = [
    Mean(),
    KNN(1),
    KNN(5),
    Linear(),
    Linear(ridge=0.1),
    LocalLinear(2),
    LocalLinear(5),
    Procrustes(),
    Calibrated(Mean()),
    Calibrated(KNN(3), strength=0.5),
]
IDS = [str(one) for one in DERIVERS]


@pytest.fixture
def arrays():
    generator = np.random.default_rng(0)
    hidden = generator.normal(size=(400, 24)).astype(np.float32)
    rows = (hidden @ generator.normal(size=(24, 24)) * 0.2 + 0.1).astype(np.float32)
    queries = generator.normal(size=(17, 24)).astype(np.float32)
    return hidden, rows, queries


@pytest.mark.parametrize("deriver", DERIVERS, ids=IDS)
def test_shape_type_and_finite(deriver, arrays):
    hidden, rows, queries = arrays
    found = deriver.fit(hidden, rows).derive(queries)
    assert found.shape == (17, 24)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()


@pytest.mark.parametrize("deriver", DERIVERS, ids=IDS)
def test_same_input_same_output(deriver, arrays):
    hidden, rows, queries = arrays
    first = deriver.fit(hidden, rows).derive(queries)
    second = deriver.fit(hidden, rows).derive(queries)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("deriver", DERIVERS, ids=IDS)
def test_each_state_alone_gives_the_same_row(deriver, arrays):
    hidden, rows, queries = arrays
    fitted = deriver.fit(hidden, rows)
    together = fitted.derive(queries)
    alone = np.concatenate([fitted.derive(query[None]) for query in queries])
    assert np.allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("deriver", DERIVERS, ids=IDS)
def test_inputs_are_left_alone(deriver, arrays):
    copies = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    found = deriver.fit(arrays[0], arrays[1]).derive(arrays[2])
    found += 1
    assert all(np.array_equal(a, b) for a, b in zip(arrays, copies, strict=True))


@pytest.mark.parametrize("deriver", DERIVERS, ids=IDS)
def test_no_new_tokens_give_no_rows(deriver, arrays):
    hidden, rows, queries = arrays
    assert deriver.fit(hidden, rows).derive(queries[:0]).shape == (0, 24)


@pytest.mark.parametrize("block", [7, 64, 399, 400, 10_000])
@pytest.mark.parametrize(
    "deriver", [KNN(5), LocalLinear(5), Linear(), Procrustes()], ids=lambda d: type(d).__name__
)
def test_block_size_is_irrelevant(deriver, block, arrays):
    hidden, rows, queries = arrays
    plain = deriver.fit(hidden, rows).derive(queries)
    blocks = dataclasses.replace(deriver, block=block).fit(hidden, rows).derive(queries)
    assert np.allclose(plain, blocks, atol=1e-5)


@pytest.mark.parametrize("deriver", DERIVERS, ids=IDS)
def test_memory_mapped_anchors(deriver, arrays, tmp_path):
    hidden, rows, queries = arrays
    np.save(tmp_path / "v.npy", hidden)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    plain = deriver.fit(hidden, rows).derive(queries)
    assert np.array_equal(deriver.fit(mapped, rows).derive(queries), plain)


def test_every_registered_method_says_where_it_comes_from():
    for name, method in METHODS.items():
        assert method.name == name
        assert method.reference.startswith("https://")
        assert method.summary
        assert (method.make is None) == (name in ("split-anchor", "context", "distil"))
