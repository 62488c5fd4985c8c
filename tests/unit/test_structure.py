"""Packages import only from lower layers, and the command line starts without heavy imports."""

from __future__ import annotations

import ast
import re
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
    "deriving", "grafting", "evaluating", "serving", "reproduce", "render", "api", "cli",
)  # fmt: skip
#: The package itself offers everything under one name; `python -m tokengraft` is the command.
ROOFS = {"tokengraft", "tokengraft.__main__"}
MOST_LINES = 500  # of a module
MOST_PARAMETERS = 8  # of a function; more are asking for a small frozen object
#: Verbs as users write them, in Python and on the command line: every option has its keyword.
VERBS = ("tokengraft.cli.", "tokengraft.api.verbs", "tokengraft.api.compare")
#: Names that say nothing of what is inside.
ANYTHING = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}


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


def test_no_import_cycles():
    order(SOURCES)


def test_a_cycle_through_a_function_is_seen():
    with pytest.raises(CycleError):
        order({"a": "import b", "b": "def f():\n    from a import x"})


def shapeless(sources: dict[str, str]) -> set[str]:
    """Modules that hold more than one idea: over 500 lines, or named as a place for anything."""
    long = {name for name, text in sources.items() if text.count("\n") > MOST_LINES}
    return long | {name for name in sources if ANYTHING & set(re.split(r"[._]", name))}


def test_a_module_is_one_idea():
    assert shapeless(SOURCES) == set()


def test_a_shapeless_module_is_seen():
    planted = {"a.long": "x = 1\n" * 501, "a.text_utils": "", "helpers.b": "", "a.fine": "x = 1\n"}
    assert shapeless(planted) == {"a.long", "a.text_utils", "helpers.b"}


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


def crowded(sources: dict[str, str]) -> set[tuple[str, str, int]]:
    """Functions that take more than eight parameters, `self` and `cls` not counted."""
    many = set()
    for name, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                count = sum(one.arg not in ("self", "cls") for one in every)
                if count > MOST_PARAMETERS and not name.startswith(VERBS):
                    many.add((name, node.name, count))
    return many


def test_no_function_takes_more_than_eight_parameters():
    assert crowded(SOURCES) == set()


def test_a_crowded_function_is_seen():
    names = ", ".join("abcdefghi")
    planted = {
        "x.y": f"class A:\n    def f(self, *, {names}): ...\n",
        "x.z": f"def g({names[:-3]}): ...\n",
        "tokengraft.cli.z": f"def verb({names}): ...\n",
    }
    assert crowded(planted) == {("x.y", "f", 9)}


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


def called_anything(sources: dict[str, str]) -> set[tuple[str, int]]:
    """Where a variable is called `found` or `told`, which does not say what it holds."""
    return {
        (name, node.lineno)
        for name, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Name) and node.id in ("found", "told"))
        or (isinstance(node, ast.arg) and node.arg in ("found", "told"))
    }


def test_variables_say_what_they_hold():
    assert called_anything(SOURCES) == set()
    planted = {"x": "def f(found):\n    premiums = found\n    told = premiums\n"}
    assert called_anything(planted) == {("x", 1), ("x", 2), ("x", 3)}


def test_the_command_line_starts_light():
    """A second of imports before `--help` is a second too long."""
    heavy = {"polars", "scipy", "torch", "transformers", "tokenizers", "matplotlib", "ray"}
    code = f"import sys, tokengraft.cli.app; print(sorted({heavy} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
