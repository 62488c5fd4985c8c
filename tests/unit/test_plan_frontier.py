"""How evenly a plan treats languages: its four numbers, each language's first gain, the figure."""

import json
from dataclasses import replace

import pytest
from tokenizers import Tokenizer

from tokengraft.api.results import Planned
from tokengraft.corpus import load
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.curve import frontier, spread
from tokengraft.planning.plan import Plan, Planning, with_plan
from tokengraft.tokenizer.catalog import as_json, find

CODES = ("shn_Mymr", "amh_Ethi", "hye_Armn")


@pytest.fixture(scope="module")
def gpt2() -> dict:
    return as_json(find("gpt2"))


@pytest.fixture(scope="module")
def plan(gpt2: dict) -> Plan:
    udhr = load("udhr")
    texts = {code: udhr.lines(code)[:30] for code in CODES}
    aligned = udhr.select(["eng_Latn", *CODES])
    rows = [row for row in zip(*aligned.texts.values(), strict=True) if None not in row][-20:]
    test = {code: [row[n] for row in rows] for n, code in enumerate(aligned.texts)}
    return plan_tokens(gpt2, texts, Planning(budget=60, objective="parity"), test=test)


def test_spread_by_hand() -> None:
    found = spread({"a": 1.0, "b": 3.0, "c": 2.0})
    assert (found.highest, found.whose, found.median, found.above) == (3.0, "b", 2.0, 1)
    assert found.gini == pytest.approx(2 / 9)  # mean absolute difference 8/9 over twice the mean 2


def test_the_frontier_is_that_of_the_curves(plan: Plan) -> None:
    found = frontier(plan)
    assert (min(found), max(found)) == (0, 60)
    ends = {code: effect.premium_after or 0 for code, effect in plan.languages.items()}
    assert found[60] == spread(ends)
    assert found[0].highest > found[60].highest
    assert frontier(replace(plan, languages={})) == {}


def test_the_first_token_that_helps(gpt2: dict, plan: Plan) -> None:
    """Without it the language's text is as long as ever, with it shorter."""
    udhr = load("udhr")

    def tokens(size: int, code: str) -> int:
        later = {token.token for token in plan.tokens[size:]}
        merges = [pair for pair in plan.merges if "".join(pair) not in later]
        kept = replace(plan, tokens=plan.tokens[:size], merges=tuple(merges))
        new = Tokenizer.from_str(json.dumps(with_plan(gpt2, kept) if size else gpt2))
        lines = udhr.lines(code)[:30]
        return sum(len(new.encode(line, add_special_tokens=False).ids) for line in lines)

    for code in CODES:
        first = plan.languages[code].first_token
        assert first is not None
        assert tokens(first - 1, code) == plan.languages[code].planning_before
        assert tokens(first, code) < plan.languages[code].planning_before
    assert min(effect.first_token or 0 for effect in plan.languages.values()) == 1


def test_on_disk(plan: Plan, tmp_path) -> None:
    planned = Planned(replace(plan, label="gpt2"), "one half", "the other half")
    others = {"parity": planned, "total": planned}
    written = {
        path.relative_to(tmp_path).as_posix() for path in planned.save(tmp_path, True, others)
    }
    assert {"tables/frontier.csv", "figures/frontier.svg", "figures/frontier.png"} <= written
    table = (tmp_path / "tables" / "frontier.csv").read_text(encoding="utf-8").splitlines()
    assert table[0] == "objective,tokens,highest,whose,median,gini,above"
    assert len(table) == 1 + 2 * len(frontier(plan))
    said = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "helped from token" in said
    again = Planned.load(tmp_path)
    assert again.plan == planned.plan
    one = replace(plan, languages={"shn_Mymr": plan.languages["shn_Mymr"]})
    kept = replace(
        one, languages={c: replace(e, first_token=None) for c, e in one.languages.items()}
    )
    assert "first_token" not in json.dumps(kept.to_json())
