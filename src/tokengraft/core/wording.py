"""Text for output: nouns with their counts, and strings from elsewhere made harmless.

Names of folders, labels of tokenizers, notes of a plan and codes of languages come from files that
anyone may have written. None of them may become a heading, a link, an image or a formula.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


_NAMED = 8  # of many, before the rest is counted


def counted(count: int, what: str) -> str:
    """`1 language`, `1,204 languages`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def in_percent(share: float) -> str:
    """`7`, `< 1`, `> 99`: 100 only for all of it, 0 only for none."""
    if 0 < share < 0.005:
        return "< 1"
    return "> 99" if 0.995 <= share < 1 else f"{100 * share:.0f}"


def some_languages(names: Sequence[str]) -> str:
    """All names, or the first of many and how many more there are: `a, b and 7 more languages`."""
    more = len(names) - _NAMED
    if more < 2:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {counted(more, 'more language')}"


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The (first, last) of each run of consecutive integers, in order: 1, 2, 5 → (1, 2), (5, 5)."""
    ends: list[tuple[int, int]] = []
    for number in sorted(numbers):
        first = ends.pop()[0] if ends and number == ends[-1][1] + 1 else number
        ends.append((first, number))
    return ends


_MARKS = re.compile(r"([\\|*_`<\[\]~])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_AT_START = re.compile(r"^(\s*\d*)([#>+=.)-])")
#: A beginning that makes a spreadsheet take a cell for a formula (OWASP, "CSV injection").
_FORMULA = r"^[=+\-@\t\r]"


def one_line(text: str) -> str:
    """`text` with `?` for control characters, which a terminal obeys, and lone surrogates."""
    return _CONTROL.sub("?", text)


def in_markdown(text: str) -> str:
    """`text` escaped, so that a line of Markdown shows it as it is."""
    return _AT_START.sub(r"\1\\\2", in_cell(text))


def in_cell(text: str) -> str:
    """`text` escaped for a cell of a Markdown table, where `2.` opens no list."""
    return _MARKS.sub(r"\\\1", re.sub(r"\s*[\r\n\v\f\x85\u2028\u2029]\s*", " ", text))


def in_code(text: str) -> str:
    """`text` as a code span, which has no escapes, so backticks in it become apostrophes."""
    line = " ".join(text.split()).replace("`", "'").replace("|", "¦")
    return f"`{line}`"


def as_csv(frame: pl.DataFrame, **options: Any) -> str:
    """`frame` as CSV; a cell or title that a spreadsheet would run as a formula begins with `'`."""
    import polars as pl

    harmless = pl.col(pl.String).str.replace(_FORMULA, "'${0}")
    safe = frame.with_columns(harmless)
    names = {name: f"'{name}" for name in safe.columns if re.match(_FORMULA, name)}
    written: str = safe.rename(names).write_csv(**options)
    return written
