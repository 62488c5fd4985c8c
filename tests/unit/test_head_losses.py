"""A head with new rows, pooled by first parts: against a slow twin and finite differences."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from tokengraft.model import divergence  # noqa: E402
from tokengraft.model.divergence import Head  # noqa: E402
from tokengraft.model.head_losses import (  # noqa: E402
    Added,
    LossWeights,
    Twigs,
    stray,
    terms,
    writing_slopes,
)

OLD, NEW, WIDE, COUNT = 23, 6, 5, 9
WEIGHTS = LossWeights(2.0, 0.7, 1.3)


def case(kind: str):
    torch.manual_seed(0)
    weight = torch.randn(OLD, WIDE)
    head = {
        "plain": Head(weight),
        "bias": Head(weight, torch.randn(OLD)),
        "cap": Head(weight, cap=2.0),
        "all": Head(weight, torch.randn(OLD), 2.5, 0.5),
    }[kind]
    bias = torch.randn(NEW) if head.bias is not None else None
    added = Added(torch.randn(NEW, WIDE), torch.tensor([3, 3, 7, 0, 3, 22]), bias)
    following = torch.tensor([3, OLD + 1, -1, OLD, 5, 22, OLD + 5, -1, 7])
    return head, added, following, torch.randn(COUNT, WIDE), torch.randn(COUNT, WIDE)


def logits(head, added, state):
    """By the formula, one score at a time."""
    found = []
    rows = [*head.weight, *added.rows]
    biases = [0.0] * len(rows)
    if head.bias is not None:
        biases = [*head.bias.tolist(), *added.bias.tolist()]
    for row, bias in zip(rows, biases, strict=True):
        x = head.factor * (float(row.double() @ state.double()) + bias)
        found.append(x if head.cap is None else head.cap * math.tanh(x / head.cap))
    return found


def softmax(scores):
    total = sum(math.exp(one) for one in scores)
    return [math.exp(one) / total for one in scores]


def slow(head, added, following, new, old):
    """The terms by loops over tokens and positions."""
    found = []
    for position in range(len(new)):
        scores = logits(head, added, new[position])
        q, p = softmax(scores), softmax(logits(head, added, old[position])[:OLD])
        o = softmax(scores[:OLD])
        pools = q[:OLD]
        for number, first in enumerate(added.first.tolist()):
            pools[first] += q[OLD + number]
        reading = sum(a * math.log(a / b) for a, b in zip(p, o, strict=True))
        pooled = sum(a * math.log(a / b) for a, b in zip(p, pools, strict=True))
        after, split = int(following[position]), 0.0
        if after >= 0:
            first = after if after < OLD else int(added.first[after - OLD])
            split = -math.log(q[after] / pools[first])
        found.append((reading, pooled, split))
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["plain", "bias", "cap", "all"])
def test_terms_are_those_of_a_slow_twin(kind, monkeypatch):
    head, added, following, new, old = case(kind)
    expected = slow(head, added, following, new, old)
    monkeypatch.setattr(divergence, "_LEAST", 1)
    for block in (1 << 24, 40):  # at once, and position by position
        monkeypatch.setitem(divergence.TRAINING, "cpu", block)
        found = terms(new, old, head, added, following)
        got = torch.stack([found.reading, found.pooled, found.split], 1)
        assert torch.allclose(got.double(), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "bias", "cap", "all"])
def test_gradients_are_finite_differences(kind, monkeypatch):
    monkeypatch.setitem(divergence.TRAINING, "cpu", 100)
    monkeypatch.setattr(divergence, "_LEAST", 1)
    head, added, following, new, old = case(kind)
    grads = writing_slopes(new, old, head, added, following, WEIGHTS)

    def value(states, rows):
        found = slow(head, replace(added, rows=rows), following, states, old).double()
        return float(found.sum(0) @ torch.tensor([2.0, 0.7, 1.3], dtype=torch.float64))

    given = [new.double(), added.rows.double()]
    for which, grad in enumerate(grads):
        for place in [(0, 1), (1, 0), (2, 3), (5, 4), (3, 2)]:
            ends = []
            for step in (1e-4, -1e-4):
                moved = [one.clone() for one in given]
                moved[which][place] += step
                ends.append(value(*moved))
            assert float(grad[place]) == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-3)


@pytest.mark.parametrize("kind", ["plain", "bias", "cap", "all"])
def test_stray_is_the_divergence_of_a_head_that_only_grew(kind):
    head, added, _, states, _ = case(kind)
    base = head.logits(states).logsumexp(-1)
    losses, pull = stray(states, base, head, added)
    rows = added.rows.clone().requires_grad_()
    with torch.enable_grad():
        whole = replace(added, rows=rows).grown(head)
        scores = (states @ whole.weight.T) + (0 if whole.bias is None else whole.bias)
        scores = scores * whole.factor
        scores = scores if whole.cap is None else whole.cap * torch.tanh(scores / whole.cap)
        p, q = scores[:, :OLD].detach().log_softmax(-1), scores.log_softmax(-1)
        kl = (p.exp() * (p - q[:, :OLD])).sum(-1)
        (slope,) = torch.autograd.grad(kl.sum(), rows)
    assert torch.allclose(losses, kl.detach(), atol=1e-5)
    assert torch.allclose(pull, slope, atol=1e-4)


def test_no_new_token_is_exactly_the_base():
    head, added, _, states, _ = case("plain")
    none = Added(added.rows[:0], added.first[:0])
    nothing = torch.full((COUNT,), -1)
    found = terms(states, states, head, none, nothing)
    assert found.reading.abs().max() < 1e-6
    assert found.pooled.abs().max() < 1e-6
    assert found.same.all()
    losses, _ = stray(states, head.logits(states).logsumexp(-1), head, none)
    assert (losses == 0).all()


def twigs():
    """Two groups of tokens of first part 3 against each other, at two positions."""
    order = torch.tensor([3, 0, 4, 1, 2, 5])
    table = [(1, 1, 2, 0.3), (1, 2, 4, -0.3), (4, 1, 3, -0.8), (4, 3, 4, 0.5), (4, 5, 6, 0.3)]
    position, low, high, weight = (torch.tensor(one) for one in zip(*table, strict=True))
    return Twigs(order, position, low, high, weight)


@pytest.mark.parametrize("kind", ["plain", "all"])
@pytest.mark.parametrize("block", [1 << 24, 100])
def test_twigs_and_their_gradient_are_those_of_a_slow_twin(kind, block, monkeypatch):
    monkeypatch.setitem(divergence.TRAINING, "cpu", block)
    monkeypatch.setattr(divergence, "_LEAST", 1)
    head, added, following, new, old = case(kind)
    new.requires_grad_()
    added = replace(added, rows=added.rows.requires_grad_())
    given = [new, added.rows]
    with_twigs = writing_slopes(new, old, head, added, following, WEIGHTS, twigs())
    without = writing_slopes(new, old, head, added, following, WEIGHTS)
    grads = [a - b for a, b in zip(with_twigs, without, strict=True)]
    whole = added.grown(head)
    scores = new @ whole.weight.T + (0 if whole.bias is None else whole.bias)
    scores = scores * whole.factor
    scores = scores if whole.cap is None else whole.cap * torch.tanh(scores / whole.cap)
    q = scores.softmax(-1)
    expected, leaf = 0.0, twigs()
    for position, low, high, weight in zip(
        leaf.position, leaf.low, leaf.high, leaf.weight, strict=True
    ):
        mass = sum(q[position, OLD + token] for token in leaf.order[low:high])
        expected = expected - WEIGHTS.split * weight * mass.log()
    for grad, slow_grad in zip(grads, torch.autograd.grad(expected, given), strict=True):
        assert torch.allclose(grad, slow_grad, atol=1e-4)
