"""Counts equal the libraries' own, on a third of every translation of the bundled UDHR."""

from __future__ import annotations

import base64
import json

import pytest

from tokengraft.corpus import load as load_corpus
from tokengraft.tokenizer import load, sources
from tokengraft.tokenizer.openai import PATTERNS, SPECIALS

UDHR = load_corpus("udhr")
TEXTS = [line for code in UDHR.languages for line in UDHR.lines(code)[::3]]


def lengths(rows):
    return [len(row) for row in rows]


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_tiktoken(name, tmp_path, monkeypatch):
    """tiktoken itself builds the encoding from its own definition and the bundled ranks."""
    import tiktoken
    import tiktoken_ext.openai_public as openai

    data = sources.bundled(name).read(f"{name}.tiktoken")
    ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in data.splitlines())}
    monkeypatch.setattr(openai, "load_tiktoken_bpe", lambda *_, **__: ranks)
    own = tiktoken.Encoding(**getattr(openai, name)())
    assert own._pat_str == PATTERNS[name]
    assert own._special_tokens == SPECIALS[name]
    assert load(name).encode(TEXTS) == own.encode_ordinary_batch(TEXTS)


def test_gpt2_by_tiktoken_equals_tokenizers():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    source = sources.bundled("gpt2")
    merges = [tuple(m.split(" ")) for m in source.read("merges.txt").decode().split("\n")[1:] if m]
    own = Tokenizer(models.BPE(json.loads(source.read("vocab.json")), merges))
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    ours = load("gpt2")
    assert ours.encode(TEXTS) == [e.ids for e in own.encode_batch(TEXTS)]
    counter = [len(own.pre_tokenizer.pre_tokenize_str(t)) for t in TEXTS[:4000]]
    assert ours.pretokens(TEXTS[:4000]).tolist() == counter


@pytest.mark.parametrize(
    ("name", "file"), [("t5", "spiece.model"), ("mistral-v0.3", "tokenizer.model")]
)
def test_sentencepiece(name, file):
    import sentencepiece

    own = sentencepiece.SentencePieceProcessor(model_proto=sources.bundled(name).read(file))
    assert lengths(load(name).encode(TEXTS)) == [len(own.encode(text)) for text in TEXTS]


@pytest.mark.parametrize("name", ["llama-3", "olmo-2", "claude-2.1"])
def test_tokenizers(name):
    from tokenizers import Tokenizer

    own = Tokenizer.from_str(sources.bundled(name).read("tokenizer.json").decode())
    expected = [len(e) for e in own.encode_batch(TEXTS, add_special_tokens=False)]
    ours = load(name)
    assert lengths(ours.encode(TEXTS)) == expected
    normalize = own.normalizer.normalize_str if own.normalizer else str
    cuts = [len(own.pre_tokenizer.pre_tokenize_str(normalize(t))) for t in TEXTS[:2000]]
    assert ours.pretokens(TEXTS[:2000]).tolist() == cuts


def test_bert_equals_transformers(tmp_path):
    from transformers import BertTokenizerFast

    source = sources.bundled("bert-multilingual")
    for file in source.files:
        (tmp_path / file).write_bytes(source.read(file))
    own = BertTokenizerFast.from_pretrained(tmp_path)
    expected = own(TEXTS[:5000], add_special_tokens=False)["input_ids"]
    assert load("bert-multilingual").encode(TEXTS[:5000]) == expected


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base", "gpt2"])
def test_pretokens_equal_the_regex_packages(name):
    """The rewritten pattern cuts as tiktoken's own does under a regex engine that reads it."""
    import regex

    pattern = regex.compile(PATTERNS[name])
    expected = [len(pattern.findall(text)) for text in TEXTS[:4000]]
    assert load(name).pretokens(TEXTS[:4000]).tolist() == expected


@pytest.mark.parametrize("name", ["llama-3", "claude-2.1"])
def test_clean_vocabulary_equals_transformers(name, tmp_path):
    from transformers import PreTrainedTokenizerFast
    from transformers.generation.stopping_criteria import StopStringCriteria

    (tmp_path / "tokenizer.json").write_bytes(sources.bundled(name).read("tokenizer.json"))
    own = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    strings, _ = StopStringCriteria.clean_tokenizer_vocab(own)
    assert load(name).clean_vocabulary() == {s.encode() for s in strings}
