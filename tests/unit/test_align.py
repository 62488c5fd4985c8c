"""Positions where two tokenizations end at the same byte."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from tokengraft.tokenizer import load
from tokengraft.tokenizer.align import Aligner, common_ends
from tokengraft.tokenizer.huggingface import HuggingFace


def adapter(pipeline: Tokenizer) -> HuggingFace:
    return HuggingFace.from_json("test", "", pipeline.to_str().encode())


def slow_twin(old: list[bytes], new: list[bytes]) -> list[tuple[int, int]]:
    """Every pair of positions, compared by the bytes read so far; the last of empty ones counts."""
    found = []
    for i in range(len(old)):
        for j in range(len(new)):
            same = b"".join(old[: i + 1]) == b"".join(new[: j + 1])
            if same and (i + 1 == len(old) or old[i + 1]) and (j + 1 == len(new) or new[j + 1]):
                found.append((i, j))
    return found


def byte_level(merges: list[tuple[str, str]]) -> HuggingFace:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: number for number, char in enumerate(alphabet)}
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    pipeline = Tokenizer(models.BPE(vocab, merges))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    return adapter(pipeline)


MERGES = [("a", "b"), ("ab", "c"), ("Ġ", "d")]


def test_worked_example():
    old, new = byte_level(MERGES[:1]), byte_level(MERGES)
    (one,) = Aligner(old, new)(["abc d"])
    # old: ab|c|Ġ|d   new: abc|Ġd
    assert len(one.old) == 4
    assert len(one.new) == 2
    assert one.old_at.tolist() == [1, 3]
    assert one.new_at.tolist() == [0, 1]


def test_same_tokenizer_aligns_everywhere():
    old = byte_level(MERGES)
    (one,) = Aligner(old, old)(["abc dab é"])
    assert one.old_at.tolist() == one.new_at.tolist() == list(range(len(one.old)))


def test_empty_text():
    (one,) = Aligner(byte_level([]), byte_level(MERGES))([""])
    assert len(one) == len(one.old) == len(one.new) == 0


def test_slow_twin_on_bytes():
    old, new = byte_level(MERGES[:1]), byte_level(MERGES)
    texts = ["abcabc d abd", "é ab c", "ab abc  d", "日本 abc"]
    for one in Aligner(old, new)(texts):
        read = [
            [adapter_.vocabulary.pieces[i] for i in ids]
            for adapter_, ids in ((old, one.old), (new, one.new))
        ]
        pairs = list(zip(one.old_at.tolist(), one.new_at.tolist(), strict=True))
        assert pairs == slow_twin(*read)


def byte_fallback(extra: list[str], merges: list[tuple[str, str]]) -> HuggingFace:
    vocab = {"<unk>": 0, **{f"<0x{b:02X}>": b + 1 for b in range(256)}}
    for token in ["▁", "a", "b", *extra]:
        vocab[token] = len(vocab)
    pipeline = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    pipeline.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    pipeline.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return adapter(pipeline)


def test_sentencepiece_style_with_dummy_space_and_byte_fallback():
    old = byte_fallback([], [])
    new = byte_fallback(["é", "▁a"], [("▁", "a")])
    (one,) = Aligner(old, new)(["aé b"])
    # old: ▁|a|C3|A9|▁|b   new: ▁a|é|▁|b
    assert one.old_at.tolist() == [1, 3, 4, 5]
    assert one.new_at.tolist() == [0, 1, 2, 3]


def wordpiece(words: list[str]) -> HuggingFace:
    vocab = {"[UNK]": 0, **{word: n + 1 for n, word in enumerate(words)}}
    pipeline = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    pipeline.normalizer = normalizers.Lowercase()
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return adapter(pipeline)


def test_unknown_tokens_fall_back_on_offsets():
    old = wordpiece(["ab", "##c", "d"])
    new = wordpiece(["ab", "##c", "d", "ሰ", "##ላም"])
    (one,) = Aligner(old, new)(["ABC ሰላም d"])
    # old: ab|##c|[UNK]|d   new: ab|##c|ሰ|##ላም|d
    assert one.old_at.tolist() == [0, 1, 2, 3]
    assert one.new_at.tolist() == [0, 1, 3, 4]


def test_common_ends_takes_the_last_of_equal_ends():
    old_at, new_at = common_ends(np.array([1, 3, 3, 4]), np.array([0, 3, 4, 4]))
    assert old_at.tolist() == [2, 3]
    assert new_at.tolist() == [1, 3]


def test_added_tokens_cut_out_of_the_text():
    source = json.loads(byte_level(MERGES).pipeline.to_str())
    number = len(source["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "special": False}
    entry = {"id": number, "content": "ሰ", **flags, "normalized": True}
    literal = {**source, "added_tokens": [entry]}
    old = byte_level(MERGES)
    new = HuggingFace.from_json("new", "", json.dumps(literal).encode())
    (one,) = Aligner(old, new)(["abሰc"])
    assert [len(one.old), len(one.new)] == [5, 3]
    assert one.old_at.tolist() == [0, 3, 4]
    assert one.new_at.tolist() == [0, 1, 2]


@pytest.mark.parametrize("text", ["", "ab", "ab abc é"])
def test_ends_of_the_text_always_align(text):
    (one,) = Aligner(byte_level(MERGES[:1]), byte_level(MERGES))([text])
    if text:
        assert one.old_at[-1] == len(one.old) - 1
        assert one.new_at[-1] == len(one.new) - 1


def test_the_vocabulary_is_left_alone():
    tokenizer = load("mistral-v0.3")  # its control tokens have no bytes
    before = tokenizer.vocabulary.is_unknown.copy()
    Aligner(tokenizer, tokenizer)
    assert (tokenizer.vocabulary.is_unknown == before).all()
