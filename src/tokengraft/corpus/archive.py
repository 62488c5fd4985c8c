r"""A folder, an archive or a single file, all read the same way: names and their bytes.

Archives are read as streams; nothing is unpacked to disk, so a member's name can do no harm.

A file, compressed or plain, can also be read as lines of bounded length in constant memory. Lines
end at `\n` only. A stream that is cut off, or goes on with garbage, is `Broken`: the rows read so
far must not be counted.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from tokengraft.core.errors import CorpusError, optional
from tokengraft.core.untrusted import (
    check_unpacked,
    most_unpacked,
    read_bounded,
    read_tar,
    refuse_links_out,
)
from tokengraft.corpus.shards import COMPRESSIONS

TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2")
ARCHIVES = (*TARS, ".zip")

#: How far below the given folder files are looked for (`NTREX/NTREX-128/newstest…`).
DEPTH = 3


@dataclass(frozen=True)
class Bundle:
    """The text and table files found at a path, by relative name with `/`, sorted."""

    where: str
    names: tuple[str, ...]
    _read: Callable[[str], bytes]
    _single: bool = False
    skip_empty: bool = False  # leave units out that have an empty line in a language

    @property
    def title(self) -> str:
        """The last part of the path: results name their source by it, never by a machine's path."""
        return Path(self.where).resolve().name

    def read(self, name: str) -> bytes:
        """The bytes of one of `names`."""
        return self._read(name)

    def place(self, name: str) -> str:
        """`name` as a message shows it, with the folder or archive it is in."""
        return self.where if self._single else f"{name} in {self.where}"


#: What the standard library raises on damaged bytes; the last, on a name that is not UTF-8.
_DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, UnicodeDecodeError,
)  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """Which files are text: those of one of these suffixes, or of one of these stems.

    A single file is a corpus if its suffix is one of `alone`.
    """

    suffixes: frozenset[str]
    stems: frozenset[str]
    alone: frozenset[str]

    def __call__(self, name: str) -> bool:
        path = PurePosixPath(name)
        # macOS adds hidden files to archives (`._eng_Latn.dev`), and hubs add them to folders.
        hidden = any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
        return not hidden and (path.suffix.lower() in self.suffixes or path.stem in self.stems)


@contextlib.contextmanager
def open_bundle(path: Path, wanted: Wanted) -> Iterator[Bundle]:
    """The files at `path`; a CorpusError if it cannot be read, or is a damaged archive."""
    try:
        if path.is_dir():
            yield _folder(path, wanted)
        elif path.name.lower().endswith(TARS):
            yield _tar(path, wanted)
        elif path.name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as file:
                yield _zip(path, file, wanted)
        elif path.suffix.lower() in wanted.alone:
            yield Bundle(
                str(path), (path.name,), lambda _: read_bounded(path, CorpusError), _single=True
            )
        else:
            yield Bundle(str(path), (), lambda _: b"")
    except _DAMAGE as error:
        raise CorpusError(
            f"{path} is damaged or not an archive: {error}. Download it again."
        ) from None
    except (NotImplementedError, RuntimeError) as error:
        # This is how zipfile reports an unknown compression or a password.
        raise CorpusError(f"{path} cannot be read here: {error}. Unpack it to a folder.") from None
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}.") from None


def _folder(path: Path, is_wanted: Wanted) -> Bundle:
    refuse_links_out(path, CorpusError, is_wanted)
    names = []
    for folder, subfolders, files in os.walk(path):
        below = Path(folder).relative_to(path)
        if len(below.parts) >= DEPTH:
            subfolders.clear()
        names += [(below / name).as_posix() for name in files if (path / below / name).is_file()]
    wanted = tuple(sorted(filter(is_wanted, names)))
    return Bundle(str(path), wanted, lambda name: read_bounded(path / name, CorpusError))


def _zip(path: Path, file: zipfile.ZipFile, is_wanted: Wanted) -> Bundle:
    for info in file.infolist():
        if not info.flag_bits & 1:  # encrypted
            file.open(info).close()  # raises if a name is damaged, which would else be skipped
    sizes = {info.filename: info.file_size for info in file.infolist() if not info.is_dir()}
    wanted = tuple(sorted(filter(is_wanted, sizes)))
    check_unpacked(sum(sizes[name] for name in wanted), path, CorpusError)
    return Bundle(str(path), wanted, file.read)


