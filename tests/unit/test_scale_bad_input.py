"""Bad input at scale: a clear stop with file and line, or a listed skip; never a wrong count."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tokengraft.api.results import Audit
from tokengraft.api.verbs import survey
from tokengraft.core.errors import CorpusError, MissingExtra
from tokengraft.corpus.rows import Layout
from tokengraft.tokenizer import load as load_tokenizer

zstandard = pytest.importorskip("zstandard", reason="the extra `scale` is not installed")
pyarrow = pytest.importorskip("pyarrow", reason="the extra `scale` is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `scale` is not installed")

GOOD = [f"Row {n} is good, {n * n}." for n in range(200)]


def lines(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def tokens(texts: list[str]) -> list[int]:
    """What one row after the other gives: rows, bytes, tokens."""
    ids = load_tokenizer("rootstock").encode(texts)
    return [len(texts), sum(len(t.encode()) for t in texts), sum(map(len, ids))]


def run(where: Path, skip_bad: bool = False, **options: object) -> Audit:
    options = {"layout": Layout(), "workers": 1, "shard_bytes": 2_000} | options
    state = where.parent / "state"
    return survey([where], ["rootstock"], skip_bad=skip_bad, state=state, **options)  # type: ignore[arg-type]


def counted(result: Audit) -> list[int]:
    rows, size, _ = result.total.payload["text"]["und"]
    return [rows, size, result.total.payload["tokens"]["rootstock"]["und"][0]]


BAD_LINES = {
    "NUL byte": b'{"text": "a\x00b"}',
    "escaped NUL": b'{"text": "a\\u0000b"}',
    "lone surrogate": b'{"text": "a\\ud800b"}',
    "reversed pair": b'{"text": "\\udc00\\ud800"}',
    "not UTF-8": b'{"text": "a\xffb"}',
    "UTF-16": '{"text": "a"}'.encode("utf-16-le"),
    "cut off": b'{"text": "a',
    "two objects": b'{"text": "a"} {"text": "b"}',
    "no text": b'{"txt": "a"}',
    "null": b'{"text": null}',
    "number": b'{"text": 7}',
    "list": b'["a"]',
    "key twice": b'{"text": "a", "text": "b"}',
}


@pytest.mark.parametrize("kind", list(BAD_LINES))
def test_a_bad_row_stops_with_its_line_or_is_listed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "corpus" / "a.jsonl"
    path.parent.mkdir()
    path.write_bytes(lines(GOOD[:150]) + BAD_LINES[kind] + b"\n" + lines(GOOD[150:]))
    with pytest.raises(CorpusError, match=r"a\.jsonl, line 151: .*--skip-bad"):
        run(path)
    result = run(path, skip_bad=True)
    assert counted(result) == tokens(GOOD)
    assert [(row.line, Path(row.file).name) for row in result.total.bad_rows] == [(151, "a.jsonl")]
    assert result.total.bad == 1
    assert result.total.resumed > 0  # what the stopped run had counted
    with pytest.raises(CorpusError, match="line 151"):  # the state does not hide it
        run(path)


def test_a_real_pair_of_surrogates_is_a_character(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "\\ud83d\\ude00"}\n')
    assert counted(run(path)) == tokens(["\U0001f600"])


BROKEN_FILES = {
    "truncated.jsonl.gz": lambda: gzip.compress(lines(GOOD))[:-20],
    "truncated.jsonl.zst": lambda: zstandard.ZstdCompressor().compress(lines(GOOD))[:-20],
    "garbage.jsonl.zst": lambda: zstandard.ZstdCompressor().compress(lines(GOOD)) + b"garbage!",
    "checksum.jsonl.gz": lambda: _flipped(gzip.compress(lines(GOOD)), -6),
    "plain.jsonl.zst": lambda: lines(GOOD),
    "truncated.parquet": lambda: _parquet({"text": GOOD})[:-30],
    "flipped.parquet": lambda: _flipped(_parquet({"text": GOOD}), 40),
    "integers.parquet": lambda: _parquet({"text": [1, 2, 3]}),
    "lists.parquet": lambda: _parquet({"text": [["a"], ["b"]]}),
    "columns.parquet": lambda: _parquet({"txt": GOOD}),
    "nothing.parquet": lambda: b"",
}


def _flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 0xFF
    return bytes(changed)


def _parquet(columns: dict[str, list[object]] | dict[str, list[str]]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), sink, compression="zstd", row_group_size=50)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("name", list(BROKEN_FILES))
def test_a_broken_file_stops_or_is_left_out_whole(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / name).write_bytes(BROKEN_FILES[name]())
    (folder / "good.jsonl").write_bytes(lines(GOOD[:80]))
    with pytest.raises(CorpusError, match=f"{name}: .*--skip-bad"):
        run(folder)
    result = run(folder, skip_bad=True)
    assert counted(result) == tokens(GOOD[:80])
    assert [Path(file).name for file in result.total.broken] == [name]
    saved = result.save(tmp_path / "out")
    facts = json.loads(next(p for p in saved if p.name == "manifest.json").read_text())
    reasons = [*result.total.broken.values()]
    assert facts["broken_files"] == dict(zip([name], reasons, strict=True))


def test_parquet_rows_that_are_no_text_are_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    raw = pyarrow.array([b"good", None, b"bad \xff", b"nul \x00", b"fine"], pyarrow.binary())
    path.write_bytes(b"")
    parquet.write_table(pyarrow.table({"text": raw.view(pyarrow.string())}), path)
    with pytest.raises(CorpusError, match=r"a\.parquet, row 2: 'text' is None"):
        run(path)
    result = run(path, skip_bad=True)
    assert counted(result) == tokens(["good", "fine"])
    assert [row.line for row in result.total.bad_rows] == [2, 3, 4]


@pytest.mark.parametrize("seed", range(3))
def test_random_damage_never_gives_a_wrong_count(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    for make in (gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress):
        suffix = "gz" if make is gzip.compress else "zst"
        data = bytearray(make(lines(GOOD)))
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path = tmp_path / f"a{seed}.jsonl.{suffix}"
        path.write_bytes(data)
        result = run(path, skip_bad=True)
        if not result.total.broken:  # flips of a header's free bits change nothing
            assert counted(result) == tokens(GOOD)


@pytest.mark.parametrize("suffix", ["jsonl", "txt", "jsonl.gz"])
def test_a_line_of_100_mb_is_one_bad_row(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    row = (lambda text: text.encode() + b"\n") if suffix == "txt" else (lambda t: lines([t]))
    with gzip.open(path, "wb", 1) if suffix.endswith("gz") else path.open("wb") as file:
        file.write(row(GOOD[0]))
        file.write(b'{"text": "' + b"x" * 100_000_000 + b'"}\n')
        file.write(row(GOOD[1]))
    with pytest.raises(CorpusError, match=r"line 2: longer than --max-row-bytes 2,097,152"):
        run(path, shard_bytes=16 << 20)
    result = run(path, skip_bad=True, shard_bytes=16 << 20)
    assert counted(result) == tokens(GOOD[:2])
    assert result.total.bad == 1


def test_a_row_that_a_tokenizer_cannot_encode_is_a_bad_row(tmp_path: Path) -> None:
    """tiktoken's regex engine runs out of stack on a million spaces, and panics."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines([*GOOD[:20], " " * 1_500_000, *GOOD[20:]]))

    def count(skip_bad: bool) -> Audit:
        return survey(
            [path], ["o200k_base", "rootstock"], skip_bad=skip_bad, state=tmp_path, workers=1
        )

    with pytest.raises(CorpusError, match="line 21: o200k_base cannot encode it"):
        count(skip_bad=False)
    result = count(skip_bad=True)
    assert counted(result) == tokens(GOOD)  # of gpt2, which could have encoded it
    assert [row.line for row in result.total.bad_rows] == [21]


