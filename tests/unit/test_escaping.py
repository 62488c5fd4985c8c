"""Text that others wrote is escaped in Markdown and CSV."""

import csv
import io

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
