"""Tables at any width: numbers, codes and every word of a title are there, whole."""

from __future__ import annotations

import json
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from tokengraft.api.verbs import audit
from tokengraft.cli.app import app
from tokengraft.cli.console import stdout
from tokengraft.core.errors import UsageError
from tokengraft.evaluating.score import Measurements
from tokengraft.languages.codes import known
from tokengraft.render.terminal import (
    Column,
    code_column,
    print_table,
    show_evaluation,
    text_column,
)


def shown(width: int, keys: list[Column], values: list[Column]) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        print_table(console, keys, values, title="t", caption="c")
    return capture.get()


@given(
    st.integers(40, 160),
    st.lists(
        st.tuples(st.text("ab -", min_size=1, max_size=25), st.integers(1, 999_999)),
        min_size=1,
        max_size=12,
    ),
)
def test_every_number_and_code_is_shown_whole(width: int, values: list[tuple[str, int]]) -> None:
    columns = [Column(title, [f"{n:,}", f"[red]{n}.5†[/red]"]) for title, n in values]
    keys = [
        code_column("language", ["shn_Mymr", "zho_Hans"]),
        text_column("name", ["Shan", "x" * 60]),
    ]
    text = shown(width, keys, columns)
    assert "…" not in text and all(len(line) <= width for line in text.split("\n"))
    cells = re.split(r"[│\s]+", text)
    for _, n in values:
        assert f"{n:,}" in cells and f"{n}.5†" in cells
    assert "shn_Mymr" in cells and "zho_Hans" in cells


def test_text_folds_and_titles_keep_their_words() -> None:
    values = [Column("premium before", ["1.25"]), text_column("where", ["a long way to say it"])]
    text = shown(44, [code_column("code", ["shn_Mymr"])], values)
    assert all(word in text for word in ("premium", "before", "1.25", "long", "shn_Mymr"))


@pytest.fixture(params=[60, 80])
def narrow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdout, "width", request.param)


@pytest.mark.usefixtures("narrow")
def test_languages_shows_every_code_and_number() -> None:
    text = CliRunner().invoke(app, ["languages"]).stdout
    cells = set(re.split(r"[│\s]+", text))
    assert set(known()) <= cells
    assert {f"{e.speakers_total:,}" for e in known().values() if e.speakers_total} <= cells


@pytest.mark.parametrize(
    ("word", "code"),
    [("Farsi", "pes_Arab"), ("shn", "shn_Mymr"), ("Ethiopic", "amh_Ethi"), ("தமிழ்", "tam_Taml")],
)
def test_languages_are_found_by_any_name(word: str, code: str) -> None:
    rows = json.loads(CliRunner().invoke(app, ["languages", word, "--json"]).stdout)
    assert code in [row["code"] for row in rows] and len(rows) < 60
    nothing = CliRunner().invoke(app, ["languages", "Tamiil"])
    assert isinstance(nothing.exception, UsageError) and "tam_Taml" in str(nothing.exception)


def test_examples_of_languages_find_some() -> None:
    shown = CliRunner().invoke(app, ["languages", "--help"], env={"COLUMNS": "200"}).stdout
    examples = re.findall(r"tokengraft (languages [^[\s].*?)\s*$", shown, re.MULTILINE)
    assert len(examples) > 1
    for example in examples:
        assert CliRunner().invoke(app, example.split()).exit_code == 0, example


@pytest.mark.usefixtures("narrow")
def test_an_audit_shows_every_premium_and_says_what_it_is_over() -> None:
    """The dagger is explained only where there is one."""
    some = ["audit", "-l", "shn", "-t"]
    tokenizers = ["gpt2", "mistral-v0.3", "claude-2.1"]
    named = [word for name in tokenizers for word in ("-t", name)]
    text = CliRunner().invoke(app, [*some, "t5", *named]).stdout
    found = audit("udhr", tokenizers, ["shn"], resamples=0)
    assert "…" not in text and "†" in text and "says too little" in " ".join(text.split())
    for value in found.premiums["premium"]:
        assert f"{value:.2f}" in text
    said = " ".join(text.split())
    assert "of 1" not in said and said.count("Shan takes") == 3 and "95% interval" in said
    assert "no premium, text lost to UNK in 1 language" in " ".join(text.split())
    alone = CliRunner().invoke(app, [*some, "t5"]).stdout  # lost by all, and yet in the table
    assert "shn_Mymr" in alone and "†" in alone
    assert "†" not in CliRunner().invoke(app, [*some, "gpt2"]).stdout


def test_an_evaluation_is_printed_with_its_costs_of_generation() -> None:
    row = {"language": "shn_Mymr", "metric": "kl", "value": 0.25, "floor": 2.0, "ceiling": None}
    evaluation = Measurements(
        "base", "graft", "causal", "udhr", {}, pl.DataFrame([row]),
        pl.DataFrame([{"language": "shn_Mymr", "tokens_before": 900, "tokens_after": 100}]),
        generation=pl.DataFrame([{"language": "shn_Mymr", "model": "graft", "seconds": 0.123456}]),
    )  # fmt: skip
    console = Console(width=100, highlight=False)
    with console.capture() as capture:
        show_evaluation(console, evaluation)
    printed = capture.get()
    assert "900 → 100" in printed and "0.250" in printed and "0.1235" in printed
    assert "KL: How far the graft’s guess" in printed and "0 is best" in printed
