"""Planning text is read once, counted, and never kept."""

import gzip
import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.corpus.lines_of import CountedText, count_chunks, count_text, lines_of
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning
from tokengraft.tokenizer.sources import bundled

LINES = ["ሰላም ለዓለም", "", "ሰላም  ሰላም ለሁሉም", " ዓለም", "ሰው ሁሉ"] * 40


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20)))
@example(["0\r"])
def test_chunks_spell_the_lines(lines: list[str]) -> None:
    letters = sum(len(chunk.removeprefix(" ")) * n for chunk, n in count_chunks(lines).items())
    assert letters == sum(len(line.replace(" ", "")) for line in lines)


@given(st.lists(st.text(alphabet="ab ", max_size=8), max_size=12), st.integers(0, 12))
def test_counts_of_parts_add_up(lines: list[str], cut: int) -> None:
    assert count_chunks(lines[:cut]) + count_chunks(lines[cut:]) == count_chunks(lines)


def test_sample_is_the_first_lines_that_hold_anything() -> None:
    lines = ["", " "] * 600 + [f"line {n}" for n in range(700)]
    text = count_text(iter(lines))
    assert text.sample == tuple(lines[1200:1700])
    assert text.chunks == count_chunks(lines)


def test_a_plan_depends_on_counts_alone() -> None:
    def lines() -> Iterator[str]:
        yield from LINES

    base = json.loads(bundled("llama-3").read("tokenizer.json"))
    whole = plan_tokens(base, {"amh_Ethi": LINES}, Planning(budget=30))
    streamed = plan_tokens(base, {"amh_Ethi": lines()}, Planning(budget=30))
    chunks = list(count_chunks(LINES).items())
    random.Random(1).shuffle(chunks)
    counted = plan_tokens(
        base, {"amh_Ethi": CountedText(dict(chunks), count_text(LINES).sample)}, Planning(budget=30)
    )
    assert whole == streamed == counted
    with pytest.raises(UsageError, match="whole lines"):
        plan_tokens(base, {"amh_Ethi": count_text(LINES)}, Planning(mode="paper"))


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_lines_of_files(tmp_path: Path, suffix: str, pack: object) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(b"\xef\xbb\xbfone\r\n\n  \ntwo\xe2\x80\xa8three\nfour"))
    assert list(lines_of([path, path])) == ["one", "two\u2028three", "four"]


ODD = "\r\x0b\x0c\x1c\x1e\x85\u2028\u2029\u00a0\ufeff\u200b"  # no end of a line, any of them


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".parquet", "given"])
def test_lines_are_read_as_they_were_written(tmp_path: Path, suffix: str) -> None:
    texts = [text for odd in ODD for text in (f"a{odd}b", f"b{odd}", f"{odd}c", f"d{odd}{odd}")]
    path = tmp_path / f"a{suffix}"
    if suffix == ".txt":  # CR LF, so that a CR in front of it is text
        path.write_bytes("".join(f"{text}\r\n" for text in texts).encode())
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    elif suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    assert list(lines_of(texts if suffix == "given" else path)) == texts


def test_a_row_of_several_lines_ends_them_as_a_file_does(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "one\r\ntwo\n\r\n three \r\r\nfour\r"}), "utf-8")
    assert list(lines_of(path)) == ["one", "two", " three \r", "four\r"]
    assert list(count_chunks(["a\r\n", "b\r", "c\n"])) == ["a", "b\r", "c"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "a.txt",
            b"fine\n\xff\xfe broken\n",
            r"line 2: not valid UTF-8 at byte 0 .*\(0xff\)",
        ),
        ("a.txt", b"fine\nnul \x00\n", "line 2: holds a NUL"),
        ("a.txt", b" \n\n", "no line of text"),
        ("a.jsonl", b'{"text": "a"}\x0b\n', "line 1: not JSON .Extra data"),
        ("a.jsonl", '{"text": "a"}\u2028\n'.encode(), "line 1: not JSON .Extra data"),
        ("a.txt.gz", gzip.compress(b"text\n" * 9999, mtime=0)[:-20], "cannot be read"),
        ("a.txt.gz", b"no gzip", "cannot be read"),
        ("a.txt.xz", lzma.compress(b"text\n" * 9999)[:-20], "cannot be read"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        list(lines_of(path))
