"""Rows of a shard, from JSONL, text and Parquet: which text, in which language.

They are streamed in batches, in constant memory. A doubtful row is bad; nothing is guessed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from typing import Any

from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.core.files import sha256
from tokengraft.corpus.archive import Broken, bounded_lines, decompressed
from tokengraft.corpus.shards import File, Shard, Span, parquet_module
from tokengraft.languages.codes import canonical

# A Hugging Face tokenizer takes 200 bytes of memory per byte of text: 400 MB for the longest row.
MAX_ROW_BYTES = 2 << 20
UNKNOWN = "und"  # ISO 639: undetermined
Pair = tuple[str, str, int]  # language, text, bytes of the text
Row = tuple[Pair, ...]  # one text, or a unit in several languages


class BadRow(Exception):
    """A row that cannot be counted; the message says why."""


@dataclass(frozen=True)
class Layout:
    """Where a row's text and language are found; plain data, so it can be sent to any worker.

    At most one of `language_column`, `language_from_path`, `detector` and `language` gives the
    language; without any, it is that of the file (`Span.code`), if known, else `und`. A label found
    in the data is counted under its full code if it means only one (`en`: eng_Latn), else as it
    stands. With `columns`, a row is a unit of a parallel corpus with a column per language; with
    `aligned`, a unit is line n of several files.
    """

    text_column: str = "text"
    language_column: str | None = None
    language_from_path: str | None = None  # a regular expression; its group is the language
    detector: str | None = None  # package.module:function, text → language
    language: str | None = None
    only: tuple[str, ...] | None = None  # languages to count; others are left out
    columns: tuple[tuple[str, str], ...] = ()  # code, name of its column
    aligned: bool = False
    max_row_bytes: int = MAX_ROW_BYTES

    def __post_init__(self) -> None:
        ways = {
            "--language-column": self.language_column,
            "--language-from-path": self.language_from_path,
            "--detector": self.detector,
            "one fixed --language": self.language,
        }
        given = [name for name, value in ways.items() if value]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} both say the language; keep one.")
        if self.max_row_bytes < 1:
            raise UsageError("--max-row-bytes must be at least 1.")
        if self.language_from_path:
            try:
                groups = re.compile(self.language_from_path).groups
            except re.error as error:
                raise UsageError(
                    f"--language-from-path {self.language_from_path!r}: {error}"
                ) from None
            if not groups:
                raise UsageError(
                    f"--language-from-path {self.language_from_path!r} has no group; put the "
                    f"language into one, like 'web/([a-z]+)/'."
                )

    @property
    def fingerprint(self) -> str:
        """Hash of all options that change a count, the detector's source included."""
        code = _source(load_detector(self.detector)) if self.detector else ""
        return sha256(json.dumps([asdict(self), code], sort_keys=True).encode())

    @property
    def wanted_columns(self) -> list[str]:
        """The columns a reader has to read."""
        if self.columns:
            return [column for _, column in self.columns]
        return [self.text_column, *([self.language_column] if self.language_column else [])]

    def row_maker(self, span: Span) -> Callable[[Mapping[str, Any]], Row]:
        """A function that makes a row of a record of `span`, or raises `BadRow`.

        The row is empty if `only` leaves its language out.
        """
        if self.columns:
            return self._unit
        fixed = self.language_of(span.file) or span.code or UNKNOWN
        detect = load_detector(self.detector) if self.detector else None
        only = None if self.only is None else frozenset(map(canonical, self.only))
        text_column, language_column = self.text_column, self.language_column

        def make(record: Mapping[str, Any]) -> Row:
            language = fixed
            if language_column:
                given = record.get(language_column)
                if not isinstance(given, str) or not given or not given.isprintable():
                    raise BadRow(f"no language in {language_column!r}: {_shown(given)}")
                language = canonical(given)
            if only is not None and detect is None and language not in only:
                return ()
            text = _text(record, text_column)
            size = self.measure(text)
            if detect is not None:
                try:
                    language = detect(text) or UNKNOWN
                except Exception as error:
                    raise UsageError(f"--detector {self.detector} failed: {error!r}") from error
                if not isinstance(language, str):
                    raise UsageError(
                        f"--detector {self.detector} gave {language!r}; it must give a language "
                        f"code or None."
                    )
                language = canonical(language)
                if only is not None and language not in only:
                    return ()
            return ((language, text, size),)

        return make

    def language_of(self, file: File) -> str:
        """The language of all rows of a file, as its path or a fixed one says; else empty."""
        if not self.language_from_path:
            return self.language or ""
        match = re.search(self.language_from_path, file.url)
        named = next((group for group in match.groups() if group), "") if match else ""
        if not named:
            raise UsageError(
                f"{file.url} does not match --language-from-path {self.language_from_path!r}."
            )
        return canonical(named)

    def measure(self, text: str) -> int:
        """Bytes of `text` in UTF-8; a `BadRow` if it is not text, or too long."""
        if "\0" in text:
            raise BadRow("holds a NUL character, which is not text")
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            raise BadRow("holds half of a surrogate pair, which is not a character") from None
        if size > self.max_row_bytes:
            raise BadRow(f"longer than --max-row-bytes {self.max_row_bytes:,}")
        return size

    def _unit(self, record: Mapping[str, Any]) -> Row:
        pairs = []
        for code, column in self.columns:
            if record.get(column) is None:
                continue
            text = _text(record, column).strip()
            if not text:
                raise BadRow(f"{column} is empty; write null where the unit is missing")
            pairs.append((code, text, self.measure(text)))
        return tuple(pairs)


