"""Every layout, written to disk as a user would have it, loads to the same aligned text."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars
import pytest

from tokengraft.core.errors import CorpusError
from tokengraft.corpus import load, load_pairs
from tokengraft.corpus import ntrex_layout as ntrex
from tokengraft.corpus.catalog import available
from tokengraft.corpus.lines_of import lines_of

SHARED = Path(__file__).resolve().parents[3] / "shared"

# U+2028, U+0085 and \x0b are line ends to str.splitlines, but not in a corpus.
ENG = ["One\u2028more.", "Two\x85halves.", "Three\x0btabs."]
SHN = ["ၼိုင်ႈ", "သွင်", "သၢမ်"]
FLORES = {
    "flores200_dataset/dev/eng_Latn.dev": ENG[:2],
    "flores200_dataset/dev/shn_Mymr.dev": SHN[:2],
    "flores200_dataset/devtest/eng_Latn.devtest": ENG[2:],
    "flores200_dataset/devtest/shn_Mymr.devtest": SHN[2:],
    "flores200_dataset/metadata_dev.tsv": ["URL\tdomain", "x\ty"],
    "flores200_dataset/dev/._eng_Latn.dev": ["resource fork"],
}


def body(lines: list[str]) -> bytes:
    return "".join(f" {line} \n" for line in lines).encode()


def folder(root: Path, files: dict[str, list[str]]) -> Path:
    for name, lines in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body(lines))
    return root


def tar(path: Path, files: dict[str, list[str]]) -> Path:
    mode = {".xz": "w:xz", ".gz": "w:gz", ".tar": "w"}[path.suffix]
    with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
        for name, lines in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(body(lines))
            file.addfile(info, io.BytesIO(body(lines)))
    return path


def zipped(path: Path, files: dict[str, list[str]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, lines in files.items():
            file.writestr(name, body(lines))
    return path


@pytest.fixture(params=["folder", "inner folder", "f.tar", "f.tar.gz", "f.tar.xz", "f.zip"])
def flores_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "folder":
        return folder(tmp_path / "f", FLORES)
    if request.param == "inner folder":
        return folder(tmp_path / "f", FLORES) / "flores200_dataset"
    write: Callable[[Path, dict[str, list[str]]], Path]
    write = zipped if request.param.endswith("zip") else tar
    return write(tmp_path / request.param, FLORES)


def test_flores_reads_dev_before_devtest(flores_path: Path) -> None:
    corpus = load(flores_path)
    assert corpus.name == "flores200"
    assert corpus.languages == ("eng_Latn", "shn_Mymr")
    assert corpus.units == ("dev.1", "dev.2", "devtest.1")
    assert corpus.texts == {"eng_Latn": tuple(ENG), "shn_Mymr": tuple(SHN)}
    assert corpus.source.endswith(f", from {flores_path.name}")
    assert str(flores_path.parent) not in corpus.source


def test_flores_splits_and_languages_can_be_chosen(flores_path: Path) -> None:
    assert load(flores_path, "devtest", ["shn"]).texts == {"shn_Mymr": tuple(SHN[2:])}
    assert load(flores_path, "dev").units == ("dev.1", "dev.2")
    assert load(flores_path, "devtest+dev").lines("eng_Latn") == ENG[2:] + ENG[:2]
    with pytest.raises(CorpusError, match=r"no split 'devtst'; it has dev, devtest.*mean devtest"):
        load(flores_path, "devtst")


def test_flores_dev_folder_alone(tmp_path: Path) -> None:
    path = folder(tmp_path, FLORES) / "flores200_dataset" / "dev"
    assert load(path).units == ("dev.1", "dev.2")
    with pytest.raises(CorpusError, match="no split 'devtest'; it has dev"):
        load(path, "devtest")


def test_flores_language_without_one_split(tmp_path: Path) -> None:
    path = folder(tmp_path, {**FLORES, "dev/deu_Latn.dev": ["Eins.", "Zwei."]})
    with pytest.raises(CorpusError, match="no devtest file for deu_Latn; add devtest/deu_Latn"):
        load(path)
    assert load(path, "dev").languages == ("deu_Latn", "eng_Latn", "shn_Mymr")


def test_flores_counts_are_compared_within_each_split(tmp_path: Path) -> None:
    # Three lines each in total, yet not parallel.
    files = {**FLORES, "flores200_dataset/dev/shn_Mymr.dev": SHN[:1]}
    files["flores200_dataset/devtest/shn_Mymr.devtest"] = SHN[1:]
    with pytest.raises(
        CorpusError, match=r"shn_Mymr\.dev .* has 1 lines, .*eng_Latn\.dev .* has 2"
    ):
        load(folder(tmp_path, files))


@pytest.mark.skipif(
    not (SHARED / "data/flores200.tar.xz").exists(), reason="FLORES-200 is not beside the project"
)
def test_real_flores() -> None:
    archive = SHARED / "data/flores200.tar.xz"
    corpus = load(archive)
    assert len(corpus.languages) == 204
    assert len(corpus.units) == 2009
    assert all(len(corpus.lines(code)) == 2009 for code in corpus.languages)
    expected = []
    with tarfile.open(archive) as file:
        for split in ("dev", "devtest"):
            member = file.extractfile(f"flores200_dataset/{split}/ydd_Hebr.{split}")
            assert member is not None
            expected += [line.strip() for line in member.read().decode().split("\n")[:-1]]
    assert corpus.lines("ydd_Hebr") == expected


NTREX = {
    "NTREX-128/newstest2019-src.eng.txt": ENG,
    "NTREX-128/newstest2019-ref.eng-GB.txt": ENG,
    "NTREX-128/newstest2019-ref.zho-CN.txt": SHN,
    "NTREX-128/newstest2019-ref.zho-TW.txt": SHN,
    "NTREX-128/newstest2019-ref.srp-Cyrl.txt": SHN,
    "NTREX-128/newstest2019-ref.spa.txt": SHN,
    "NTREX-128/newstest2019-ref-2.spa.txt": SHN,
    "LANGUAGES.tsv": ["afr Afrikaans"],
}


@pytest.mark.parametrize("write", [folder, zipped])
def test_ntrex(tmp_path: Path, write: Callable[[Path, dict[str, list[str]]], Path]) -> None:
    corpus = load(write(tmp_path / "NTREX.zip", NTREX))
    assert corpus.name == "ntrex128"
    assert corpus.languages == (
        "eng_Latn", "eng_Latn-GB", "spa_Latn", "spa_Latn-ref2", "srp_Cyrl", "zho_Hans", "zho_Hant",
    )  # fmt: skip
    assert corpus.lines("eng_Latn") == ENG
    assert load(tmp_path / "NTREX.zip", languages=["eng"]).languages == ("eng_Latn",)


def test_every_ntrex_label_has_its_own_flores_style_code() -> None:
    labels = """
        afr amh arb aze-Latn bak bel bem ben bod bos bul cat ces ckb-Arab cym dan deu div dzo ell
        eng eng-GB eng-IN eng-US est eus ewe fao fas fij fil fin fra fra-CA fuc gle glg guj hau
        heb hin hmn hrv hun hye ibo ind isl ita jpn kan kat kaz khm kin kir kmr kor lao lav lit
        ltz mal mar mey mkd mlg mlt mon mri msa mya nde nep nld nno nob nso nya orm pan pol por
        por-BR prs pus ron rus shi sin slk slv smo sna-Latn snd-Arab som spa spa-MX sqi srp-Cyrl
        srp-Latn ssw swa swe tah tam tat tel tgk-Cyrl tha tir ton tsn tuk tur uig ukr urd uzb ven
        vie wol xho yor yue zho-CN zho-TW zul
    """.split()  # noqa: SIM905
    codes = [ntrex.code_of(label, "here") for label in labels]
    assert len(set(codes)) == len(labels) == 128
    assert {"pes_Arab", "khk_Cyrl", "shi_Arab", "uzn_Latn", "yue_Hant", "spa_Latn-MX"} <= set(codes)


def test_ntrex_unknown_label_names_the_file(tmp_path: Path) -> None:
    files = {**NTREX, "NTREX-128/newstest2019-ref.german.txt": ENG}
    with pytest.raises(CorpusError, match=r"ref\.german\.txt .*'german' is not a language.*German"):
        load(folder(tmp_path, files))
    with pytest.raises(CorpusError, match="script of 'qqq' is not known"):
        ntrex.code_of("qqq", "here")


def test_pairs(tmp_path: Path) -> None:
    folder(tmp_path, {"a=b.txt": ENG, "c": SHN})
    corpus = load_pairs([f"eng={tmp_path}/a=b.txt", f"shn_Mymr={tmp_path}/c"])
    assert corpus.texts == {"eng_Latn": tuple(ENG), "shn_Mymr": tuple(SHN)}
    assert corpus.units == ("1", "2", "3")


@pytest.mark.parametrize("write", [folder, zipped])
def test_folder_of_text_files(
    tmp_path: Path, write: Callable[[Path, dict[str, list[str]]], Path]
) -> None:
    files = {"eng_Latn.txt": ENG, "qaa_Latn-x1.txt": SHN, "README.txt": ["About this."]}
    corpus = load(write(tmp_path / "mine.zip", files))
    assert (corpus.name, corpus.languages) == ("mine", ("eng_Latn", "qaa_Latn-x1"))
    assert corpus.lines("qaa_Latn-x1") == SHN


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_bom_and_crlf_are_no_text(tmp_path: Path, end: str) -> None:
    for code, lines in (("eng_Latn", ENG), ("shn_Mymr", SHN)):
        (tmp_path / f"{code}.txt").write_bytes(b"\xef\xbb\xbf" + end.join(lines).encode())
    assert load(tmp_path).texts == {"eng_Latn": tuple(ENG), "shn_Mymr": tuple(SHN)}


def test_tsv_knows_no_quotes_and_empty_cells_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text('id\teng_Latn\tshn_Mymr\nb\t"One\tၼိုင်ႈ\na\tTwo"\t \n', encoding="utf-8")
    corpus = load(path)
    assert corpus.units == ("b", "a")
    assert corpus.texts == {"eng_Latn": ('"One', 'Two"'), "shn_Mymr": ("ၼိုင်ႈ", None)}


def test_csv_follows_the_csv_module(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('eng_Latn,deu_Latn\n"One, ""two""",Eins\n"a\nb",\n', encoding="utf-8")
    assert load(path).texts == {
        "eng_Latn": ('One, "two"', "a\nb"),
        "deu_Latn": ("Eins", None),
    }


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_wide_tables(tmp_path: Path, suffix: str) -> None:
    rows = [{"unit": 7, "eng_Latn": " One ", "shn_Mymr": None}, {"unit": 3, "shn_Mymr": "သွင်"}]
    corpus = load(write_rows(tmp_path / f"t{suffix}", rows))
    assert corpus.units == ("7", "3")
    assert corpus.texts == {"eng_Latn": ("One", None), "shn_Mymr": (None, "သွင်")}


