"""Small things that people stumbled over, each with what it should do instead."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import sqlite3
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer
from typer.main import get_command

import tokengraft as tg
from tokengraft.api import verbs
from tokengraft.auditing.cost import age_note, read_prices
from tokengraft.cli.app import app
from tokengraft.cli.options import check_out
from tokengraft.core.cache import Store
from tokengraft.core.errors import CorpusError, TokengraftError, UsageError
from tokengraft.evaluating.score import Measurements
from tokengraft.paper.claim import judge, read_claim
from tokengraft.paper.claim_folder import printed, write_verdict
from tokengraft.paper.commands import APPS
from tokengraft.render.evaluation_folder import draw
from tokengraft.render.figures.style import save_figure
from tokengraft.render.latex import LANDSCAPE, PORTRAIT, latex
from tokengraft.render.page import document
from tokengraft.render.page.audits import headline
from tokengraft.render.selection import Lead
from tokengraft.render.tables import Cell, Printed
from tokengraft.tokenizer.catalog import rootstock


def test_audit_and_plan_take_a_split() -> None:
    for verb in (tg.audit, tg.plan):
        assert "split" in inspect.signature(verb).parameters


def test_the_version_is_the_sources_own() -> None:
    """Not the version at the time when a checkout was installed in place."""
    root = Path(__file__).parents[2]
    assert f"\nversion: {tg.__version__}\n" in (root / "CITATION.cff").read_text("utf-8")
    assert f"\n## [{tg.__version__}]" in (root / "CHANGELOG.md").read_text("utf-8")
    assert 'dynamic = ["version"]' in (root / "pyproject.toml").read_text("utf-8")


def test_a_suffix_that_says_nothing_is_text(tmp_path: Path) -> None:
    (tmp_path / "shn_Mymr.dev").write_text("ၵူၼ်း\nမီး\n", encoding="utf-8")
    assert list(tg.lines_of(tmp_path / "shn_Mymr.dev")) == ["ၵူၼ်း", "မီး"]
    assert tg.plan("gpt2", "shn", text=tmp_path / "shn_Mymr.dev", budget=2).plan.tokens


@pytest.mark.parametrize("said", ["vie", "zho"])
def test_an_ambiguous_column_says_what_to_write(tmp_path: Path, said: str) -> None:
    (tmp_path / "t.tsv").write_text(f"eng\t{said}\na\tb\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=rf"{said}_\w+.*Write the full code there instead of"):
        tg.audit(tmp_path / "t.tsv", "gpt2")


def test_a_cache_that_cannot_be_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Store(tmp_path)
    written.put("a", b"1")
    written.close()

    def refuse(self: Store) -> None:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    # Tests may run as root, whom no mode keeps from writing.
    monkeypatch.setattr(Store, "_open", refuse)
    store = Store(tmp_path)
    store.put("b", b"2")
    assert store.get("a") == b"1" and store.get("b") == b"2"
    assert Store(tmp_path).get("b") is None
    with pytest.raises(tg.TokengraftError, match="cannot be written"):
        Store(tmp_path / "nothing")


def test_a_state_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.txt").write_text("one\ntwo\n", encoding="utf-8")
    tg.survey(tmp_path / "one.txt", "gpt2", state=tmp_path / "state")
    (tmp_path / "more.txt").write_text("three\n", encoding="utf-8")

    def refuse(self: Store) -> None:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(Store, "_open", refuse)
    found = tg.survey(str(tmp_path / "*.txt"), "gpt2", state=tmp_path / "state")
    assert found.frames["counts"]["rows"].sum() == 3


def test_broken_files_stand_among_the_bad_rows(tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text('{"text": "one"}\n{"te\n', encoding="utf-8")
    (tmp_path / "broken.jsonl.gz").write_bytes(b"\x1f\x8b\x08 no gzip")
    found = tg.survey(tmp_path, "gpt2", skip_bad=True, state=tmp_path / "state")
    rows = found.frames["bad_rows"].select("file", "line", "reason").rows()
    assert [(Path(file).name, line) for file, line, _ in rows] == [
        ("broken.jsonl.gz", None),
        ("good.jsonl", 2),
    ]
    assert rows[0][2].startswith("the whole file")


def test_an_old_price_list_is_shown_with_a_note() -> None:
    assert "7 months old" in age_note("2026-03-21", date(2026, 11, 1))
    assert age_note("2026-03-21", date(2026, 8, 1)) == "" == age_note("2024")
    prices = read_prices()
    assert date.fromisoformat(prices.as_of) and all(price.source for price in prices.models)


def test_no_headline_says_one_times() -> None:
    def titled(premium: float) -> str:
        row = {"compared": 1, "above_2x": 0, "meaningless_cells": 0, "tokenizer": "T"}
        audit = {
            "languages": [{"name": "English", "code": "eng"}, {"name": "Scots", "code": "sco"}],
            "tokenizers": [{"label": "T", "name": "T"}],
            "lead": asdict(Lead("T", "sco", premium, premium, premium, False, False)),
            "summary": [{**row, "gini": 0.1, "median_premium": premium}],
            "pivot": 0,
            "bad": ["00"],
            "unkMost": 0.4,
            "cells": {"premium": [[1.0, premium]], "unk": [[0.0, 0.0]]},
        }
        return str(headline(audit)["title"])

    assert titled(1.02) == "The same words cost as many tokens in Scots as in English"
    assert "No language here" in titled(0.8)
    assert "1.2 times" in titled(1.2) and "two times" in titled(2.0)


def test_a_reproduced_table_is_written_with_its_intervals(tmp_path: Path) -> None:
    claim = read_claim("premiums")
    some = dict(list(claim.expected.items())[:20])
    intervals = {key: (value - 0.01, value + 0.01) for key, value in some.items()}
    verdict = judge(replace(claim, expected=some, known={}), some, intervals)
    paths = {path.suffix: path for path in write_verdict(verdict, tmp_path / "out")}
    assert set(paths) == {".csv", ".parquet", ".json", ".md", ".tex"}
    tex = paths[".tex"].read_text("utf-8")
    (row, column), value = next(iter(some.items()))
    assert row.replace("_", r"\_") in tex and column in tex
    assert f"{value:.2f} [{value - 0.01:.2f}, {value + 0.01:.2f}]" in tex
    assert "20 of 20 reproduced." in printed(verdict).notes[0]


def test_a_long_table_fits_its_page() -> None:
    def table(columns: int, width: int) -> Printed:
        rows = [[Cell("A rather long language name")] + [Cell("1" * width)] * columns] * 50
        return Printed("premiums", "c", ["language", *["Tokenizer"] * columns], rows)

    for columns, width, size, turned in (
        (4, 5, "footnotesize", False),
        (8, 5, "scriptsize", False),
        (11, 9, "scriptsize", True),
        (16, 9, "tiny", True),
    ):
        text = latex(table(columns, width))
        assert rf"\begingroup\{size}" in text, (columns, width)
        assert ("landscape" in text) == turned == ("pdflscape" in text)
        points = {"footnotesize": 8, "scriptsize": 7, "tiny": 5}[size]
        across = (27 + columns * max(width, 1.15 * 9)) * points / 2 + 6 * (columns + 1)
        assert across <= (LANDSCAPE if turned else PORTRAIT)


def commands_in(text: str) -> list[str]:
    """Whole commands of ours in blocks of shell, or after a prompt."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text.replace("\\\n", " "), flags=re.S)
    lines = (line.removeprefix("$ ") for block in blocks for line in block.splitlines())
    return [line for line in lines if line.startswith("tokengraft ") and "…" not in line]


