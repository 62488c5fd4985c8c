"""Limits and baselines: what fails, what passes, what cannot be checked, and how it is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from typer.testing import CliRunner

import tokengraft as tg
from tokengraft.api.results import Audit
from tokengraft.auditing.side_by_side import read_limits, read_share, side_by_side, summed
from tokengraft.cli.app import app
from tokengraft.core.errors import CheckFailed, UsageError

HOSTILE = "<b>&\x00\ud800 | `x` [a](b)"


@pytest.fixture(scope="module")
def audit() -> Audit:
    return tg.audit("udhr", ["gpt2", "t5"], ["tam", "shn", "deu"], resamples=10)


def with_tokens(audit: Audit, language: str, factor: float, **others: object) -> Audit:
    """The audit as it would be if a language took `factor` times the tokens."""
    here = pl.col("language") == language
    values = {name: pl.lit(value) for name, value in others.items()}
    values["tokens"] = (pl.col("tokens") * factor).round().cast(pl.Int64)
    changed = audit.premiums.with_columns(
        pl.when(here).then(new).otherwise(pl.col(name)).alias(name) for name, new in values.items()
    )
    return replace(audit, frames={**audit.frames, "premiums": changed})


def failed(checked: tg.Checked) -> set[tuple[str, str]]:
    return {(finding.tokenizer, finding.language) for finding in checked.failures}


def test_a_limit_of_its_own_goes_before_the_one_for_all(audit: Audit) -> None:
    own = audit.premium("gpt2", "tam").value
    assert not failed(audit.check({"Tamil": own, "*": 30})) & {("gpt2", "tam_Taml")}
    assert ("gpt2", "tam_Taml") in failed(audit.check({"tam": own - 1e-9, "*": 30}))
    assert "Tamil (tam_Taml): premium" in repr(audit.check({"tam": own - 1e-9}))
    assert all(finding.language != "eng_Latn" for finding in audit.check({"*": 0.5}).findings)


def test_text_that_is_thrown_away_is_not_cheap(audit: Audit) -> None:
    assert audit.premium("t5", "tam").value < 3
    assert ("t5", "tam_Taml") in failed(audit.check({"tam": 3}))
    assert "UNK" in next(f.detail for f in audit.check({"tam": 3}).failures if f.tokenizer == "t5")


def test_a_language_without_common_lines_is_skipped(audit: Audit) -> None:
    none = audit.premiums.with_columns(premium=pl.lit(None, pl.Float64), n=pl.lit(0))
    found = replace(audit, frames={**audit.frames, "premiums": none}).check({"deu": 2})
    assert found and {finding.passed for finding in found.findings} == {None}
    assert "could not be made" in repr(found) and 'skipped="2"' in found.junit()


def test_a_baseline_allows_as_much_as_was_said(audit: Audit) -> None:
    assert audit.check(baseline=audit)
    worse = with_tokens(audit, "deu_Latn", 1.015)
    assert worse.check(baseline=audit, max_regression="2%")
    assert failed(worse.check(baseline=audit, max_regression=0.01)) == {
        ("gpt2", "deu_Latn"),
        ("t5", "deu_Latn"),
    }
    assert audit.check(baseline=worse)


def test_a_premium_that_rises_because_english_fell_is_no_regression(audit: Audit) -> None:
    cheaper = with_tokens(audit, "eng_Latn", 0.8)
    assert cheaper.check(baseline=audit)


def test_losing_text_to_unk_is_a_regression(audit: Audit) -> None:
    lost = with_tokens(audit, "shn_Mymr", 0.1, meaningless=True, unk_share=0.4)
    assert failed(lost.check(baseline=audit)) == {("gpt2", "shn_Mymr")}  # T5 lost it before
    assert audit.check(baseline=lost)


def test_other_text_and_other_tokenizers_cannot_be_compared(audit: Audit) -> None:
    corpus = {**audit.facts["corpus"], "languages": dict.fromkeys(audit.corpus.languages, "0" * 64)}
    with pytest.raises(UsageError, match="no text in common"):
        audit.check(baseline=replace(audit, facts={**audit.facts, "corpus": corpus}))
    two = tg.audit("udhr", ["olmo-2", "claude-2.1"], ["tam"], resamples=0)
    with pytest.raises(UsageError, match="No tokenizer is in both"):
        audit.check(baseline=two)
    with pytest.raises(UsageError, match="Nothing to check"):
        audit.check()


def test_one_tokenizer_each_is_a_pair_and_speakers_are_summed() -> None:
    old, new = (tg.audit("udhr", name, ["tam", "deu"], resamples=0) for name in ("gpt2", "olmo-2"))
    cells = side_by_side(old, new)
    assert cells.select("tokenizer_a", "tokenizer_b").unique().rows() == [("gpt2", "olmo-2")]
    row = summed(cells, old, new).row(0, named=True)
    better = cells.filter(pl.col("tokens_b") < pl.col("tokens_a"))
    assert row["better"] == better.height > 0
    assert row["speakers_better"] == better["speakers_total"].sum() > 80_000_000
    assert row["gini_a"] == pytest.approx(old.summary["gini"][0])
    assert row["tokens_a"] == old.premiums["tokens"].sum()


def test_junit_and_markdown_hold_text_not_markup(audit: Audit) -> None:
    checked = audit.check({"*": 5})
    hostile = replace(checked, labels={"gpt2": HOSTILE}, corpus=HOSTILE)
    root = ElementTree.fromstring(hostile.junit())
    assert root.get("failures") == str(len(checked.failures))
    assert sum(len(case) for suite in root for case in suite) == len(checked.failures)
    assert "<b>" not in hostile.markdown().replace("\\<b>", "")
    with pytest.raises(CheckFailed):
        checked.require()
    assert "<table>" in checked._repr_html_() and not checked.passed


@pytest.mark.parametrize("said", ["tam", "tam=", "=3", "tam=x", "tam=-1", "tam=nan", "tamm=3"])
def test_a_limit_that_says_nothing_is_explained(said: str) -> None:
    with pytest.raises(UsageError, match="--fail-above"):
        read_limits([said])


def test_shares_are_read_as_people_write_them() -> None:
    assert read_share("2%") == read_share(0.02) == read_share("0.02") == 0.02
    for wrong in ("-1%", "many", "inf"):
        with pytest.raises(UsageError, match="not a share"):
            read_share(wrong)


def test_the_command_line_exits_with_4_and_writes_both_files(tmp_path: Path) -> None:
    def run(*more: str) -> tuple[int, Exception | None]:
        ran = CliRunner().invoke(app, ["audit", "-t", "gpt2", "-l", "tam", "-l", "deu", *more])
        return getattr(ran.exception, "exit_code", ran.exit_code), ran.exception

    folder = str(tmp_path / "audit")
    assert run("-o", folder, "--no-figures")[0] == 0
    assert run("--baseline", folder, "--max-regression", "2%", "--fail-above", "*=40")[0] == 0
    files = [str(tmp_path / name) for name in ("a.xml", "a.md")]
    code, error = run("--fail-above", "tam=3", "--junit", files[0], "--summary", files[1])
    assert code == 4 and "1 of 1 check failed" in str(error)
    assert ElementTree.parse(files[0]).getroot().get("failures") == "1"
    assert "Tamil" in Path(files[1]).read_text("utf-8")
    assert run("--junit", files[0])[0] == 2
    assert run("--fail-above", "tam=3", "--max-regression", "1%")[0] == 2
    assert run("--baseline", str(tmp_path / "nothing"))[0] == 1


def test_a_baseline_of_another_tokenizer_is_named(tmp_path: Path) -> None:
    few = ["audit", "-l", "tam", "--no-figures"]
    folder = str(tmp_path / "audit")
    assert CliRunner().invoke(app, [*few, "-t", "gpt-4o", "-o", folder]).exit_code == 0
    summary = tmp_path / "a.md"
    check = ["--baseline", folder, "--summary", str(summary)]
    ran = CliRunner().invoke(app, [*few, "-t", "gpt2", *check])
    assert "gpt2 is compared with o200k_base, the only tokenizer of the baseline" in ran.output
    assert "no more tokens than the baseline's o200k\\_base" in summary.read_text("utf-8")
