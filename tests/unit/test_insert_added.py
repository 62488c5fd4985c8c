"""Added tokens of the base are cut out of text first, keep their ids, and no merge makes them."""

import copy
import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tokengraft.core.errors import TokenizerError
from tokengraft.corpus import udhr
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning, with_plan
from tokengraft.planning.word_pool import Cutter
from tokengraft.tokenizer.catalog import as_json, find
from tokengraft.tokenizer.insert import Additions, first_free_id, placeholders, settle
from tokengraft.tokenizer.insert import insert as put
from tokengraft.tokenizer.pipeline import Encoder, load
from tokengraft.tokenizer.pre_tokenizer import splitter_of

FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
NAMES = ("gpt2", "mistral-v0.3", "t5", "bert-multilingual")


@functools.cache
def base(name: str) -> dict:
    return as_json(find(name))


@functools.cache
def shan() -> list[str]:
    return udhr.load(["shn_Mymr"]).lines("shn_Mymr")


def with_added(tokenizer: dict, *contents: str, **flags: bool) -> dict:
    start = first_free_id(tokenizer)
    there = {token["content"] for token in tokenizer["added_tokens"]}
    rows = [
        {"id": start + n, "content": content, **FLAGS, "special": False, **flags}
        for n, content in enumerate(c for c in contents if c not in there)
    ]
    return {**tokenizer, "added_tokens": [*tokenizer["added_tokens"], *rows]}


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("name", NAMES)
def test_added_tokens_keep_their_ids_and_no_new_token_is_dead(name: str) -> None:
    tokenizer = with_added(with_added(base(name), "ၵ"), "လႄႈ", normalized=True)
    plan = plan_tokens(tokenizer, {"shn_Mymr": shan()}, Planning(budget=60))
    old, new = load(tokenizer), load(with_plan(tokenizer, plan))
    kept, grown = old.get_vocab(), new.get_vocab()
    assert {token: grown[token] for token in kept} == kept
    assert not {token.token for token in plan.tokens} & kept.keys()
    emitted = {number for line in shan() for number in ids(new, line)}
    assert {token.id for token in plan.tokens} <= emitted
    before = sum(len(ids(old, line)) for line in shan())
    assert plan.languages["shn_Mymr"].planning_before == before


@pytest.mark.parametrize(
    "flags",
    [{}, {"normalized": True}, {"single_word": True}, {"lstrip": True, "rstrip": True}],
    ids=str,
)
@pytest.mark.parametrize("name", NAMES)
def test_words_are_what_the_model_sees(name: str, flags: dict) -> None:
    tokenizer = with_added(base(name), "ၵ", "လႄႈ", **flags)
    cutter, whole = Cutter(tokenizer), load(tokenizer)
    for line in [*shan()[:30], "ၵ", " ၵ ၵၵ", "aၵ b", ""]:
        words = Encoder(whole).ids(cutter.words(line))
        assert words.ids.tolist() == ids(whole, line)


def test_a_plan_names_added_tokens_that_text_may_become() -> None:
    """Found by attacking crafted tokenizers: a token that must stand alone, looked up as a word."""
    crafted = with_added(base("gpt2"), "zzyzx", single_word=True)
    crafted["model"] = {**crafted["model"], "ignore_merges": True}
    for tokenizer, named in ((base("gpt2"), False), (crafted, True)):
        plan = plan_tokens(tokenizer, {"shn_Mymr": shan()}, Planning(budget=5))
        assert any("zzyzx" in note for note in plan.notes) == named
        old, new = load(tokenizer), load(with_plan(tokenizer, plan))
        assert (ids(old, "zzyzx\u0301") != ids(new, "zzyzx\u0301")) == named


def test_a_text_that_names_a_special_token() -> None:
    assert splitter_of(base("gpt2")).pre_tokenize("a<|endoftext|> b") == ["a", 50256, "Ġb"]


def test_an_added_string_is_never_new() -> None:
    tokenizer = with_added(base("t5"), "ၵ")
    start = first_free_id(tokenizer)
    with pytest.raises(TokenizerError, match="already"):
        put(tokenizer, Additions(tokens=((start, "ၵ"),), scores=(-1.0,)))


@pytest.mark.parametrize("content", ["<extra_id_0>", "<x>", "Zusammen"])
def test_text_does_not_become_a_special_token(content: str) -> None:
    wide = "".join(chr(ord(c) + 0xFEE0) for c in content)
    tokenizer = with_added(base("t5"), content, special=True)
    plan = plan_tokens(tokenizer, {"shn_Mymr": shan()}, Planning(budget=20))
    old, new = load(tokenizer), load(with_plan(tokenizer, plan))
    for text in (wide, f"see {wide} here", f"a{wide}b", f"{wide}{wide}"):
        assert ids(new, text) == ids(old, text)
    assert ids(new, f"a {content} b") == ids(old, f"a {content} b")
    assert old.token_to_id(content) in ids(new, f"a {content} b")
    assert settle(settle(tokenizer)) == settle(tokenizer)


LETTERS = "<abć>"
pieces = st.lists(
    st.tuples(
        st.text(alphabet=LETTERS, min_size=1, max_size=4), st.floats(-20, -0.5, allow_nan=False)
    ),
    unique_by=lambda row: row[0],
    min_size=1,
    max_size=10,
)


@given(
    vocab=pieces,
    contents=st.lists(st.text(alphabet=LETTERS, min_size=2, max_size=5), unique=True, max_size=3),
    text=st.text(alphabet=LETTERS.upper() + LETTERS, max_size=14),
)
@settings(max_examples=400, deadline=None)
def test_settled_text_keeps_its_ids(vocab: list, contents: list[str], text: str) -> None:
    """Contents are cut out of raw text only; upper case normalises to them and must not be.

    Where a score had to keep one out, text with UNK may have fewer of them.
    """
    contents = [c for c in contents if c not in dict(vocab)]
    tokenizer = with_added(
        {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": {"type": "Lowercase"}, "pre_tokenizer": None, "post_processor": None,
            "decoder": None,
            "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                      "vocab": [["<unk>", -21.0], *map(list, vocab)]},
        },
        *contents,
        special=True,
    )  # fmt: skip
    before = copy.deepcopy(tokenizer)
    old = Tokenizer.from_str(json.dumps(tokenizer))
    new = Tokenizer.from_str(json.dumps(settle(tokenizer)))
    assert tokenizer == before
    assert new.get_vocab() == old.get_vocab()
    _, pattern = placeholders(tokenizer["model"]["vocab"], contents)
    if 0 not in ids(old, text) or (pattern or "").count("(?<=") == len(contents):
        assert ids(new, text) == ids(old, text)
