"""Rows of a shard in batches: JSONL, text and Parquet, streamed in constant memory."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

from tokengraft.core.errors import CorpusError
from tokengraft.corpus.compressed import Broken, bounded_lines, decompressed
from tokengraft.corpus.rows import BadRow, Layout, Row, parse_json, parse_text
from tokengraft.corpus.shards import Shard, Span, parquet_module

# Small enough for what a tokenizer allocates to stay in cache: 8 % faster than batches of 2 MiB.
BATCH_BYTES = 1 << 19
BATCH_ROWS = 512
LISTED = 100  # bad rows listed a shard; all are counted
_BOM = b"\xef\xbb\xbf"


@dataclass
class Seen:
    """What a reader met besides rows; line numbers count from 1 inside the shard."""

    lines: int = 0  # all lines or table rows, good or not
    blank: int = 0
    bad: int = 0
    listed: list[tuple[int, str]] = field(default_factory=list)  # the first bad rows: line, reason
    done: float = 0.0  # share of the shard that has been read

    def reject(self, line: int, reason: str) -> None:
        """Note a bad row."""
        self.bad += 1
        if len(self.listed) < LISTED:
            self.listed.append((line, reason))


@dataclass
class Batch:
    """Rows to count together, each with its line in the shard."""

    rows: list[Row]
    lines: list[int]


def read(shard: Shard, layout: Layout, seen: Seen) -> Iterator[Batch]:
    """The shard's good rows; bad ones go to `seen`.

    Raises `Broken` for a file that cannot be read to its end and a CorpusError for one that is
    gone, cannot be accessed, or changed since the run began.
    """
    for span in shard.spans:
        span.file.require_unchanged()
    if layout.aligned:
        rows = _aligned(shard, layout, seen)
    elif shard.file.format == "parquet":
        rows = _parquet(shard.spans[0], layout, seen)
    else:
        rows = _lines(shard.spans[0], layout, seen)
    try:
        yield from _batches(rows)
    except OSError as error:
        raise CorpusError(f"{shard.file.url} cannot be read: {error.strerror or error}.") from error
    for span in shard.spans:
        span.file.require_unchanged()


def _batches(rows: Iterable[tuple[int, Row]]) -> Iterator[Batch]:
    """Rows in batches; a row larger than a batch comes alone."""
    batch, size = Batch([], []), 0
    for line, row in rows:
        more = 0
        for pair in row:
            more += pair[2]
        if batch.rows and (size + more > BATCH_BYTES or len(batch.rows) == BATCH_ROWS):
            yield batch
            batch, size = Batch([], []), 0
        batch.rows.append(row)
        batch.lines.append(line)
        size += more
    if batch.rows:
        yield batch


def _lines(span: Span, layout: Layout, seen: Seen) -> Iterator[tuple[int, Row]]:
    make = layout.row_maker(span)
    plain = span.file.format == "text"
    text_column = layout.text_column
    for line in _raw(span, layout.max_row_bytes, seen):
        seen.lines += 1
        try:
            if line is None:
                raise BadRow(f"longer than --max-row-bytes {layout.max_row_bytes:,}")
            if not line or line.isspace():
                seen.blank += 1
                continue
            row = make({text_column: parse_text(line)} if plain else parse_json(line))
        except BadRow as reason:
            seen.reject(seen.lines, str(reason))
            continue
        if row:
            yield seen.lines, row


def _raw(span: Span, limit: int, seen: Seen) -> Generator[bytes | None, None, None]:
    """Lines of a span as bytes, without the mark at a file's very beginning."""
    stop = None if span.file.compression or span.file.piped else span.stop
    size = max(1, span.stop - span.start)
    with closing(span.file.open()) as raw:
        stream = decompressed(raw, span.file.compression)
        for offset, line in bounded_lines(stream, limit, span.start, stop):
            if offset == 0 and line is not None:
                line = line.removeprefix(_BOM)  # noqa: PLW2901
            yield line
            if not seen.lines % 64:
                here = raw.tell() if span.file.compression and not span.file.piped else offset
                seen.done = min(1.0, (here - span.start) / size)


def _aligned(shard: Shard, layout: Layout, seen: Seen) -> Iterator[tuple[int, Row]]:
    with ExitStack() as stack:
        streams = [
            stack.enter_context(closing(_raw(span, layout.max_row_bytes, Seen())))
            for span in shard.spans
        ]
        codes = [span.code for span in shard.spans]
        while True:
            lines = [next(stream, _END) for stream in streams]
            ended = [code for code, line in zip(codes, lines, strict=True) if line is _END]
            if len(ended) == len(codes):
                return
            seen.lines += 1
            if ended:
                raise Broken(
                    f"not parallel: {ended[0]} has fewer lines than others; line n of every file "
                    f"must be the same unit"
                )
            try:
                row = tuple(_side(c, x, layout) for c, x in zip(codes, lines, strict=True))
            except BadRow as reason:
                seen.reject(seen.lines, str(reason))
                continue
            yield seen.lines, row


_END: Any = object()


def _side(code: str, line: bytes | None, layout: Layout) -> tuple[str, str, int]:
    if line is None:
        raise BadRow(f"{code} is longer than --max-row-bytes {layout.max_row_bytes:,}")
    text = parse_text(line).strip()
    if not text:
        raise BadRow(f"{code} is empty; a unit needs text on every side")
    return code, text, layout.measure(text)


def _parquet(span: Span, layout: Layout, seen: Seen) -> Iterator[tuple[int, Row]]:
    arrow = parquet_module()
    make = layout.row_maker(span)
    columns = layout.wanted_columns
    with closing(span.file.open()) as raw:
        try:
            # Streamed by pages: without these two a whole column of a row group is held.
            opened = arrow.ParquetFile(
                raw, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
            )
            _require_columns(opened.schema_arrow, columns)
            groups = list(range(span.start, span.stop))
            rows = sum(opened.metadata.row_group(n).num_rows for n in groups)
            # As many rows at a time as make a few MiB on average, since a row may be a book.
            size = sum(opened.metadata.row_group(n).total_byte_size for n in groups)
            step = max(1, min(1024, (rows * 8 * BATCH_BYTES) // max(1, size)))
            batches = opened.iter_batches(step, row_groups=groups, columns=columns)
            while (batch := next(batches, None)) is not None:
                held = [_values(batch.column(name)) for name in columns]
                for values in zip(*held, strict=True):
                    seen.lines += 1
                    try:
                        row = make(dict(zip(columns, values, strict=True)))
                    except BadRow as reason:
                        seen.reject(seen.lines, str(reason))
                        continue
                    if row:
                        yield seen.lines, row
                seen.done = seen.lines / max(1, rows)
        except (ArithmeticError, LookupError, ValueError, NotImplementedError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise Broken(f"damaged Parquet ({str(error).partition(chr(10))[0]})") from error


def _values(column: Any) -> list[Any]:
    """The column's values; one that is not UTF-8 stays bytes and so becomes a bad row."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        import pyarrow

        return [_decoded(value) for value in column.cast(pyarrow.binary()).to_pylist()]


def _decoded(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _require_columns(schema: Any, columns: list[str]) -> None:
    import pyarrow

    for name in columns:
        if schema.names.count(name) != 1:
            got = "twice" if name in schema.names else "not there"
            raise Broken(
                f"wrong schema: the column {name!r} is {got}; there are {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        strings = (pyarrow.types.is_string, pyarrow.types.is_large_string)
        if not any(check(kind) for check in (*strings, pyarrow.types.is_string_view)):
            raise Broken(f"wrong schema: the column {name!r} holds {kind}, not strings")
