"""Tables (TSV, CSV, JSONL, Parquet) as parallel text: a column per language, or a row per text.

TSV has no quoting: a line is cut at its tabs, and a `"` is text. CSV follows Python's csv
module. In both, an empty cell means a missing unit, since there is no other way to say so;
JSONL and Parquet have null for that, so an empty string there is an error.

FLORES+ is a long table whose language is spread over columns (`iso_639_3`, `iso_15924`,
`glottocode`). Where one language and script has several glottocodes, the variety with the
most rows keeps the plain code (of equals, the first), the others get `-glottocode`; this is
decided over all rows, so codes do not depend on the languages or split chosen.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tokengraft.core.errors import CorpusError, MissingExtra, TokengraftError
from tokengraft.core.untrusted import check_ratio
from tokengraft.core.wording import counted
from tokengraft.corpus.archive import Bundle
from tokengraft.corpus.layout import CorpusLayout, choose_splits, decode, describe, split
from tokengraft.corpus.parallel import ParallelCorpus, choose
from tokengraft.corpus.rows import BadRow, parse_record
from tokengraft.corpus.shards import parquet_module
from tokengraft.languages.codes import resolve_at

#: Columns about a sentence that no layout needs (FLORES+ has them).
IGNORED = {"url", "domain", "topic", "has_image", "has_hyperlink", "last_updated"}

_OBJECT = 50  # bytes that a cell takes in memory besides its text
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
        """The stripped texts of a column; a CorpusError if one is empty or not text."""
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
    """The table in `data`, whose format follows from the suffix of the file's name."""
    readers = {".tsv": _tsv, ".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
    table = readers[PurePosixPath(name).suffix.lower()](data, where)
    twice = [column for column in table.columns if table.columns.count(column) > 1]
    if twice:
        raise CorpusError(f"{where}: the column {twice[0]!r} occurs twice; keep one of them.")
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
                f"{where}, line {line}: {counted(len(row), 'cell')}, but the header has "
                f"{len(header)}."
            )
    cells = [tuple(cell if cell.strip() else None for cell in row) for row in rows[1:]]
    return Table(where, header, cells, lines[1:])


def _jsonl(data: bytes, where: str) -> Table:
    records = []
    for number, line in enumerate(split(decode(data, where)), 1):
        place = f"{where}, line {number}"
        try:
            record = parse_record(line.encode("utf-8"))
        except BadRow as reason:
            raise CorpusError(f"{place}: {reason}. Every line is one object.") from None
        # Raw surrogates are not valid UTF-8, so only an escape can make one.
        if "\\u" in line:
            for text in (*record, *record.values()):
                if isinstance(text, str) and _SURROGATE.search(text):
                    raise CorpusError(
                        f"{place}: holds half of a surrogate pair (\\ud800…\\udfff), which is not "
                        f"a character; write the character itself."
                    )
        records.append({key: value for key, value in record.items() if key not in IGNORED})
    columns = tuple(dict.fromkeys(key for record in records for key in record))
    rows = [tuple(record.get(column) for column in columns) for record in records]
    return Table(where, columns, rows, range(1, len(rows) + 1))


def _claimed(data: bytes) -> int:
    """The bytes that a Parquet file says it unpacks to; 0 where nothing can read its header."""
    try:
        about = parquet_module().ParquetFile(io.BytesIO(data)).metadata
    except MissingExtra:
        return 0
    return sum(about.row_group(n).total_byte_size for n in range(about.num_row_groups))


def _parquet(data: bytes, where: str) -> Table:
    import polars

    try:
        scan = polars.scan_parquet(io.BytesIO(data))
        cells = scan.select(polars.len()).collect().item() * len(scan.collect_schema())
        check_ratio(max(_claimed(data), _OBJECT * cells), len(data), where, CorpusError)
        frame = polars.read_parquet(io.BytesIO(data))
        texts = frame.select(polars.col(polars.String).str.len_bytes().sum()).sum_horizontal()
        check_ratio(int(texts.sum()), len(data), where, CorpusError)
    except CorpusError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise CorpusError(f"{where} is not a readable Parquet file: {reason}.") from None
    frame = frame.select([name for name in frame.columns if name not in IGNORED])
    rows = frame.rows()
    return Table(where, tuple(frame.columns), rows, range(1, len(rows) + 1), "row")


