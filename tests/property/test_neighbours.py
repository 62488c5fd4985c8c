"""Nearest neighbours are those of a slow float64 twin, even if anchors are equal or nearly so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengraft.paper.neighbours import nearest

DEVICES = ("cpu", "cpu:0")  # the second takes the GPU's path


def brute(hidden, anchors, k):
    """All distances in float64, sorted by distance and then by index."""
    gap = hidden[:, None].astype(np.float64) - anchors[None].astype(np.float64)
    distances = np.sqrt((gap**2).sum(-1))
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, 1), order


@st.composite
def crowded(draw):
    """Points of a small grid far from the origin: many equal anchors, sums without rounding."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width = draw(st.integers(1, 6))
    offset = draw(st.sampled_from((0, 1000, 1 << 18)))
    anchors = generator.integers(0, 3, (draw(st.integers(1, 90)), width)) + offset
    hidden = generator.integers(-1, 4, (draw(st.integers(1, 5)), width)) + offset
    k = draw(st.integers(1, min(12, len(anchors))))
    block = draw(st.sampled_from((None, 1, 7, 64)))
    return hidden.astype(np.float32), anchors.astype(np.float32), k, block


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=60, deadline=None)
@given(case=crowded())
def test_ties_go_to_the_lower_index_in_every_block(device, case):
    if device != "cpu":
        pytest.importorskip("torch")
    hidden, anchors, k, block = case
    distances, index = nearest(hidden, anchors, k, block, device)
    expected = brute(hidden, anchors, k)
    assert np.array_equal(index, expected[1])
    assert np.allclose(distances, expected[0], rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", [0, 100, 5000, 50_000])
@pytest.mark.parametrize("clusters", [1, 3])
def test_a_large_common_part_changes_nothing(device, norm, clusters):
    if device != "cpu":
        pytest.importorskip("torch")
    generator = np.random.default_rng(norm + clusters)
    away = generator.normal(size=(clusters, 96))
    away *= norm / np.linalg.norm(away, axis=1, keepdims=True)
    anchors = (away[np.arange(1500) % clusters] + generator.normal(size=(1500, 96))).astype("f4")
    anchors[200:260] = anchors[100]
    hidden = (away[np.arange(24) % clusters] + generator.normal(size=(24, 96))).astype("f4")
    hidden[0] = anchors[100]
    distances, index = nearest(hidden, anchors, 5, device=device)
    expected = brute(hidden, anchors, 5)
    assert np.array_equal(index, expected[1])
    assert np.allclose(distances, expected[0], rtol=1e-9)
    assert index[0].tolist() == [100, 200, 201, 202, 203]
