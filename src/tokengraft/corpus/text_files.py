"""Text files line by line, plain or compressed: a file may be larger than memory."""

from __future__ import annotations

import contextlib
import lzma
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tokengraft.core.errors import CorpusError
from tokengraft.corpus.lines import decode

_PACKED = (".gz", ".xz", ".bz2", ".zst")


def stream_lines(paths: Sequence[Path]) -> Iterator[str]:
    """The lines of text files (plain, .gz, .xz, .bz2 or .zst) that hold anything, without ends.

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
    with _open(path) as file:
        for number, raw in enumerate(file, 1):
            yield decode(raw, str(path), number, start).removesuffix("\n").removesuffix("\r")
            start += len(raw)


def read_text_file(path: Path) -> bytes:
    """The bytes of a file, unpacked; what cannot be read or is damaged is a CorpusError."""
    with _open(path) as file:
        return file.read()


@contextlib.contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    suffix = path.suffix.lower()
    try:
        with path.open("rb") as raw:
            if suffix in _PACKED:
                from tokengraft.corpus.compressed import decompressed

                yield decompressed(raw, suffix[1:])
            else:
                yield raw
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise CorpusError(f"{path} cannot be read: it is damaged ({error}).") from error
