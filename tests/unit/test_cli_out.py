"""Where a command may write: found out before it computes, by one rule for all."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tokengraft.cli import main
from tokengraft.cli.app import app
from tokengraft.cli.options import check_out, holds_audit, holds_file, holds_page
from tokengraft.core.errors import TokengraftError, UsageError

AUDIT = ("audit", "udhr", "-t", "gpt2", "-l", "shn")
VERBS = {
    "audit": AUDIT,
    "audit of any size": ("audit", "{file}", "--monolingual", "-t", "gpt2"),
    "plan": ("plan", "gpt2", "-l", "shn", "--budget", "5"),
    "insert": ("insert", "gpt2", "nowhere/plan.json"),
    "graft": ("graft", "rootstock", "nowhere/plan.json"),
    "evaluate": ("evaluate", "rootstock", "rootstock", "-l", "shn"),
    "report": ("report", "nowhere/audit"),
    "fidelity": ("reproduce", "fidelity", "--model", "rootstock", "--corpus", "nowhere"),
}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "en.txt").write_text("mine\n")
    return tmp_path / "en.txt"


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["tokengraft", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main.run()
    return end.value.code


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("place", ["{file}", "{file}/sub", "/proc/xx", "full", "long" * 99])
def test_every_verb_refuses_before_it_computes(
    verb: str, place: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    """Most of these name inputs that are not there: the output path is looked at first."""
    if place == "/proc/xx" and not Path("/proc").is_dir():
        pytest.skip("no /proc here")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "README.md").write_text("mine")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    arguments = [one.format(file=text) for one in VERBS[verb]]
    code = call(monkeypatch, *arguments, "-o", place.format(file=text))
    said = capfd.readouterr().err
    assert code in (1, 2), said
    assert said.startswith("Error: --out")
    assert "name another" in said
    if place == "full":
        assert "README.md" in said
        assert "--force" in said
    assert sorted(tmp_path.rglob("*")) == before
    assert text.read_text() == "mine\n"


@pytest.mark.parametrize("claim", ["premiums", "new-token-share"])
def test_a_claim_looks_at_its_folder_first(
    claim: str, text: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    assert call(monkeypatch, "reproduce", claim, "--corpus", "not-there", "-o", text) == 2
    assert capfd.readouterr().err.startswith("Error: --out")


@pytest.mark.parametrize("verb", VERBS)
def test_help_tells_the_rule(verb: str) -> None:
    words = [word for word in VERBS[verb][:2] if word in ("reproduce", "fidelity")]
    shown = CliRunner().invoke(
        app, [*(words or [verb.split(maxsplit=1)[0]]), "--help"], env={"COLUMNS": "300"}
    )
    assert shown.exit_code == 0
    assert "--force" in shown.stdout
    assert "Must be missing, empty or an earlier result" in shown.stdout
    assert "<bool>" not in shown.stdout and "<list[" not in shown.stdout  # a flag takes no value


@pytest.mark.parametrize(
    "verb", ["verify", "reproduce", "reproduce premiums", "tokenizers", "corpora", "languages"]
)
def test_help_has_an_example(verb: str) -> None:
    shown = CliRunner().invoke(app, [*verb.split(), "--help"], env={"COLUMNS": "200"})
    behind = shown.stdout.partition("Example")[2].splitlines()
    assert any(line.strip().startswith(f"tokengraft {verb}") for line in behind)


def test_missing_empty_and_earlier_results_are_fine(tmp_path: Path) -> None:
    plan = holds_file("plan.json")
    check_out(None, plan)
    check_out(tmp_path / "a" / "b", plan)
    assert not (tmp_path / "a").exists()
    check_out(tmp_path, plan)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt"):
        check_out(tmp_path, plan)
    check_out(tmp_path, plan, force=True)
    (tmp_path / "plan.json").write_text("{}")
    check_out(tmp_path, plan)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "plan.json"]


def test_only_what_tokengraft_made_counts_as_an_earlier_result(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    (tmp_path / "index.html").write_text("<!doctype html><title>my site</title>")
    for holds in (holds_audit, holds_page):
        assert not holds(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"tokengraft": "0.1.0"}))
    assert holds_audit(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(TokengraftError, match="Permission denied"):
        check_out(tmp_path / "out", holds_audit)
    tmp_path.chmod(0o700)


def test_twice_in_a_row_and_a_repository_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    def made(*arguments: object) -> int | str | None:
        code = call(monkeypatch, *arguments)
        capfd.readouterr()
        return code

    audit, page, repository = (tmp_path / name for name in ("audit", "page", "repository"))
    for _ in range(2):
        assert made(*AUDIT, "--no-figures", "-o", audit) == 0
        assert made("report", audit, "-o", page) == 0
    repository.mkdir()
    (repository / "README.md").write_text("mine")
    assert made("report", audit, "-o", repository) == 2
    assert [path.name for path in repository.iterdir()] == ["README.md"]
    assert (repository / "README.md").read_text() == "mine"
    (repository / "code.py").write_text("mine")
    assert made("report", audit, "-o", repository, "--force") == 0
    assert (repository / "index.html").is_file()
    assert (repository / "code.py").read_text() == "mine"


def test_a_name_that_is_not_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Tables, figures and pages may lie there; a model could not be loaded from it."""
    name = os.fsdecode(b"caf\xe9")
    try:
        (tmp_path / name).mkdir()
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    (text := tmp_path / name / f"{name}.txt").write_text("\u1075\u1030\u107c\u103a\u1038 " * 40)
    monkeypatch.chdir(tmp_path)
    few = ("-l", "shn", "--budget", "5")
    assert call(monkeypatch, "plan", "gpt2", *few, "--text", text, "-o", f"{name}/plan") == 0
    assert call(monkeypatch, *AUDIT, "--no-figures", "-o", f"{name}/audit") == 0
    assert call(monkeypatch, "report", f"{name}/audit", f"{name}/plan", "-o", f"{name}/page") == 0
    assert json.loads((tmp_path / name / "plan" / "plan.json").read_text("utf-8"))["tokens"]
    capfd.readouterr()
    assert call(monkeypatch, "insert", "gpt2", f"{name}/plan", "-o", f"{name}/inserted") == 2
    assert "UTF-8" in capfd.readouterr().err and not (tmp_path / name / "inserted").exists()