_UNIT = ("id", "unit")
TABLES = (".jsonl", ".parquet", ".tsv", ".csv")
_TEXT = ("text", "sentence")
_CODE = (("iso_639_3", "iso_15924"), ("language", "script"), ("language",), ("code",), ("lang",))

#: Columns that are not languages, even if their name is a language's too (`id`: Indonesian).
ABOUT = {*_UNIT, *_TEXT, "split", *(name for names in _CODE for name in names), *IGNORED}

Unit = tuple[str, str]  # split ("" if there is none) and id


@dataclass
class _Variety:
    """The texts of one language, script and glottocode."""

    code: str
    glottocode: str
    texts: dict[Unit, str | None] = field(default_factory=dict)


def by_code(
    columns: Iterable[str], where: str, error: type[TokengraftError] = CorpusError
) -> dict[str, str]:
    """Language code → the column that names it; `error` if two columns name the same one."""
    named: dict[str, str] = {}
    for column in columns:
        code = resolve_at(column, f"{where}, column {column!r}")
        if code in named:
            raise error(
                f"{where}: the columns {named[code]!r} and {column!r} are both {code}; keep one."
            )
        named[code] = column
    return named


def recognise(bundle: Bundle) -> bool:
    """Whether the bundle has files of this layout."""
    return bool(_files(bundle))


def load(bundle: Bundle, split: str | None, languages: Iterable[str] | None) -> ParallelCorpus:
    """The chosen languages and splits of one table, or of several with a row per text."""
    files = _files(bundle)
    long: dict[tuple[str, str], _Variety] = {}
    plus = False
    for name in files:
        table = read_table(bundle.read(name), name, bundle.place(name))
        if _find(table, _TEXT) is None or _code_columns(table) is None:
            if len(files) > 1:
                raise CorpusError(
                    f"{table.where} has the columns {', '.join(table.columns[:8])}. A folder of "
                    f"several tables needs the columns language, id and text in each; for a table "
                    f"with a column per language give the path of that one file."
                )
            return _wide(table, bundle, split, languages)
        plus = plus or "iso_15924" in table.columns
        _collect(table, long)
    own = Path(bundle.title).stem
    name, title = ("flores+", "FLORES+") if plus else (own, own)
    texts = _named(long.values())
    # The fullest language first: its order is the units' order, others only add to it.
    fullest = sorted(texts.values(), key=lambda entries: -len(entries))
    units = list(dict.fromkeys(unit for entries in fullest for unit in entries))
    if all(unit.isdecimal() for _, unit in units):
        units.sort(key=lambda unit: int(unit[1]))
    return _build(texts, units, split, languages, name=name, title=title, bundle=bundle)


def _files(bundle: Bundle) -> list[str]:
    return [name for name in bundle.names if PurePosixPath(name).suffix.lower() in TABLES]


def _find(table: Table, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in table.columns), None)


def _code_columns(table: Table) -> tuple[str, ...] | None:
    return next((names for names in _CODE if set(names) <= set(table.columns)), None)


def _column(table: Table, name: str | None) -> list[str]:
    if name is None:
        return [""] * len(table.rows)
    position = table.columns.index(name)
    values = [row[position] for row in table.rows]
    if None in values:
        raise CorpusError(f"{table.at(values.index(None))}: no {name}; every row needs one.")
    return [str(value).strip() for value in values]


