"""The files of a large corpus: by glob or folder, on local disk or any fsspec URL."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, get_args

from tokengraft.core.errors import CorpusError, MissingExtra, UsageError, did_you_mean

Format = Literal["jsonl", "text", "parquet"]
COMPRESSIONS = {".gz": "gz", ".zst": "zst", ".xz": "xz", ".bz2": "bz2"}
SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
    ".text": "text",
    ".parquet": "parquet",
    ".pq": "parquet",
}
TABLES = {".tsv", ".csv"}  # read whole, as parallel text, but never streamed
_PIPE = "pipe"  # the stamp of what can be read once only


@dataclass(frozen=True)
class File:
    """One file as it was when the run began; `stamp` changes whenever its contents do."""

    url: str  # an absolute path, or an fsspec URL
    size: int
    stamp: str
    format: Format
    compression: str = ""  # "", gz, zst, xz or bz2

    def open(self) -> BinaryIO:
        """The raw bytes, seekable; a file that is gone or not readable is a CorpusError."""
        try:
            if _remote(self.url):
                opened: BinaryIO = _fsspec().open(self.url, "rb").open()
                return opened
            return Path(self.url).open("rb")
        except OSError as error:
            raise CorpusError(
                f"{self.url} cannot be read: {error.strerror or error}. Every worker must see the "
                f"same files under the same path: use shared storage or a URL."
            ) from error

    @property
    def piped(self) -> bool:
        """Whether it is a pipe or a device: of unknown size, and gone once it was read."""
        return self.stamp == _PIPE

    def require_unchanged(self) -> None:
        """Raise a CorpusError if the file is no longer what it was when the run began."""
        size, stamp = _stat(self.url)
        if (size, stamp) != (self.size, self.stamp):
            raise CorpusError(
                f"{self.url} changed while it was being read ({self.size:,} → {size:,} bytes); "
                f"run again when nothing writes to it."
            )


def find_files(
    sources: str | Path | Iterable[str | Path],
    format_: Format | None = None,
    otherwise: Format | None = None,
) -> list[File]:
    """Every file meant by `sources` (paths, folders, globs, URLs), each once, sorted by name.

    The format follows from the suffix unless given, and is `otherwise` where the suffix says
    nothing; without that, such a suffix is a UsageError. A source that matches nothing is a
    CorpusError.
    """
    if format_ is not None and format_ not in get_args(Format):
        known = get_args(Format)
        raise UsageError(
            f"No format {format_!r}: write {', '.join(known)}.{did_you_mean(format_, known)}"
        )
    urls: dict[str, None] = {}
    for source in [sources] if isinstance(sources, str | Path) else sources:
        found = _expand(str(source))
        if not found:
            if Path(source).expanduser().is_dir():
                raise CorpusError(f"{source}: no JSONL, text or Parquet file in there.")
            raise CorpusError(f"{source}: no such file, and no file matches it as a pattern.")
        urls.update(dict.fromkeys(found))
    return [_describe(url, format_, otherwise) for url in sorted(urls)]


def _expand(source: str) -> list[str]:
    if _remote(source):
        system, path = _fsspec().core.url_to_fs(source)
        if not glob.has_magic(path) and system.isdir(path):
            path = path.rstrip("/") + "/**"
        matches = system.glob(path) if glob.has_magic(path) else [path]
        return [str(system.unstrip_protocol(match)) for match in matches if system.isfile(match)]
    path = os.path.expanduser(source)  # noqa: PTH111 - Path would drop a trailing slash's meaning
    if Path(path).is_dir():
        paths = [p for p in Path(path).rglob("*") if p.is_file() and _format(p.name) is not None]
    elif Path(path).exists():  # before globbing: a name may hold brackets
        paths = [Path(path)]
        if not paths[0].is_file():
            return [path]  # a pipe, whose real path is a name of no file
    else:
        paths = [Path(p) for p in glob.glob(path, recursive=True)]  # noqa: PTH207 - absolute ones
    return [str(p.resolve()) for p in paths if p.is_file()]


def _describe(url: str, format_: Format | None, otherwise: Format | None) -> File:
    size, stamp = _stat(url)
    chosen = format_ or _format(url)
    if chosen is None and TABLES & {s.lower() for s in PurePosixPath(url).suffixes[-2:]}:
        raise UsageError(
            f"{url}: TSV and CSV cannot be streamed; JSONL, Parquet and plain text can. A parallel "
            f"table that fits into memory is read without --stream; else write it as JSONL or "
            f"Parquet."
        )
    chosen = chosen or otherwise
    if chosen is None:
        raise UsageError(
            f"{url}: the suffix does not tell the format; say --format jsonl, text or parquet."
        )
    compression = COMPRESSIONS.get(PurePosixPath(url).suffix.lower(), "")
    if chosen == "parquet" and compression:
        raise UsageError(f"{url}: Parquet compresses inside; unpack the outer {compression}.")
    return File(url, size, stamp, chosen, compression)


def _format(url: str) -> Format | None:
    suffixes: Sequence[str] = [s.lower() for s in PurePosixPath(url).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes = suffixes[:-1]
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def _stat(url: str) -> tuple[int, str]:
    try:
        if not _remote(url):
            about = Path(url).stat()
            if not stat.S_ISREG(about.st_mode):
                return 0, _PIPE
            return about.st_size, str(about.st_mtime_ns)
        system, path = _fsspec().core.url_to_fs(url)
        system.invalidate_cache()
        info = system.info(path)
    except OSError as error:
        raise CorpusError(f"{url} cannot be read: {error.strerror or error}.") from error
    names = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "created")
    stamp = next((str(info[name]) for name in names if info.get(name) is not None), "")
    return int(info["size"]), stamp


def _remote(url: str) -> bool:
    return "://" in url


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError:
        raise MissingExtra("Reading from a URL", "scale") from None
    return fsspec
