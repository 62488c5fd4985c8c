"""Run the notebooks of the docs and put their outputs into them: python tools/notebooks.py."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
_AS = {"text/html": "_repr_html_", "image/png": "_repr_png_"}


def outputs(cells: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """What each code cell prints and shows, in the notebook format, run from top to bottom."""
    names: dict[str, Any] = {}
    return [_run("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]


def _run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    tree, value, printed = ast.parse(source), None, io.StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    made: list[dict[str, Any]] = []
    if text := printed.getvalue():
        made.append({"output_type": "stream", "name": "stdout", "text": _lines(text)})
    if value is not None:
        data: dict[str, Any] = {"text/plain": _lines(repr(value))}
        for kind, method in _AS.items():
            if hasattr(value, method):
                shown = getattr(value, method)()
                packed = base64.b64encode(shown).decode() if isinstance(shown, bytes) else None
                data[kind] = packed or _lines(shown)
        made.append({"output_type": "display_data", "data": data, "metadata": {}})
    return made


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run each notebook, or those named, in an empty folder, and write its outputs into it."""
    chosen = sys.argv[1:]
    for path in sorted(DOCS.glob("*.ipynb")):
        if chosen and path.stem not in chosen:
            continue
        notebook = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            made = iter(outputs(notebook["cells"]))
            os.chdir(DOCS)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"] = next(made)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
