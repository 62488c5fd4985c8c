"""What a row holds: which text, in which language. In doubt a row is bad; nothing is guessed."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tokengraft.core.errors import UsageError
from tokengraft.core.files import sha256
from tokengraft.corpus.shards import Span
from tokengraft.languages.codes import canonical

# A Hugging Face tokenizer takes 200 bytes of memory for a byte of text: 400 MB for such a row.
MAX_ROW_BYTES = 2 << 20
UNKNOWN = "und"  # ISO 639: undetermined
Pair = tuple[str, str, int]  # language, text, bytes of the text
Row = tuple[Pair, ...]  # one text, or a unit in several languages


class BadRow(Exception):
    """A row that cannot be counted; the message says why."""


@dataclass(frozen=True)
class Layout:
    """Where text and language of a row are found; plain data, so it travels to any worker.

    At most one of `language_column`, `language_from_path`, `detector` and `language` says the
    language; without any, a file's own code does, else every row is `und`. A language that the data
    name is counted under its full code where the name means one only (`en`: eng_Latn), else as it
    stands. With `columns` a row is a unit of a parallel corpus, each column a language; with
    `aligned`, line n of several files is.
    """

    text_column: str = "text"
    language_column: str | None = None
    language_from_path: str | None = None  # a regular expression; its group is the language
    detector: str | None = None  # package.module:function, text → language
    language: str | None = None
    only: tuple[str, ...] | None = None  # other languages are left out
    columns: tuple[tuple[str, str], ...] = ()  # code, and the column that holds it
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
        """A function from a record of `span` to its row; it raises `BadRow`.

        The row is empty where `only` leaves it out.
        """
        if self.columns:
            return self._unit
        fixed = self.language or span.code or UNKNOWN
        if self.language_from_path:
            match = re.search(self.language_from_path, span.file.url)
            if match is None or not (fixed := next((g for g in match.groups() if g), "")):
                raise UsageError(
                    f"{span.file.url} does not match --language-from-path "
                    f"{self.language_from_path!r}."
                )
            fixed = canonical(fixed)
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

    def measure(self, text: str) -> int:
        """Bytes of `text` in UTF-8; what is no text, or too long, is a `BadRow`."""
        if "\0" in text:
            raise BadRow("holds a NUL character, which no text does")
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            raise BadRow("holds half of a surrogate pair, which is no character") from None
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


def parse_json(line: bytes) -> Mapping[str, Any]:
    """The object on one line of JSONL; anything else is a `BadRow`.

    So is an object with a key twice: of two texts Python's json would keep the last.
    """
    try:
        text = line.decode("utf-8")
        try:
            record, end = _scan(text, 0)
        except StopIteration:  # space in front, or no JSON at all, which is explained here
            record, end = json.loads(text, object_pairs_hook=_once), len(text)
        if end != len(text) and not text[end:].isspace():
            json.loads(text)
    except UnicodeDecodeError as error:
        raise _not_utf8(line, error) from None
    except json.JSONDecodeError as error:
        raise BadRow(f"not JSON ({error.msg}, column {error.colno})") from None
    except (RecursionError, ValueError) as error:
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
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--detector {name}: {error}. Is it installed on every worker?") from None
    if not callable(found):
        raise UsageError(f"--detector {name} is no function.")
    return found  # type: ignore[no-any-return]


def _source(detector: Callable[[str], Any]) -> str:
    try:
        return sha256(inspect.getsource(inspect.getmodule(detector) or detector).encode())
    except (OSError, TypeError):
        return ""


def _text(record: Mapping[str, Any], column: str) -> str:
    text = record.get(column)
    if not isinstance(text, str):
        got = f"is {_shown(text)}" if column in record else "is missing"
        raise BadRow(f"{column!r} {got}, not a text")
    return text


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        raise BadRow(f"the key {next(k for k in keys if keys.count(k) > 1)!r} is there twice")
    return record


# What json.loads calls in the end; all around it costs as much again on short rows.
_decoder: Any = json.JSONDecoder(object_pairs_hook=_once)
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once
