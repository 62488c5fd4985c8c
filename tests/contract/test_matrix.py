"""The cheap part of `make matrix`: kinds of plans under one tiny tokenizer that looks up words."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gguf", reason="needs the extra serve")
import matrix
from helpers import tiny_models as tiny


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Tiny models by whether their tokenizer looks up words before it merges."""
    root = tmp_path_factory.mktemp("matrix")
    made = {whole: tiny.make(root / str(whole), "llama-tied") for whole in (False, True)}
    tiny.edit(made[True] / "tokenizer.json", lambda v: v["model"].update(ignore_merges=True))
    return made


@pytest.mark.parametrize(
    ("asked", "whole", "became"),
    [
        ("kept", False, "rows, 120: gpt-2"),
        ("relaxed", True, "write, 120: export refused"),
        # llama.cpp looks no words up where it cuts as GPT-2 does: export must know.
        ("protect", True, "rows, 120: export refused"),
        ("lanes", False, "lanes, 60: gpt-2"),
    ],
)
def test_a_plan_becomes_a_model(
    asked: str, whole: bool, became: str, bases: dict[bool, Path], tmp_path: Path
) -> None:
    outcome = matrix.cell(bases[whole], "llama-3", asked, tmp_path)
    assert outcome == became


def test_what_goes_wrong_is_a_failed_cell(bases: dict[bool, Path], tmp_path: Path) -> None:
    broken = tiny.copy(bases[False], tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"")
    assert matrix.cell(broken, "llama-3", "kept", tmp_path).startswith("FAIL: ")
