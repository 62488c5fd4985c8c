"""The bundled assets: aligned UDHR units, a correct language table, fonts."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
import re
import unicodedata
from collections import Counter
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from fontTools.ttLib import TTFont

ASSETS = files("tokengraft") / "assets"


@cache
def udhr() -> dict[str, dict[str, Any]]:
    text = lzma.decompress((ASSETS / "udhr.jsonl.xz").read_bytes()).decode("utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    codes = [row["code"] for row in rows]
    assert codes == sorted(set(codes)), "codes are unique and sorted"
    return {row["code"]: row for row in rows}


@cache
def languages() -> dict[str, dict[str, str]]:
    text = (ASSETS / "languages.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    codes = [row["code"] for row in rows]
    assert codes == sorted(set(codes)), "codes are unique and sorted"
    return {row["code"]: row for row in rows}


@cache
def fonts() -> list[dict[str, str]]:
    text = (ASSETS / "fonts" / "fonts.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def test_udhr_is_wide() -> None:
    plain = {code for code in udhr() if "-" not in code}
    assert len(plain) == 444
    assert len({code[:3] for code in plain}) == 432
    assert len(udhr()) == 504


def test_udhr_codes_are_flores_style_and_variants_have_a_primary() -> None:
    for code in udhr():
        assert re.fullmatch(r"[a-z]{3}_[A-Z][a-z]{3}(-[a-z0-9]+)?", code)
        assert code.split("-")[0] in udhr()


def test_english_has_every_unit_and_the_others_only_english_keys() -> None:
    english = udhr()["eng_Latn"]["units"]
    paragraphs = Counter(key.split(".")[0] for key in english)
    assert set(paragraphs) == {"title", "preamble", *map(str, range(1, 31))}
    assert len(english) == 61
    assert paragraphs["preamble"] == 10
    assert (paragraphs["1"], paragraphs["2"], paragraphs["16"], paragraphs["23"]) == (1, 2, 3, 4)
    for row in udhr().values():
        assert 30 <= len(row["units"]) <= 61
        assert set(row["units"]) <= set(english)


def test_an_article_is_there_whole_or_not_at_all() -> None:
    whole = Counter(key.split(".")[0] for key in udhr()["eng_Latn"]["units"])
    for code, row in udhr().items():
        for section, count in Counter(key.split(".")[0] for key in row["units"]).items():
            assert count == whole[section], (code, section)


def test_no_unit_is_empty_a_placeholder_or_repeated() -> None:
    for code, row in udhr().items():
        texts = list(row["units"].values())
        assert len(set(texts)) == len(texts), code
        for text in texts:
            assert text == " ".join(text.split())
            assert text not in {"", "&1", "@", "O", "?"}
            assert any(char.isalpha() for char in text), (code, text)


def test_aligned_units_say_the_same() -> None:
    # Compared by hand: Articles 1 and 13 (2); of the Shan only the opening, "every person".
    assert udhr()["eng_Latn"]["units"]["1.1"].startswith("All human beings are born free and equal")
    assert udhr()["fra_Latn"]["units"]["1.1"].startswith("Tous les êtres humains naissent libres")
    assert udhr()["shn_Mymr"]["units"]["1.1"].startswith("ၵူၼ်းၵူႊၵေႃႉ")
    assert udhr()["eng_Latn"]["units"]["13.2"].startswith("Everyone has the right to leave any")
    assert udhr()["fra_Latn"]["units"]["13.2"].startswith("Toute personne a le droit de quitter")
    assert udhr()["deu_Latn"]["units"]["13.2"].startswith("Jeder hat das Recht, jedes Land")


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("zho_Hans", "cmn_hans"),
        ("zho_Hant", "cmn_hant"),
        ("deu_Latn", "deu_1996"),
        ("deu_Latn-1901", "deu_1901"),
        ("lvs_Latn", "lav"),
        ("npi_Deva", "nep"),
        ("grn_Latn", "gug"),
        ("jpn_Jpan", "jpn"),
        ("kor_Hang", "kor"),
        ("ydd_Hebr", "ydd"),
        ("yue_Hans", "yue"),
    ],
)
def test_codes_are_those_of_flores(code: str, source: str) -> None:
    assert udhr()[code]["source"] == source


def test_mislabelled_and_shifted_translations_are_out() -> None:
    sources = {row["source"] for row in udhr().values()}
    assert not sources & {"ckb", "kng", "nym", "umb", "qxu", "bin"}


def test_rtl_scripts_are_rtl() -> None:
    for row in udhr().values():
        script = row["code"].split("-")[0][4:]
        rtl = script in {"Adlm", "Arab", "Hebr", "Syrc", "Thaa"}
        assert row["direction"] == ("rtl" if rtl else "ltr"), row["code"]


def test_udhr_is_in_nfc_and_says_which_texts_were_not() -> None:
    """Decomposed Vietnamese takes over twice the tokens that Vietnamese usually takes."""
    for code, row in udhr().items():
        assert all(unicodedata.is_normalized("NFC", text) for text in row["units"].values()), code
    changed = [code for code, row in udhr().items() if row["composed"]]
    assert len(changed) == 32
    assert ", ".join(changed) in (Path(__file__).parents[2] / "NOTICE.md").read_text(
        encoding="utf-8"
    )


def test_language_table_covers_flores_and_udhr() -> None:
    table = languages()
    assert sum(row["flores"] == "1" for row in table.values()) == 204
    assert {c for c, row in table.items() if row["udhr"] == "1"} == {
        code for code in udhr() if "-" not in code
    }
    assert {"acm_Arab", "arb_Latn", "sat_Olck", "taq_Tfng", "zsm_Latn"} <= set(table)
    assert {"fuc_Latn", "hmn_Latn", "mey_Arab", "nde_Latn", "shi_Arab"} <= set(table)  # NTREX


def test_language_rows_are_whole() -> None:
    for code, row in languages().items():
        assert code == f"{row['iso639_3']}_{row['script']}"
        assert row["name"]
        assert row["script_name"]
        assert row["direction"] in {"ltr", "rtl"}
        assert row["flores"] in {"0", "1"}
        assert row["udhr"] in {"0", "1"}
        if row["flores"] == "1":
            assert row["family"], code


def test_a_figure_has_a_source_and_a_source_a_figure() -> None:
    for code, row in languages().items():
        figure, source = row["speakers_total"], row["speakers_total_source"]
        assert bool(figure) == bool(source), code
        if figure:
            assert int(figure) > 0


def test_speakers_of_a_language_are_not_those_of_each_of_its_scripts() -> None:
    figures: dict[str, list[tuple[str, str]]] = {}
    for row in languages().values():
        if row["speakers_total"]:
            source = row["speakers_total_source"]
            figures.setdefault(row["iso639_3"], []).append((row["script"], source))
    assert languages()["jav_Java"]["speakers_total"] == ""
    for code, rows in figures.items():
        of_language = [script for script, source in rows if f"_{script})" not in source]
        assert len(of_language) <= 1, (code, rows)


def test_every_figure_is_of_one_source_and_docs_say_where_none_is_known() -> None:
    rows = languages().values()
    assert {row["speakers_total_source"].partition(" (key ")[0] for row in rows} == {
        "", "CLDR 48.2.0 territoryInfo"
    }  # fmt: skip
    root = Path(__file__).parents[2]
    notice = (root / "NOTICE.md").read_text(encoding="utf-8")
    assert "Ethnologue" not in notice and "not verified" not in notice
    none = [row["flores"] for row in rows if not row["speakers_total"]]
    said = f"{len(none)} of the table's {len(rows)} rows, {none.count('1')} of the 204"
    assert said in (root / "docs/audit.md").read_text(encoding="utf-8")


def test_the_notice_has_the_hash_of_every_bundled_file() -> None:
    """Fonts are in `fonts.csv`, whose own hash is in the notice; tokenizers by their content."""
    root = Path(__file__).parents[2]
    notice = (root / "NOTICE.md").read_text(encoding="utf-8")
    bundled = [path for path in Path(str(ASSETS)).rglob("*") if path.is_file()]
    assert len(bundled) > 60
    for path in bundled:
        if path.suffix == ".ttf" or path.name == "SHA256SUMS":
            continue
        content = path.read_bytes()
        if "tokenizers" in path.parts:
            content = lzma.decompress(content)
        assert f"`{hashlib.sha256(content).hexdigest()}`" in notice, path.name


def test_no_column_is_empty_in_every_row() -> None:
    """First-language speakers once were: no source of them may be bundled."""
    rows = list(languages().values())
    assert [column for column in rows[0] if not any(row[column] for row in rows)] == []


@pytest.mark.parametrize(
    ("code", "low", "high"),
    [
        ("eng_Latn", 1_200, 1_800),
        ("zho_Hans", 1_000, 1_400),
        ("hin_Deva", 550, 650),
        ("spa_Latn", 480, 620),
        ("ben_Beng", 250, 300),
        ("urd_Arab", 150, 350),
        ("swh_Latn", 60, 220),
        ("amh_Ethi", 39, 65),
        ("vie_Latn", 80, 105),
        ("shn_Mymr", 3, 5),
        ("ydd_Hebr", 0.4, 2),
    ],
)
def test_totals_are_of_the_known_order(code: str, low: float, high: float) -> None:
    assert low * 1e6 <= int(languages()[code]["speakers_total"]) <= high * 1e6


@pytest.mark.parametrize(
    ("code", "column", "value"),
    [
        ("shn_Mymr", "script_name", "Myanmar"),
        ("shn_Mymr", "family", "Kra-Dai"),
        ("shn_Mymr", "autonym", "တႆး"),
        ("arb_Arab", "direction", "rtl"),
        ("arb_Latn", "direction", "ltr"),
        ("acm_Arab", "name", "Mesopotamian Arabic"),
        ("ory_Orya", "name", "Odia"),
        ("ory_Orya", "autonym", "ଓଡ଼ିଆ"),
        ("pan_Guru", "name", "Eastern Panjabi"),
        ("tur_Latn", "family", "Turkic"),
        ("tam_Taml", "family", "Dravidian"),
        ("kor_Hang", "script_name", "Hangul"),
        ("cnr_Latn", "name", "Montenegrin"),
    ],
)
def test_known_facts(code: str, column: str, value: str) -> None:
    assert languages()[code][column] == value


def test_fonts_are_those_of_the_table_and_small() -> None:
    folder = ASSETS / "fonts"
    listed = {row["file"]: row for row in fonts()}
    present = {path.name for path in folder.iterdir() if path.name.endswith(".ttf")}
    assert present == set(listed)
    assert sum(len((folder / name).read_bytes()) for name in present) < 4_000_000
    for name, row in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == row["sha256"]
        assert row["licence"] == "OFL-1.1"
    assert "SIL OPEN FONT LICENSE" in (folder / "OFL.txt").read_text(encoding="utf-8")


def test_every_autonym_can_be_drawn() -> None:
    """DejaVu Sans, which matplotlib brings, and the bundled fonts cover all autonyms."""
    font_manager = pytest.importorskip("matplotlib.font_manager")
    covered = set(TTFont(font_manager.findfont("DejaVu Sans")).getBestCmap())
    for row in fonts():
        with (ASSETS / "fonts" / row["file"]).open("rb") as data:
            covered |= set(TTFont(data).getBestCmap())
    for code, row in languages().items():
        assert {ord(char) for char in row["autonym"]} <= covered, code


def test_fonts_can_shape() -> None:
    """Scripts whose letters join or reorder keep the substitution table that says how."""
    complex_scripts = {"Arab", "Beng", "Deva", "Gujr", "Khmr", "Knda", "Mlym", "Mymr", "Sinh"}
    complex_scripts |= {"Taml", "Telu", "Tibt"}
    for row in fonts():
        if row["scripts"] in complex_scripts:
            with (ASSETS / "fonts" / row["file"]).open("rb") as data:
                font = TTFont(data)
                assert {"GSUB", "GPOS"} <= set(font.keys()), row["file"]
                assert "fvar" not in font


@pytest.mark.parametrize("letters", ["\u1326\u1335\u1350", "ழௐ", "ॲऌ", "ၡၢႁ", "ⴰⵥ", "ڤې"])
def test_letters_that_the_declaration_happens_to_lack_are_there(letters: str) -> None:
    covered = [
        set(TTFont(io.BytesIO((ASSETS / "fonts" / row["file"]).read_bytes())).getBestCmap())
        for row in fonts()
    ]
    assert any(set(map(ord, letters)) <= one for one in covered)
