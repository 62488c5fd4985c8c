"""Halve the bundled UDHR: text to choose tokens and train rows on, and a corpus to judge by.

Usage: python tools/split_udhr.py OUT CODE … writes OUT/text/CODE.txt (every other unit) and
OUT/held-out.tsv (the rest, with English).
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokengraft.core.files import write_text
from tokengraft.corpus import load


def main(out: Path, codes: list[str]) -> None:
    """Write both halves; a unit that is missing in one of the languages goes into neither."""
    corpus = load("udhr")
    columns = ["eng_Latn", *codes]
    rows = [
        row
        for row in zip(*(corpus.texts[code] for code in columns), strict=True)
        if None not in row
    ]
    for number, code in enumerate(columns[1:], start=1):
        lines = [str(row[number]) for row in rows[::2]]
        write_text(out / "text" / f"{code}.txt", "\n".join(lines) + "\n")
    table = ["\t".join(columns), *("\t".join(map(str, row)) for row in rows[1::2])]
    write_text(out / "held-out.tsv", "\n".join(table) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
