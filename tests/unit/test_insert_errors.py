"""What insert refuses, and that it leaves the given tokenizer alone."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from tokenizers import Tokenizer

from tokengraft.core.errors import TokengraftError, TokenizerError, UsageError
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.new_tokens import NewToken
from tokengraft.planning.plan import Plan, Planning, Point, with_plan
from tokengraft.planning.protect import insert_proved
from tokengraft.tokenizer.catalog import as_json, find
from tokengraft.tokenizer.insert import Additions, family, first_free_id, written
from tokengraft.tokenizer.insert import insert as put
from tokengraft.tokenizer.pipeline import load

BYTES = [chr(c) for c in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x144))]


def tiny(merges: Any) -> dict:
    vocab = {token: i for i, token in enumerate(BYTES)}
    vocab |= {"ab": len(vocab), "<s>": 400}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [
            {"id": 400, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True},
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["llama-3", "mistral-v0.3"])
def test_what_is_made_of_the_parsed_file_is_what_the_library_reads(name: str) -> None:
    tokenizer = as_json(find(name))
    read = Tokenizer.from_str(json.dumps(tokenizer))
    assert load(tokenizer).to_str() == read.to_str()
    text = "Ünï <s> <|begin_of_text|> [INST]<|endoftext|>  தமிழ் 123"
    assert load(tokenizer).encode(text).tokens == read.encode(text).tokens


@pytest.mark.parametrize(
    "merges",
    [["a b", "ab c d"], [["a", "b", "c"]], [["a", "zz"]], "a b", 7, {}, ["a b", ["a", "b"]]],
)
def test_what_the_library_refuses_of_the_text_is_refused(merges: Any) -> None:
    assert load(tiny(["a b"])).encode("ab").tokens == ["ab"]
    lacking = tiny(["a b"])
    del lacking["added_tokens"][0]["normalized"]
    for wrong in (tiny(merges), lacking):
        with pytest.raises(Exception, match=r"."):
            Tokenizer.from_str(json.dumps(wrong))
        with pytest.raises(TokenizerError, match="cannot be used"):
            load(wrong)


def test_ids_start_after_added_tokens() -> None:
    assert first_free_id(tiny([["a", "b"]])) == 401


@pytest.mark.parametrize("merges", [[["a", "b"]], ["a b"]])
def test_both_ways_of_writing_merges(merges: list) -> None:
    tokenizer = tiny(merges)
    before = copy.deepcopy(tokenizer)
    grown = put(tokenizer, Additions(tokens=((401, "abc"),), merges=(("ab", "c"),)))
    assert tokenizer == before
    assert grown["model"]["merges"] == ["a b", "ab c"]
    assert grown["model"]["vocab"]["<s>"] == 400


@pytest.mark.parametrize("odd", [("a b", "c"), ("#version", "c"), ("c", " ")])
def test_merges_that_no_string_can_hold_are_pairs(odd: tuple[str, str]) -> None:
    """`tokenizers` cuts a string at its space, and leaves out what begins with `#version`."""
    assert written([("a", "b"), odd]) == [["a", "b"], list(odd)]


@pytest.mark.parametrize(
    "additions",
    [
        Additions(tokens=((400, "abc"),), merges=(("ab", "c"),)),
        Additions(tokens=((401, "ab"),)),
        Additions(tokens=((401, "xyz"),), merges=(("xy", "z"),)),
        Additions(tokens=((401, "cd"),), merges=(("c", "d"), ("a", "b"))),  # `ab` would come last
    ],
)
def test_wrong_additions_are_refused(additions: Additions) -> None:
    with pytest.raises(TokenizerError):
        put(tiny([["a", "b"]]), additions)


def test_literal_tokens_follow_the_added_ones() -> None:
    grown = put(tiny([["a", "b"]]), Additions(tokens=((401, "क"),), literal=True))
    assert [(t["id"], t["content"]) for t in grown["added_tokens"]] == [(400, "<s>"), (401, "क")]


PIECES = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
WORDS = {"type": "WordPiece", "unk_token": "a", "vocab": {"a": 0}, "max_input_chars_per_word": 9}


@pytest.mark.parametrize(
    ("model", "added", "additions", "message"),
    [
        (PIECES, [], Additions(tokens=((2, "b"),)), "each new Unigram piece needs a score"),
        (
            PIECES,
            [{"id": 3, "content": "<s>"}],
            Additions(tokens=((4, "b"),), scores=(-2.0,)),
            "id 2 is free between old tokens",
        ),
        (
            {**WORDS, "continuing_subword_prefix": "##"},
            [],
            Additions(tokens=((1, "b"),), merges=(("a", "b"),)),
            "WordPiece has no merges",
        ),
    ],
)
def test_what_other_families_cannot_hold_is_refused(
    model: dict, added: list, additions: Additions, message: str
) -> None:
    with pytest.raises(TokenizerError, match=message):
        put({"model": model, "added_tokens": added}, additions)


@pytest.mark.parametrize(
    "model",
    [
        {"type": "WordLevel", "vocab": {}},
        {"type": "BPE", "vocab": {}, "merges": [], "end_of_word_suffix": "</w>"},
        {"type": "BPE", "vocab": {}, "merges": [], "dropout": 0.1},
        {"type": "BPE", "vocab": {}, "merges": []},
        {},
    ],
)
def test_families_that_cannot_be_served(model: dict) -> None:
    with pytest.raises(TokenizerError):
        family({"model": model, "pre_tokenizer": None})


def test_plans_know_their_tokenizer() -> None:
    tokenizer = tiny([["a", "b"]])
    plan = plan_tokens(tokenizer, {"hin_Deva": ["क क क ख"]}, Planning(budget=3, boundaries="keep"))
    assert plan.tokens and with_plan(tokenizer, plan)
    with pytest.raises(TokenizerError, match="plan again"):
        with_plan(tiny(["a b"]), plan)
    with pytest.raises(TokenizerError, match=rf"tokenizer {plan.tokenizer[:12]}…, not "):
        with_plan(tiny(["a b"]), plan)  # a plan of an earlier version has no name
    with pytest.raises(TokenizerError, match=r"tokenizer Tiny \(.{12}…\), not Other \("):
        with_plan(tiny(["a b"]), replace(plan, label="Tiny"), "Other")
    with pytest.raises(TokengraftError, match="schema"):
        Plan.from_json({"schema": 99})
    with pytest.raises(TokengraftError, match="not a plan"):
        Plan.from_json({"schema": 1})


def test_plans_of_earlier_versions_load() -> None:
    """Written before plans had a name and shares of UNK; such a plan also keeps its bytes."""
    test = {"hin_Deva": ["क ख"], "eng_Latn": ["ab"]}
    plan = plan_tokens(tiny([["a", "b"]]), {"hin_Deva": ["क क क ख"]}, Planning(budget=2), test=test)
    old = plan.to_json()
    assert "label" not in old and "unk_share_before" not in old["languages"]["hin_Deva"]
    assert Plan.from_json(old) == plan
    outcome = plan.languages["hin_Deva"]
    ends = outcome.premium_before, outcome.premium_after
    outcome = replace(
        outcome, unk_share_before=0.5, unk_share_after=0.0,
        curve=(
            Point(0, outcome.planning_before, ends[0], 0.5),
            Point(2, outcome.planning_after, ends[1], 0.0),
        ),
    )  # fmt: skip
    new = replace(plan, label="Tiny", languages={"hin_Deva": outcome})
    assert Plan.from_json(new.to_json()) == new


def test_a_plan_that_leaves_budget_says_why() -> None:
    plan = plan_tokens(tiny([["a", "b"]]), {"hin_Deva": ["क क क ख"]}, Planning(budget=1000))
    assert [note for note in plan.notes if note.startswith(f"{len(plan.tokens)} tokens instead")]
    full = plan_tokens(tiny([["a", "b"]]), {"hin_Deva": ["क क क ख"]}, Planning(budget=1))
    assert not [note for note in full.notes if "instead of" in note]


def test_wrong_calls() -> None:
    tokenizer = tiny([["a", "b"]])
    with pytest.raises(UsageError, match="takes no budget"):
        plan_tokens(tokenizer, {"hin_Deva": ["क"]}, Planning(budget=20, mode="paper"))
    with pytest.raises(UsageError, match="budget"):
        plan_tokens(tokenizer, {"hin_Deva": ["क"]}, Planning(budget=0))
    with pytest.raises(UsageError, match="no language"):
        plan_tokens(tokenizer, {}, Planning(budget=1))
    with pytest.raises(UsageError, match="pivot"):
        plan_tokens(tokenizer, {"hin_Deva": ["क"]}, Planning(budget=1), test={"hin_Deva": ["क"]})
    with pytest.raises(UsageError, match="parity"):
        plan_tokens(tokenizer, {"hin_Deva": ["क"]}, Planning(budget=1, objective="parity"))
    with pytest.raises(UsageError, match="speakers"):
        plan_tokens(tokenizer, {"hin_Deva": ["क"]}, Planning(budget=1, objective="speakers"))
    with pytest.raises(UsageError, match="lines"):
        plan_tokens(tokenizer, {"hin_Deva": "क"}, Planning(budget=1))


CONTRADICTIONS = {
    "an added token with the id of another": (
        lambda d: d["added_tokens"][0].update(id=5), "says that '<s>' has id 5"),
    "an added token behind a gap": (
        lambda d: d["added_tokens"][0].update(id=999), "says that '<s>' has id 999"),
    "an added token behind one with a gap": (
        lambda d: d["added_tokens"].append(
            d["added_tokens"][0] | {"id": 401, "content": "<x>", "special": False}),
        "says that '<x>' has id 401"),
    "nothing for a list of added tokens": (lambda d: d.update(added_tokens=None), "cannot be used"),
    "one id twice": (lambda d: d["model"]["vocab"].update(a=5), "the id 5 to more than one"),
    "no version": (lambda d: d.update(version=None), "cannot be used"),
    "no type and no merges": (
        lambda d: d["model"].update(merges=None, unk_token=d["model"].pop("type") and "a"),
        "looks like BPE, but the library `tokenizers` reads it as WordLevel"),
}  # fmt: skip


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_tokenizer_that_contradicts_itself_is_not_planned_for(what: str) -> None:
    """The fuzzer's: such a plan put two tokens on one id, or moved an old one."""
    change, message = CONTRADICTIONS[what]
    tokenizer = json.loads(json.dumps(tiny([["a", "b"]])))
    texts, options = {"hin_Deva": ["क क क ख"]}, Planning(budget=3, boundaries="keep")
    assert plan_tokens(tokenizer, texts, options).tokens
    change(tokenizer)
    with pytest.raises(TokenizerError, match=message):
        plan_tokens(tokenizer, texts, options)


