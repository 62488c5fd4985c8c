"""How much code there is: `python tools/house.py [SRC]` from the project's root.

A line for each package and one for all: modules, lines, lines of code, code tokens (as `tokenize`
sees them, without comments, docstrings and line ends), tokens a line of code, `fmt: skip`s. Before
that, functions written with more than 12 parameters.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
MOST_PARAMETERS = 12


def docstring_starts(tree: ast.Module) -> set[tuple[int, int]]:
    """Where the docstrings begin."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        (node.body[0].value.lineno, node.body[0].value.col_offset)
        for node in ast.walk(tree)
        if isinstance(node, owners)
        and ast.get_docstring(node, clean=False) is not None
        and isinstance(node.body[0], ast.Expr)
    }


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters a function takes, `self` among them."""
    listed = node.args
    many = (listed.vararg is not None) + (listed.kwarg is not None)
    return len(listed.posonlyargs) + len(listed.args) + len(listed.kwonlyargs) + many


def measure(text: str) -> tuple[Counter[str], list[tuple[str, int]]]:
    """The counts of one module, and its functions with too many parameters."""
    tree = ast.parse(text)
    skipped = docstring_starts(tree)
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in LAYOUT and token.start not in skipped
    ]
    lines = {n for token in tokens for n in range(token.start[0], token.end[0] + 1)}
    wide = [
        (node.name, parameters(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and parameters(node) > MOST_PARAMETERS
    ]
    counts = Counter(
        modules=1, lines=len(text.splitlines()), code=len(lines), tokens=len(tokens),
        skips=text.count("fmt: skip"), wide=len(wide),
    )  # fmt: skip
    return counts, wide


def main() -> None:
    """Print every package, then all of them."""
    source = Path(sys.argv[1] if len(sys.argv) > 1 else "src/tokengraft")
    if (source / "tokengraft").is_dir():
        source /= "tokengraft"
    packages: dict[str, Counter[str]] = {}
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source).parts
        counts, wide = measure(path.read_text("utf-8"))
        for name, number in wide:
            print(f"{path}: {name} takes {number} parameters")
        for package in (inside[0] if len(inside) > 1 else ".", "all"):
            packages.setdefault(package, Counter()).update(counts)
    packages["all"] = packages.pop("all", Counter())
    for package, c in packages.items():
        density = c["tokens"] / max(1, c["code"])
        print(
            package, c["modules"], c["lines"], c["code"], c["tokens"], f"{density:.2f}", c["skips"]
        )


main()
