"""Every kind of result keeps the same contract; a new row of `KINDS` is tested by being there."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import tokengraft as tg
from tokengraft.api.report import page_of
from tokengraft.api.results import (
    KINDS,
    Audit,
    Comparison,
    Evaluation,
    Grafted,
    Planned,
    Result,
    Verified,
)
from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.evaluating.score import SCORES
from tokengraft.grafting.verify.invariants import Check

HOSTILE = "<img src=x onerror=alert(1)> | [a](b) **c**"


@pytest.fixture(scope="module")
def audit() -> Audit:
    return tg.audit("udhr", ["gpt2", "t5"], ["shn", "deu"], resamples=10)


@pytest.fixture(scope="module")
def planned() -> Planned:
    return tg.plan("gpt2", "shn", budget=10)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder = tmp_path_factory.mktemp("web")
    (folder / "web.jsonl").write_text('{"text": "one"}\n{"text": "two three"}\n{"te')
    return tg.survey(folder / "web.jsonl", "gpt2", skip_bad=True, state=folder / "state")


@pytest.fixture(scope="module")
def grafted(tmp_path_factory: pytest.TempPathFactory, planned: Planned) -> Grafted:
    out = tmp_path_factory.mktemp("graft") / "grafted"
    chosen = tg.plan("rootstock", "shn", budget=5)
    rows = np.zeros((5, 320), np.float32)
    return tg.graft("rootstock", chosen, out=out, rows=rows, verified=False)


def verified() -> Verified:
    checks = (Check("old weights", True, "same"), Check("loads", False, HOSTILE))
    return Verified(checks, HOSTILE, "rootstock")


def evaluation() -> Evaluation:
    row = {name: 0.5 if kind == pl.Float64 else None for name, kind in SCORES.items()}
    row |= {"language": "shn_Mymr", "metric": "kl", "n": 3, "ceiling": None, "definition": HOSTILE}
    sizes = pl.DataFrame({"language": ["shn_Mymr"], "tokens_before": [9], "tokens_after": [4]})
    return Evaluation(
        "rootstock", HOSTILE, "causal", "udhr", {"lines": None, "digests": {"shn_Mymr": "00"}},
        pl.DataFrame([row], SCORES), sizes, tasks=pl.DataFrame({"task": ["a"], "value": [1.0]}),
        notes=(HOSTILE,),
    )  # fmt: skip


def comparison(audit: Audit, label: str = "GPT-2") -> Comparison:
    made = tg.compare(audit, audit)
    return replace(made, facts={**made.facts, "a": {"what": "audit", "label": label}})


#: One or more results of each kind, some with what others wrote in them.
MADE: dict[str, Callable[[pytest.FixtureRequest], Result]] = {
    "audit": lambda asked: asked.getfixturevalue("audit"),
    "audit, streamed": lambda asked: asked.getfixturevalue("streamed"),
    "audit, hostile": lambda asked: hostile_audit(asked.getfixturevalue("audit")),
    "plan": lambda asked: asked.getfixturevalue("planned"),
    "plan, hostile": lambda asked: replace(asked.getfixturevalue("planned"), chosen_on=HOSTILE),
    "graft": lambda asked: asked.getfixturevalue("grafted"),
    "evaluation": lambda asked: evaluation(),
    "comparison": lambda asked: comparison(asked.getfixturevalue("audit")),
    "comparison, hostile": lambda asked: comparison(asked.getfixturevalue("audit"), HOSTILE),
    "verification": lambda asked: verified(),
}


def hostile_audit(audit: Audit) -> Audit:
    corpus = {**audit.facts["corpus"], "name": HOSTILE, "source": HOSTILE}
    return replace(audit, facts={**audit.facts, "corpus": corpus})


@pytest.fixture(params=list(MADE))
def result(request: pytest.FixtureRequest) -> Result:
    return MADE[request.param](request)


def test_every_kind_is_made_here() -> None:
    assert {name.partition(",")[0] for name in MADE} == {kind.called for kind in KINDS}
    assert len({kind.mark for kind in KINDS}) == len(KINDS)


def test_what_was_saved_comes_back_equal(result: Result, tmp_path: Path) -> None:
    paths = result.save(tmp_path / "out", figures=False)
    assert paths and all(path.is_file() for path in paths)
    assert {path for path in (tmp_path / "out").rglob("*") if path.is_file()} == set(paths)
    again = type(result).load(tmp_path / "out")
    assert again == result and again is not result
    assert type(tg.load(tmp_path / "out")) is type(result)
    for name, table in result.tables().items():
        assert_frame_equal(again.tables()[name], table, check_exact=True)
    assert list(again.tables()) == list(result.tables())
    assert repr(again).partition("(")[0] == repr(result).partition("(")[0]


def test_tables_are_frames_by_name(result: Result) -> None:
    tables = result.tables()
    assert tables and all(isinstance(table, pl.DataFrame) for table in tables.values())


def test_a_repr_is_short_and_says_what_it_is(result: Result) -> None:
    assert repr(result) == f"{type(result).__name__}({result._in_short()})"
    assert "\n" not in repr(result) and len(repr(result)) < 250


def test_notebooks_and_readmes_hold_text_not_markup(result: Result, tmp_path: Path) -> None:
    shown = result._repr_html_()
    assert shown.count("<table>") == 1 and "<img" not in shown
    result.save(tmp_path, figures=False)
    if not isinstance(result, Grafted) and (tmp_path / "README.md").is_file():
        words = (tmp_path / "README.md").read_text("utf-8")
        assert "<img" not in words.replace("\\<img", "") and "[a](b)" not in words


def test_another_folder_is_told_from_a_result(result: Result, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("x")
    with pytest.raises(TokengraftError, match=f"there is no {result.called} here"):
        type(result).load(tmp_path)
    with pytest.raises(UsageError, match="there is no result here"):
        tg.load(tmp_path)
    for kind in KINDS:
        assert not kind.is_in(tmp_path)


def test_a_damaged_result_is_an_error_of_ours(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path, figures=False)
    (tmp_path / result.mark).write_text('{"tokengraft": 1, "schema": 1}', encoding="utf-8")
    with pytest.raises(TokengraftError):
        type(result).load(tmp_path)
    if not isinstance(result, Verified):  # which a page does not show
        with contextlib.suppress(TokengraftError):
            page_of(tmp_path)


@pytest.mark.parametrize("damage", ["cut short", "other columns", "no rows", "words for numbers"])
def test_a_damaged_table_is_named(audit: Audit, damage: str, tmp_path: Path) -> None:
    audit.save(tmp_path, figures=False)
    for name in ("premiums", "summary"):
        path = tmp_path / "tables" / f"{name}.parquet"
        frame = pl.read_parquet(path)
        if damage == "cut short":
            path.write_bytes(path.read_bytes()[:-9])
        elif damage == "other columns":
            frame.drop("tokenizer").write_parquet(path)
        elif damage == "no rows":
            frame.clear().write_parquet(path)
        else:
            frame.select(pl.lit("x").alias(column) for column in frame.columns).write_parquet(path)
    with pytest.raises(TokengraftError, match=r"premiums\.parquet|this audit is damaged"):
        tg.load(tmp_path)
    with pytest.raises(TokengraftError, match=r"damaged|no premiums"):
        page_of(tmp_path)


@pytest.mark.parametrize(
    "damage", [{"a": None}, {"b": {}}, {"labels": 1}, {"corpus": []}, {"pivot": None}]
)
def test_a_damaged_comparison_is_named(damage: dict[str, Any], tmp_path: Path) -> None:
    tg.compare("gpt2", "gpt-4o", languages="shn", resamples=0).save(tmp_path, figures=False)
    mark = tmp_path / "comparison.json"
    facts = json.loads(mark.read_text("utf-8"))
    mark.write_text(json.dumps(facts | damage), "utf-8")
    if not {"labels", "pivot"} & damage.keys():
        with pytest.raises(TokengraftError, match="this comparison is damaged"):
            tg.load(tmp_path)
    if "a" not in damage and "b" not in damage:
        with pytest.raises(TokengraftError, match="this comparison is damaged"):
            page_of(tmp_path)


def test_a_page_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to show"):
        tg.report([], tmp_path / "page")
    assert not list(tmp_path.iterdir())


def test_an_equal_result_is_one_with_equal_figures(audit: Audit) -> None:
    changed = audit.premiums.with_columns(pl.col("premium") + 1e-12)
    assert replace(audit, frames={**audit.frames, "premiums": changed}) != audit
    assert replace(evaluation(), base="other") != evaluation()


def test_a_graft_is_compared_with_its_base(grafted: Grafted) -> None:
    for given in (grafted, grafted.folder):
        found = tg.compare("rootstock", given, languages=["shn", "deu"], resamples=0)
        outcomes = dict(found.languages.select("language", "outcome").iter_rows())
        assert outcomes == {"eng_Latn": "same", "deu_Latn": "same", "shn_Mymr": "better"}
        assert found.facts["b"] == {"what": "graft", "label": "grafted"}


def test_a_graft_is_copied_and_taken_by_every_verb(grafted: Grafted, tmp_path: Path) -> None:
    paths = grafted.save(tmp_path / "copy")
    assert grafted.save(grafted.folder) == [grafted.folder / p.name for p in paths]
    shutil.rmtree(tmp_path / "copy")
    found = tg.audit("udhr", [grafted, "gpt2"], "shn", resamples=0)
    assert found.tokenizers[0].name == "grafted"
    assert grafted.tables()["tokens"]["id"].to_list() == list(grafted.new)


def test_names_mean_the_same_everywhere(audit: Audit) -> None:
    assert audit.premium("gpt2", "Shan") == audit.premium("gpt2", "shn_Mymr")
    assert evaluation().score("Shan", "kl") == evaluation().score("shn_Mymr", "kl")
    with pytest.raises(UsageError, match="measured: kl"):
        evaluation().score("shn", "top1")


def test_a_page_takes_results_as_it_takes_folders(
    audit: Audit, planned: Planned, tmp_path: Path
) -> None:
    page = tg.report([audit, planned, evaluation(), comparison(audit, HOSTILE)], tmp_path / "page")
    text = page.read_text("utf-8")
    assert "<img src=x" not in text
    with pytest.raises(UsageError, match="does not show a verification"):
        tg.report(verified(), tmp_path / "page")
