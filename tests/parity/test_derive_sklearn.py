"""The paper's methods against scikit-learn's estimators."""

from __future__ import annotations

import numpy as np
import pytest

from tokengraft.paper.linear import Linear
from tokengraft.paper.neighbours import KNN, LocalLinear, nearest

neighbors = pytest.importorskip("sklearn.neighbors")
linear_model = pytest.importorskip("sklearn.linear_model")


@pytest.fixture(scope="module")
def arrays():
    generator = np.random.default_rng(1)
    hidden = generator.normal(size=(600, 40)).astype(np.float32)
    rows = generator.normal(size=(600, 40)).astype(np.float32)
    queries = generator.normal(size=(50, 40)).astype(np.float32)
    queries[:5] = hidden[[3, 77, 200, 401, 599]]  # exact hits
    hidden[10] = hidden[77]  # a hit twice over
    return hidden, rows, queries


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10])
def test_knn_is_kneighborsregressor_by_distance(arrays, k):
    hidden, rows, queries = (array.astype(np.float64) for array in arrays)
    theirs = neighbors.KNeighborsRegressor(k, weights="distance", algorithm="brute")
    expected = theirs.fit(hidden, rows).predict(queries)
    found = KNN(k).fit(*arrays[:2]).derive(arrays[2])
    keep = np.ones(len(queries), bool)
    keep[1] = k > 1  # two anchors at distance 0: which one is first is anyone's choice
    assert np.allclose(found[keep], expected[keep], atol=1e-5)


def test_linear_is_linearregression(arrays):
    hidden, rows, queries = (array.astype(np.float64) for array in arrays)
    expected = linear_model.LinearRegression().fit(hidden, rows).predict(queries)
    assert np.allclose(Linear().fit(*arrays[:2]).derive(arrays[2]), expected, atol=1e-5)


def test_linear_with_fewer_anchors_than_dimensions_is_the_minimum_norm_one(arrays):
    hidden, rows, queries = (array.astype(np.float64) for array in arrays)
    expected = linear_model.LinearRegression().fit(hidden[:25], rows[:25]).predict(queries)
    found = Linear().fit(arrays[0][:25], arrays[1][:25]).derive(arrays[2])
    assert np.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("k", [2, 3, 5, 10])
def test_local_linear_is_weighted_linearregression(arrays, k):
    hidden, rows, queries = (array.astype(np.float64) for array in arrays)
    found = LocalLinear(k).fit(*arrays[:2]).derive(arrays[2])
    distances, index = nearest(arrays[2], arrays[0], k)
    for n, query in enumerate(queries):
        near = index[n]
        theirs = linear_model.LinearRegression()
        theirs.fit(hidden[near], rows[near], sample_weight=np.exp(-distances[n]))
        assert np.allclose(found[n], theirs.predict(query[None])[0], atol=1e-5), n


def test_local_linear_survives_distances_at_which_exp_underflows(arrays):
    hidden, rows, queries = arrays
    found = LocalLinear(5).fit(hidden * 1e4, rows).derive(queries * 1e4)
    assert np.isfinite(found).all()


def test_neighbours_are_those_of_a_brute_search(arrays):
    hidden, _, queries = arrays
    theirs = neighbors.NearestNeighbors(n_neighbors=10, algorithm="brute")
    expected, _ = theirs.fit(hidden.astype(np.float64)).kneighbors(queries.astype(np.float64))
    distances, _ = nearest(queries, hidden, 10, block=64)
    assert np.allclose(distances, expected, atol=1e-6)
    assert distances[0, 0] == 0.0
