"""Whatever Unicode a corpus holds, every layout gives it back unchanged."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tokengraft.corpus import load

Lines = list[str]

LINE = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"), min_size=1)
    | st.text(st.sampled_from("a\"',\t\r\x0b\x1c\x85\u2028\u2029\ufeff\u200b=\\"), min_size=1)
).map(str.strip)
CORPUS = st.lists(st.tuples(LINE.filter(bool), LINE.filter(bool)), min_size=1, max_size=8)


def plain(root: Path, eng: Lines, deu: Lines) -> Path:
    # A file that begins with U+FEFF begins with a BOM.
    assume(not eng[0].startswith("\ufeff") and not deu[0].startswith("\ufeff"))
    for code, lines in (("eng_Latn", eng), ("deu_Latn", deu)):
        (root / f"{code}.txt").write_bytes("\n".join(lines).encode())
    return root


def tar(root: Path, eng: Lines, deu: Lines) -> Path:
    assume(not eng[0].startswith("\ufeff") and not deu[0].startswith("\ufeff"))
    with tarfile.open(root / "t.tar.xz", "w:xz") as file:
        for code, lines in (("eng_Latn", eng), ("deu_Latn", deu)):
            data = "".join(f"{line}\n" for line in lines).encode()
            info = tarfile.TarInfo(f"devtest/{code}.devtest")
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return root / "t.tar.xz"


def tsv(root: Path, eng: Lines, deu: Lines) -> Path:
    assume(not any("\t" in line for line in eng + deu))
    rows = ["eng_Latn\tdeu_Latn", *(f"{one}\t{two}" for one, two in zip(eng, deu, strict=True))]
    (root / "t.tsv").write_bytes("\n".join(rows).encode())
    return root / "t.tsv"


def csv_(root: Path, eng: Lines, deu: Lines) -> Path:
    with (root / "t.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([("eng_Latn", "deu_Latn"), *zip(eng, deu, strict=True)])
    return root / "t.csv"


def jsonl(root: Path, eng: Lines, deu: Lines) -> Path:
    rows = [{"eng_Latn": one, "deu_Latn": two} for one, two in zip(eng, deu, strict=True)]
    with (root / "t.jsonl").open("w", encoding="utf-8", newline="") as file:
        for number, row in enumerate(rows):
            file.write(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n")
    return root / "t.jsonl"


def parquet(root: Path, eng: Lines, deu: Lines) -> Path:
    polars.DataFrame({"eng_Latn": eng, "deu_Latn": deu}).write_parquet(root / "t.parquet")
    return root / "t.parquet"


@pytest.mark.parametrize("write", [plain, tar, tsv, csv_, jsonl, parquet])
@given(pairs=CORPUS)
def test_roundtrip(
    write: Callable[[Path, Lines, Lines], Path], pairs: list[tuple[str, str]]
) -> None:
    eng, deu = [one for one, _ in pairs], [two for _, two in pairs]
    with tempfile.TemporaryDirectory() as root:
        corpus = load(write(Path(root), eng, deu))
    assert corpus.lines("eng_Latn") == eng
    assert corpus.lines("deu_Latn") == deu
    assert len(corpus.units) == len(pairs)
