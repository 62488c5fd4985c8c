"""Premiums against a slow twin, against SciPy, and against hand-worked figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tokengraft.auditing.premium import Premium, estimate, gini, percentile_interval


def slow_premium(cost, pivot):
    """The definitions, word for word."""
    ratios, top, bottom = [], 0, 0
    for a, b in zip(cost, pivot, strict=True):
        if a is None or b is None or b == 0:
            continue
        ratios.append(a / b)
        top += a
        bottom += b
    return len(ratios), sum(ratios) / len(ratios), top / bottom


def test_worked_by_hand():
    cost = np.array([[4.0], [9.0], [2.0]])
    pivot = np.array([[2.0], [3.0], [2.0]])
    result = estimate(cost, pivot)
    assert result.mean_of_ratios[0] == pytest.approx((2 + 3 + 1) / 3)
    assert result.ratio_of_sums[0] == pytest.approx(15 / 7)
    assert result.n[0] == 3


counts = st.one_of(st.none(), st.integers(0, 500))


@settings(deadline=None)
@given(st.lists(st.tuples(counts, counts, counts), min_size=1, max_size=30))
def test_equals_its_slow_twin(rows):
    cost = np.array([[np.nan if x is None else x for x in row[:2]] for row in rows], float)
    base = np.array([np.nan if row[2] is None else row[2] for row in rows], float)
    result = estimate(cost, np.stack([base, base], axis=1), resamples=0)
    for cell in range(2):
        usable = [r for r in rows if r[cell] is not None and r[2]]
        if not usable:
            assert result.n[cell] == 0
            assert math.isnan(result.mean_of_ratios[cell])
            continue
        n, mean, ratio = slow_premium([r[cell] for r in rows], [r[2] for r in rows])
        assert result.n[cell] == n
        assert result.mean_of_ratios[cell] == pytest.approx(mean)
        assert result.ratio_of_sums[cell] == pytest.approx(ratio)


def test_interval_is_scipys_percentile_bootstrap():
    """The same draws, one cell at a time, through SciPy's plain interface."""
    rng = np.random.default_rng(3)
    cost = rng.integers(20, 90, (60, 3)).astype(float)
    pivot = np.repeat(rng.integers(10, 40, (60, 1)), 3, axis=1).astype(float)
    result = estimate(cost, pivot, resamples=500, seed=7)
    for cell in range(3):
        ratios = cost[:, cell] / pivot[:, cell]
        own = stats.bootstrap(
            (ratios,),
            np.mean,
            n_resamples=500,
            batch=500,
            method="percentile",
            rng=np.random.default_rng(7),
        ).confidence_interval
        assert result.mean_low[cell] == pytest.approx(own.low)
        assert result.mean_high[cell] == pytest.approx(own.high)
        paired = stats.bootstrap(
            (cost[:, cell], pivot[:, cell]),
            lambda a, b, axis=-1: a.sum(axis) / b.sum(axis),
            paired=True,
            n_resamples=500,
            batch=500,
            method="percentile",
            rng=np.random.default_rng(7),
        ).confidence_interval
        assert result.sums_low[cell] == pytest.approx(paired.low)
        assert result.sums_high[cell] == pytest.approx(paired.high)


@pytest.mark.parametrize(
    ("sentences", "resamples", "batch"), [(60, 100, 100), (7, 9, 4), (2, 1, 1)]
)
def test_percentiles_are_scipys_bit_for_bit(sentences, resamples, batch):
    values = np.random.default_rng(sentences).random((2, sentences))
    values[1] = np.nan

    def means(drawn, axis=-1):
        return values[:, np.asarray(drawn, int)].mean(axis=-1)

    own = percentile_interval(means, sentences, resamples, 5, batch)
    with pytest.warns(stats.DegenerateDataWarning):
        theirs = stats.bootstrap(
            (np.arange(sentences),), means, n_resamples=resamples, batch=batch, vectorized=True,
            method="percentile", rng=np.random.default_rng(5),
        ).confidence_interval  # fmt: skip
    assert np.array_equal(own[0], theirs.low, equal_nan=True) and np.isnan(own[0][1])
    assert np.array_equal(own[1], theirs.high, equal_nan=True)


def test_interval_holds_the_value_and_is_reproducible():
    rng = np.random.default_rng(0)
    cost, pivot = rng.integers(1, 50, (40, 4)) * 1.0, rng.integers(1, 50, (40, 4)) * 1.0
    first, second = estimate(cost, pivot), estimate(cost, pivot)
    assert (first.mean_low <= first.mean_of_ratios).all()
    assert (first.mean_of_ratios <= first.mean_high).all()
    assert (first.mean_low == second.mean_low).all()


def test_missing_sentences_do_not_count():
    cost = np.array([[2.0, 2.0], [6.0, np.nan], [np.nan, 4.0]])
    pivot = np.ones((3, 2))
    result = estimate(cost, pivot)
    assert result.n.tolist() == [2, 2]
    assert result.mean_of_ratios.tolist() == [4.0, 3.0]


def test_one_sentence_has_no_interval():
    result = estimate(np.array([[3.0]]), np.array([[2.0]]))
    assert result.mean_of_ratios[0] == 1.5
    assert math.isnan(result.mean_low[0])


@pytest.mark.parametrize(
    ("costs", "expected"),
    [([1, 1, 1, 1], 0.0), ([0, 0, 0, 1], 0.75), ([1, 2, 3], 2 / 9)],
)
def test_gini(costs, expected):
    assert gini(np.array(costs, float)) == pytest.approx(expected)


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=40))
def test_gini_is_half_the_relative_mean_difference(costs):
    array = np.array(costs)
    differences = np.abs(array[:, None] - array[None, :]).mean()
    assert gini(array) == pytest.approx(differences / (2 * array.mean()), abs=1e-9)


def test_a_premium_prints_with_its_definition():
    text = str(Premium(2.5, 2.4, 2.6, 100, "mean of ratios", 0.31))
    assert text == "2.50 [2.40, 2.60] (mean of ratios, n=100, 31% UNK)"
    bare = Premium(2.5, float("nan"), float("nan"), 100, "mean of ratios", 0.004)
    assert str(bare) == "2.50 (mean of ratios, n=100, 0.4% UNK)"
