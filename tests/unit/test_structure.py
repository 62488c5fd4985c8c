"""The shape of the package: modules that can be read alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tokengraft

ROOT = Path(tokengraft.__file__).parent.parent
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "tokengraft").rglob("*.py")
}


def imported(source: str, modules: set[str]) -> Iterator[str]:
    """Modules of the package that are imported anywhere: in functions and for types too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module


def order(sources: dict[str, str]) -> list[str]:
    """Modules so that each comes after what it imports; CycleError where there is no such order.

    The package itself, which offers everything under one name, imports it all when it is used.
    """
    modules = set(sources)
    graph = {
        name: set(imported(text, modules)) - {name}
        for name, text in sources.items()
        if name != "tokengraft"
    }
    return list(TopologicalSorter(graph).static_order())


def test_no_import_cycles():
    order({name: path.read_text("utf-8") for name, path in FILES.items()})


def test_a_cycle_through_a_function_is_seen():
    with pytest.raises(CycleError):
        order({"a": "import b", "b": "def f():\n    from a import x"})


def test_modules_are_short():
    lines = {name: path.read_text("utf-8").count("\n") for name, path in FILES.items()}
    assert {name: count for name, count in lines.items() if count > 300} == {}


def test_the_command_line_starts_light():
    """A second of imports before `--help` is a second too long."""
    heavy = {"polars", "scipy", "torch", "transformers", "tokenizers", "matplotlib", "ray"}
    code = f"import sys, tokengraft.cli.app; print(sorted({heavy} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
