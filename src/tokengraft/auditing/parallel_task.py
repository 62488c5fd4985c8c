"""A parallel corpus in memory on any engine: one item a tokenizer and language."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokengraft.auditing.count import count
from tokengraft.engine.protocol import Report
from tokengraft.tokenizer import Tokenizer
from tokengraft.tokenizer.packed import Packed


@dataclass(frozen=True)
class Cell:
    """A language's lines, to be counted with one tokenizer; see `engine.Item`."""

    tokenizer: str
    language: str
    lines: tuple[str, ...]

    @property
    def name(self) -> str:
        """Tokenizer and language, for messages."""
        return f"{self.language} with {self.tokenizer}"

    @property
    def size(self) -> int:
        """Characters."""
        return sum(map(len, self.lines))


@dataclass(frozen=True)
class CellTask:
    """Count cells exactly as an audit does; see `engine.Task`. A result is packed `Counts`."""

    tokenizers: tuple[Packed, ...]
    sample_lines: int | None

    def open(self, threads: int) -> Callable[[Cell, Report], bytes]:
        """A counter that opens each tokenizer when it is first needed."""
        del threads
        packed = {one.name: one for one in self.tokenizers}
        opened: dict[str, Tokenizer] = {}

        def count_cell(cell: Cell, report: Report) -> bytes:
            if cell.tokenizer not in opened:
                opened[cell.tokenizer] = packed[cell.tokenizer].open()
            counts = count(opened[cell.tokenizer], cell.lines, self.sample_lines)
            report(len(cell.lines), cell.size, int(counts.tokens.sum()), 1.0)
            return counts.pack()

        return count_cell
