"""One suite over every mode of planning: a new row is tested by being there."""

from __future__ import annotations

import functools
import json
import typing
from collections import Counter
from itertools import combinations, islice
from typing import Any

import pytest
from tokenizers import Tokenizer

import tokengraft.paper  # noqa: F401 - adds its modes
from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.corpus import load
from tokengraft.corpus.lines_of import count_chunks
from tokengraft.paper.tunstall import grow, read_by_own, strings_in
from tokengraft.planning import MODES, PlanMode, mode_named
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Planning, folded, with_plan
from tokengraft.planning.protect import Protected
from tokengraft.tokenizer.catalog import as_json, find

CODES = ("swh_Latn", "amh_Ethi")
KEPT = Protected(("English",), load("udhr").lines("eng_Latn"))
each_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


@functools.cache
def base(name: str) -> dict[str, Any]:
    return as_json(find(name))


def planned(name: str, mode: PlanMode, same_size: bool = False) -> Plan:
    texts = {code: load("udhr").lines(code)[::2] for code in CODES}
    budget = None if mode.name == "paper" else 60
    options = Planning(budget=budget, mode=mode.name, same_size=same_size)
    return plan_tokens(base(name), texts, options, protect=KEPT)


@each_mode
def test_a_row_says_what_it_is(mode: PlanMode) -> None:
    from tokengraft.cli.plan import plan as verb

    assert MODES[mode.name] is mode and mode.reference
    assert mode.help and not mode.help.endswith(".") and len(mode.help) < 100
    option = typing.get_type_hints(verb, include_extras=True)["mode"].__metadata__[0]
    assert mode.name.startswith("paper") or f"{mode.name}: {mode.help}." in option.help


@pytest.mark.parametrize("name", ["rootstock", "mistral-v0.3"])
@each_mode
def test_a_plan_keeps_its_promises(mode: PlanMode, name: str) -> None:
    """By the encoder alone: no line longer, protected text as before, every token used."""
    plan = planned(name, mode)
    again = planned(name, mode)
    assert plan == again and plan.mode == mode.name
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    old, new = (
        Tokenizer.from_str(json.dumps(one)) for one in (base(name), with_plan(base(name), plan))
    )
    emitted: set[int] = set()
    shorter = 0
    for code in CODES:
        for place, line in enumerate(load("udhr").lines(code)):
            ids = new.encode(line, add_special_tokens=False).ids
            before = old.encode(line, add_special_tokens=False).ids
            assert new.decode(ids) == old.decode(before)
            assert mode.name == "paper" or len(ids) <= len(before)
            shorter += len(ids) < len(before)
            emitted |= set(ids) if place % 2 == 0 else set()
    assert shorter
    if mode.name != "paper":  # which promises nothing
        assert {token.id for token in plan.tokens} <= emitted
        assert mode.name == "characters" or len(plan.tokens) == 60
        kept = [[t.encode(line).ids for line in KEPT.lines] for t in (old, new)]
        assert kept[0] == kept[1]


@pytest.mark.parametrize("name", ["merges", "paper.prefix-free", "paper"])
def test_a_plan_of_the_same_size_keeps_them_and_the_table(name: str) -> None:
    """New tokens at the places of old ones that no text here needs, however they were chosen."""
    mode = MODES[name]
    if mode.name == "paper":
        with pytest.raises(UsageError, match="same size"):
            planned("rootstock", mode, same_size=True)
        return
    plan, parsed = planned("rootstock", mode, same_size=True), base("rootstock")
    made = folded(with_plan(parsed, plan), plan)
    old, new = (Tokenizer.from_str(json.dumps(one)) for one in (parsed, made))
    places = set(plan.places or ())
    assert new.get_vocab_size() == old.get_vocab_size()
    assert len(places) == len(plan.tokens) and max(places) < old.get_vocab_size()
    emitted: set[int] = set()
    for code in ("tam_Taml", *CODES):
        for line in load("udhr").lines(code):
            ids, before = (t.encode(line, add_special_tokens=False).ids for t in (new, old))
            assert len(ids) <= len(before) and new.decode(ids) == old.decode(before)
            assert not places & set(before)
            emitted |= set(ids)
    assert places <= emitted
    assert [new.encode(line).ids for line in KEPT.lines] == [
        old.encode(line).ids for line in KEPT.lines
    ]


@each_mode
def test_a_baseline_goes_by_all_text_and_is_for_bpe(mode: PlanMode) -> None:
    if mode.rule is None:
        return
    texts = {code: load("udhr").lines(code) for code in CODES}
    with pytest.raises(UsageError, match="leave the objective at total"):
        plan_tokens(base("rootstock"), texts, Planning(mode=mode.name, objective="equal"))
    with pytest.raises(UsageError, match="baseline for BPE"):
        plan_tokens(base("t5"), texts, Planning(mode=mode.name))


def substrings(chunks: dict[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for chunk, times in chunks.items():
        for start, end in combinations(range(len(chunk) + 1), 2):
            counts[chunk[start:end]] += times
    return counts


def grown_slowly(chunks: dict[str, int], size: int) -> list[str]:
    """The obvious twin of `grow`: every substring counted, the commonest replaced."""
    counts = substrings(chunks)
    order, leaves = [], {""}
    while leaves and len(order) < size:
        string = min(leaves, key=lambda s: (-counts.get(s, 10**9), s))
        longer = sorted(s for s in counts if s[:-1] == string)
        order += longer
        leaves |= {s for s in longer if counts[s] > 1}
        leaves.remove(string)
    return order[:size]


def test_prefix_free_sets() -> None:
    """Of abab twice and abc once, a, b and ab occur five times each; a and ab are replaced."""
    assert list(grow({"abab": 2, "abc": 1}))[:6] == ["a", "b", "c", "ab", "aba", "abc"]
    assert strings_in("ababx", {"a", "b", "ab"}) == 3
    words = {word: n + 1 for n, word in enumerate(["ၵူၼ်း", "ၵူႈ", "ၵေႃႉ", "aaaa", "aab"])}
    assert list(islice(grow(words), 40)) == grown_slowly(words, 40)
    for least in (2, 4, 9):  # a threshold on −log p: what is as common as that is replaced
        replaced = {s for s, n in substrings(words).items() if n >= least} | {""}
        kept = {s for s in substrings(words) if s[:-1] in replaced}
        assert set(islice(grow(words), len(kept))) == kept
    chosen_on, line = ["ab ab ab", "cd"], "ab cd zz"
    assert list(islice(grow(count_chunks(chosen_on)), 5)) == [" ", "a", "b", "c", "d"]
    assert read_by_own(chosen_on, [line, None], 5)[0] == 8


def test_a_plan_of_an_earlier_version_is_still_read() -> None:
    """Its mode was named without the plugin."""
    plan = planned("rootstock", MODES["paper.likelihood"])
    data = plan.to_json() | {"mode": "likelihood"}
    assert not Plan.from_json(data).literal
    assert Plan.from_json(data).additions == plan.additions
    with pytest.raises(TokengraftError, match="mode is 'likely'"):
        Plan.from_json(data | {"mode": "likely"})
    with pytest.raises(UsageError, match=r"mode 'likelihood' is called paper.likelihood now"):
        mode_named("likelihood")
