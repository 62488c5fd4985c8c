"""Packages import only from lower layers, and the command line starts without heavy imports."""

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
SOURCES = {name: path.read_text("utf-8") for name, path in FILES.items()}

#: Lowest first. A package may import from itself and from what stands before it.
FLOORS = (
    "core", "languages", "tokenizer", "corpus", "engine", "model", "auditing", "planning",
    "deriving", "grafting", "evaluating", "serving", "render", "paper", "api", "cli",
)  # fmt: skip
#: The package itself offers everything under one name; `python -m tokengraft` is the command; a
#: plugin's commands are verbs of the command line.
ROOFS = {"tokengraft", "tokengraft.__main__", "tokengraft.paper.commands"}
#: Verbs as users write them, in Python and on the command line: every option has its keyword.
VERBS = ("tokengraft.cli.", "tokengraft.api.verbs", "tokengraft.api.compare")


def imported(source: str, modules: set[str]) -> Iterator[str]:
    """Modules of ours that `source` imports anywhere: in functions, for types, or by their name.

    A string that is the name of a module counts too, so that `importlib` is no way round.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            if "." in name and name in modules:
                yield name


def order(sources: dict[str, str]) -> list[str]:
    """Modules so that each comes after what it imports; CycleError where there is no such order."""
    modules = set(sources)
    graph = {
        name: set(imported(text, modules)) - {name}
        for name, text in sources.items()
        if name not in ROOFS
    }
    return list(TopologicalSorter(graph).static_order())


def upward(sources: dict[str, str]) -> set[tuple[str, str]]:
    """Each module that imports from a higher layer, with that layer."""
    return {
        (name, floor)
        for name, text in sources.items()
        if name not in ROOFS
        for floor in {to.split(".")[1] for to in imported(text, set(sources)) if to not in ROOFS}
        if FLOORS.index(floor) > FLOORS.index(name.split(".")[1])
    }


def test_every_package_has_its_floor():
    packages = {name.split(".")[1] for name in FILES if name not in ROOFS}
    assert packages <= set(FLOORS)


def test_packages_look_down_only():
    assert upward(SOURCES) == set()


@pytest.mark.parametrize(
    "planted",
    [
        "from tokengraft.cli.main import run",
        "def later():\n    from tokengraft.cli import main",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tokengraft.cli.main",
        "import importlib\nimportlib.import_module('tokengraft.cli.main')",
    ],
)
def test_an_upward_import_is_seen(planted):
    sources = {**SOURCES, "tokengraft.core.planted": planted}
    assert ("tokengraft.core.planted", "cli") in upward(sources)


def test_nothing_imports_the_plugin():
    """It is loaded by the name of a row or a verb, and only then."""
    inside = {
        name for name, text in SOURCES.items() if not name.startswith("tokengraft.paper")
        for to in imported(text, set(SOURCES)) if to.startswith("tokengraft.paper")
    }  # fmt: skip
    assert inside == set()
    code = "import sys, tokengraft.cli.app, tokengraft.api.verbs, tokengraft.serving; print(sorted("
    code += "name for name in sys.modules if name.startswith('tokengraft.paper')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_no_import_cycles():
    order(SOURCES)


def test_a_cycle_through_a_function_is_seen():
    with pytest.raises(CycleError):
        order({"a": "import b", "b": "def f():\n    from a import x"})


def recycled(sources: dict[str, str]) -> set[str]:
    """Names that more than one public class has."""
    names = [
        node.name
        for text in sources.values()
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    return {name for name in names if names.count(name) > 1}


def test_one_name_is_one_class():
    assert recycled(SOURCES) == set()
    assert recycled({"a.b": "class Cell: ...\n", "c.d": "class Cell: ...\n"}) == {"Cell"}


def test_verbs_take_every_option_by_its_name():
    """`help()` and an editor can then show what there is."""
    for node in ast.parse(SOURCES["tokengraft.api.verbs"]).body:
        assert not isinstance(node, ast.FunctionDef) or node.args.kwarg is None, node.name


def unread(source: str) -> set[tuple[str, str]]:
    """Parameters that a function never reads: an option of a command would do nothing."""
    return {
        (node.name, one.arg)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        for one in (*node.args.args, *node.args.kwonlyargs)
        if one.arg not in {n.id for line in node.body for n in ast.walk(line) if hasattr(n, "id")}
    }


def test_every_option_is_read():
    verbs = {name: text for name, text in SOURCES.items() if name.startswith(VERBS)}
    methods = {"self", "cls"}
    for name, text in verbs.items():
        assert {pair for pair in unread(text) if pair[1] not in methods} == set(), name
    assert unread("def plan(a, same_size):\n    return a\n") == {("plan", "same_size")}


def test_the_command_line_starts_light():
    """A second of imports before `--help` is a second too long."""
    heavy = {"polars", "scipy", "torch", "transformers", "tokenizers", "matplotlib", "ray"}
    code = f"import sys, tokengraft.cli.app; print(sorted({heavy} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