def _tar(path: Path, is_wanted: Wanted) -> Bundle:
    contents = read_tar(path, is_wanted, CorpusError)
    return Bundle(str(path), tuple(sorted(contents)), contents.__getitem__)


BLOCK = 1 << 20
# A zstd block of 4 bytes can stand for 128 KiB, so this bounds the output of a step to 64 MiB.
_ZSTD_STEP = 2048


class Broken(Exception):
    """A file that cannot be read to its end; the message says why."""


def decompressed(raw: BinaryIO, compression: str) -> BinaryIO:
    """`raw` as a decompressed stream; damage shows only while reading (see `bounded_lines`)."""
    if compression == "gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if compression == "xz":
        return cast(BinaryIO, lzma.LZMAFile(raw))
    if compression == "bz2":
        return cast(BinaryIO, bz2.BZ2File(raw))
    if compression == "zst":
        return cast(BinaryIO, io.BufferedReader(_Zstd(raw), BLOCK))
    return raw


def read_file(path: Path) -> bytes:
    """The decompressed bytes of a file; a CorpusError if it cannot be read or is damaged."""
    try:
        with path.open("rb") as raw:
            suffix = path.suffix.lower()
            if suffix not in COMPRESSIONS:
                return read_bounded(path, CorpusError, stream=raw)
            most = most_unpacked(path.stat().st_size)
            return read_bounded(path, CorpusError, most, decompressed(raw, suffix[1:]))
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        raise CorpusError(f"{path} cannot be read: it is damaged ({error}).") from error


def bounded_lines(
    stream: BinaryIO, limit: int, start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, bytes | None]]:
    """(offset, line) of every line that begins in [start, stop), None for one above `limit` bytes.

    Adjacent ranges together give every line exactly once, wherever they are cut. Memory is bounded
    by `limit` plus a block, however long a line is. `stream` must be seekable unless `start` is 0.
    """
    offset = start
    inside = False  # inside a line that is to be skipped
    if start:
        stream.seek(start - 1)
        offset, inside = start - 1, True
    tail = b""  # the line that begins at `offset`, as far as it has been read
    while block := _read(stream):
        if inside:
            end = block.find(b"\n")
            if end < 0:
                offset += len(block)
                if stop is not None and offset >= stop:
                    return
                continue
            offset, block, inside = offset + end + 1, block[end + 1 :], False
        lines = (tail + block).split(b"\n")
        tail = lines.pop()
        for line in lines:
            if stop is not None and offset >= stop:
                return
            yield offset, line if len(line) <= limit else None
            offset += len(line) + 1
        if stop is not None and offset >= stop:
            return
        if len(tail) > limit:
            yield offset, None
            offset, tail, inside = offset + len(tail), b"", True
    if tail and (stop is None or offset < stop):
        yield offset, tail


def _read(stream: BinaryIO) -> bytes:
    try:
        return stream.read(BLOCK)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise Broken(f"damaged or cut off ({error})") from error
    except OSError as error:
        if error.errno is None:  # what bz2 raises on damage
            raise Broken(f"damaged or cut off ({error})") from error
        raise


class _Zstd(io.RawIOBase):
    """A file's zstd frames as one stream.

    zstandard's own stream reader does not notice that a file is cut off.
    """

    def __init__(self, raw: BinaryIO) -> None:
        zstandard = optional("zstandard", "Reading .zst files", "scale")
        self._raw = raw
        self._error = zstandard.ZstdError
        self._new: Any = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj
        self._frame: Any = None
        self._pending = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._step():
                return 0
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _step(self) -> bool:
        if not self._pending:
            self._pending = self._raw.read(1 << 16)
            if not self._pending:
                if self._frame is not None:
                    raise EOFError("the last zstd frame is not complete")
                return False
        if self._frame is None:
            self._frame = self._new()
        step, self._pending = self._pending[:_ZSTD_STEP], self._pending[_ZSTD_STEP:]
        try:
            self._ready = memoryview(self._frame.decompress(step))
        except self._error as error:
            raise EOFError(f"not zstd: {error}") from error
        if self._frame.eof:
            self._pending = self._frame.unused_data + self._pending
            self._frame = None
        return True