def parse_record(line: bytes) -> Mapping[str, Any]:
    """The object on one line of JSONL; anything else is a `BadRow`.

    So is an object with a repeated key, of which Python's json would silently keep the last.
    """
    try:
        text = line.decode("utf-8")
        try:
            record, end = _scan(text, 0)
        except StopIteration:  # leading space, or not JSON at all, as json.loads explains
            record, end = json.loads(text, object_pairs_hook=_once), len(text)
        if end != len(text) and text[end:].strip(" \t\r\n"):  # JSON's whitespace
            json.loads(text)
    except UnicodeDecodeError as error:
        raise _not_utf8(line, error) from None
    except json.JSONDecodeError as error:
        raise BadRow(f"not JSON ({error.msg}, column {error.colno})") from None
    except RecursionError:
        raise BadRow("not JSON (nested too deeply to be read)") from None
    except ValueError as error:
        raise BadRow(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise BadRow(f"{type(record).__name__}, not an object")
    return record


def parse_text(line: bytes) -> str:
    """One line of a text file without its carriage return; broken UTF-8 is a `BadRow`."""
    try:
        return line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(line, error) from None


def _not_utf8(line: bytes, error: UnicodeDecodeError) -> BadRow:
    utf16 = line.startswith((b"\xff\xfe", b"\xfe\xff")) and b"\0" in line
    hint = "; it looks like UTF-16, save the file as UTF-8" if utf16 else ""
    bad = f"byte {error.start} of the line (0x{line[error.start]:02x})"
    return BadRow(f"not valid UTF-8 at {bad}{hint}")


def load_detector(name: str) -> Callable[[str], Any]:
    """The function that `package.module:function` names."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(f"--detector {name!r}: write package.module:function.")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--detector {name}: {error}. Is it installed on every worker?") from None
    if not callable(function):
        raise UsageError(f"--detector {name} is not a function.")
    return function  # type: ignore[no-any-return]


def _source(detector: Callable[[str], Any]) -> str:
    try:
        return sha256(inspect.getsource(inspect.getmodule(detector) or detector).encode())
    except (OSError, TypeError):
        return ""


def _text(record: Mapping[str, Any], column: str) -> str:
    text = record.get(column)
    if column not in record:
        there = f"; there are {', '.join(map(repr, list(record)[:5]))}" if record else ""
        raise BadRow(f"{column!r} is missing{there} (--text-column names the one with the text)")
    if not isinstance(text, str):
        raise BadRow(f"{column!r} is {_shown(text)}, not a text")
    return text


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        raise BadRow(f"the key {next(k for k in keys if keys.count(k) > 1)!r} occurs twice")
    return record


# The innermost part of json.loads; the rest of it costs as much again on short rows.
_decoder: Any = json.JSONDecoder(object_pairs_hook=_once)
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once


# Small enough for what a tokenizer allocates to stay in cache: 8 % faster than batches of 2 MiB.
BATCH_BYTES = 1 << 19
BATCH_ROWS = 512
LISTED = 100  # bad rows listed per shard; all are counted
_BOM = b"\xef\xbb\xbf"


@dataclass
class Seen:
    """What a reader saw besides good rows; lines are numbered from 1 within the shard."""

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


def read_rows(shard: Shard, layout: Layout, seen: Seen) -> Iterator[Batch]:
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
            row = make({text_column: parse_text(line)} if plain else parse_record(line))
        except BadRow as reason:
            seen.reject(seen.lines, str(reason))
            continue
        if row:
            yield seen.lines, row


def _raw(span: Span, limit: int, seen: Seen) -> Generator[bytes | None, None, None]:
    """Lines of a span as bytes, without a byte order mark; None for one above `limit` bytes."""
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
            # Streamed by pages: without the first two options, a row group's whole column is held.
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
                cells = [_values(batch.column(name)) for name in columns]
                for values in zip(*cells, strict=True):
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
                f"wrong schema: the column {name!r} is {got}; there are {', '.join(schema.names)} "
                "(--text-column names the one that holds the text)"
            )
        kind = schema.field(name).type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        strings = (pyarrow.types.is_string, pyarrow.types.is_large_string)
        if not any(check(kind) for check in (*strings, pyarrow.types.is_string_view)):
            raise Broken(f"wrong schema: the column {name!r} holds {kind}, not strings")
