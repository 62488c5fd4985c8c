"""Every notebook of the docs runs from top to bottom, and shows what it shows when it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from notebooks import outputs

pytest.importorskip("torch")
DOCS = Path(__file__).parents[2] / "docs"
MODEL = "walk"  # its figures are a model's, which differ in the last digits between machines


@pytest.mark.parametrize("notebook", sorted(DOCS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_it_shows_what_is_committed(notebook, tmp_path, monkeypatch):
    """Made again by `python tools/notebooks.py`; pictures are only there, not compared."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    monkeypatch.chdir(tmp_path)
    made = outputs(cells)
    committed = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    assert made and any(committed)
    assert [list(map(_kinds, one)) for one in made] == [list(map(_kinds, one)) for one in committed]
    assert "/tmp" not in json.dumps(committed)
    if notebook.stem != MODEL:
        assert [list(map(_text, one)) for one in made] == [
            list(map(_text, one)) for one in committed
        ]


def _kinds(output: dict[str, Any]) -> list[str]:
    return sorted(output.get("data", {"stream": None}))


def _text(output: dict[str, Any]) -> Any:
    return output.get("text") or output["data"]["text/plain"]
