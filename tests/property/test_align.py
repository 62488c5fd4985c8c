"""Alignment against a slow twin, on random texts, tokens and ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengraft.tokenizer.align import common_ends

ends = st.lists(st.integers(0, 3), min_size=1, max_size=30).map(np.cumsum)


@settings(max_examples=300, deadline=None)
@given(ends, ends)
def test_common_ends_is_what_a_double_loop_finds(old, new):
    def last(values):
        return {int(value): place for place, value in enumerate(values)}

    theirs = sorted((a, b) for v, a in last(old).items() for w, b in last(new).items() if v == w)
    old_at, new_at = common_ends(old, new)
    assert list(zip(old_at.tolist(), new_at.tolist(), strict=True)) == theirs


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=40), st.data())
def test_two_cuts_of_the_same_bytes(data, draw):
    cuts = [sorted(draw.draw(st.sets(st.integers(1, len(data)))) | {len(data)}) for _ in range(2)]
    old_at, new_at = common_ends(*(np.array(cut) for cut in cuts))
    both = sorted(set(cuts[0]) & set(cuts[1]))
    assert [cuts[0][i] for i in old_at] == both
    assert [cuts[1][j] for j in new_at] == both