def every_verb() -> dict[str, Any]:
    """Every command by its name, those of plugins too."""
    plugged = {name: get_command(verb) for name, verb in APPS.items()}
    return {**get_command(app).commands, **plugged}  # type: ignore[attr-defined]


ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_command_of_the_docs_is_one_that_can_be_given() -> None:
    """Options that exist, with values of their types; nothing is run."""
    commands = [line for page in PAGES for line in commands_in(page.read_text("utf-8"))]
    assert len(commands) > 40
    for line in [*commands, "tokengraft evaluate a b --prompts prompts.txt"]:
        words = shlex.split(line, comments=True)[1:]
        command = every_verb()[words.pop(0)]
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        if line in commands:
            command.make_context(line, words)
        else:
            with pytest.raises(typer.BadParameter, match="integer"):
                command.make_context(line, words)


def test_an_evaluation_is_drawn_alike_every_time(tmp_path: Path) -> None:
    row = {"language": "shn_Mymr", "metric": "kl", "value": 0.25, "floor": 2.0, "ceiling": None}
    scores = pl.DataFrame([{**row, "low": 0.2, "high": 0.3}])
    measured = Measurements("b", "g", "causal", "text", {}, scores, scores)
    drawn = []
    for name in ("one", "two"):
        paths = save_figure(draw(measured), tmp_path / name / "fidelity")
        drawn.append([path.read_bytes() for path in paths])
    assert drawn[0] == drawn[1]


