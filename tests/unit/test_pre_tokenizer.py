"""Relaxed patterns join, never cut, and leave text without the chosen scripts alone."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tokengraft.core.errors import TokenizerError, UsageError
from tokengraft.corpus import udhr
from tokengraft.planning.plan import Planning
from tokengraft.tokenizer.catalog import BUNDLED, as_json, find
from tokengraft.tokenizer.kept_cuts import KeptCuts
from tokengraft.tokenizer.pre_tokenizer import (
    GPT2,
    SCRIPTS,
    relax_pattern,
    relaxed_pattern,
    script_names,
    split_pattern,
    with_pattern,
)

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NAMES = ("Bengali", "Devanagari", "Khmer", "Myanmar")
LETTER = Regex(r"[\p{L}&&[\p{Bengali}\p{Devanagari}\p{Khmer}\p{Myanmar}]]")
HARD = "कखिा्ंশব্দကႆႈេក a b'sſ1٣.,।-\n\r\t\u200c\u200d\u0301\u0951中ا\u064b"


@functools.cache
def cutter(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def cuts(pre_tokenizer: pre_tokenizers.PreTokenizer, text: str) -> set[int]:
    return {end for _, (_, end) in pre_tokenizer.pre_tokenize_str(text)}


KEPT = KeptCuts(
    {"क": frozenset("ि\u0301"), "ক": frozenset("া")},
    {"ं": frozenset("कख"), "\u0301": frozenset("ব")},
    (" कख", "िक", "ခ"),
    {"िं": frozenset("क")},
)
PAIRS = [
    (cutter(old), cutter(relax_pattern(old, NAMES, kept)))
    for old in (GPT2, CL100K)
    for kept in (None, KEPT)
]
GUARDED = {
    " ?": relax_pattern(GPT2, NAMES, KEPT),
    r"[^\r\n\p{L}\p{N}]?": relax_pattern(CL100K, NAMES, KEPT),
}
ANY = st.characters(codec="utf-8")
texts = st.one_of(
    st.text(alphabet=ANY, max_size=40), st.text(alphabet=st.one_of(st.sampled_from(HARD), ANY))
)


@given(text=texts)
@settings(max_examples=400, deadline=None)
def test_new_cuts_are_old_cuts(text: str) -> None:
    for old, new in PAIRS:
        assert cuts(new, text) <= cuts(old, text)


@functools.cache
def relaxed(name: str) -> tuple[pre_tokenizers.PreTokenizer, pre_tokenizers.PreTokenizer]:
    """A tokenizer's own pattern, and the same relaxed for every script that can be."""
    base = as_json(find(name))
    old, new = split_pattern(base), relaxed_pattern(base, script_names(SCRIPTS))
    assert old is not None
    return cutter(old), cutter(new)


FAMILIES = (
    "gpt2",
    "llama-3",
    "olmo-2",
    "cl100k_base",
    "claude-2.1",
)  # the bundled ones that cut at marks


def test_every_bundled_pattern_that_cuts_at_marks_is_tried() -> None:
    every = {name for name in BUNDLED if split_pattern(as_json(find(name))) is not None}
    assert every == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
@given(text=texts)
@settings(max_examples=100, deadline=None)
def test_new_cuts_are_old_cuts_of_every_family(name: str, text: str) -> None:
    old, new = relaxed(name)
    assert cuts(new, text) <= cuts(old, text)


@pytest.mark.parametrize("name", FAMILIES)
def test_new_cuts_are_old_cuts_of_real_text(name: str) -> None:
    """Articles of the UDHR in every script; `benchmarks/search_longer.py --cuts` takes FLORES."""
    old, new = relaxed(name)
    lines = [line for texts in udhr.load().texts.values() for line in texts[3:5] if line]
    assert all(cuts(new, line) <= cuts(old, line) for line in lines)
    assert any(cuts(new, line) < cuts(old, line) for line in lines)


@given(text=texts)
@settings(max_examples=400, deadline=None)
def test_text_without_the_scripts_is_cut_as_before(text: str) -> None:
    kept = pre_tokenizers.Split(LETTER, "removed").pre_tokenize_str(text)
    without = "".join(piece for piece, _ in kept)
    for old, new in PAIRS:
        assert cuts(new, without) == cuts(old, without)


@given(text=texts)
@settings(max_examples=400, deadline=None)
def test_what_spares_other_text_the_comparison_changes_no_cut(text: str) -> None:
    for lead, guarded in GUARDED.items():
        first = rf"(?={lead}[\p{{Bengali}}\p{{Devanagari}}\p{{Khmer}}\p{{Myanmar}}])"
        assert guarded.startswith(f"{first}(?!")
        assert cuts(cutter(guarded), text) == cuts(cutter(guarded.removeprefix(first)), text)


@given(text=texts)
@settings(max_examples=200, deadline=None)
def test_gpt2_pattern_is_the_built_in_one(text: str) -> None:
    built_in = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert cuts(built_in, text) == cuts(cutter(GPT2), text)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("नमस्ते दुनिया", ["नमस्ते", " दुनिया"]),
        ("किताबें।\n", ["किताबें।\n"]),
        ("abcশব্দ", ["abcশব", "্দ"]),
        ("শabc", ["শabc"]),
        ("क१२३४", ["क", "१२३", "४"]),
        ("é\u0301x", ["é", "\u0301x"]),
    ],
)
def test_examples(text: str, pieces: list[str]) -> None:
    _, new = PAIRS[2]
    assert [piece for piece, _ in new.pre_tokenize_str(text)] == pieces


def test_every_script_name_is_known_to_the_engine() -> None:
    for names in SCRIPTS.values():
        cutter(relax_pattern(GPT2, names)).pre_tokenize_str("a")


def test_refusals() -> None:
    with pytest.raises(TokenizerError, match="keep"):
        relax_pattern(r"\s+", NAMES)
    with pytest.raises(UsageError, match="Latn"):
        script_names(["Latn"])
    with pytest.raises(TokenizerError, match="keep"):
        relaxed_pattern({"pre_tokenizer": None, "model": {"vocab": {}}}, NAMES)
    with pytest.raises(TokenizerError, match="keep"):
        with_pattern({"pre_tokenizer": None, "model": {"vocab": {}}}, GPT2)


def test_portable_keeps_the_pattern_and_says_what_it_costs():
    from tokengraft.corpus import udhr
    from tokengraft.planning.choose import plan_tokens
    from tokengraft.tokenizer.catalog import as_json, find

    corpus = udhr.load(["eng", "tam"])
    test = {code: corpus.lines(code)[:20] for code in ("eng_Latn", "tam_Taml")}
    gpt2 = as_json(find("gpt2"))
    plans = {
        cut: plan_tokens(
            gpt2, {"tam_Taml": test["tam_Taml"]}, Planning(budget=60, boundaries=cut), test=test
        )
        for cut in ("keep", "portable", "auto")
    }
    assert plans["portable"].tokens == plans["keep"].tokens
    assert plans["portable"].cut.scripts == ()
    assert plans["auto"].cut.scripts == ("Tamil",)
    after = [plans[cut].languages["tam_Taml"].premium_after for cut in ("portable", "auto")]
    assert after[0] > after[1]
    assert (
        f"tam_Taml: portable boundaries cost it premium {after[0]:.2f} instead of {after[1]:.2f} "
        "with relaxed ones"
    ) in plans["portable"].notes
    assert not any("portable" in note for note in plans["keep"].notes)
