"""Shards: parts of files that are counted on their own, by anyone, in any order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tokengraft.core.errors import CorpusError, MissingExtra
from tokengraft.core.files import sha256
from tokengraft.corpus.find_files import File

SHARD_BYTES = 16 << 20


@dataclass(frozen=True)
class Span:
    """A part of one file: bytes of a plain one, row groups of Parquet, all of a compressed one.

    A line belongs to the span in which it begins. `code` is the language of the file where that
    is known by file, else empty.
    """

    file: File
    start: int
    stop: int
    code: str = ""


@dataclass(frozen=True)
class Shard:
    """What one task counts: a span, or one span a language of aligned files."""

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
        """Hash of everything its result depends on: files as they are, ranges, `fingerprint`."""
        parts = [
            (s.file.url, s.file.size, s.file.stamp, s.file.format, s.start, s.stop, s.code)
            for s in self.spans
        ]
        return sha256(json.dumps([parts, fingerprint]).encode())


def cut(files: Iterable[File], shard_bytes: int = SHARD_BYTES, code: str = "") -> list[Shard]:
    """Cut files into shards of about `shard_bytes`; what cannot be cut is one shard.

    Where the borders fall changes no count.
    """
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
    except Exception:  # a damaged file is one shard, and its reader says what is wrong with it
        return [Shard((Span(file, 0, -1, code),), file.size)]
    shards = []
    begin, held = 0, 0
    share = file.size / max(1, sum(sizes))
    for number, size in enumerate(sizes):
        held += size
        if held >= shard_bytes or number == len(sizes) - 1:
            span = Span(file, begin, number + 1, code)
            shards.append(Shard((span,), int(held * share)))
            begin, held = number + 1, 0
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
    counts = {code: len(found) for code, found in borders.items()}
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
    found, lines, position = [0], 0, 0
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
                    found.append(position + at + 1)
            lines += here
            position += len(block)
    return [*found, file.size]


def parquet_module() -> Any:
    """`pyarrow.parquet`, or the error that names the extra."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("Reading large Parquet files", "scale") from None
    return pyarrow.parquet
