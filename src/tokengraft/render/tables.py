"""A table as data (CSV, Parquet, JSON), in Markdown and in a notebook.

What a reader sees is a `Printed` table; `render.latex` sets it for a paper.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from tokengraft.core.errors import TokengraftError
from tokengraft.core.files import write_text, writing
from tokengraft.core.untrusted import read_bounded
from tokengraft.core.wording import as_csv, in_cell, in_markdown

_NOTEBOOK_ROWS = 20  # of a table that a notebook shows


@dataclass(frozen=True)
class Cell:
    """A printed cell: its text, its value for the colour scale, whether UNK spoils it.

    `beside` is set after the text in smaller type: the interval of a figure.
    """

    text: str
    value: float | None = None
    spoilt: bool = False
    beside: str = ""

    @property
    def plain(self) -> str:
        """All that the cell says, without type or colour."""
        return self.text + "†" * self.spoilt + (f" {self.beside}" if self.beside else "")


@dataclass(frozen=True)
class Printed:
    """A table as a reader sees it; Markdown and LaTeX are two renderings of it."""

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left: int = 1  # how many leading columns hold text, set flush left
    codes: int | None = None  # the column that holds language codes, set in typewriter
    notes: Sequence[str] = ()


def write_data(frame: pl.DataFrame, stem: Path) -> list[Path]:
    """Write `frame` as `stem`.csv, .parquet and .json without loss of precision.

    CSV holds the shortest decimal that reads back as the same float, null as nothing and the empty
    string as `""`. JSON is a list of records, one per line, NaN and infinities as null.
    """
    csv, parquet = write_text(stem.with_suffix(".csv"), as_csv(frame)), stem.with_suffix(".parquet")
    with writing(parquet) as temporary, temporary.open("wb") as file:
        # In memory first: polars takes no path that is not UTF-8, and a full disk is its own error.
        held = io.BytesIO()
        frame.write_parquet(held)
        file.write(held.getbuffer())
    lines = ",\n".join(json.dumps(_plain(row), ensure_ascii=False) for row in frame.to_dicts())
    return [csv, parquet, write_text(stem.with_suffix(".json"), f"[\n{lines}\n]\n")]


def read_data(folder: Path, name: str) -> Callable[[], pl.DataFrame] | None:
    """A function that reads a saved run's table in its most exact form; None if there is none."""
    for suffix, read in (("parquet", pl.read_parquet), ("csv", pl.read_csv)):
        path = folder / "tables" / f"{name}.{suffix}"
        if path.is_file():
            return partial(_reading, path, read)
    return None


def _reading(path: Path, read: Callable[[bytes], pl.DataFrame]) -> pl.DataFrame:
    with reading_back(path, "table"):
        return read(read_bounded(path, TokengraftError))


@contextmanager
def reading_back(place: Path | str, called: str) -> Iterator[None]:
    """Report what is missing or of the wrong kind in a saved result as a TokengraftError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, PolarsError) as error:
        raise TokengraftError(f"{place}: this {called} is damaged ({error!r})") from error


def html(title: str, frame: pl.DataFrame) -> str:
    """The first rows of a table for a notebook, under a title; all content is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in frame.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row) + "</tr>"
        for row in frame.head(_NOTEBOOK_ROWS).rows()
    )
    rest = frame.height - _NOTEBOOK_ROWS
    more = f"<p>… and {rest:,} more rows</p>" if rest > 0 else ""
    return f"<p>{escape(title)}</p><table><tr>{head}</tr>{rows}</table>{more}"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else f"{value:,}" if type(value) is int else str(value)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


def markdown(table: Printed) -> str:
    """The table in Markdown with its caption above and notes below."""
    aligned = [":---" if n < table.left else "---:" for n in range(len(table.header))]
    lines = [list(map(in_cell, table.header)), aligned]
    lines += [[in_cell(c.plain) for c in row] for row in table.rows]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    notes = "".join(f"\n{in_markdown(note)}\n" for note in table.notes)
    return f"**{in_markdown(table.caption)}**\n\n{body}\n{notes}"
