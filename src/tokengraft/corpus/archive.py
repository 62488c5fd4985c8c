"""A folder, an archive or a single file as one thing: names and their bytes.

Archives are read from their stream; nothing is written to disk, so a member's name can do
no harm.
"""

from __future__ import annotations

import contextlib
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tokengraft.core.errors import CorpusError
from tokengraft.core.limits import check_unpacked

TEXT = (".dev", ".devtest", ".txt")
PREFIXES = ("dev", "devtest")
TABLES = (".jsonl", ".parquet", ".tsv", ".csv")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2")
ARCHIVES = (*TARS, ".zip")

#: Folders this far below the given one are looked into (`NTREX/NTREX-128/newstest…`).
DEPTH = 3


@dataclass(frozen=True)
class Bundle:
    """The text and table files found at a path, by relative name with `/`, sorted."""

    where: str
    names: tuple[str, ...]
    _read: Callable[[str], bytes]
    _single: bool = False

    @property
    def title(self) -> str:
        """Its own name: what results say of where they come from, never a path of this machine."""
        return Path(self.where).resolve().name

    def read(self, name: str) -> bytes:
        """The bytes of one of `names`."""
        return self._read(name)

    def place(self, name: str) -> str:
        """`name` as a message shows it, with the folder or archive it is in."""
        return self.where if self._single else f"{name} in {self.where}"


#: What the standard library raises at damaged bytes; the last one at a name that is no UTF-8.
_DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, UnicodeDecodeError,
)  # fmt: skip


@contextlib.contextmanager
def open_bundle(path: Path) -> Iterator[Bundle]:
    """The files at `path`; what cannot be read or is no archive is a CorpusError."""
    try:
        if path.is_dir():
            yield _folder(path)
        elif path.name.lower().endswith(TARS):
            yield _tar(path)
        elif path.name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as file:
                yield _zip(path, file)
        elif path.suffix.lower() in TABLES:
            yield Bundle(str(path), (path.name,), lambda _: path.read_bytes(), _single=True)
        else:
            yield Bundle(str(path), (), lambda _: b"")
    except _DAMAGE as error:
        raise CorpusError(
            f"{path} is damaged or not an archive: {error}. Download it again."
        ) from None
    except (NotImplementedError, RuntimeError) as error:
        # zipfile reports an unknown compression and a password so.
        raise CorpusError(f"{path} cannot be read here: {error}. Unpack it to a folder.") from None
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}.") from None


def _folder(path: Path) -> Bundle:
    names = []
    for folder, subfolders, files in os.walk(path):
        below = Path(folder).relative_to(path)
        if len(below.parts) >= DEPTH:
            subfolders.clear()
        names += [(below / name).as_posix() for name in files]
    wanted = tuple(sorted(filter(_is_wanted, names)))
    return Bundle(str(path), wanted, lambda name: (path / name).read_bytes())


def _zip(path: Path, file: zipfile.ZipFile) -> Bundle:
    for info in file.infolist():
        if not info.flag_bits & 1:  # encrypted
            file.open(info).close()  # a name that is damaged would else only be left out
    sizes = {info.filename: info.file_size for info in file.infolist() if not info.is_dir()}
    wanted = tuple(sorted(filter(_is_wanted, sizes)))
    check_unpacked(sum(sizes[name] for name in wanted), path, CorpusError)
    return Bundle(str(path), wanted, file.read)


def _tar(path: Path) -> Bundle:
    contents: dict[str, bytes] = {}
    size = 0
    with tarfile.open(path) as file:
        for member in file:
            if not member.isfile() or not _is_wanted(member.name):
                continue
            size += member.size
            check_unpacked(size, path, CorpusError)
            stream = file.extractfile(member)
            contents[member.name] = stream.read() if stream else b""
    return Bundle(str(path), tuple(sorted(contents)), contents.__getitem__)


def _is_wanted(name: str) -> bool:
    path = PurePosixPath(name)
    # Hidden files are what macOS adds to archives (`._eng_Latn.dev`) and hubs to folders.
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
    wanted = path.suffix.lower() in (*TEXT, *TABLES) or path.stem in PREFIXES
    return not hidden and wanted
