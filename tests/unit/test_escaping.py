"""Text that others wrote is escaped in Markdown and CSV, and on a terminal."""

import csv
import io

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from tokengraft.cli.console import HarmlessConsole
from tokengraft.core.wording import as_csv, in_code, in_markdown

LIVE = "\\`*_[]<|~"


@given(st.text(alphabet=st.sampled_from(["a", " ", "\n", "#", "-", "1", ".", ">", *LIVE])))
def test_nothing_in_a_line_is_live(text: str) -> None:
    line = in_markdown(text)
    assert "\n" not in line
    bare = line.replace("\\\\", "")
    for mark in LIVE.replace("\\", ""):
        assert bare.count(mark) == bare.count(f"\\{mark}")
    assert not line.lstrip().startswith(("#", "-", ">", "+", "="))


def test_a_code_span_ends_where_it_should() -> None:
    assert in_code("a`b\n|c") == "`a'b ¦c`"


@pytest.mark.parametrize("cell", ["=1+2", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_is_a_formula(cell: str) -> None:
    frame = pl.DataFrame({"name": [cell, "plain", None], "number": [-1.5, 2, 3]})
    rows = list(csv.DictReader(io.StringIO(as_csv(frame), newline="")))
    assert rows[0] == {"name": f"'{cell}", "number": "-1.5"}
    assert [row["name"] for row in rows[1:]] == ["plain", ""]
    titled = as_csv(pl.DataFrame({cell: [1], f"a{cell}": [2]}))
    assert next(csv.reader(io.StringIO(titled, newline=""))) == [f"'{cell}", f"a{cell}"]


def test_a_terminal_is_given_no_orders() -> None:
    """A file in a graft may be called `\x1b[2J.py`, and `verify` names it."""
    out = io.StringIO()
    console = HarmlessConsole(file=out, force_terminal=True, color_system=None, width=60)
    table = Table("language")
    table.add_row("a\x1b]0;b\x07\x9b2J")
    console.print("one\ntwo \x1b[2J\x9b31m\x7f", table, markup=False)
    assert "one\ntwo ?[2J?31m?\n" in out.getvalue() and "a?]0;b?2" in out.getvalue()
    assert not set(out.getvalue()) & {"\x1b", "\x07", "\x7f", "\x9b"}