def _collect(table: Table, into: dict[tuple[str, str], _Variety]) -> None:
    ids, text, columns = _find(table, _UNIT), _find(table, _TEXT), _code_columns(table)
    if ids is None or text is None or columns is None:
        raise CorpusError(
            f"{table.where} has no column id (or unit); without it the rows of different "
            f"languages cannot be aligned. It has {', '.join(table.columns)}."
        )
    codes = zip(*(_column(table, name) for name in columns), strict=True)
    glottocodes = _column(table, _find(table, ("glottocode",)))
    parts = _column(table, _find(table, ("split",)))
    rows = zip(codes, glottocodes, parts, _column(table, ids), table.texts(text), strict=True)
    known: dict[str, str] = {}
    for index, (pieces, glottocode, part, unit, value) in enumerate(rows):
        label = "_".join(pieces)
        if label not in known:
            known[label] = resolve_at(label, table.at(index))
        code = known[label]
        variety = into.get((code, glottocode))
        if variety is None:
            variety = into[code, glottocode] = _Variety(code, glottocode)
        if (part, unit) in variety.texts:
            raise CorpusError(
                f"{table.at(index)}: {code} has unit {unit} twice{f' in {part}' if part else ''}; "
                f"keep one."
            )
        variety.texts[part, unit] = value


def _named(varieties: Iterable[_Variety]) -> dict[str, dict[Unit, str | None]]:
    named: dict[str, dict[Unit, str | None]] = {}
    for variety in sorted(varieties, key=lambda variety: -len(variety.texts)):
        suffix = f"-{variety.glottocode}" if variety.code in named else ""
        named[variety.code + suffix] = variety.texts
    return named


def _build(
    texts: dict[str, dict[Unit, str | None]],
    units: list[Unit],
    split: str | None,
    languages: Iterable[str] | None,
    *,
    name: str,
    title: str,
    bundle: Bundle,
) -> ParallelCorpus:
    where = bundle.where
    splits = choose_splits(split, (part for part, _ in units if part), where) or [""]
    units = [unit for part in splits for unit in units if unit[0] == part]
    chosen = {
        code: tuple(texts[code].get(unit) for unit in units)
        for code in choose(languages, texts, where)
    }
    for code, entries in chosen.items():
        if languages is not None and not any(entries):
            raise CorpusError(
                f"{where} has no text of {code} in {' + '.join(splits)}; choose another split."
            )
    labels = tuple(f"{part}.{unit}" if part else unit for part, unit in units)
    parts = f", {' + '.join(splits)}" if splits != [""] else ""
    kept = {code: entries for code, entries in chosen.items() if any(entries)}
    return ParallelCorpus(name, f"{title}{parts}, from {bundle.title}", labels, kept)


def _wide(
    table: Table, bundle: Bundle, split: str | None, languages: Iterable[str] | None
) -> ParallelCorpus:
    ids = _find(table, _UNIT)
    about = {ids, "split", *IGNORED}
    columns = by_code((name for name in table.columns if name not in about), table.where)
    parts = _column(table, _find(table, ("split",)))
    labels = _column(table, ids) if ids else [str(number + 1) for number in range(len(parts))]
    units = list(zip(parts, labels, strict=True))
    if len(set(units)) != len(units):
        index = next(i for i, unit in enumerate(units) if unit in units[:i])
        raise CorpusError(f"{table.at(index)}: unit {labels[index]} occurs twice; keep one.")
    texts = {
        code: dict(zip(units, table.texts(columns[code]), strict=True))
        for code in choose(languages, columns, bundle.where)
    }
    name = Path(bundle.title).stem
    named = None if languages is None else list(texts)
    return _build(texts, units, split, named, name=name, title=name, bundle=bundle)


LAYOUT = CorpusLayout(
    "tables",
    ".tsv, .csv, .jsonl or .parquet with a column per language code, or with the columns\n"
    "language, id and text (FLORES+: iso_639_3, iso_15924, id, text, split)",
    recognise,
    load,
    {"table.tsv": "id\teng_Latn\tfra_Latn\n1\tOne.\tUn.\n2\tTwo.\tDeux.\n"},
    TABLES,
    alone=True,
)
