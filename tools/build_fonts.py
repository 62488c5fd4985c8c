"""Build ``src/tokengraft/assets/fonts``: one small Noto font per script, for figures.

Each font keeps the characters of its script that occur in the bundled UDHR and in the
autonyms of ``languages.csv`` (build those two first), and the rest of their blocks of 128 code
points, since a model may write any letter of an alphabet (not for Han, Hangul and Yi, which have
too many). If the UDHR has no text in a script, its font keeps all characters. The layout features
that shape them are kept too.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import lzma
import re
from collections import defaultdict
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from fontTools.unicodedata import script_extension

from _registry import npm_package

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "src/tokengraft/assets"
#: Writing systems of several Unicode scripts, and what they are made of.
PARTS = {
    "Hans": {"Hani", "Bopo"},
    "Hant": {"Hani", "Bopo"},
    "Jpan": {"Hani", "Hira", "Kana"},
    "Hang": {"Hang"},
}
#: Space, no-break space, zero-width joiners, direction marks and the dotted circle: shapers
#: look for these in the font of the run they occur in.
ALWAYS = frozenset(" \u00a0\u200b\u200c\u200d\u200e\u200f\u25cc")
#: 1904-based seconds written as the fonts' dates, so that a rebuild gives equal bytes.
EPOCH = 3_600_000_000


def occurring() -> dict[str, set[str]]:
    """Return, by script, the characters of UDHR texts and autonyms in that script."""
    chars: dict[str, set[str]] = defaultdict(set)
    with lzma.open(ASSETS / "udhr.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            script = record["code"].split("-")[0].split("_")[1]
            chars[script].update(*record["units"].values())
    with (ASSETS / "languages.csv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            if row["script"] in chars:
                chars[row["script"]].update(row["autonym"])
    return chars


def in_script(char: str, script: str) -> bool:
    """Tell whether ``char`` belongs to the writing system, by Unicode's Script_Extensions.

    Unicode counts fullwidth forms and CJK punctuation as common to all scripts, but only East
    Asian fonts have them.
    """
    if script in {*PARTS, "Yiii"} and (
        "\u3000" <= char <= "\u303f" or "\uff01" <= char <= "\uffee"
    ):
        return True
    return bool(set(script_extension(char)) & PARTS.get(script, {script}))


def wanted(font: TTFont, script: str, texts: dict[str, set[str]]) -> set[int]:
    """Return the code points the subset keeps."""
    covered = {chr(point) for point in font.getBestCmap()}
    own = {char for char in texts.get(script, covered) if in_script(char, script)}
    if script not in {*PARTS, "Yiii"}:
        rows = {ord(char) >> 7 for char in own}
        own |= {char for char in covered if ord(char) >> 7 in rows and in_script(char, script)}
    return {ord(char) for char in own & covered | ALWAYS & covered}


def subset(font: TTFont, points: set[int]) -> bytes:
    """Return the font cut to ``points`` as TrueType bytes that depend on nothing else."""
    options = Options()
    options.layout_features = ["*"]
    options.name_IDs = [0, 1, 2, 3, 4, 5, 6, 13, 14]
    options.name_languages = [0x409]
    options.hinting = False
    options.notdef_outline = True
    options.recalc_timestamp = False
    options.drop_tables += ["meta"]
    cutter = Subsetter(options)
    cutter.populate(unicodes=points)
    cutter.subset(font)
    font.flavor = None
    font.recalcTimestamp = False
    font["head"].created = font["head"].modified = EPOCH
    data = io.BytesIO()
    font.save(data, reorderTables=True)
    return data.getvalue()


def regular(package: Path) -> Path:
    """Return the package's regular, upright weight: a TTF, or a WOFF where it ships no TTF."""
    found = sorted(package.glob("400Regular/*.ttf")) or sorted(
        path
        for path in package.glob("files/*-400-normal.woff")
        if not re.search(r"-(latin|latin-ext|all)-400", path.name)
    )
    if len(found) != 1:
        raise ValueError(f"{package.name}: {len(found)} regular fonts")
    return found[0]


def licence_of(font: TTFont) -> str:
    """Return the SPDX name of the font's licence, which has to be the Open Font License."""
    text = f"{font['name'].getDebugName(13)} {font['name'].getDebugName(14)}"
    if not re.search(r"Open Font License|scripts\.sil\.org/OFL|openfontlicense\.org", text):
        raise ValueError(f"not under the OFL: {text}")
    return "OFL-1.1"


def main() -> None:
    """Write the fonts, their table and their licence."""
    parser = argparse.ArgumentParser(description="Build the bundled fonts.")
    parser.add_argument("--output", type=Path, default=ASSETS / "fonts")
    output: Path = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for old in output.glob("*.ttf"):
        old.unlink()
    texts = occurring()
    rows: list[tuple[str, ...]] = []
    notices: set[str] = set()
    licence = ""
    with (Path(__file__).parent / "fonts.tsv").open(encoding="utf-8", newline="") as lines:
        sources = list(csv.DictReader(lines, delimiter="\t"))
    for source in sources:
        spec = f"{source['package']}@{source['version']}"
        with npm_package(spec, source["integrity"]) as package:
            font = TTFont(regular(package), recalcTimestamp=False)
            if "fvar" in font:
                raise ValueError(f"{spec}: variable font")
            text = package / "LICENSE_FONT"
            licence = licence or text.read_text(encoding="utf-8") if text.exists() else licence
            notices.add(str(font["name"].getDebugName(0)).strip())
            name = re.sub(r"\W", "", str(font["name"].getDebugName(1)))
            points = wanted(font, source["script"], texts)
            spdx = licence_of(font)
            data = subset(font, points)
        missing = {c for c in texts.get(source["script"], set()) if in_script(c, source["script"])}
        missing -= {chr(point) for point in points}
        path = output / f"{name}-{source['script']}.ttf"
        path.write_bytes(data)
        rows.append((path.name, source["script"], spec, spdx, hashlib.sha256(data).hexdigest()))
        note = f", {len(missing)} characters not in the font" if missing else ""
        print(f"{path.name}: {len(points)} characters, {len(data)} bytes{note}")
    with (output / "fonts.csv").open("w", encoding="utf-8", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(("file", "scripts", "source", "licence", "sha256"))
        writer.writerows(sorted(rows))
    body = licence[licence.index("This Font Software is licensed") :]
    head = "\n".join(sorted(notices))
    (output / "OFL.txt").write_text(f"{head}\n\n{body}", encoding="utf-8", newline="\n")
    print(sum(path.stat().st_size for path in output.glob("*.ttf")), "bytes in all")


if __name__ == "__main__":
    main()
