"""Greedy text against a slow twin that adds up tokens byte by byte."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tokengraft.grafting.decoding import GreedyText  # noqa: E402

OLD = 8
PIECES = [b"ab", b"abc", b"abd", b"abde", b"xyz", b"xyw", b"qr", b"abcd"]  # of new tokens
FIRST = [1, 1, 1, 1, 2, 2, 3, 1]  # a = 1, x = 2, q = 3
NEW = range(OLD, OLD + len(PIECES))


def slow(q):
    """The token to take, from probabilities over old and new tokens."""
    if sum(q[OLD:]) <= 0.5:
        return int(np.argmax(q))
    pools = [sum(q[OLD + n] for n, f in enumerate(FIRST) if f == old) for old in range(OLD)]
    part = int(np.argmax(pools))
    if pools[part] <= max(q[:OLD]):
        return int(np.argmax(q[:OLD]))
    inside = [n for n, first in enumerate(FIRST) if first == part]
    taken, ends, text = -1, -1.0, PIECES[inside[0]][:1]
    while True:
        ways = {}
        for n in inside:
            if PIECES[n].startswith(text) and PIECES[n] != text:
                way = PIECES[n][: len(text) + 1]
                ways[way] = ways.get(way, 0.0) + q[OLD + n]
        if not ways or ends >= sum(ways.values()):
            return taken
        text = max(ways, key=ways.__getitem__)
        ends = -1.0
        for n in inside:
            if PIECES[n] == text:
                taken, ends = OLD + n, q[OLD + n]


def test_it_takes_what_a_slow_twin_takes():
    torch.manual_seed(0)
    scores = 2 * torch.randn(400, OLD + len(PIECES))
    scores[:, [1, *NEW]] += 1  # the old part is often the likeliest token
    found = GreedyText(NEW, FIRST, PIECES)(None, scores)
    expected = [slow(row) for row in scores.double().softmax(-1).tolist()]
    assert found.argmax(-1).tolist() == expected
    assert len({*expected}) > 10
    assert (found.argmax(-1) != scores.argmax(-1)).float().mean() > 0.1
    others = found != scores
    assert others.sum() == len(scores)  # one score a row is another


def test_where_no_new_token_is_likely_nothing_changes():
    torch.manual_seed(0)
    scores = torch.randn(50, OLD + len(PIECES))
    scores[:, OLD:] -= 30
    found = GreedyText(NEW, FIRST, PIECES)(None, scores)
    assert torch.equal(found.argmax(-1), scores.argmax(-1))


def test_a_barred_token_is_not_taken():
    scores = torch.zeros(1, OLD + len(PIECES))
    scores[0, OLD + 4] = 9.0
    assert GreedyText(NEW, FIRST, PIECES)(None, scores).argmax() == OLD + 4
    scores[0, OLD + 4] = -torch.inf
    assert GreedyText(NEW, FIRST, PIECES)(None, scores).argmax() != OLD + 4


def test_new_tokens_that_are_not_likely_together_do_not_outvote_an_old_one():
    scores = torch.full((1, OLD + len(PIECES)), -9.0)
    scores[0, 5], scores[0, OLD : OLD + 4] = 0.0, -1.5  # .53, and four of .12
    assert GreedyText(NEW, FIRST, PIECES)(None, scores).argmax() == 5
    scores[0, OLD : OLD + 4] = -1.0  # four of .15: likelier than not
    assert GreedyText(NEW, FIRST, PIECES)(None, scores).argmax() >= OLD
    scores[0, OLD : OLD + 6] = torch.tensor([-1.4, -1.4, -9, -9, -1.4, -1.4])  # two pools of two
    assert GreedyText(NEW, FIRST, PIECES)(None, scores).argmax() == 5
