"""Tables that fit the terminal: text folds, columns move to a second table, nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

_EDGES = 3  # a cell's two spaces and the line behind it
_NARROW = 12  # text may be folded to this width, numbers and codes never


@dataclass(frozen=True)
class Column:
    """A title and its cells, in rich's markup; `text` may be folded over several lines."""

    title: str
    cells: Sequence[str]
    text: bool = False
    right: bool = True

    @cached_property
    def widest(self) -> int:
        """Width at which nothing is folded."""
        return max([len(self.title), *self._widths])

    @cached_property
    def narrowest(self) -> int:
        """Width below which a number, a code or a word of the title would be broken."""
        title = max(map(len, self.title.split()), default=0)
        cells = max(self._widths, default=0)
        return max(title, min(cells, _NARROW) if self.text else cells)

    @cached_property
    def _widths(self) -> list[int]:
        return [Text.from_markup(cell).cell_len for cell in self.cells]


def code_column(title: str, cells: Sequence[str]) -> Column:
    """Names, codes, ids: flush left and never broken."""
    return Column(title, [escape(cell) for cell in cells], right=False)


def text_column(title: str, cells: Sequence[str]) -> Column:
    """Words: flush left, folded where room is scarce."""
    return Column(title, [escape(cell) for cell in cells], text=True, right=False)


def print_table(
    console: Console,
    keys: Sequence[Column],
    values: Sequence[Column],
    title: str | None = None,
    caption: str | None = None,
) -> None:
    """Print the columns as one table, or as several that each begin with the keys.

    Numbers and codes are never broken or cut as long as the widest of them and the first key fit
    the console. The other keys are left out where they leave no room for any value.
    """
    room = console.width - 1
    first, *others = keys
    tightest = first.narrowest + max((v.narrowest for v in values), default=0) + 2 * _EDGES
    kept = [first]
    for key in others:
        tightest += key.narrowest + _EDGES
        if tightest <= room:
            kept.append(key)
    parts = list(_parts(kept, values, room))
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        table = Table(title=title if number == 1 else None, caption=caption if last else None)
        columns = [*kept, *part]
        for column, width in zip(columns, _widths(columns, room), strict=True):
            justify: Literal["left", "right"] = "right" if column.right else "left"
            table.add_column(escape(column.title), justify=justify, width=width, overflow="fold")
        for row in zip(*(column.cells for column in columns), strict=True):
            table.add_row(*row)
        console.print(table)


def _parts(keys: Sequence[Column], values: Sequence[Column], room: int) -> Iterator[list[Column]]:
    left = room - sum(key.narrowest + _EDGES for key in keys)
    part: list[Column] = []
    used = 0
    for value in values:
        if part and used + value.narrowest + _EDGES > left:
            yield part
            part, used = [], 0
        part.append(value)
        used += value.narrowest + _EDGES
    yield part


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """As wide as need be, the room that is left shared out from the narrowest up."""
    widths = [column.narrowest for column in columns]
    spare = room - sum(widths) - _EDGES * len(columns)
    while spare > 0:
        short = [n for n, column in enumerate(columns) if widths[n] < column.widest]
        if not short:
            break
        widths[min(short, key=widths.__getitem__)] += 1
        spare -= 1
    return widths