def test_a_font_in_a_page_bears_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for seconds in ("1000000000", "1700000000"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", seconds)  # what fontTools would stamp it with
        document._face.cache_clear()
        drawn.append(document.font_css(["Taml"]))
    assert drawn[0] == drawn[1]


def test_every_link_within_the_docs_leads_somewhere() -> None:
    """To files and folders that are there, and to headings of pages."""
    pages = [*PAGES, *sorted((ROOT / "results").rglob("*.md"))]
    links = [
        (page, place)
        for page in pages
        for place in re.findall(r"\]\((?!https?:)(\S+?)\)", page.read_text("utf-8"))
    ]
    assert len(links) > 100
    for page, place in links:
        path, _, anchor = place.partition("#")
        leads_to = page.parent / path if path else page
        assert leads_to.exists(), (page.name, place)
        if anchor and leads_to.suffix == ".md":
            titles = re.findall(r"^#+ (.+)$", leads_to.read_text("utf-8"), re.M)
            slugs = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
            assert anchor in slugs, (page.name, place)


def test_every_cell_of_the_field_leads_somewhere() -> None:
    """A dash, or a link; ours name options that exist."""
    docs = Path(__file__).parents[2] / "docs"
    commands = every_verb()
    text = (docs / "field.md").read_text("utf-8").partition("\n## ")[0]  # the first table
    rows = [line for line in text.splitlines() if line[:1] == "|"]
    assert len(rows) > 12 and len({row.count(" | ") for row in (rows[0], *rows[2:])}) == 1
    for row in rows[2:]:
        name, *cells = (cell.strip() for cell in row.strip("|").split(" | "))
        for cell in cells:
            assert cell == "–" or re.search(r"\]\(\S+\)", cell), (name, cell)
        for words in re.findall(r"`([^`]+)`", cells[-1]):
            verb, *options = words.split()
            command = commands[verb]
            while options and options[0] in getattr(command, "commands", {}):
                command = command.commands[options.pop(0)]
            known = {option for one in command.params for option in one.opts}
            assert {one for one in options if one.startswith("-")} <= known, words


def test_a_folder_or_price_list_may_be_a_string(tmp_path: Path) -> None:
    prices = {"model": "Mine", "tokenizer": "gpt2", "input": 1, "output": 2, "context": 9,
              "source": "me"}  # fmt: skip
    (tmp_path / "prices.yaml").write_text(
        json.dumps({"as_of": "2026-01-01", "models": [prices]}), encoding="utf-8"
    )
    found = verbs.audit(
        "udhr", "gpt2", "deu", search=str(tmp_path), prices=str(tmp_path / "prices.yaml"),
        resamples=0,
    )  # fmt: skip
    assert set(found.cost["model"]) == {"Mine"}
    assert verbs.folders("a/b") == (Path("a/b"),) == verbs.folders([Path("a/b")])


def test_what_is_missing_is_said_before_anything_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TokengraftError, match="vllm is not installed here: pip install vllm"):
        verbs.verify(tmp_path, rootstock(), served_by=["transformers", "vllm"])


def test_a_folder_behind_a_missing_one_is_guarded(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"already holds notes\.txt"):
        check_out(tmp_path / "missing" / ".." / "there", lambda _: False)
    assert not (tmp_path / "missing").exists()