def small_plan() -> tuple[dict, Plan]:
    tokenizer = tiny([["a", "b"]])
    test = {"hin_Deva": ["क ख"], "eng_Latn": ["ab"]}
    return tokenizer, plan_tokens(
        tokenizer, {"hin_Deva": ["क क क ख"]}, Planning(budget=3), test=test
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": (65, 66)}, "its parts spell"),
        ({"parts": (10**6,)}, "not a token of the old vocabulary"),
        ({"bytes": "e0a495e0"}, "its bytes are"),
        ({"text": "A"}, "its text is"),
    ],
)
def test_a_plan_whose_parts_or_bytes_were_edited_is_refused(change: dict, message: str) -> None:
    tokenizer, plan = small_plan()
    with_plan(tokenizer, plan)
    edited = [replace(token, **change) for token in plan.tokens]
    with pytest.raises(TokenizerError, match=message):
        with_plan(tokenizer, replace(plan, tokens=tuple(edited)))


@pytest.mark.parametrize("mode", ["characters", "paper"])
def test_edited_parts_that_no_merge_spells_are_refused(mode: str) -> None:
    """WordPiece and mode paper have no merges: parts are what the old tokenizer gives."""
    names = ["[UNK]", *"abक", *(f"##{one}" for one in "abक")]
    vocab = {name: n for n, name in enumerate(names)}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 9, "vocab": vocab}  # fmt: skip
    cut = {"type": "BertPreTokenizer"}
    tokenizer = {**tiny([]), "added_tokens": [], "pre_tokenizer": cut, "decoder": None,
                 "model": model}  # fmt: skip
    options = Planning(None if mode == "paper" else 3, mode)
    plan = plan_tokens(tokenizer, {"hin_Deva": ["ख ख कख"] * 3}, options)
    assert with_plan(tokenizer, plan)
    edited = replace(plan, tokens=(replace(plan.tokens[0], parts=(2, 3)), *plan.tokens[1:]))
    with pytest.raises(TokenizerError, match="the old tokenizer spells it"):
        with_plan(tokenizer, edited)


