"""Two sides compared: whatever they are, the figures are those of plain counting."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tokengraft as tg
from tokengraft.cli.app import app
from tokengraft.core.errors import UsageError
from tokengraft.core.wording import in_percent
from tokengraft.corpus import udhr
from tokengraft.render.comparison_folder import percent
from tokengraft.tokenizer import load
from tokengraft.tokenizer.catalog import rootstock

FEW = ["tam", "deu", "shn"]


def test_tokens_and_speakers_are_those_counted_by_hand() -> None:
    found = tg.compare("gpt-4", "gpt-4o", languages=["tam", "deu"])
    lines = udhr.load(["tam_Taml"]).lines("tam_Taml")
    row = found.languages.filter(language="tam_Taml").row(0, named=True)
    for side, name in (("a", "cl100k_base"), ("b", "o200k_base")):
        ids = load(name).encode(list(lines))
        assert row[f"tokens_{side}"] == sum(map(len, ids))
    assert row["change"] == row["tokens_b"] / row["tokens_a"] - 1 < -0.5
    assert row["outcome"] == "better" and row["premium_b"] < row["premium_a"]
    assert row["covered_b"] >= row["covered_a"]
    total = found.summary.row(0, named=True)
    assert (total["better"], total["worse"]) == (2, 1)  # English takes one token more
    assert total["speakers_better"] > 200_000_000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (-0.312, "−31.2%"),
        (0.004, "+0.4%"),
        (0.0001, "+0.01%"),
        (-0.00004, "−0.004%"),
        (0, "±0%"),
    ],
)
def test_a_change_is_never_shown_as_none(change: float, said: str) -> None:
    assert percent(change) == said


@pytest.mark.parametrize(
    ("share", "said"), [(0, "0"), (0.0049, "< 1"), (0.32, "32"), (0.999, "> 99"), (1, "100")]
)
def test_nearly_all_is_not_all(share: float, said: str) -> None:
    assert in_percent(share) == said


def test_a_plan_is_compared_with_its_tokenizer(tmp_path: Path) -> None:
    plan = tg.plan("gpt2", "shn", budget=50)
    plan.save(tmp_path / "plan", figures=False)
    for given in (plan, tmp_path / "plan" / "plan.json"):
        found = tg.compare("gpt2", given, languages=["shn", "deu"], resamples=0)
        outcome = dict(found.languages.select("language", "outcome").iter_rows())
        assert outcome == {"eng_Latn": "same", "deu_Latn": "same", "shn_Mymr": "better"}
        assert "GPT-2/3 + 50 tokens" in repr(found)


def test_two_audits_and_an_audit_with_a_tokenizer(tmp_path: Path) -> None:
    both = [tg.audit("udhr", ["gpt2", "t5"], FEW, resamples=0) for _ in range(2)]
    both[0].save(tmp_path / "before", figures=False)
    same = tg.compare(tmp_path / "before", both[1])
    assert same.summary["tokenizer_a"].to_list() == ["gpt2", "t5"]
    assert set(same.languages["outcome"]) == {"same", "neither"}
    one = tg.compare(tmp_path / "before", "gpt-2", resamples=0)
    assert one.summary.select("tokenizer_a", "same").rows() == [("gpt2", 4)]
    other = tg.compare("t5", tg.audit("udhr", "gpt2", FEW, resamples=0), resamples=0)
    assert other.summary.select("tokenizer_a", "tokenizer_b", "regained").rows() == [
        ("t5", "gpt2", 2)
    ]
    with pytest.raises(UsageError, match="as they are"):
        tg.compare(both[0], both[1], "udhr")
    with pytest.raises(UsageError, match="as they are"):
        tg.compare(both[0], both[1], pivot="deu_Latn")


def test_an_audit_finds_its_text_again_or_says_what_to_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit knows the name and the split of its text, but no path."""
    for split, lines in {"dev": 4, "devtest": 3}.items():
        for code in ("eng_Latn", "fra_Latn"):
            file = tmp_path / "texts" / split / f"{code}.{split}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{code} {split}\n" * lines, "utf-8")
    found = tg.audit(tmp_path / "texts", "gpt2", split="devtest", resamples=0)
    with pytest.raises(UsageError, match=r"--corpus \.\.\./texts --split devtest"):
        tg.compare(found, "t5", resamples=0)
    monkeypatch.chdir(tmp_path)
    compared = tg.compare(found, "t5", resamples=0)
    assert compared.languages.height == 2
    assert compared.languages["tokens_a"].to_list() == found.premiums["tokens"].to_list()
    pairs = {code: tmp_path / "texts" / "dev" / f"{code}.dev" for code in ("eng_Latn", "fra_Latn")}
    with pytest.raises(UsageError, match=r"own text files.*compare both audits"):
        tg.compare(tg.audit(pairs, "gpt2", resamples=0), "t5", resamples=0)


def test_files_of_one_name_have_names_of_their_own(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        shutil.copyfile(rootstock() / "tokenizer.json", tmp_path / folder / "tokenizer.json")
    paths = [str(tmp_path / folder / "tokenizer.json") for folder in "ab"]
    ran = CliRunner().invoke(app, ["compare", *paths, "-l", "deu", "-o", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    assert "a → b" in ran.output and "as many in 2" in ran.output
    readme = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "a → b" in readme and str(tmp_path) not in readme
    assert isinstance(tg.load(tmp_path / "out"), tg.Comparison)
    assert (tmp_path / "out" / "figures" / "pair-1.svg").is_file()
