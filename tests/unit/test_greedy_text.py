"""Greedy text against a slow twin that adds up tokens byte by byte."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tokengraft.grafting.greedy_text import GreedyText  # noqa: E402

OLD = 8
PIECES = [b"ab", b"abc", b"abd", b"abde", b"xyz", b"xyw", b"qr", b"abcd"]  # of new tokens
FIRST = [1, 1, 1, 1, 2, 2, 3, 1]  # a = 1, x = 2, q = 3
NEW = range(OLD, OLD + len(PIECES))
BEGUN, ENGLISH = [0, OLD + 1, 4], [0, 5, 4]  # what was read: a new token among it, or none


def take(scores, read=BEGUN):
    """Scores as the processor leaves them, `read` before each row."""
    ids = torch.tensor([read] * len(scores))
    return GreedyText(NEW, FIRST, PIECES)(ids, scores)


def slow(q, begun=True):
    """The token to take, from probabilities over old and new tokens."""
    if sum(q[OLD:]) <= (0.5 if begun else 0.9):
        return int(np.argmax(q if begun else q[:OLD]))
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


@pytest.mark.parametrize("read", [BEGUN, ENGLISH])
def test_it_takes_what_a_slow_twin_takes(read):
    torch.manual_seed(0)
    scores = 2 * torch.randn(400, OLD + len(PIECES))
    scores[:, [1, *NEW]] += 1  # the old part is often the likeliest token
    found = take(scores, read)
    expected = [slow(row, read is BEGUN) for row in scores.double().softmax(-1).tolist()]
    assert found.argmax(-1).tolist() == expected
    assert len({*expected}) > 10
    assert (found.argmax(-1) != scores.argmax(-1)).float().mean() > 0.1
    others = found != scores
    assert others.sum() == len(scores)  # one score a row is another


def test_where_no_new_token_is_likely_nothing_changes():
    torch.manual_seed(0)
    scores = torch.randn(50, OLD + len(PIECES))
    scores[:, OLD:] -= 30
    found = take(scores)
    assert torch.equal(found.argmax(-1), scores.argmax(-1))


def test_a_barred_token_is_not_taken():
    scores = torch.zeros(1, OLD + len(PIECES))
    scores[0, OLD + 4] = 9.0
    assert take(scores).argmax() == OLD + 4
    scores[0, OLD + 4] = -torch.inf
    assert take(scores).argmax() != OLD + 4


def test_new_tokens_that_are_not_likely_together_do_not_outvote_an_old_one():
    scores = torch.full((1, OLD + len(PIECES)), -9.0)
    scores[0, 5], scores[0, OLD : OLD + 4] = 0.0, -1.5  # .53, and four of .12
    assert take(scores).argmax() == 5
    scores[0, OLD : OLD + 4] = -1.0  # four of .15: likelier than not
    assert take(scores).argmax() >= OLD
    scores[0, OLD : OLD + 6] = torch.tensor([-1.4, -1.4, -9, -9, -1.4, -1.4])  # two pools of two
    assert take(scores).argmax() == 5


def test_a_text_without_a_new_token_gets_its_first_only_where_new_ones_are_sure():
    scores = torch.full((1, OLD + len(PIECES)), -9.0)
    scores[0, 5], scores[0, OLD + 6] = 0.0, 1.5  # .18 and .82
    assert take(scores, BEGUN).argmax() == OLD + 6
    assert take(scores, ENGLISH).argmax() == 5
    scores[0, OLD + 6] = 2.5  # .92
    assert take(scores, ENGLISH).argmax() == OLD + 6
    both = GreedyText(NEW, FIRST, PIECES)(torch.tensor([BEGUN, ENGLISH]), scores.repeat(2, 1) / 2)
    assert both.argmax(-1).tolist() == [OLD + 6, 5]  # each row by what it has read