def test_a_token_that_no_merge_makes_is_refused() -> None:
    tokenizer, plan = small_plan()
    with pytest.raises(TokenizerError, match="no merge of the plan makes it"):
        with_plan(tokenizer, replace(plan, merges=plan.merges[:-1]))


def test_tokens_of_no_planned_script_are_refused() -> None:
    """Parts, bytes and merge are right, but English would change."""
    tokenizer, plan = small_plan()
    first = plan.tokens[-1].id + 1
    vocab = tokenizer["model"]["vocab"]
    forged = NewToken(first, "thq", b"thq".hex(), "thq", (vocab["t"], vocab["h"], vocab["q"]), 1)
    between = NewToken(first + 1, "th", b"th".hex(), "th", (vocab["t"], vocab["h"]), 1)
    merges = (*plan.merges, ("t", "h"), ("th", "q"))
    edited = replace(plan, tokens=(*plan.tokens, forged, between), merges=merges)
    with pytest.raises(TokenizerError, match="'thq' holds nothing of the scripts of hin_Deva"):
        insert_proved(tokenizer, edited)


FALSE_VALUES = {
    "markup for a language": lambda d: d["languages"].update({"<b>x": d["languages"]["hin_Deva"]}),
    "markup for the pivot": lambda d: d.update(pivot="![](http://x)"),
    "another premium": lambda d: d["languages"]["hin_Deva"].update(premium_after=1.01),
    "no premium where its curve has one": lambda d: d["languages"]["hin_Deva"].update(
        premium_after=None
    ),
    "fewer tokens than its curve ends at": lambda d: d["languages"]["hin_Deva"].update(
        planning_after=3
    ),
    "a curve that loses its premium": lambda d: d["languages"]["hin_Deva"]["curve"][-1].update(
        premium=None
    ),
    "a floor below nothing": lambda d: d["languages"]["hin_Deva"].update(floor_after=-1.0),
    "an objective that nobody has": lambda d: d.update(objective="all for me"),
    "places for other tokens": lambda d: d.update(places=[1]),
    "a cut that is a list": lambda d: d.update(cut=["x"]),
    "notes that are a table": lambda d: d.update(notes={}),
    "no figure": lambda d: d["languages"]["hin_Deva"].update(floor_after=float("nan")),
    "a negative count": lambda d: d["languages"]["hin_Deva"].update(planning_after=-3),
    "a share above one": lambda d: d["languages"]["hin_Deva"].update(unk_share_after=7),
    "another family": lambda d: d.update(family="magic"),
    "a script that is a pattern": lambda d: d["cut"].update(scripts=["L}]|.*("]),
    "a note that clears a terminal": lambda d: d.update(notes=["x\x1b[2J"]),
    "a name that moves the cursor": lambda d: d.update(label="x\r\x9b1A"),
    "a source that rings": lambda d: d.update(
        protected={"sources": ["a\a"], "sha256": "0", "lines": 1}
    ),
    "half a surrogate pair": lambda d: d["merges"][0].__setitem__(1, "\ud800"),
    "a note that is no text": lambda d: d.update(notes=[["x"]]),
    "parts that are no ids": lambda d: d["tokens"][0].update(parts=["a", True]),
    "no parts": lambda d: d["tokens"][0].update(parts=[]),
    "no token": lambda d: d.update(tokens=[]),
    "no language": lambda d: d.update(languages={}),
    "no protected text": lambda d: d.update(protected={"sources": [1], "sha256": "", "lines": 1}),
    "languages that are a list": lambda d: d.update(languages=["hin_Deva"]),
    "an unknown key": lambda d: d["cut"].update(other=1),
}


@pytest.mark.parametrize("what", FALSE_VALUES)
def test_values_that_no_plan_holds_are_refused(what: str) -> None:
    data = json.loads(json.dumps(small_plan()[1].to_json()))
    Plan.from_json(data)
    FALSE_VALUES[what](data)
    with pytest.raises(TokengraftError, match="this is not a plan"):
        Plan.from_json(data)
