"""One sentence against floor and ceiling, wherever a graft is judged."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from tokengraft.api import verbs
from tokengraft.api.results import Evaluation
from tokengraft.cli.app import app
from tokengraft.core.errors import UsageError
from tokengraft.core.verdict import Done, Judged, judge
from tokengraft.deriving.distil.recipe import SETTLED
from tokengraft.evaluating.score import SCORES
from tokengraft.grafting.manifest import done

GOOD = {"kl": (0.3, 4.0, 0.2), "top1": (0.73, 0.1, 0.8), "aligned_cosine": (0.9, 0.4, 0.95)}
BAD = {"kl": (4.5, 4.0, 0.2), "top1": (0.08, 0.1, 0.8), "aligned_cosine": (0.9, 0.4, 0.95)}
RANK = {"mutual_rank": (169.0, 149.0, 1.0)}


def evaluation(figures: dict[str, tuple[float, float | None, float]]) -> Evaluation:
    rows = [
        {"language": "shn_Mymr", "metric": name, "value": value, "floor": floor,
         "ceiling": ceiling, "n": 5, "definition": "x"}
        for name, (value, floor, ceiling) in figures.items()
    ]  # fmt: skip
    sizes = pl.DataFrame({"language": ["shn_Mymr"], "tokens_before": [9], "tokens_after": [3]})
    scores = pl.DataFrame(rows, SCORES)
    return Evaluation("base", "graft", "causal", "udhr", {}, scores, sizes)


def test_a_graft_above_its_floors_works() -> None:
    said = evaluation({**GOOD, **RANK}).verdict
    assert said.sentence.startswith("This graft works: its likeliest next token")
    assert "73%" in said.sentence
    assert "10%" in said.sentence
    assert "80%" in said.sentence
    assert "1 average over whole sentences is no better" in said.sentence
    assert said.below == ()
    assert "This graft works: " in evaluation(GOOD)._repr_html_()


def test_a_graft_below_its_floors_does_not() -> None:
    said = evaluation(BAD).verdict
    assert said.sentence.startswith("This graft did not work: 2 of 3")
    assert "KL 4.5 in Shan, floor 4" in said.sentence
    assert [one.measure for one in said.below] == ["kl", "top1"]


def test_a_graft_below_few_of_its_floors_works_in_part() -> None:
    said = judge([Judged("top1", place, 0.5, 0.1) for place in "xyz"] + [Judged("kl", "w", 2, 1)])
    assert said.sentence.startswith("This graft works only in part: 1 of 4 deciding figures is")
    assert [one.where for one in said.below] == ["w"]


def test_text_without_new_tokens_decides_nothing() -> None:
    """A plan for the world leaves some languages as they were: graft and floor are the base."""
    untouched = [Judged("kl", "Chinese", 0.0, 0.0), Judged("top1", "Chinese", 1.0, 1.0)]
    untouched += [Judged("continuation_excess", "English", 0.0003, 0.0)]
    worked = [Judged("top1", "Shan", 0.9, 0.6)]
    assert judge(untouched).sentence.startswith("No verdict")
    said = judge(untouched + worked)
    assert said.below == () and "all 1 deciding" in said.sentence
    broken = judge([*untouched, *worked, Judged("kl", "Chinese", 0.2, 0.0)])
    assert [one.value for one in broken.below] == [0.2]
    assert judge([Judged("kl", "Shan", 0.0, 3.0)]).below == ()


def test_averages_of_text_without_new_tokens_are_not_counted() -> None:
    """They equal their floor whatever was learned."""
    figures = [Judged("kl", "Chinese", 0.0, 0.0), Judged("pooled_cosine", "Chinese", 1.0, 1.0)]
    figures += [Judged("top1", "Shan", 0.9, 0.6), Judged("mutual_rank", "Shan", 1.0, 9.0)]
    assert "average" not in judge(figures).sentence
    figures.append(Judged("pooled_cosine", "Shan", 0.2, 0.3))
    assert "1 average over whole sentences is no better" in judge(figures).sentence


def test_without_floors_there_is_no_verdict() -> None:
    bare = {name: (value, None, 1.0) for name, (value, _, _) in GOOD.items()}
    assert evaluation(bare).verdict.sentence.startswith("No verdict")
    assert judge([]).below == ()


@pytest.mark.parametrize(("value", "below"), [(0.1, True), (0.11, False), (0.09, True)])
def test_no_better_than_the_floor_is_below(value: float, below: bool) -> None:
    assert Judged("top1", "x", value, 0.1).below is below
    assert Judged("kl", "x", -value, -0.1).below is below


@pytest.mark.parametrize("measure", ["kl", "top1"])
def test_what_is_not_a_number_is_below_its_floor(measure: str) -> None:
    assert Judged(measure, "x", float("nan"), 0.1).below


@pytest.mark.parametrize(("figures", "code"), [(GOOD, 0), (BAD, 3)])
def test_the_readme_opens_with_it_and_the_exit_code_follows(
    figures: dict[str, tuple[float, float | None, float]],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = evaluation(figures)
    monkeypatch.setattr(verbs, "evaluate", lambda *_, **__: found)
    arguments = ["evaluate", "base", "graft", "--json", "-o", str(tmp_path / "out")]
    ran = CliRunner().invoke(app, [*arguments, "--fail-below-floor"])
    assert ran.exit_code == code, ran.output
    assert json.loads(ran.stdout)["verdict"] == found.verdict.sentence
    second = (tmp_path / "out" / "README.md").read_text(encoding="utf-8").split("\n\n")[1]
    assert second.startswith("**This graft")
    assert CliRunner().invoke(app, arguments).exit_code == 0
    ran = CliRunner().invoke(app, [*arguments, "--bare", "--fail-below-floor"])
    assert isinstance(ran.exception, UsageError)


@pytest.mark.parametrize(
    ("done", "said", "unsaid"),
    [
        (Done(), ["Nothing was trained yet", "--text"], ["--start", "--train", "longer"]),
        (Done("rows", unread=True, lanes=True), ["--start", "not read yet", "--train lanes"], []),
        (Done("rows", settled=True), ["more text", "--train lora"], ["longer", "lanes"]),
        (
            Done("lanes", writes=True, lanes=True, by_text=0.5),
            ["--start goes on from it, with --train lanes --policy write"],
            ["--by-text", "more than its rows"],
        ),
        (Done("lora"), ["--policy write, without --by-text"], ["--by-text 1", "more than its"]),
        (Done("rows", by_text=1.0, lanes=True), ["--policy write"], ["--by-text 1"]),
        (Done("rows", fixed=True), ["longer"], ["--policy", "--by-text", "--train lora"]),
    ],
)
def test_the_maker_is_told_what_was_not_done_and_can_be(
    done: Done, said: list[str], unsaid: list[str]
) -> None:
    verdict = judge([Judged("kl", "x", 0.3, 4.0), Judged("continuation_excess", "x", 2.0, 1.0)])
    told = verdict.next_step(done)
    assert all(words in told for words in said), told
    assert not any(words in told for words in unsaid), told
    assert "--" not in verdict.caution(done) and verdict.caution(done)


def test_what_works_needs_no_advice() -> None:
    works = judge([Judged("kl", "x", 0.3, 4.0)])
    assert works.next_step(Done("rows")) == works.caution(Done("rows")) == ""
    assert judge([Judged("kl", "x", 5.0, 4.0)]).next_step(None) == ""
    assert "its base may serve better" in judge([Judged("kl", "x", 5.0, 4.0)]).caution(None)


def test_what_was_done_is_read_from_the_manifest() -> None:
    config = {"architectures": ["LlamaForCausalLM"]}
    params = {"steps_done": 10, "passages": 4, "training_passages": 50, "by_text": 0.5}
    rows = {"method": "distil", "params": {**params, "stopped": SETTLED}}
    manifest = {"rows": rows, "output": {"policy": "write"}, "trained": {"train": "lanes"}}
    assert done(manifest, config) == Done("lanes", True, True, True, 0.5, True)
    untrained = {"rows": {"method": "mean", "params": {}}, "output": {"policy": "input-only"}}
    assert done(untrained, {}) == Done()
    assert done({**untrained, "rows": {"method": "given"}}, {}) is None
