"""Text files line by line, plain or compressed: a file may be larger than memory."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from tokengraft.corpus.lines import decode
from tokengraft.errors import CorpusError


def stream_lines(paths: Sequence[Path]) -> Iterator[str]:
    """The lines of text files (plain, .gz or .xz) that hold anything, without their ends.

    Broken UTF-8, NUL bytes, a damaged archive, and files without a line are errors.
    """
    empty = True
    for path in paths:
        for line in _lines(path):
            if line and not line.isspace():
                empty = False
                yield line
    if empty:
        raise CorpusError(f"{', '.join(map(str, paths))}: no line of text in there")


def _lines(path: Path) -> Iterator[str]:
    start = 0
    try:
        with _open(path) as file:
            for number, raw in enumerate(file, 1):
                yield decode(raw, str(path), number, start).removesuffix("\n").removesuffix("\r")
                start += len(raw)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise CorpusError(f"{path}: cannot be read ({error})") from error


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path))
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")
