"""Readers of large corpora: every line exactly once wherever files are cut, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.corpus import archive as streams
from tokengraft.corpus.archive import Broken, bounded_lines, decompressed
from tokengraft.corpus.rows import BadRow, Layout, Seen, parse_record, read_rows
from tokengraft.corpus.shards import cut, cut_aligned, find_files

pytest.importorskip("pyarrow.parquet", reason="the extra `scale` is not installed")
zstandard = pytest.importorskip("zstandard", reason="the extra `scale` is not installed")
pyarrow = pytest.importorskip("pyarrow", reason="the extra `scale` is not installed")


@given(
    data=st.text(alphabet="ab\n", max_size=60).map(str.encode),
    cuts=st.lists(st.integers(1, 60), max_size=5),
    block=st.integers(1, 9),
    limit=st.integers(1, 12),
)
def test_each_line_belongs_to_exactly_one_range(
    data: bytes, cuts: list[int], block: int, limit: int
) -> None:
    expected = []
    offset = 0
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for line in lines:
        expected.append((offset, line if len(line) <= limit else None))
        offset += len(line) + 1
    borders = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", block)
        found = [
            pair
            for start, stop in itertools.pairwise(borders)
            for pair in bounded_lines(io.BytesIO(data), limit, start, stop)
        ]
    assert found == expected


def packed(kind: str, data: bytes) -> bytes:
    return {
        "gz": gzip.compress,
        "xz": lzma.compress,
        "bz2": bz2.compress,
        "zst": zstandard.ZstdCompressor().compress,
    }[kind](data)


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2", "zst"])
def test_compressed_streams_of_several_members_read_whole(kind: str) -> None:
    data = b"".join(b"%d line\n" % n for n in range(5000))
    raw = packed(kind, data[:20_000]) + packed(kind, data[20_000:])
    assert decompressed(io.BytesIO(raw), kind).read() == data


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2", "zst"])
@pytest.mark.parametrize("damage", ["cut", "garbage behind", "garbage inside", "not at all"])
def test_damaged_streams_are_broken_not_short(kind: str, damage: str) -> None:
    good = packed(kind, b"".join(b"%d line\n" % (n * n) for n in range(5000)))
    middle = len(good) // 2
    raw = {
        "cut": good[:-9],
        "garbage behind": good + b"garbage, and not little of it",
        "garbage inside": good[:middle] + b"\xff" * 40 + good[middle + 40 :],
        "not at all": b"plain text\n" * 50,
    }[damage]
    if (kind, damage) in {("bz2", "garbage behind"), ("xz", "garbage behind")}:
        # Their libraries end at the last whole member; all that was packed has been read.
        assert (
            decompressed(io.BytesIO(raw), kind).read()
            == decompressed(io.BytesIO(good), kind).read()
        )
        return
    with pytest.raises(Broken):
        list(bounded_lines(decompressed(io.BytesIO(raw), kind), 1 << 20))


def rows_of(path: Path, layout: Layout, shard_bytes: int = 1 << 20) -> tuple[list[object], Seen]:
    seen = Seen()
    rows = [
        row
        for shard in cut(find_files([path]), shard_bytes)
        for batch in read_rows(shard, layout, seen)
        for row in batch.rows
    ]
    return rows, seen


def test_text_rows_are_lines_without_ends_and_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n \t\ntwo\xe2\x80\xa8still two\nlast")
    rows, seen = rows_of(path, Layout(language="eng_Latn"))
    assert rows == [
        (("eng_Latn", "one", 3),),
        (("eng_Latn", "two\u2028still two", 15),),
        (("eng_Latn", "last", 4),),
    ]
    assert (seen.lines, seen.blank, seen.bad) == (5, 2, 0)


def test_language_by_column_path_detector_or_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shn").mkdir()
    path = tmp_path / "shn" / "a.jsonl"
    path.write_text('{"text": "x", "l": "de"}\n{"text": "yy", "l": "fr"}\n')

    def languages(layout: Layout) -> list[str]:
        return [row[0][0] for row in rows_of(path, layout)[0]]  # type: ignore[index]

    assert languages(Layout(language_column="l")) == ["deu_Latn", "fra_Latn"]
    for french in ("fr", "fra_Latn", "French"):
        assert languages(Layout(language_column="l", only=(french,))) == ["fra_Latn"]
    assert languages(Layout(language_from_path=r"/([a-z]{3})/a")) == ["shn_Mymr", "shn_Mymr"]
    assert languages(Layout()) == ["und", "und"]
    (tmp_path / "my_detector.py").write_text(
        "def detect(text):\n    return 'long' if len(text) > 1 else None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert languages(Layout(detector="my_detector:detect")) == ["und", "long"]
    assert languages(Layout(detector="my_detector:detect", only=("long",))) == ["long"]


def test_labels_of_the_data_that_mean_no_single_language_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    labels = ["zh", "klingon", "tlh", "sr", "und", "__label__en"]
    path.write_text("".join(json.dumps({"text": "x", "l": label}) + "\n" for label in labels))
    rows, _ = rows_of(path, Layout(language_column="l"))
    assert [row[0][0] for row in rows] == labels  # type: ignore[index]
    rows, _ = rows_of(path, Layout(language_column="l", only=("zh",)))
    assert [row[0][0] for row in rows] == ["zh"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "a", "language_column": "b"}, "both say the language"),
        ({"language_from_path": "web/"}, "has no group"),
        ({"language_from_path": "("}, "language-from-path"),
        ({"max_row_bytes": 0}, "max-row-bytes"),
    ],
)
def test_impossible_layouts_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Layout(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["nothing", "no.such.module:f", "json:nothing", "json:__name__"])
def test_detectors_that_are_none_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    with pytest.raises(UsageError, match="--detector"):
        rows_of(tmp_path / "a.txt", Layout(detector=name))


@pytest.mark.parametrize(
    "line",
    [
        b"[1]",
        b"nothing",
        b'{"text": "a", "text": "b"}',
        b'{"text": "\xff"}',
        b'{"text": "a\x00b"}',
        b"[" * 100_000,
        b'{"text": ' + b"9" * 5000 + b"}",
    ],
)
def test_lines_that_are_no_object_are_bad(line: bytes) -> None:
    with pytest.raises(BadRow):
        parse_record(line)


@pytest.mark.parametrize("line", [b' {"text": "a"}', b'{"text": "a"} \t\r', b'\t{"text":"a"}\r'])
def test_space_around_an_object_changes_nothing(line: bytes) -> None:
    assert parse_record(line) == {"text": "a"}


@pytest.mark.parametrize("group", [1, 7, 100])
def test_parquet_reads_only_the_columns_it_needs(tmp_path: Path, group: int) -> None:
    path = tmp_path / "a.parquet"
    table = pyarrow.table(
        {
            "junk": [b"\xff"] * 50,
            "text": [f"row {n}" for n in range(50)],
            "lang": pyarrow.array(["de", "fr"] * 25).dictionary_encode(),
        }
    )
    pyarrow.parquet.write_table(table, path, row_group_size=group)
    rows, seen = rows_of(path, Layout(language_column="lang"), shard_bytes=200)
    codes = ("deu_Latn", "fra_Latn")
    expected = [((codes[n % 2], f"row {n}", len(f"row {n}")),) for n in range(50)]
    assert rows == expected
    assert seen.lines == 50


def test_a_file_that_changes_while_it_is_counted_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    shards = cut(find_files([path]))
    path.write_text("one\ntwo\n")
    with pytest.raises(CorpusError, match="changed while"):
        list(read_rows(shards[0], Layout(), Seen()))


def test_sources_by_glob_folder_and_url(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl.gz", "c.txt.zst", "d.parquet", "[e].jsonl", "README.md"):
        (tmp_path / name).write_bytes(b"")
    found = find_files([tmp_path])
    assert {Path(f.url).name: (f.format, f.compression) for f in found} == {
        "a.jsonl": ("jsonl", ""),
        "b.jsonl.gz": ("jsonl", "gz"),
        "c.txt.zst": ("text", "zst"),
        "d.parquet": ("parquet", ""),
        "[e].jsonl": ("jsonl", ""),
    }
    twice = find_files([tmp_path / "*.jsonl*", tmp_path / "[e].jsonl", tmp_path / "a.jsonl"])
    assert len(twice) == 3
    import fsspec

    with fsspec.open("memory://scale/x.jsonl", "wb") as file:
        file.write(b'{"text": "from afar"}\n' * 3)
    (remote,) = find_files(["memory://scale/*.jsonl"])
    rows = [
        row for s in cut([remote], 30) for b in read_rows(s, Layout(), Seen()) for row in b.rows
    ]
    assert rows == [(("und", "from afar", 9),)] * 3


@pytest.mark.parametrize("source", ["nothing.jsonl", "*.jsonl", "memory://none/*.jsonl"])
def test_sources_that_match_nothing_are_errors(source: str, tmp_path: Path) -> None:
    where = source if "://" in source else str(tmp_path / source)
    with pytest.raises(CorpusError, match="no such file"):
        find_files([where])


def test_a_suffix_that_says_nothing_needs_a_format(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_text("x\n")
    with pytest.raises(UsageError, match="--format"):
        find_files([tmp_path / "a.dat"])
    assert find_files([tmp_path / "a.dat"], "text")[0].format == "text"


@pytest.mark.parametrize("shard_bytes", [40, 200, 10_000])
def test_aligned_files_are_cut_at_the_same_lines(tmp_path: Path, shard_bytes: int) -> None:
    sides = {code: [f"{code} {n} " + "x" * (n % 7 * k) for n in range(60)] for code, k in
             (("eng_Latn", 1), ("deu_Latn", 3))}  # fmt: skip
    files = []
    for code, lines in sides.items():
        path = tmp_path / f"{code}.txt"
        path.write_text("\n".join(lines) + "\n" * (code == "eng_Latn"))
        files.append((code, find_files([path])[0]))
    shards = cut_aligned(files, shard_bytes)
    assert (len(shards) > 1) == (shard_bytes < 10_000)
    layout = Layout(aligned=True)
    rows = [row for s in shards for b in read_rows(s, layout, Seen()) for row in b.rows]
    units = zip(*sides.values(), strict=True)
    assert [tuple(text for _, text, _ in row) for row in rows] == [
        tuple(text.strip() for text in unit) for unit in units
    ]


def test_long_lines_are_bad_rows_in_little_memory(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "a.jsonl.zst"
    compressor = zstandard.ZstdCompressor()
    with path.open("wb") as raw, compressor.stream_writer(raw) as file:
        file.write(json.dumps({"text": "before"}).encode() + b'\n{"text": "')
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n' + json.dumps({"text": "behind"}).encode())
    tracemalloc.start()
    rows, seen = rows_of(path, Layout())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [row[0][1] for row in rows] == ["before", "behind"]  # type: ignore[index]
    assert seen.listed == [(2, "longer than --max-row-bytes 2,097,152")]
    assert peak < 120e6
