"""What insert refuses, and that it leaves the given tokenizer alone."""

import copy
from dataclasses import replace

import pytest

from tokengraft.core.errors import TokengraftError, TokenizerError, UsageError
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Point, insert
from tokengraft.tokenizer.insert import Additions, family, first_free_id
from tokengraft.tokenizer.insert import insert as put

BYTES = [chr(c) for c in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x144))]


def tiny(merges: list) -> dict:
    vocab = {token: i for i, token in enumerate(BYTES)}
    vocab["ab"] = len(vocab)
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


def test_ids_start_after_added_tokens() -> None:
    assert first_free_id(tiny([["a", "b"]])) == 401


@pytest.mark.parametrize("merges", [[["a", "b"]], ["a b"]])
def test_both_ways_of_writing_merges(merges: list) -> None:
    tokenizer = tiny(merges)
    before = copy.deepcopy(tokenizer)
    grown = put(tokenizer, Additions(tokens=((401, "abc"),), merges=(("ab", "c"),)))
    assert tokenizer == before
    assert grown["model"]["merges"][1:] == ([["ab", "c"]] if merges[0] == ["a", "b"] else ["ab c"])
    assert grown["model"]["vocab"]["<s>"] == 400


@pytest.mark.parametrize(
    "additions",
    [
        Additions(tokens=((400, "abc"),), merges=(("ab", "c"),)),
        Additions(tokens=((401, "ab"),)),
        Additions(tokens=((401, "xyz"),), merges=(("xy", "z"),)),
    ],
)
def test_wrong_additions_are_refused(additions: Additions) -> None:
    with pytest.raises(TokenizerError):
        put(tiny([["a", "b"]]), additions)


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
    plan = plan_tokens(tokenizer, {"hin_Deva": ["क क क ख"]}, budget=3, boundaries="keep")
    assert plan.tokens and insert(tokenizer, plan)
    with pytest.raises(TokenizerError, match="plan again"):
        insert(tiny(["a b"]), plan)
    with pytest.raises(TokenizerError, match=rf"tokenizer {plan.tokenizer[:12]}…, not "):
        insert(tiny(["a b"]), plan)  # a plan of an earlier version has no name
    with pytest.raises(TokenizerError, match=r"tokenizer Tiny \(.{12}…\), not Other \("):
        insert(tiny(["a b"]), replace(plan, label="Tiny"), "Other")
    with pytest.raises(TokengraftError, match="schema"):
        Plan.from_json({"schema": 99})
    with pytest.raises(TokengraftError, match="no plan"):
        Plan.from_json({"schema": 1})


def test_plans_of_earlier_versions_load() -> None:
    """Written before plans had a name and shares of UNK; such a plan also keeps its bytes."""
    test = {"hin_Deva": ["क ख"], "eng_Latn": ["ab"]}
    plan = plan_tokens(tiny([["a", "b"]]), {"hin_Deva": ["क क क ख"]}, budget=2, test=test)
    old = plan.to_json()
    assert "label" not in old and "unk_share_before" not in old["languages"]["hin_Deva"]
    assert Plan.from_json(old) == plan
    outcome = replace(
        plan.languages["hin_Deva"], unk_share_before=0.5, unk_share_after=0.0,
        curve=(Point(0, 5, 1.0, 0.5),),
    )  # fmt: skip
    new = replace(plan, label="Tiny", languages={"hin_Deva": outcome})
    assert Plan.from_json(new.to_json()) == new


def test_a_plan_that_leaves_budget_says_why() -> None:
    plan = plan_tokens(tiny([["a", "b"]]), {"hin_Deva": ["क क क ख"]}, budget=1000)
    assert [note for note in plan.notes if note.startswith(f"{len(plan.tokens)} tokens instead")]
    full = plan_tokens(tiny([["a", "b"]]), {"hin_Deva": ["क क क ख"]}, budget=1)
    assert not [note for note in full.notes if "instead of" in note]


def test_wrong_calls() -> None:
    tokenizer = tiny([["a", "b"]])
    with pytest.raises(UsageError, match="takes no budget"):
        plan_tokens(tokenizer, {"hin_Deva": ["क"]}, budget=20, mode="paper")
    with pytest.raises(UsageError, match="budget"):
        plan_tokens(tokenizer, {"hin_Deva": ["क"]}, budget=0)
    with pytest.raises(UsageError, match="no language"):
        plan_tokens(tokenizer, {}, budget=1)
    with pytest.raises(UsageError, match="pivot"):
        plan_tokens(tokenizer, {"hin_Deva": ["क"]}, budget=1, test={"hin_Deva": ["क"]})
    with pytest.raises(UsageError, match="parity"):
        plan_tokens(tokenizer, {"hin_Deva": ["क"]}, budget=1, objective="parity")
    with pytest.raises(UsageError, match="speakers"):
        plan_tokens(tokenizer, {"hin_Deva": ["क"]}, budget=1, objective="speakers")
    with pytest.raises(UsageError, match="lines"):
        plan_tokens(tokenizer, {"hin_Deva": "क"}, budget=1)
