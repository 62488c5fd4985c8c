"""Every notebook of the docs runs from top to bottom, as a reader would run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("notebook", sorted(DOCS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_it_runs(notebook, tmp_path, monkeypatch):
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(code), str(notebook), "exec"), {})
