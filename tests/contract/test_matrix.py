"""The cheap part of `make matrix`: kinds of plans under one tiny tokenizer that looks up words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
pytest.importorskip("torch")
pytest.importorskip("gguf", reason="needs the extra serve")
import test_graft_tiny as tiny

import matrix


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny.make(tmp_path_factory.mktemp("matrix") / "base", "llama-tied")
    tiny.edit(made / "tokenizer.json", lambda value: value["model"].update(ignore_merges=True))
    return made


@pytest.mark.parametrize(
    ("asked", "became"),
    [
        ("kept", "rows, 120: gpt-2"),
        ("relaxed", "write, 120: export refused"),
        ("protect", "rows, 120: gpt-2"),
        ("mixed", "write, 120: export refused"),
        ("paper", "rows"),
        ("lanes", "lanes, 60: gpt-2"),
    ],
)
def test_a_plan_becomes_a_model(asked: str, became: str, base: Path, tmp_path: Path) -> None:
    outcome = matrix.cell(base, "llama-3", asked, tmp_path)
    assert outcome.startswith(became), outcome


def test_what_goes_wrong_is_a_failed_cell(base: Path, tmp_path: Path) -> None:
    broken = tiny.copy(base, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"")
    assert matrix.cell(broken, "llama-3", "kept", tmp_path).startswith("FAIL: ")