def test_a_file_that_cannot_be_read_stops_even_with_skip_bad(tmp_path: Path) -> None:
    from tokengraft.corpus.rows import Seen, read_rows
    from tokengraft.corpus.shards import File, Shard, Span

    gone = File(str(tmp_path / "gone.jsonl"), 10, "0", "jsonl")
    with pytest.raises(CorpusError, match="cannot be read"):
        list(read_rows(Shard((Span(gone, 0, 10),), 10), Layout(), Seen()))


FULL = """
import resource, sys
from pathlib import Path
from tokengraft.core.errors import TokengraftError
from tokengraft.api.verbs import survey
limit = int(sys.argv[3])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    state = Path(sys.argv[2])
    result = survey([sys.argv[1]], ["rootstock"], workers=1, shard_bytes=3000, state=state)
except TokengraftError as error:
    print(error); sys.exit(1)
print(result.total.resumed, result.total.payload["tokens"]["rootstock"]["und"][0])
"""


def test_a_disk_that_fills_up_stops_clearly_and_the_run_goes_on_later(tmp_path: Path) -> None:
    disk, path = tmp_path / "disk", tmp_path / "a.jsonl"
    disk.mkdir()
    path.write_bytes(lines(GOOD * 40))

    def attempt(limit: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", FULL, str(path), str(disk), str(limit)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(disk)]
    mounted = os.getuid() == 0 and not subprocess.run(mount, capture_output=True).returncode
    try:
        # Where nothing may be mounted, no file may grow beyond a limit: writes fail all the same.
        full = attempt(0 if mounted else 50_000)
        assert full.returncode == 1, full.stderr
        assert "shards are counted and kept: make room" in full.stdout
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        done = attempt(0)
        assert done.returncode == 0, done.stderr
        resumed, total = map(int, done.stdout.split())
        assert resumed > 0
        assert total == tokens(GOOD * 40)[2]
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=False)


@pytest.mark.parametrize(
    ("name", "module", "feature"),
    [("a.jsonl.zst", "zstandard", ".zst"), ("a.parquet", "pyarrow", "Parquet")],
)
def test_missing_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, feature: str
) -> None:
    (tmp_path / name).write_bytes(b"x")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match=rf"{feature}.*tokengraft\[scale\]"):
        run(tmp_path / name)