def write_rows(path: Path, rows: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        polars.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_long_tables_align_by_id(tmp_path: Path, suffix: str) -> None:
    rows: list[dict[str, object]] = [
        {"language": "shn_Mymr", "id": 10, "text": "သွင်"},
        {"language": "eng_Latn", "id": 10, "text": "Two"},
        {"language": "eng_Latn", "id": 9, "text": "One"},
    ]
    path = tmp_path / f"t{suffix}"
    if suffix == ".csv":
        polars.DataFrame(rows).write_csv(path)
    else:
        write_rows(path, rows)
    corpus = load(path)
    assert corpus.units == ("9", "10")
    assert corpus.texts == {"eng_Latn": ("One", "Two"), "shn_Mymr": (None, "သွင်")}


def plus(split: str, iso: str, glottocode: str, texts: list[str]) -> list[dict[str, object]]:
    return [
        {
            "id": number, "iso_639_3": iso, "iso_15924": "Latn", "glottocode": glottocode,
            "text": text, "split": split, "url": "https://example.org", "last_updated": "1.0",
        }
        for number, text in enumerate(texts)
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_flores_plus(tmp_path: Path, suffix: str) -> None:
    # Valencian comes first and alone in dev; Catalan proper, with more rows, keeps the plain code.
    write_rows(tmp_path / f"dev/eng_Latn{suffix}", plus("dev", "eng", "stan1293", ["a", "b"]))
    write_rows(tmp_path / f"dev/cat_Latn_vale{suffix}", plus("dev", "cat", "vale1252", ["v", "w"]))
    test = plus("devtest", "eng", "stan1293", ["c", "d", "e"])
    test += plus("devtest", "cat", "stan1289", ["x", "y", "z"])
    write_rows(tmp_path / f"devtest/all{suffix}", test)
    corpus = load(tmp_path)
    assert corpus.name == "flores+"
    assert corpus.units == ("dev.0", "dev.1", "devtest.0", "devtest.1", "devtest.2")
    assert corpus.texts == {
        "eng_Latn": ("a", "b", "c", "d", "e"),
        "cat_Latn": (None, None, "x", "y", "z"),
        "cat_Latn-vale1252": ("v", "w", None, None, None),
    }
    assert load(tmp_path, "dev").languages == ("cat_Latn-vale1252", "eng_Latn")
    with pytest.raises(CorpusError, match="no text of cat_Latn in dev"):
        load(tmp_path, "dev", ["cat_Latn"])


def test_flores_plus_as_released_in_text_files(tmp_path: Path) -> None:
    files = {
        "floresp/dev/dev.eng_Latn": ["a", "b"],
        "floresp/dev/dev.gom_Deva": ["x", "y"],
        "floresp/devtest/devtest.eng_Latn": ["c"],
        "floresp/devtest/devtest.cat_Latn_vale1252": ["v"],
    }
    corpus = load(folder(tmp_path, files))
    assert (corpus.name, corpus.units) == ("flores+", ("dev.1", "dev.2", "devtest.1"))
    assert corpus.texts == {
        "eng_Latn": ("a", "b", "c"),
        "gom_Deva": ("x", "y", None),
        "cat_Latn-vale1252": (None, None, "v"),
    }


def test_names_are_found_in_the_corpora_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKENGRAFT_CORPORA", raising=False)
    with pytest.raises(CorpusError, match=r"FLORES-200.*not on this machine: get it from https://"):
        load("flores200")
    assert {info.name: info.where for info in available()} == {
        "udhr": "bundled", "flores200": None, "flores+": None, "ntrex128": None,
    }  # fmt: skip
    (tmp_path / "one").mkdir()
    archive = tar(tmp_path / "one/flores200.tar.xz", FLORES)
    folder(tmp_path / "two/NTREX", NTREX)
    monkeypatch.setenv(
        "TOKENGRAFT_CORPORA", os.pathsep.join([f"{tmp_path}/one", f"{tmp_path}/two"])
    )
    assert load("flores200").source.endswith(f", from {archive.name}")
    assert load("FLORES-200", "dev").units == ("dev.1", "dev.2")
    # Plans and evaluations say by this on which part they were judged.
    assert load("FLORES-200", "dev").title == "FLORES-200, dev"
    assert load("udhr", languages=["shn", "eng"]).title == "Universal Declaration of Human Rights"
    own = tmp_path / "own.tsv"
    own.write_text("split\teng_Latn\tfra_Latn\ndev\tOne.\tUn.\n", encoding="utf-8")
    assert load(own).title == "own, dev"
    assert load("ntrex128").name == "ntrex128"
    where = {info.name: info.where for info in available()}
    assert where["flores200"] == str(archive)
    assert where["ntrex128"] == str(tmp_path / "two/NTREX")


def test_udhr_is_bundled() -> None:
    corpus = load("udhr", languages=["shn", "eng_Latn"])
    assert corpus.languages == ("eng_Latn", "shn_Mymr")
    assert corpus.units[:2] == ("title", "preamble.1")
    assert None not in corpus.texts["eng_Latn"]
    assert "born free" in (corpus.texts["eng_Latn"][corpus.units.index("1.1")] or "")
    every = load("udhr")
    assert len(every.languages) > 400
    assert every.texts["shn_Mymr"] == corpus.texts["shn_Mymr"]
    info = available()[0]
    assert (info.languages, info.units) == (len(every.languages), len(every.units))
    with pytest.raises(CorpusError, match="udhr has no splits"):
        load("udhr", "dev")


@pytest.mark.parametrize("suffix", ["gz", "xz", "bz2", "zst"])
def test_pairs_of_compressed_files(suffix: str, tmp_path: Path) -> None:
    pack: Callable[[bytes], bytes]
    if suffix == "zst":
        pack = pytest.importorskip("zstandard").ZstdCompressor().compress
    else:
        pack = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}[suffix]
    texts = {"eng_Latn": ("one", "two"), "deu_Latn": ("eins", "zwei")}
    pairs = []
    for code, lines in texts.items():
        path = tmp_path / f"{code}.txt.{suffix}"
        path.write_bytes(pack("\n".join(lines).encode()))
        pairs.append(f"{code}={path}")
    assert load_pairs(pairs).texts == texts
    assert list(lines_of(path)) == ["eins", "zwei"]
    path.write_bytes(path.read_bytes()[:-9])
    for read in (lambda: load_pairs(pairs), lambda: list(lines_of(path))):
        with pytest.raises(CorpusError, match=rf"deu_Latn.txt.{suffix} cannot be read"):
            read()


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet", "long", "folder"])
def test_tables_and_files_name_languages_as_pairs_do(tmp_path: Path, kind: str) -> None:
    columns = {"en": ["one", "two"], "Shan": ["ၼိုင်ႈ", "သွင်"], "id": ["a", "b"], "url": ["x", "y"]}
    frame = polars.DataFrame(columns)
    path = tmp_path / f"t.{'jsonl' if kind == 'long' else kind}"
    if kind == "folder":
        path.mkdir()
        for name in ("en", "Shan"):
            (path / f"{name}.txt").write_text("\n".join(columns[name]) + "\n")
    elif kind == "long":
        frame = frame.drop("url").unpivot(index="id", variable_name="language", value_name="text")
        frame.write_ndjson(path)
    elif kind == "parquet":
        frame.write_parquet(path)
    elif kind == "jsonl":
        frame.write_ndjson(path)
    else:
        frame.write_csv(path, separator="\t" if kind == "tsv" else ",")
    corpus = load(path)
    assert corpus.texts == {"eng_Latn": ("one", "two"), "shn_Mymr": tuple(columns["Shan"])}
    assert load(path, languages=["eng", "Shan"]).texts == corpus.texts
