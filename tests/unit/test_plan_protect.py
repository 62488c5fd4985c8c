"""Protected text: what it forbids, where it comes from, and that plans leave it alone."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from tokenizers import Tokenizer

from tokengraft.core.errors import TokenizerError, UsageError
from tokengraft.corpus import load
from tokengraft.planning import protect
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.new_tokens import NewToken
from tokengraft.planning.permitted import (
    borrowed_letters,
    keeps_names,
    shares_letters,
    territory,
)
from tokengraft.planning.plan import Plan, Planning, with_plan
from tokengraft.planning.plan_files import plan
from tokengraft.planning.protect import (
    BUNDLED,
    DICTIONARY,
    Protected,
    dictionary,
    forbidden,
    insert_proved,
    protected_text,
    sample,
)
from tokengraft.planning.relaxed_scripts import digits_as_letters
from tokengraft.tokenizer.catalog import as_json, find


@pytest.fixture(scope="module")
def gpt2() -> dict:
    return as_json(find("gpt2"))


def opened(tokenizer: dict) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(tokenizer))


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def test_every_pair_of_the_text_is_forbidden_and_no_other(gpt2: dict) -> None:
    lines = ["unbelievably", "", "Tokenizers tokenize", "x"]
    tokenizer = opened(gpt2)
    found = forbidden(gpt2, tokenizer, Protected(("here",), lines))
    expected = {pair for line in lines for pair in pairwise(ids(tokenizer, line))}
    assert {(key >> 32, key & 0xFFFFFFFF) for key in found.pairs.tolist()} == {
        (left + 1, right + 1) for left, right in expected
    }


def test_swahili_gets_tokens_and_english_keeps_its_ids(gpt2: dict) -> None:
    udhr = load("udhr")
    half = udhr.lines("eng_Latn")[::2]
    text = Protected(("half of English",), half)
    other = {"the rest": udhr.lines("eng_Latn")[1::2], "code": protect.unprotected_code()[:500]}
    lines = [*udhr.lines("swh_Latn"), *udhr.lines("eng_Latn")]  # as text from the web has it
    plans = {}
    for name, protected in (("free", None), ("protected", text)):
        plans[name] = plan_tokens(
            gpt2, {"swh_Latn": lines}, Planning(budget=300), protect=protected, elsewhere=other
        )
    old = opened(gpt2)
    new = {name: opened(with_plan(gpt2, plan)) for name, plan in plans.items()}
    assert any(ids(new["free"], line) != ids(old, line) for line in half)
    assert all(ids(new["protected"], line) == ids(old, line) for line in half)
    told = plans["protected"].protected
    assert told is not None and (told.lines, told.sources) == (len(half), text.sources)
    words = [w for line in other["the rest"] for w, _ in old.pre_tokenizer.pre_tokenize_str(line)]
    assert told.elsewhere[0].words == len(words)
    assert told.elsewhere[0].changed < len(words) / 50
    outcome = plans["protected"].languages["swh_Latn"]
    assert outcome.planning_after < 0.9 * outcome.planning_before
    assert plans["free"].protected is None and "protected" not in plans["free"].to_json()
    again = Plan.from_json(json.loads(json.dumps(plans["protected"].to_json())))
    assert again == plans["protected"]
    assert "No id changed in any of" in again.checked


def test_a_plan_that_was_edited_to_change_protected_text_is_refused(gpt2: dict) -> None:
    """Everything else about the forged token is right: its bytes, its parts, its merge."""
    kept = protected_text(["eng"], bundled=False)
    plan = plan_tokens(
        gpt2, {"swh_Latn": load("udhr").lines("swh_Latn")}, Planning(budget=20), protect=kept
    )
    insert_proved(gpt2, plan)
    names = {number: name for name, number in gpt2["model"]["vocab"].items()}
    known = {*names.values(), *(token.token for token in plan.tokens)}
    tokenizer = opened(gpt2)
    left, right = next(
        (a, b)
        for line in kept.lines
        for a, b in pairwise(ids(tokenizer, line))
        if names[a].lstrip("Ġ").isalpha()
        and names[b].isalpha()
        and "Ġ" not in names[b]
        and f"{names[a]}{names[b]}" not in known
    )
    token = names[left] + names[right]
    text = token.replace("Ġ", " ")
    number = plan.tokens[-1].id + 1
    forged = NewToken(number, token, text.encode().hex(), text, (left, right), 1)
    edited = replace(
        plan, tokens=(*plan.tokens, forged), merges=(*plan.merges, (names[left], names[right]))
    )
    with pytest.raises(TokenizerError, match="changes the ids of text that it says is protected"):
        insert_proved(gpt2, edited)
    told = replace(plan.protected, sha256="0" * 64)
    with pytest.raises(TokenizerError, match="hash is another one"):
        insert_proved(gpt2, replace(plan, protected=told))


def test_the_bundled_sample_has_every_form() -> None:
    text = "\n\n".join(sample())
    for form in (" the ", "\nthe\n", " The ", "\nThe\n", " Kenya ", "\nself\n", "\n.join\n"):
        assert form in text, form
    assert not set("".join(sample())) - set(map(chr, range(0x250))) - {"’"}


def test_what_can_be_named(tmp_path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("Mambo vipi\n\nNzuri\n", encoding="utf-8")
    both = protected_text([mine, "fra"], bundled=True)
    assert both is not None and both.sources == (BUNDLED, "mine.txt", "fra_Latn (UDHR)")
    assert "Mambo vipi" in both.lines and load("udhr").lines("fra_Latn")[3] in both.lines
    assert protected_text([], bundled=False) is None
    assert protected_text(["nothing"], bundled=True) is None
    for wrong, said in ((["nothing", "fra"], "other text"), (["nosuch"], "no such file")):
        with pytest.raises(UsageError, match=said):
            protected_text(wrong, bundled=True)
    with pytest.raises(UsageError, match="--keep-names"):  # else names would change, unsaid
        protected_text(["nothing"], bundled=True, keep_names=True)


def test_plans_that_keep_names_and_a_dictionary(gpt2: dict) -> None:
    """Every word with a capital that any language of the UDHR in Latin letters has, as a name."""
    udhr = load("udhr")
    latin = [line for code in udhr.languages if "Latn" in code for line in udhr.lines(code)]
    letters = "[A-Za-záàăâåäãāæçéèĕêëēíìĭîïīñóòŏôöøōœúùŭûüūÿ]"
    names = [f"in {name}" for name in {*re.findall(rf"\b[A-ZÉÖÚ]{letters}+\b", "\n".join(latin))}]
    assert len(names) > 7_000
    made = plan("gpt2", ["swh", "zul"], options=Planning(budget=200, keep_names=True)).plan
    assert made.protected.sources == (BUNDLED, DICTIONARY)
    outcome = made.languages["zul_Latn"]
    assert outcome.planning_after < 0.95 * outcome.planning_before
    old, new = opened(gpt2), opened(with_plan(gpt2, made))
    for lines in (names, list(dictionary()[::20])):
        pairs = zip(old.encode_batch(lines), new.encode_batch(lines), strict=True)
        assert all(before.ids == after.ids for before, after in pairs)
    (left, right), number = ids(old, "Mpumalanga")[1:3], made.tokens[-1].id + 1
    parts = [old.id_to_token(part) for part in (left, right)]
    text = "".join(parts)
    forged = NewToken(number, text, text.encode().hex(), text, (left, right), 1)
    edited = replace(made, tokens=(*made.tokens, forged), merges=(*made.merges, tuple(parts)))
    with pytest.raises(TokenizerError, match="would change words with a capital"):
        insert_proved(gpt2, edited)
    with pytest.raises(UsageError, match="--keep-names"):
        plan("t5", "swh", options=Planning(keep_names=True))


@pytest.mark.parametrize("sign", ["་", "།", "።", "។"])  # Tibetan, Ethiopic, Khmer
def test_signs_of_other_scripts_are_no_names(sign: str) -> None:
    """With the dot between its syllables refused, Tibetan took 27 % more tokens."""
    assert keeps_names(sign.encode(), whole=False, looked_up=True)
    assert not keeps_names(f"n{sign}".encode(), whole=False, looked_up=True)
    assert not keeps_names("’s".encode(), whole=False, looked_up=True)


@pytest.mark.parametrize("token", ["ama2", "a7mada", "Il-ħ", "m/giờ", "ħ Ali"])
def test_a_token_that_goes_on_behind_a_word_may_not_begin_in_a_name(token: str) -> None:
    """`ama2` took the end of `Panama2`."""
    assert not keeps_names(token.encode(), whole=False, looked_up=False)
    for free in ("7mada", " ama2", "-ħ", "ọmọ.", "żħ-al", "ħIl"):
        assert keeps_names(free.encode(), whole=False, looked_up=False), free


def test_relaxed_scripts_of_protected_text_stay(gpt2: dict) -> None:
    udhr = load("udhr")
    texts = {code: udhr.lines(code)[:40] for code in ("hin_Deva", "tam_Taml")}
    text = Protected(("mar",), udhr.lines("mar_Deva"))
    plan = plan_tokens(gpt2, texts, Planning(budget=60), protect=text)
    assert plan.cut.scripts == ("Tamil",)
    assert [note for note in plan.notes if "Devanagari" in note]
    old, new = opened(gpt2), opened(with_plan(gpt2, plan))
    assert all(ids(new, line) == ids(old, line) for line in text.lines)
    with pytest.raises(UsageError, match="protected"):
        plan_tokens(gpt2, texts, Planning(budget=60, boundaries="relax"), protect=text)


def test_unigram_leaves_protected_text_alone() -> None:
    t5 = as_json(find("t5"))
    udhr = load("udhr")
    text = Protected(("English",), udhr.lines("eng_Latn")[:30])
    lines = [*udhr.lines("swh_Latn")[:30], *text.lines]
    plan = plan_tokens(t5, {"swh_Latn": lines}, Planning(budget=40), protect=text)
    old, new = opened(t5), opened(with_plan(t5, plan))
    assert len(plan.tokens) == 40
    assert all(ids(new, line) == ids(old, line) for line in text.lines)


@pytest.mark.parametrize(
    ("piece", "expected"),
    [(" kwa", True), ("kwa", True), ("d-y", True), ("é", True), ("n1", False), (", ", False),
     ("(ku", False), (" -", False), ("\u0301n", True), ("क", False), ("kа", False)],
)  # fmt: skip
def test_pieces_of_words_in_latin_letters(piece: str, expected: bool) -> None:
    belongs = territory(["swh_Latn"])
    assert belongs is not None and belongs(piece.encode()) is expected
    strict = territory(["hin_Deva"])
    assert strict is not None and strict(b" kwa") is False
    assert shares_letters(["hin_Deva", "swh_Latn"]) and not shares_letters(["hin_Deva"])


def test_letters_of_other_scripts_inside_words_are_borrowed() -> None:
    ewe = {" nyͻnu": 7, " kͻ": 5, " Ελλάδα": 40, " ט": 30, "wo": 9}
    assert borrowed_letters({"ewe_Latn": ewe}) == {"ͻ"}
    assert digits_as_letters([" 3ala al-baqa2", " min 15"])
    assert not digits_as_letters([" 3ala", " 2015", " 2", " 7"])
    chat = territory(["arb_Latn"], set("37"))
    assert chat is not None and chat(b" 3ala") and not chat(b"u3") and not chat(b"37")
    assert borrowed_letters({"ewe_Latn": {" kͻ": 9}}) == set()  # too seldom
    assert borrowed_letters({"ell_Grek": ewe}) == set()
    hebrew = territory(["ewe_Latn"], {"ט"})
    assert hebrew is not None and hebrew("kט".encode()) and not hebrew("ט".encode())
    belongs = territory(["ewe_Latn"], {"ͻ"})
    assert belongs is not None
    for piece, expected in (
        ("ͻ", True),
        (" kͻ", True),
        (" ͻ", False),
        ("ͻͻ", False),
        ("kε", False),
    ):
        assert belongs(piece.encode()) is expected, piece


def test_an_accent_spelled_in_bytes_becomes_a_token_and_joins_its_letter() -> None:
    """Nuer writes a\u0331; on Mistral the accent is two bytes that nothing can be joined to."""
    lines = ["ca\u0331 ra\u0331n ka\u0331m", "ra\u0331n ca\u0331 ka\u0331m ra\u0331n"] * 3
    mistral = as_json(find("mistral-v0.3"))
    chosen = plan_tokens(mistral, {"nus_Latn": lines}, Planning(budget=8))
    made = {token.text for token in chosen.tokens}
    assert "\u0331" in made
    assert any("a\u0331" in (text or "") for text in made)
    assert "\u0331" not in {
        token.text
        for token in plan_tokens(mistral, {"rus_Cyrl": ["а\u0331б"] * 9 + ["щщъ щщъ"] * 9}).tokens
    }


def test_first_bytes_that_scripts_share_may_follow_a_space() -> None:
    belongs = territory(["sat_Olck"])
    assert belongs is not None
    assert belongs(b"\xe1\xb1") and belongs(b" \xe1\xb1")  # Lepcha letters begin so too
    assert not belongs(b"a\xe1\xb1") and not belongs(b" \xe1")
    armenian = territory(["hye_Armn"])
    assert armenian is not None and not armenian(b" \xd4")  # one byte: every second letter's


def test_words_become_tokens_where_they_are_looked_up(gpt2: dict) -> None:
    """Their pairs stand in protected text, so no merge could make them."""
    looking = {**gpt2, "model": {**gpt2["model"], "ignore_merges": True}}
    swahili = load("udhr").lines("swh_Latn")
    text = Protected(
        ("every pair",), [" ".join(f"x{word}x" for word in line.split()) for line in swahili]
    )
    plan = plan_tokens(looking, {"swh_Latn": swahili}, Planning(budget=80), protect=text)
    made = {left + right for left, right in plan.merges}
    words = [token for token in plan.tokens if token.token not in made]
    assert len(words) > 20
    old, new = opened(looking), opened(with_plan(looking, plan))
    assert all(ids(new, line) == ids(old, line) for line in text.lines)
    for token in words:
        assert ids(new, token.text) == [token.id] and ids(old, token.text) == list(token.parts)
        assert ids(new, f"{token.text}zq")[0] != token.id  # no other word is touched
