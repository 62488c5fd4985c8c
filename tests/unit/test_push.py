"""What `push` would send, and what it refuses to; no hub is there to send to."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tokengraft as tg
from tokengraft.cli.app import app
from tokengraft.core.errors import TokengraftError, UsageError


@pytest.fixture(scope="module")
def grafted(tmp_path_factory: pytest.TempPathFactory) -> tg.Grafted:
    pytest.importorskip("torch")
    out = tmp_path_factory.mktemp("graft") / "grafted"
    plan = tg.plan("rootstock", "shn", budget=3)
    return tg.graft("rootstock", plan, out=out, rows=np.zeros((3, 320), np.float32), verified=False)


class Hub:
    """Keeps what a real hub would be asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def create_repo(self, repo: str, **options: Any) -> None:
        self.asked.append({"repo": repo, **options})

    def upload_folder(self, **options: Any) -> SimpleNamespace:
        self.asked.append(options)
        return SimpleNamespace(commit_url="https://hub/commit/1")


def test_without_a_token_it_says_what_would_be_sent(
    grafted: tg.Grafted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    (grafted.folder / ".secret").write_text("x")
    sent = tg.push(grafted, "me/shan")
    names = [name for name, _ in sent.files]
    assert sent.url is None and sent.kind == "model" and "no token" in str(sent)
    assert {"README.md", "tokengraft.json", "model.safetensors"} <= set(names)
    assert ".secret" not in names
    ran = CliRunner().invoke(app, ["push", str(grafted.folder), "me/shan", "--json"])
    assert json.loads(ran.stdout)["files"] == dict(sent.files) and ran.exit_code == 1
    ran = CliRunner().invoke(app, ["push", str(grafted.folder), "me/shan", "--dry-run"])
    assert ran.exit_code == 0


def test_a_hub_gets_these_files_and_no_others(grafted: tg.Grafted) -> None:
    hub = Hub()
    sent = tg.push(grafted, "me/shan", private=True, api=hub)
    assert sent.url == "https://hub/commit/1"
    assert hub.asked[0] == {"repo": "me/shan", "repo_type": "model", "private": True,
                            "exist_ok": True}  # fmt: skip
    assert hub.asked[1]["allow_patterns"] == [name for name, _ in sent.files]


def test_a_graft_whose_files_changed_is_not_sent(grafted: tg.Grafted, tmp_path: Path) -> None:
    grafted.save(tmp_path / "copy")
    (tmp_path / "copy" / "config.json").write_text("{}")
    with pytest.raises(TokengraftError, match=r"config\.json has changed since"):
        tg.push(tmp_path / "copy", "me/shan", dry_run=True)


def test_other_results_are_datasets_and_pages_spaces(tmp_path: Path) -> None:
    tg.audit("udhr", "gpt2", "deu", resamples=0).save(tmp_path / "audit", figures=False)
    assert tg.push(tmp_path / "audit", "me/audit", dry_run=True).kind == "dataset"
    tg.report(tmp_path / "audit", tmp_path / "page")
    hub = Hub()
    assert tg.push(tmp_path / "page", "me/page", api=hub).kind == "space"
    assert hub.asked[0]["space_sdk"] == "static"
    with pytest.raises(UsageError, match="owner/name"):
        tg.push(tmp_path / "audit", "audit", dry_run=True)
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="neither a result nor a page here"):
        tg.push(tmp_path / "none", "me/none", dry_run=True)
