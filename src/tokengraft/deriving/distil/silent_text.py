"""Text in which new tokens have no business: English, code, and what the user gives.

On every machine there are the Universal Declaration in English and a few other languages (bundled),
the help pages that come with Python (English about code), and source code of Python's library.
Passages in which the new tokenizer emits a new token are left out: there it belongs.

How well such text was kept is judged by other text, which is never trained on: docstrings and code
of other modules of that library.
"""

from __future__ import annotations

import ast
import functools
import importlib
import sysconfig
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np

from tokengraft.corpus import udhr
from tokengraft.corpus.lines_of import spaced
from tokengraft.deriving.distil.passages import cut
from tokengraft.tokenizer.align import Aligner, Ints

_ENGLISH = "eng_Latn"
_OTHERS = ("fra_Latn", "rus_Cyrl", "arb_Arab", "hin_Deva", "zho_Hans", "jpn_Jpan")
_MOST = 1200  # passages
_UNTRAINED = 200  # lines of a kind
#: Modules of Python's library that have hardly changed for years: code to train on.
_TRAINED_ON = (
    "bdb", "code", "colorsys", "configparser", "copy", "csv", "filecmp", "fileinput", "fnmatch",
    "getopt", "graphlib", "hmac", "html/parser", "http/cookiejar", "json/decoder", "json/encoder",
    "linecache", "netrc", "ntpath", "numbers", "pprint", "quopri", "reprlib", "shelve", "shlex",
    "stringprep", "tabnanny", "timeit", "trace", "wave", "weakref", "wsgiref/handlers",
    "xml/dom/minidom",
)  # fmt: skip
#: Modules that say much about other things than themselves: to judge by.
_JUDGED_BY = (
    "argparse", "bisect", "calendar", "cmd", "datetime", "decimal", "difflib", "doctest",
    "fractions", "functools", "gettext", "heapq", "imaplib", "inspect", "ipaddress", "mailbox",
    "optparse", "os", "pathlib", "pickle", "plistlib", "poplib", "queue", "random", "sched",
    "selectors", "shutil", "smtplib", "statistics", "string", "subprocess", "tarfile", "tempfile",
    "textwrap", "threading", "turtle", "urllib/request", "uuid", "zipfile",
)  # fmt: skip


def bundled(most: int = _MOST) -> Iterator[str]:
    """Lines that every machine has, kinds in turn, so that a limit leaves some of each."""
    corpus = udhr.load([_ENGLISH, *_OTHERS])
    english = list(corpus.lines(_ENGLISH))
    others = [line for code in _OTHERS for line in corpus.lines(code)[::6]]
    kinds = (english, _help_pages(most // 2), _code(most // 4), others)
    for group in zip_longest(*kinds):
        yield from (line for line in group if line)


@functools.cache
def untrained() -> dict[str, list[str]]:
    """Lines of English and of code that are never trained on, by kind.

    Empty where this Python comes without the sources of its library.
    """
    english: list[str] = []
    code: list[str] = []
    for name in _JUDGED_BY:
        tree = ast.parse(_source(name))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (
                said := ast.get_docstring(node)
            ):
                english += [" ".join(block.split()) for block in said.split("\n\n")]
                node.body = node.body[1:] or [ast.Pass()]
            if isinstance(node, ast.FunctionDef):
                code.append(ast.unparse(node))
    kinds = {"English": english, "code": code}
    return {
        kind: spaced([x for x in lines if len(x) > 60], _UNTRAINED) for kind, lines in kinds.items()
    }


def silent_passages(
    given: Iterable[str], aligner: Aligner, rows: int, characters: int, seed: int,
    most: int = _MOST,
) -> list[Ints]:  # fmt: skip
    """Old ids of at most `most` passages without a new token, `given` and bundled ones in turn."""
    generator = np.random.default_rng([seed, 3])
    lots = [_passages(lines, characters) for lines in (given, bundled(most))]
    lots[0] = [lots[0][n] for n in generator.permutation(len(lots[0]))[:most]]
    passages = []
    for pair in zip_longest(*lots):
        passages += [one for one in pair if one]
    kept = []
    for one in aligner(passages[: 2 * most]):
        if len(one.old) > 2 and np.array_equal(one.old, one.new) and (one.old < rows).all():
            kept.append(one.old[:256])
    return kept[:most]


def _passages(lines: Iterable[str], characters: int) -> list[str]:
    distinct = dict.fromkeys(line.strip() for line in lines)
    return [piece for line in distinct if line for piece in cut(line, characters)]


def _help_pages(most: int) -> list[str]:
    """At most `most` paragraphs of Python's help; none where this Python comes without it."""
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except (ImportError, AttributeError):
        return []
    paragraphs = [" ".join(p.split()) for _, t in sorted(topics.items()) for p in t.split("\n\n")]
    return spaced([p for p in paragraphs if len(p) > 60], most)


def _code(most: int) -> list[str]:
    """At most `most` blocks of code."""
    blocks = [block for name in _TRAINED_ON for block in _source(name).split("\n\n")]
    return spaced([block for block in blocks if len(block) > 60], most)


def _source(module: str) -> str:
    """The source of a module of Python's library; nothing where this Python comes without it."""
    file = Path(sysconfig.get_path("stdlib")) / f"{module}.py"
    return file.read_text(encoding="utf-8") if file.is_file() else ""
