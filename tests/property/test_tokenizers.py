"""Over all of Unicode: what the adapters promise about text, pieces and cuts."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokengraft.auditing.count import Counts, count, spread_sample
from tokengraft.tokenizer import load
from tokengraft.tokenizer.catalog import BUNDLED
from tokengraft.tokenizer.vocabulary import recovered_text

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
opened = functools.cache(load)


@pytest.mark.parametrize("name", BUNDLED)
@settings(max_examples=60, deadline=None)
@given(batch=st.lists(texts, min_size=1, max_size=6))
def test_batches_equal_single_texts(name, batch):
    tokenizer = opened(name)
    assert tokenizer.encode(batch) == [tokenizer.encode([text])[0] for text in batch]


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base", "llama-3", "olmo-2"])
@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_lossless_means_lossless(name, text):
    """What claims to be lossless is: the text comes back and the pieces spell its bytes."""
    tokenizer = opened(name)
    assert tokenizer.lossless
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]
    assert b"".join(tokenizer.vocabulary.pieces[n] for n in ids) == text.encode()


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base", "llama-3", "claude-2.1"])
@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_no_text_is_below_the_floor(name, text):
    tokenizer = opened(name)
    assert len(tokenizer.encode([text])[0]) >= tokenizer.pretokens([text])[0]


def slow_count(tokenizer, texts):
    """Counts the long way round: one text, one token, one character at a time."""
    rows = []
    for text in texts:
        (ids,) = tokenizer.encode([text])
        inside = unks = 0
        for number in ids:
            piece = tokenizer.vocabulary.pieces[number]
            if piece and 0x80 <= piece[0] <= 0xBF:
                inside += 1
            if number in tokenizer.vocabulary.unknown:
                unks += 1
        exact = int(tokenizer.decode([ids])[0] == text)
        cuts = tokenizer.pretokens([text])
        rows.append((len(ids), unks, inside, exact, -1 if cuts is None else int(cuts[0])))
    return rows


@pytest.mark.parametrize("name", ["t5", "mistral-v0.3", "bert-multilingual", "llama-3", "gpt2"])
@settings(max_examples=40, deadline=None)
@given(batch=st.lists(texts, min_size=1, max_size=5))
def test_count_equals_its_slow_twin(name, batch):
    tokenizer = opened(name)
    counts = count(tokenizer, batch)
    fields = ("tokens", "unks", "inside", "exact", "pretokens")
    table = list(zip(*(getattr(counts, f).tolist() for f in fields), strict=True))
    assert table == slow_count(tokenizer, batch)


@given(st.lists(st.tuples(*[st.integers(-1, 2**31 - 1)] * 6), max_size=20))
def test_packed_counts_come_back(rows):
    table = np.array(rows, np.int64).reshape(-1, 6).T
    back = Counts.unpack(Counts(*table).pack())
    for field, column in zip(
        ("tokens", "unks", "inside", "exact", "pretokens", "dropped"), table, strict=True
    ):
        assert getattr(back, field).tolist() == column.tolist()


@given(st.binary(max_size=12))
def test_recovered_text_is_inside_the_piece(piece):
    text = recovered_text(piece)
    assert text == "" or text.encode() in piece


@given(st.integers(0, 5000), st.integers(1, 600))
def test_spread_sample_is_spread_and_within(lines, limit):
    sample = spread_sample(lines, limit)
    assert len(set(sample.tolist())) == len(sample) == min(lines, limit)
    assert all(0 <= n < lines for n in sample)
