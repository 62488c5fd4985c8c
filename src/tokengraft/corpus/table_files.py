"""Table files (TSV, CSV, JSONL, Parquet) as rows of cells, each with the line it came from.

TSV knows no quotes: a line is cut at its tabs and that is all, so a `"` is text. CSV follows
Python's csv module. In both an empty cell means a missing unit, there being no other way to
say it; JSONL and Parquet have null for that, so an empty string there is an error.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tokengraft.core.errors import CorpusError
from tokengraft.corpus.layout import decode, describe, split

#: Columns about a sentence that no layout needs (FLORES+ has them).
IGNORED = {"url", "domain", "topic", "has_image", "has_hyperlink", "last_updated"}

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns; `lines[i]` is where row i begins in the file."""

    where: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    lines: Sequence[int]
    #: What `lines` counts: Parquet has rows, text files have lines.
    what: str = "line"

    def at(self, index: int) -> str:
        """The place of row `index`, for a message."""
        return f"{self.where}, {self.what} {self.lines[index]}"

    def texts(self, column: str) -> list[str | None]:
        """The stripped texts of a column; what is no text, or empty, is a CorpusError."""
        position = self.columns.index(column)
        texts: list[str | None] = []
        empty = []
        for index, row in enumerate(self.rows):
            value = row[position]
            if value is None:
                texts.append(None)
            elif not isinstance(value, str):
                raise CorpusError(
                    f"{self.at(index)}: {column} is {value!r}, not a text; write null where the "
                    f"unit is missing."
                )
            elif "\0" in value:
                raise CorpusError(f"{self.at(index)}: {column} holds a NUL character; remove it.")
            else:
                texts.append(value.strip())
                if not texts[-1]:
                    empty.append(self.lines[index])
        if empty:
            raise CorpusError(
                f"{self.where}, column {column}: {describe(empty, self.what)}; write null where "
                f"the unit is missing."
            )
        return texts


def read_table(data: bytes, name: str, where: str) -> Table:
    """The table in `data`, in the format that the file name's suffix says."""
    readers = {".tsv": _tsv, ".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
    table = readers[PurePosixPath(name).suffix.lower()](data, where)
    twice = [column for column in table.columns if table.columns.count(column) > 1]
    if twice:
        raise CorpusError(f"{where}: the column {twice[0]!r} is there twice; keep one of them.")
    if not table.rows:
        raise CorpusError(f"{where} has no rows; it needs one unit per row.")
    return table


def _tsv(data: bytes, where: str) -> Table:
    rows = [line.split("\t") for line in split(decode(data, where))]
    return _delimited(rows, range(1, len(rows) + 1), where)


def _csv(data: bytes, where: str) -> Table:
    text = decode(data, where)
    reader = csv.reader((line + "\n" for line in split(text)), strict=True)
    rows: list[list[str]] = []
    lines = []
    line = 1
    try:
        for row in reader:
            rows.append(row)
            lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise CorpusError(f"{where}, line {line}: not valid CSV ({error}).") from None
    return _delimited(rows, lines, where)


def _delimited(rows: list[list[str]], lines: Sequence[int], where: str) -> Table:
    if not rows:
        raise CorpusError(f"{where} is empty; it needs a header of language codes.")
    header = tuple(cell.strip() for cell in rows[0])
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise CorpusError(
                f"{where}, line {line}: {len(row)} cells, but the header has {len(header)}."
            )
    cells = [tuple(cell if cell.strip() else None for cell in row) for row in rows[1:]]
    return Table(where, header, cells, lines[1:])


def _jsonl(data: bytes, where: str) -> Table:
    records = []
    for number, line in enumerate(split(decode(data, where)), 1):
        place = f"{where}, line {number}"
        try:
            record = json.loads(line, object_pairs_hook=_pairs)
        except json.JSONDecodeError as error:
            raise CorpusError(
                f"{place}: not valid JSON ({error.msg}, column {error.colno}); every line is one "
                f"object."
            ) from None
        except _TwiceError as error:
            raise CorpusError(f"{place}: the key {error} is there twice; keep one.") from None
        if not isinstance(record, dict):
            raise CorpusError(f"{place}: {type(record).__name__}, not an object.")
        # Raw surrogates are no UTF-8, so only an escape can make one.
        if "\\u" in line:
            for text in (*record, *record.values()):
                if isinstance(text, str) and _SURROGATE.search(text):
                    raise CorpusError(
                        f"{place}: holds half of a surrogate pair (\\ud800…\\udfff), which is no "
                        f"character; write the character itself."
                    )
        records.append(record)
    columns = tuple(dict.fromkeys(key for record in records for key in record))
    rows = [tuple(record.get(column) for column in columns) for record in records]
    return Table(where, columns, rows, range(1, len(rows) + 1))


class _TwiceError(Exception):
    pass


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = {key: value for key, value in pairs if key not in IGNORED}
    if len(record) + sum(key in IGNORED for key, _ in pairs) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(repr(next(key for key in keys if keys.count(key) > 1)))
    return record


def _parquet(data: bytes, where: str) -> Table:
    import polars

    try:
        frame = polars.read_parquet(io.BytesIO(data))
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise CorpusError(f"{where} is not a readable Parquet file: {reason}.") from None
    frame = frame.select([name for name in frame.columns if name not in IGNORED])
    rows = frame.rows()
    return Table(where, tuple(frame.columns), rows, range(1, len(rows) + 1), "row")
