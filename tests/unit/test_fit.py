"""`fit` runs each step by its own command, once, and goes on where it was stopped."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")


@pytest.fixture
def ran(monkeypatch):
    """The commands that `fit` has run; one whose verb is in `failing` ends with 3."""
    commands: list[list[str]] = []
    failing: set[str] = set()

    def run(command, check):
        assert command[1:3] == ["-m", "tokengraft"] and not check
        commands.append(command[3:])
        return SimpleNamespace(returncode=3 if command[3] in failing else 0)

    monkeypatch.setattr(subprocess, "run", run)
    return SimpleNamespace(commands=commands, failing=failing)


def fit(tokengraft, out: Path, *more: str, code: int = 0):
    given = ("-l", "tam", "--text", "tamil.txt", "-o", out)
    ended = tokengraft("fit", "rootstock", *given, *more)
    assert ended.returncode == code, ended.stderr
    return ended


def test_each_step_is_a_command_and_done_once(tokengraft, ran, tmp_path) -> None:
    ran.failing.add("evaluate")
    fit(tokengraft, tmp_path / "out", "--minutes", "20", code=3)
    assert [command[0] for command in ran.commands] == ["plan", "graft", "evaluate"]
    trained = ran.commands[1]
    minutes = float(trained[trained.index("--minutes") + 1])
    assert 10 <= minutes < 19
    ran.failing.clear()
    ran.commands.clear()
    said = fit(tokengraft, tmp_path / "out", "--minutes", "20")
    assert [command[0] for command in ran.commands] == ["evaluate", "report"]
    assert "Done before: tokengraft graft rootstock" in said.stderr
    record = json.loads((tmp_path / "out" / "fit.json").read_text("utf-8"))
    assert record["steps"]["graft"]["command"] == trained


def test_what_is_asked_reaches_the_steps(tokengraft, ran, tmp_path) -> None:
    fit(tokengraft, tmp_path / "out", "--write", "--export", "--split", "devtest")
    plan, graft, evaluate, export, _ = ran.commands
    assert plan[-4:-2] == ["--boundaries", "portable"] and export[0] == "export"
    assert {"--policy", "write", "--train", "rows"} <= {*graft}
    assert evaluate[evaluate.index("--split") + 1] == "devtest"


def test_another_fit_is_not_gone_on_with(tokengraft, ran, tmp_path) -> None:
    fit(tokengraft, tmp_path / "out")
    refused = fit(tokengraft, tmp_path / "out", "--write", code=2)
    assert "holds another fit" in refused.stderr
