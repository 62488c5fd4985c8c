"""Build ``src/tokengraft/assets/languages.csv``: names, families and speakers of languages.

One row for every FLORES-200 code, every code of the bundled UDHR (so build that one first)
and every NTREX-128 language. A figure that no source gives is left empty, and every figure
names its source.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import lzma
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import langcodes
from fontTools.unicodedata import script_horizontal_direction, script_name
from language_data.names import code_to_names

from _figures import CLDR, FAMILY, GROUP_NAME, Cldr
from _registry import npm_package
from _udhr_codes import text_script

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "src/tokengraft/assets"
CLDR_CORE = (
    "cldr-core@48.2.0",
    "sha512-zfmLothncSwfv2jlevoSrgI2VGgH8SDGHXst6jUEotHA"
    "8nq9Igeg9jzdJDFtBso9pgJuG89DK16TzrmZDdo2Bg==",
)
#: NTREX-128 languages that FLORES-200 does not have, with the script of the NTREX text.
NTREX_ONLY = (
    "div_Thaa",
    "fuc_Latn",
    "hmn_Latn",
    "mey_Arab",
    "nde_Latn",
    "shi_Arab",
    "srp_Latn",
    "tah_Latn",
    "ton_Latn",
    "ven_Latn",
)
COLUMNS = (
    "code",
    "name",
    "autonym",
    "iso639_3",
    "iso639_1",
    "script",
    "script_name",
    "direction",
    "family",
    "speakers_total",
    "speakers_total_source",
    "flores",
    "udhr",
)
SCRIPT_NAME = {
    "Hans": "Simplified Han",
    "Hant": "Traditional Han",
    "Jpan": "Japanese",
    "Nkoo": "N’Ko",
    "Lana": "Tai Tham",
    "Cans": "Canadian Aboriginal",
    "Orya": "Odia",
}
#: Where the shared CLDR key is not the language's own.
NAME = {
    "cnr": "Montenegrin",
    # Macrolanguages whose varieties have rows of their own: the bare name lists them all.
    "hmn": "Hmong (variety not stated)",
    "que": "Quechua (variety not stated)",
}
AUTONYM = {"cnr": "crnogorski", "prs": "دری", "tgl": "Tagalog"}


def name_of(code: str, flores: dict[str, str], udhr: dict[str, str]) -> str:
    """Return the English name: FLORES-200's, else CLDR's, else the UDHR collection's."""
    if code in flores:
        return flores[code]
    language, script = code.split("_")
    sisters = [n for c, n in flores.items() if c.startswith(f"{language}_")]
    scripts = [c for c in udhr if c.startswith(f"{language}_")]
    base = NAME.get(language) or langcodes.get(language).language_name()
    if sisters:
        base = sisters[0].split(" (")[0]
    if base.startswith("Unknown language"):
        base = udhr[code].split(" (")[0]
    return f"{base} ({display_script(script)} script)" if sisters or len(scripts) > 1 else base


def display_script(script: str) -> str:
    """Return the script's English name."""
    return SCRIPT_NAME.get(script) or str(script_name(script)).replace("_", " ")


def short_code(language: str, languages: set[str]) -> str:
    """Return the ISO 639-1 code: the language's own, or its macrolanguage's (``ar`` for arb)."""
    own = langcodes.standardize_tag(language)
    wide = langcodes.standardize_tag(language, macro=True)
    if len(own) == 2:
        return str(own)
    taken = {langcodes.standardize_tag(other) for other in languages}
    return str(wide) if len(wide) == 2 and wide not in taken else ""


def direction_of(script: str) -> str:
    """Return ``rtl`` for scripts written from right to left, else ``ltr``."""
    return str(script_horizontal_direction(script, default="LTR")).lower()


def autonym_of(language: str, script: str, cldr: Cldr) -> str:
    """Return the language's own name, written in ``script``; empty when CLDR has none."""
    if language in AUTONYM:
        return AUTONYM[language]
    language = cldr.key(language).split("_")[0]
    names = code_to_names(language)
    wanted = {"Hans": "Hani", "Hant": "Hani", "Jpan": "Hani"}.get(script, script)
    for key in (f"{language}-{script}", language):
        # Named as Vietnamese, Han text stays Hani instead of being told apart.
        if key in names and text_script([names[key]], "vie") == wanted:
            return str(names[key])
    return ""


def figures(language: str, script: str, scripts: Sequence[str], cldr: Cldr) -> tuple[str, str]:
    """Return the number of speakers and its source.

    CLDR counts people who use a language, as a first or a later one; no source of first-language
    figures is known that may be bundled. If a language has several `scripts`, the usual one gets
    the language's speakers; another gets what CLDR counts for that script, or none.
    """
    usual = langcodes.get(language).maximize().script
    main = usual if usual in scripts else scripts[0]
    key = cldr.key(language)
    if script != main:
        people = cldr.in_script(language, script)
        if people is None:
            return "", ""
        return str(people), f"{CLDR} (key {key}_{script})"
    people = cldr.total(language)
    return ("", "") if people is None else (str(people), f"{CLDR} (key {key})")


def family_of(language: str, cldr: Cldr) -> str:
    """Return the name of the top-level family, empty when unknown."""
    if language in FAMILY:
        return FAMILY[language]
    group = cldr.group(language)
    if group is None:
        return ""
    name = GROUP_NAME.get(group) or langcodes.get(group).language_name()
    return name.removesuffix(" languages").removesuffix(" (family)")


def build(cldr: Cldr) -> list[dict[str, str]]:
    """Return the rows, sorted by code."""
    with (Path(__file__).parent / "flores200.tsv").open(encoding="utf-8", newline="") as lines:
        flores = {row["code"]: row["name"] for row in csv.DictReader(lines, delimiter="\t")}
    with lzma.open(ASSETS / "udhr.jsonl.xz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    udhr = {record["code"]: record["name"] for record in records if "-" not in record["code"]}
    rows = []
    codes = sorted({*flores, *udhr, *NTREX_ONLY})
    languages = {code.split("_")[0] for code in codes}
    scripts = {one: [c.split("_")[1] for c in codes if c.startswith(one)] for one in languages}
    for code in codes:
        language, script = code.split("_")
        values = (
            code,
            name_of(code, flores, udhr),
            autonym_of(language, script, cldr),
            language,
            short_code(language, languages),
            script,
            display_script(script),
            direction_of(script),
            family_of(language, cldr),
            *figures(language, script, scripts[language], cldr),
            str(int(code in flores)),
            str(int(code in udhr)),
        )
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def main() -> None:
    """Fetch the pinned packages, write the table and print how full it is."""
    parser = argparse.ArgumentParser(description="Build languages.csv.")
    parser.add_argument("--output", type=Path, default=ASSETS / "languages.csv")
    arguments = parser.parse_args()
    with npm_package(*CLDR_CORE) as core:
        rows = build(Cldr(core / "supplemental"))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    arguments.output.write_text(text.getvalue(), encoding="utf-8", newline="\n")
    filled = Counter(column for row in rows for column in COLUMNS if row[column] not in {"", "0"})
    print(f"{len(rows)} rows; filled: {dict(filled)}")


if __name__ == "__main__":
    main()
