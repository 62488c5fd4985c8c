"""The files of a large corpus, by glob, folder or fsspec URL, and the shards they are cut into.

A shard is a part of a file that is counted on its own, by anyone, in any order.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, get_args

from tokengraft.core.errors import CorpusError, UsageError, no_such, optional
from tokengraft.core.files import sha256

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
TABLES = {".tsv", ".csv"}  # read whole, as parallel text; never streamed
_PIPE = "pipe"  # the stamp of what can be read only once


@dataclass(frozen=True)
class File:
    """One file as it was when the run began; `stamp` is when it changed, or a server's tag."""

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
    def remote(self) -> bool:
        """Whether it is named by a URL."""
        return _remote(self.url)

    @property
    def piped(self) -> bool:
        """Whether it is a pipe or a device: of unknown size, and readable only once."""
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

    The format follows from the suffix unless given. For an unknown suffix it is `otherwise`; if
    that is None, a UsageError. A source that matches nothing is a CorpusError.
    """
    if format_ is not None and format_ not in get_args(Format):
        raise no_such("format", format_, get_args(Format))
    urls: dict[str, None] = {}
    for source in [sources] if isinstance(sources, str | Path) else sources:
        matches = _expand(str(source))
        if not matches:
            if Path(source).expanduser().is_dir():
                raise CorpusError(f"{source}: no JSONL, text or Parquet file in this folder.")
            raise CorpusError(f"{source}: no such file, and no file matches it as a pattern.")
        urls.update(dict.fromkeys(matches))
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
            return [path]  # a pipe; its real path names no file
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
            f"{url}: the suffix does not say the format; give --format jsonl, text or parquet."
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
    return optional("fsspec", "Reading from a URL", "scale")


SHARD_BYTES = 16 << 20


@dataclass(frozen=True)
class Span:
    """A part of one file: bytes of a plain one, row groups of Parquet, all of a compressed one.

    A line belongs to the span in which it begins. `code` is the file's language if known, else
    empty.
    """

    file: File
    start: int
    stop: int
    code: str = ""

    def digest(self) -> str:
        """Hash of its bytes: a file may be replaced by another of the same size and time.

        Empty for a URL, whose stamp is to be trusted, and for a pipe, which is read only once.
        """
        if self.file.remote or self.file.piped:
            return ""
        digest = hashlib.blake2b(digest_size=16)
        with self.file.open() as raw:
            for start, stop in self._ranges(raw):
                raw.seek(start)
                while stop > start and (block := raw.read(min(stop - start, 1 << 20))):
                    digest.update(block)
                    start += len(block)  # noqa: PLW2901
        return digest.hexdigest()

    def _ranges(self, raw: BinaryIO) -> list[tuple[int, int]]:
        """The bytes of the file that it is read from."""
        if self.file.format != "parquet":
            return [(self.start, self.stop)]
        try:
            about = parquet_module().ParquetFile(raw).metadata
            groups = [about.row_group(n) for n in range(self.start, self.stop)]
            columns = [group.column(n) for group in groups for n in range(group.num_columns)]
            begins = [(c.dictionary_page_offset or c.data_page_offset, c) for c in columns]
            return [(min(at, c.data_page_offset), at + c.total_compressed_size) for at, c in begins]
        except CorpusError:
            raise
        except Exception:  # a damaged file; whoever reads it reports the damage
            return [(0, self.file.size)]


@dataclass(frozen=True)
class Shard:
    """What one task counts: a span, or one span per language of aligned files."""

    spans: tuple[Span, ...]
    size: int  # bytes on disk, for progress

    @property
    def file(self) -> File:
        """The (first) file."""
        return self.spans[0].file

    @property
    def name(self) -> str:
        """File and range, for messages."""
        span = self.spans[0]
        return f"{span.file.url}[{span.start}:{span.stop}]"

    def key(self, fingerprint: str) -> str:
        """Hash of all that its result depends on but the bytes of local files (see `digest`)."""
        parts = [
            (s.file.url, s.file.size, s.file.stamp if s.file.remote else "", s.file.format,
             s.start, s.stop, s.code)
            for s in self.spans
        ]  # fmt: skip
        return sha256(json.dumps([parts, fingerprint]).encode())

    def digest(self) -> str:
        """Hash of the bytes that it is read from, as far as they are local."""
        return " ".join(span.digest() for span in self.spans)


def cut(files: Iterable[File], shard_bytes: int = SHARD_BYTES, code: str = "") -> list[Shard]:
    """Shards of about `shard_bytes`, or whole files; counts do not depend on the borders."""
    shards = []
    for file in files:
        if file.format == "parquet":
            shards += _row_groups(file, shard_bytes, code)
        elif file.compression or not file.size:
            shards.append(Shard((Span(file, 0, file.size, code),), file.size))
        else:
            for start in range(0, file.size, shard_bytes):
                stop = min(start + shard_bytes, file.size)
                shards.append(Shard((Span(file, start, stop, code),), stop - start))
    return shards


def _row_groups(file: File, shard_bytes: int, code: str) -> list[Shard]:
    arrow = parquet_module()
    try:
        with file.open() as raw, arrow.ParquetFile(raw) as opened:
            about = opened.metadata
            sizes = [about.row_group(n).total_byte_size for n in range(about.num_row_groups)]
    except CorpusError:
        raise
    except Exception:  # a damaged file is one shard; whoever reads it reports the damage
        return [Shard((Span(file, 0, -1, code),), file.size)]
    shards = []
    begin, gathered = 0, 0
    share = file.size / max(1, sum(sizes))
    for number, size in enumerate(sizes):
        gathered += size
        if gathered >= shard_bytes or number == len(sizes) - 1:
            span = Span(file, begin, number + 1, code)
            shards.append(Shard((span,), int(gathered * share)))
            begin, gathered = number + 1, 0
    return shards or [Shard((Span(file, 0, 0, code),), file.size)]


def cut_aligned(files: Sequence[tuple[str, File]], shard_bytes: int = SHARD_BYTES) -> list[Shard]:
    """Shards of aligned text files, line n being the same unit in each.

    Plain files are read once to find the lines at which to cut; compressed ones stay whole.
    """
    whole = tuple(Span(file, 0, file.size, code) for code, file in files)
    total = sum(file.size for _, file in files)
    if any(file.compression for _, file in files) or total <= shard_bytes:
        return [Shard(whole, total)]
    largest = max((file for _, file in files), key=lambda file: file.size)
    step = max(1, _lines_in(largest, shard_bytes // len(files)))
    borders = {code: _borders(file, step) for code, file in files}
    counts = {code: len(starts) for code, starts in borders.items()}
    if len(set(counts.values())) > 1:
        few, many = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        raise CorpusError(
            f"{few} and {many} are not parallel: one has at least {step:,} lines more than the "
            f"other. Line n of every file must be the same unit."
        )
    pieces = next(iter(counts.values())) - 1
    shards = []
    for n in range(pieces):
        spans = tuple(Span(f, borders[code][n], borders[code][n + 1], code) for code, f in files)
        shards.append(Shard(spans, sum(span.stop - span.start for span in spans)))
    return shards


def _lines_in(file: File, size: int) -> int:
    with file.open() as raw:
        return raw.read(min(size, 1 << 24)).count(b"\n")


def _borders(file: File, step: int) -> list[int]:
    """Where every `step`-th line begins, and where the file ends."""
    starts, lines, position = [0], 0, 0
    with file.open() as raw:
        while block := raw.read(1 << 20):
            here = block.count(b"\n")
            at = -1
            while lines + here >= step:
                for _ in range(step - lines):
                    at = block.index(b"\n", at + 1)
                here -= step - lines
                lines = 0
                if position + at + 1 < file.size:
                    starts.append(position + at + 1)
            lines += here
            position += len(block)
    return [*starts, file.size]


def parquet_module() -> Any:
    """`pyarrow.parquet`, or the error that names the extra."""
    return optional("pyarrow.parquet", "Reading large Parquet files", "scale")
