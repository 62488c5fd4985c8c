"""What is wrong with a user's text is said with file and line, and with what to do."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

import tokengraft as tg
from tokengraft.core.errors import CorpusError
from tokengraft.corpus import load, load_pairs
from tokengraft.corpus.layout import read_lines
from tokengraft.corpus.lines_of import lines_of


def texts(root: Path, **files: bytes) -> Path:
    for code, data in files.items():
        (root / f"{code}.txt").write_bytes(data)
    return root


def test_different_numbers_of_lines_name_both_files(tmp_path: Path) -> None:
    texts(tmp_path, deu_Latn=b"1\n", eng_Latn=b"1\n2\n", fra_Latn=b"1\n2\n", spa_Latn=b"1\n2\n3\n")
    with pytest.raises(CorpusError) as caught:
        load(tmp_path)
    message = str(caught.value)
    assert message.startswith("deu_Latn is not parallel: deu_Latn.txt in ")
    assert "has 1 lines, eng_Latn.txt in" in message
    assert "has 2. 1 more languages deviate" in message


def test_pairs_with_different_numbers_of_lines(tmp_path: Path) -> None:
    texts(tmp_path, a=b"1\n2\n", b=b"1\n2\n3\n")
    with pytest.raises(CorpusError, match=r"b\.txt has 3 lines, .*a\.txt has 2"):
        load_pairs([f"eng_Latn={tmp_path}/a.txt", f"deu_Latn={tmp_path}/b.txt"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"fine\nbad \xff byte\n", r"eng_Latn\.txt in .*, line 2: byte 9 \(0xff\) is not valid"),
        (b"\xef\xbb\xbffine\n\xe1\x80", r"line 2: byte 8 \(0xe1\) is not valid UTF-8"),
        (b"\xff\xfeH\0i\0", "line 1: byte 0 .* UTF-16"),
        (b"a\nb\nc\0d\n", r"eng_Latn\.txt in .*, line 3: byte 5 is NUL"),
        (b"a\n\nb\n", r"eng_Latn\.txt in .*, line 2 is empty"),
        (b"a\n\xe2\x80\x83 \t\nb\n", "line 2 is empty"),
        (b"a\n\n\n\n\n\n\n", r"lines 2, 3, 4, 5, 6, … are empty \(6 in all\)"),
        (b"", r"eng_Latn\.txt in .* is empty"),
    ],
)
def test_bad_lines(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        load(texts(tmp_path, eng_Latn=data, deu_Latn=b"1\n2\n"))


def test_bad_bytes_in_an_archive_name_the_member(tmp_path: Path) -> None:
    texts(tmp_path, eng_Latn=b"a\n\xff\n")
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz") as file:
        file.add(tmp_path / "eng_Latn.txt", "dev/eng_Latn.dev")
    with pytest.raises(CorpusError, match=r"dev/eng_Latn\.dev in .*t\.tar\.gz, line 2: byte 2"):
        load(tmp_path / "t.tar.gz")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("englisch", "eng_Latn (English)"), ("shn_mymm", "shn_Mymr (Shan)"), ("Shann", "shn_Mymr")],
)
def test_a_file_named_by_no_code(tmp_path: Path, name: str, suggestion: str) -> None:
    with pytest.raises(CorpusError) as caught:
        load(texts(tmp_path, eng_Latn=b"1\n", **{name: b"1\n"}))
    assert f"{name}.txt in {tmp_path}: '{name}' is not a language code" in str(caught.value)
    assert suggestion in str(caught.value)


def test_duplicate_codes(tmp_path: Path) -> None:
    texts(tmp_path, eng_Latn=b"1\n")
    (tmp_path / "more").mkdir()
    texts(tmp_path / "more", eng_Latn=b"1\n")
    with pytest.raises(CorpusError, match=r"eng_Latn occurs twice: eng_Latn\.txt and more/eng_"):
        load(tmp_path)
    pair = f"{tmp_path}/eng_Latn.txt"
    with pytest.raises(CorpusError, match="eng_Latn is given twice"):
        load_pairs([f"eng={pair}", f"eng_Latn={pair}"])


def test_bad_pairs(tmp_path: Path) -> None:
    path = texts(tmp_path, a=b"1\n") / "a.txt"
    with pytest.raises(CorpusError, match=r"needs two or more .*--monolingual -l CODE"):
        load_pairs([f"eng_Latn={path}"])
    with pytest.raises(CorpusError, match=r"is not code=path: say each .* like eng_Latn=/"):
        load_pairs([str(path), f"eng_Latn={path}"])
    with pytest.raises(CorpusError, match=r"'eng=' is not code=path: .* like eng_Latn=english"):
        load_pairs(["eng=", f"eng_Latn={path}"])
    with pytest.raises(CorpusError, match=r"none\.txt cannot be read: No such file"):
        load_pairs([f"eng_Latn={path}", f"deu_Latn={tmp_path}/none.txt"])
    with pytest.raises(CorpusError, match="code=path pair; two or more"):
        load(f"eng_Latn={path}")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "t.tsv",
            "eng_Latn\tdeu_Latn\na\tb\nc\n",
            r"t\.tsv, line 3: 1 cell, but the header has 2",
        ),
        ("t.tsv", "eng_Latn\teng_Latn\na\tb\n", r"t\.tsv: the column 'eng_Latn' occurs twice"),
        ("t.tsv", "eng_Latn\tGermann\na\tb\n", r"t\.tsv, column 'Germann': .*deu_Latn \(German\)"),
        ("t.tsv", "eng_Latn\tsource\na\tb\n", r"t\.tsv, column 'source': 'source' is not a lang"),
        ("t.tsv", "eng_Latn\tzh\na\tb\n", r"t\.tsv, column 'zh': .*ambiguous.*zho_Hans.*zho_Hant"),
        ("t.tsv", "en\tEnglish\na\tb\n", r"the columns 'en' and 'English' are both eng_Latn"),
        ("t.tsv", "eng_Latn\tdeu_Latn\n", r"t\.tsv has no rows"),
        ("t.tsv", "", r"t\.tsv is empty"),
        ("t.csv", 'eng_Latn,deu_Latn\na,b\n"c,d\n', r"t\.csv, line 3: not valid CSV"),
        ("t.csv", 'eng_Latn,deu_Latn\n"a\nb",c\nd\n', r"t\.csv, line 4: 1 cell,"),
        ("t.jsonl", '{"eng_Latn": "a"}\n{"eng_Latn"\n', r"t\.jsonl, line 2: not JSON"),
        ("t.jsonl", '{"eng_Latn": "a"}\n\n', r"t\.jsonl, line 2: not JSON"),
        ("t.jsonl", "[1]\n", r"t\.jsonl, line 1: list, not an object"),
        ("t.jsonl", '{"eng_Latn": "\\ud800"}\n', r"t\.jsonl, line 1: holds half of a surrogate"),
        ("t.jsonl", '{"eng_Latn": "a\\u0000"}\n', r"t\.jsonl, line 1: eng_Latn holds a NUL"),
        ("t.jsonl", '{"eng_Latn": 3}\n', r"t\.jsonl, line 1: eng_Latn is 3, not a text"),
        (
            "t.jsonl",
            '{"eng_Latn": "a", "eng_Latn": "b"}\n',
            r"line 1: the key 'eng_Latn' occurs twice",
        ),
        (
            "t.jsonl",
            '{"eng_Latn": "a"}\n{"eng_Latn": " "}\n',
            r"t\.jsonl, column eng_Latn: line 2 is empty; write null",
        ),
        (
            "t.jsonl",
            '{"id": 1, "eng_Latn": "a"}\n{"id": 1, "eng_Latn": "b"}\n',
            r"t\.jsonl, line 2: unit 1 occurs twice",
        ),
        (
            "t.jsonl",
            '{"language": "eng_Latn", "text": "a"}\n',
            r"t\.jsonl has no column id",
        ),
        (
            "t.jsonl",
            '{"language": "eng_Latn", "id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n',
            r"t\.jsonl, line 2: no language",
        ),
        (
            "t.jsonl",
            '{"language": "eng_Latn", "id": 1, "text": "a"}\n' * 2,
            r"t\.jsonl, line 2: eng_Latn has unit 1 twice",
        ),
        (
            "t.jsonl",
            '{"language": "Shann", "id": 1, "text": "a"}\n',
            r"t\.jsonl, line 1: 'Shann' is not a language code.*shn_Mymr \(Shan\)",
        ),
        ("t.parquet", "no parquet", r"t\.parquet is not a readable Parquet file"),
    ],
)
def test_bad_tables(tmp_path: Path, name: str, data: str, message: str) -> None:
    (tmp_path / name).write_text(data, encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        load(tmp_path / name)


def test_several_wide_tables_are_no_corpus(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.tsv").write_text("eng_Latn\tdeu_Latn\na\tb\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"a\.tsv in .* give the path of that one file"):
        load(tmp_path)


def test_what_is_no_corpus_is_answered_with_the_layouts(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"No parallel text recognised in [^\n]*\nLayouts that"):
        load(tmp_path)
    with pytest.raises(CorpusError, match=r"known name \(udhr, .*Did you mean udhr\?\nLayouts"):
        load("uhdr")
    path = texts(tmp_path, eng_Latn=b"1\n") / "eng_Latn.txt"
    with pytest.raises(CorpusError, match=r"is one text file; give code=path pairs.*--monolingual"):
        load(path)


@pytest.mark.parametrize("name", ["t.tar.xz", "t.tar.gz", "t.zip"])
def test_damaged_archives(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not an archive")
    with pytest.raises(CorpusError, match=f"{name} is damaged or not an archive"):
        load(tmp_path / name)


def test_truncated_archive(tmp_path: Path) -> None:
    texts(tmp_path, eng_Latn=b"a line of text\n" * 9999)
    with tarfile.open(tmp_path / "t.tar.xz", "w:xz") as file:
        file.add(tmp_path / "eng_Latn.txt", "eng_Latn.txt")
    data = (tmp_path / "t.tar.xz").read_bytes()
    (tmp_path / "t.tar.xz").write_bytes(data[:-40])
    with pytest.raises(CorpusError, match=r"t\.tar\.xz is damaged"):
        load(tmp_path / "t.tar.xz")


def test_only_utf_16_is_called_so(tmp_path: Path) -> None:
    """The mark of UTF-16 in a later line, or before UTF-8, is a broken byte like any other."""
    path = tmp_path / "x.txt"
    for data, wanted in (
        ("Hi there\nyou".encode("utf-16"), True),
        (b"one\n\xff\xfetwo\n", False),
        (b"\xff\xfeone\ntwo\n", False),
    ):
        path.write_bytes(data)
        ways = (lambda: read_lines(path.read_bytes(), "x"), lambda: list(lines_of(path)))
        for read in ways:
            with pytest.raises(CorpusError, match="not valid UTF-8") as error:
                read()
            assert ("looks like UTF-16" in str(error.value)) == wanted


def test_lines_that_are_empty_in_a_language_can_be_left_out(
    tmp_path: Path, tokengraft: Any
) -> None:
    texts = {"eng_Latn": "one\ntwo\nthree\nfour\n", "nah_Latn": "ce\n\nyei\n  \n"}
    files = {code: tmp_path / f"{code}.txt" for code in texts}
    for code, file in files.items():
        file.write_text(texts[code])
    pairs = [f"{code}={file}" for code, file in files.items()]
    for where in (pairs, tmp_path):
        with pytest.raises(CorpusError, match=r"lines 2, 4 are empty .*--skip-empty"):
            tg.audit(where, ["gpt2"])
        found = tg.audit(where, ["gpt2"], skip_empty=True, resamples=0)
        assert found.corpus.units == 2 and found.facts["corpus"]["left_out"] == 2
        assert found.premiums["n"].to_list() == [2, 2]
    compared = tg.compare("gpt2", "llama-3", tmp_path, skip_empty=True)
    assert compared.facts["corpus"]["left_out"] == 2
    for verb in (["audit", str(tmp_path), "-t", "gpt2"], ["compare", "gpt2", "llama-3",
                 "--corpus", str(tmp_path)]):  # fmt: skip
        ran = tokengraft(*verb, "--skip-empty")
        assert ran.returncode == 0 and "2 lines left out in every language" in ran.stderr
    files["nah_Latn"].write_text("\n\n\n\n")
    with pytest.raises(CorpusError, match="every line is empty"):
        tg.audit(tmp_path, ["gpt2"], skip_empty=True)
