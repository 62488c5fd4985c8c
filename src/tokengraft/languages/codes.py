"""Languages by FLORES-style code (`shn_Mymr`, `eng_Latn-GB`): names, scripts, speakers.

A code is an ISO 639-3 language, an ISO 15924 script and, for a second variety of the same
two, a suffix. The table is `assets/languages.csv`; codes outside it are allowed as long as
they are well formed, since a corpus may hold a language that the table does not know yet.
`assets/other_names.csv` maps names and codes that the table lacks to what they may mean.

Figures and the page both take their groups of scripts from here: one colour and one legend entry
per group, in this order.
"""

from __future__ import annotations

import csv
import difflib
import functools
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from tokengraft.core.errors import CorpusError
from tokengraft.core.files import ASSETS

_SUGGESTED = 3  # languages that a message suggests
_FEW = 8  # languages that it lists
WELL_FORMED = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}(-\w+)?", re.ASCII)


@dataclass(frozen=True)
class Language:
    """What is known about one language in one script; None where nothing is known."""

    code: str
    name: str
    autonym: str | None
    short: str | None  # ISO 639-1, or the macrolanguage's if it has none
    script: str
    script_name: str | None
    direction: str | None
    family: str | None
    speakers_total: int | None
    speakers_total_source: str | None


@functools.cache
def known() -> Mapping[str, Language]:
    """Every language of the bundled table by code, in the table's order; read once."""
    languages = [_from_row(row) for row in _rows("languages.csv")]
    return MappingProxyType({language.code: language for language in languages})


def well_formed(code: str) -> bool:
    """Whether `code` looks like `shn_Mymr` or `eng_Latn-GB`, known or not."""
    return WELL_FORMED.fullmatch(code) is not None


def base(code: str) -> str:
    """The code without its variety suffix: `eng_Latn` for `eng_Latn-GB`."""
    return code.partition("-")[0]


def script_of(code: str) -> str:
    """`Deva` for `hin_Deva` and `hin_Deva-variant`; "" for a code that names no script."""
    match = re.search(r"_([A-Z][a-z]{3})(?![a-z])", code)
    return match[1] if match else ""


def language(code: str) -> Language:
    """What is known about `code`.

    A variety (`deu_Latn-1901`) takes everything from its base row but the speakers, which
    would otherwise be counted twice. A well-formed code outside the table gives a `Language`
    named by its code. Anything else is a CorpusError.
    """
    table = known()
    if code in table:
        return table[code]
    if not well_formed(code):
        raise CorpusError(_not_a_code(code, table))
    row, variety = table.get(base(code)), code.partition("-")[2]
    if row is None:
        script = code[4:8]
        return Language(code, code, None, None, script, None, None, None, None, None)
    return replace(
        row,
        code=code,
        name=f"{row.name} ({variety})",
        speakers_total=None,
        speakers_total_source=None,
    )


def resolve(code: str, among: Collection[str] | None = None, where: str = "") -> str:
    """The full code meant by `code`: itself, or the only one for `shn`, `de`, `zh-Hant` or `Shan`.

    With `among`, the answer is one of those; without, any well-formed code is its own answer.
    An ambiguous `code` is a CorpusError that lists what it may mean; an unknown one is a
    CorpusError with suggestions. The message names `where` ("udhr").
    """
    codes = meanings(code, among)
    if len(codes) == 1:
        return codes[0]
    if codes:
        listed = ", ".join(_label(choice) for choice in codes)
        speakers = {choice: language(choice).speakers_total or 0 for choice in codes}
        first = max(codes, key=lambda choice: speakers[choice])
        most = (
            f" The most spoken is {first}." if list(speakers.values()).count(0) < len(codes) else ""
        )
        raise CorpusError(f"Language {code!r} is ambiguous; say which one: {listed}.{most}")
    if among is None:
        raise CorpusError(_not_a_code(code, known()))
    place = f" in {where}" if where else ""
    few = ", ".join(sorted(among)) if len(among) <= _FEW else ""
    hint = suggest(code, among) or ("" if few else " `tokengraft languages` finds codes by name.")
    raise CorpusError(f"No language {code!r}{place}, which has {few or len(among)}.{hint}")


def resolve_at(label: str, place: str) -> str:
    """`resolve`, with the `place` of the label (a file, line or column) in front of an error."""
    try:
        return resolve(label)
    except CorpusError as error:
        several = len(meanings(label)) > 1
        way = f" Write the full code there instead of {label!r}." if several else ""
        raise CorpusError(f"{place}: {error}{way}") from None


def meanings(said: str, among: Collection[str] | None = None) -> list[str]:
    """Every full code that `said` may mean, sorted; of `among`, or of the table.

    A full code means itself, and without `among` so does any well-formed one. Otherwise the first
    of these that matches decides: ISO 639-3, 639-1 and tags like `zh-Hant` or `pt_BR`, or another
    name (`Farsi`); the whole English name of a row (`Serbian` is srp_Cyrl, the row of that very
    name, though `srp` may be two); a name without its brackets (`Chinese`); the autonym.
    Varieties count only if no plain language matches; case, accents and apostrophes are ignored.
    """
    choices = frozenset(known() if among is None else among)
    if said in choices or (among is None and well_formed(said)):
        return [said]
    codes = sorted(set(_meant(said, _index(choices))))
    return [code for code in codes if "-" not in code] or codes


@functools.lru_cache(maxsize=4096)
def canonical(label: str) -> str:
    """The full code that a label found in data means if it means only one, else the label."""
    codes = meanings(label)
    return codes[0] if len(codes) == 1 else label


@dataclass(frozen=True)
class _Index:
    """Codes by what people call them."""

    tags: dict[str, list[str]] = field(default_factory=dict)  # ISO 639-3 and 639-1
    names: dict[str, list[str]] = field(default_factory=dict)
    others: dict[str, list[str]] = field(default_factory=dict)
    stems: dict[str, list[str]] = field(default_factory=dict)  # names without their brackets
    autonyms: dict[str, list[str]] = field(default_factory=dict)


@functools.lru_cache(maxsize=16)
def _index(choices: frozenset[str]) -> _Index:
    index = _Index()
    others: dict[str, list[str]] = {}
    for name, codes in _other_names().items():
        for code in codes:
            others.setdefault(code, []).append(name)
    for row in map(language, filter(well_formed, choices)):
        for tag in filter(None, {row.code[:3], row.short}):
            index.tags.setdefault(tag, []).append(row.code)
        for name in others.get(base(row.code), ()):
            index.others.setdefault(name, []).append(row.code)
        index.names.setdefault(_key(row.name), []).append(row.code)
        index.stems.setdefault(_key(_stem(row.name)), []).append(row.code)
        if row.autonym:
            index.autonyms.setdefault(row.autonym.casefold(), []).append(row.code)
    return index


def other_names(code: str) -> list[str]:
    """What else a language is called, tags apart: `Quechua` for quy_Latn."""
    rows = _rows("other_names.csv")
    return [r["name"] for r in rows if len(r["name"]) > 3 and base(code) in r["codes"].split()]


@functools.cache
def _other_names() -> Mapping[str, list[str]]:
    return {_key(row["name"]): row["codes"].split() for row in _rows("other_names.csv")}


def _rows(name: str) -> Iterator[dict[str, str]]:
    return csv.DictReader((ASSETS / name).read_text(encoding="utf-8").split("\n"))


def _meant(said: str, index: _Index) -> list[str]:
    tag, *rest = re.split("[-_]", said)
    script = next((part.title() for part in rest if len(part) == 4), None)
    region = next((part.upper() for part in rest if len(part) == 2), None)
    key = _key(said)
    by_name = index.names.get(key, [])
    if key in index.others and key not in index.names:
        return index.others[key] + index.tags.get(key, [])
    if len(rest) == (script is not None) + (region is not None):
        known_as = index.tags.get(tag.lower(), []) + index.others.get(_key(tag), [])
        by_tag = [code for code in known_as if script in (None, code[4:8])]
        if by_region := [code for code in by_tag if region and code.endswith(f"-{region}")]:
            return by_region
        if by_tag:  # `Ga` is a language, `ga` the code of another
            return by_tag + [code for code in by_name if language_name(code) == said]
    return by_name or index.stems.get(key, []) or index.autonyms.get(said.casefold(), [])


def _key(name: str) -> str:
    """A name or tag without case, accents and apostrophes."""
    parts = unicodedata.normalize("NFKD", name.replace("_", "-").casefold())
    return "".join(c for c in parts if not unicodedata.combining(c) and c not in "'’ʼ‘`")


def _stem(name: str) -> str:
    return name.partition(" (")[0]


def listed(codes: str | Iterable[str]) -> list[str]:
    """Codes as a list; a string is a single code."""
    return [codes] if isinstance(codes, str) else list(codes)


def check_code(code: str, where: str) -> str:
    """Return `code` if well formed; else raise a CorpusError that names the place, `where`."""
    if not well_formed(code):
        raise CorpusError(f"{where}: {_not_a_code(code, known())}")
    return code


def suggest(got: str, choices: Collection[str]) -> str:
    """' Did you mean shn_Mymr (Shan)?': names with all words of `got`, else the closest; or ''."""
    words = set(_words(got))
    rows = [language(code) for code in choices if well_formed(code) and "-" not in code]
    holding = [row for row in rows if words and words <= set(_words(_stem(row.name)))]
    if holding:
        holding.sort(key=lambda row: (-(row.speakers_total or 0), row.code))
        shown = [_label(row.code) for row in holding[: 2 * _SUGGESTED]]
        more = f", … ({len(holding)} in all)" if len(holding) > len(shown) else ""
        return f" Did you mean {', '.join(shown)}{more}?"
    index = _index(frozenset(choices))
    keys: dict[str, list[str]] = {code.lower(): [code] for code in choices}
    for table in (index.tags, index.names, index.others, index.stems):
        for key, codes in table.items():
            if len(key) > 2:
                keys.setdefault(key, []).extend(codes)
    # In a code, one letter of three may be wrong; for longer words that is far too loose.
    cutoff = 0.6 if len(got) < 5 else 0.7
    close = difflib.get_close_matches(_key(got), list(keys), n=_SUGGESTED, cutoff=cutoff)
    closest = list(dict.fromkeys(code for key in close for code in sorted(keys[key])))[:_SUGGESTED]
    return f" Did you mean {', '.join(_label(code) for code in closest)}?" if closest else ""


def _words(name: str) -> list[str]:
    return re.findall(r"\w+", _key(name))


def language_name(code: str) -> str:
    """The English name, or the code itself if none is known; never raises."""
    return language(code).name if well_formed(code) else code


def _label(code: str) -> str:
    name = language_name(code)
    return code if name == code else f"{code} ({name})"


def _not_a_code(code: str, choices: Collection[str]) -> str:
    hint = suggest(code, choices) or " `tokengraft languages` lists those known by name."
    return (
        f"{code!r} is not a language code; write ISO 639-3, an underscore and the ISO 15924 "
        f"script, like eng_Latn.{hint}"
    )


def _from_row(row: Mapping[str, str]) -> Language:
    cells: dict[str, Any] = {
        one.name: row["iso639_1" if one.name == "short" else one.name] or None
        for one in fields(Language)
    }
    speakers = cells["speakers_total"]
    return Language(**cells | {"speakers_total": None if speakers is None else int(speakers)})


_SCRIPTS = {
    "Latin": ("Latn",),
    "Cyrillic": ("Cyrl",),
    "Arabic": ("Arab",),
    "Devanagari": ("Deva",),
    "Other Indic": (
        *("Beng", "Gujr", "Guru", "Knda", "Mlym", "Orya", "Sinh", "Taml", "Telu"),
        *("Olck", "Gran", "Cakm"),
    ),
    "Chinese, Japanese, Korean": ("Hans", "Hant", "Hani", "Jpan", "Hang", "Kore", "Hira", "Kana"),
    "Ethiopic": ("Ethi",),
    "Myanmar, Khmer, Thai, Lao": ("Mymr", "Khmr", "Thai", "Laoo", "Lana", "Tavt"),
}
_OTHER = "Other scripts"
#: The groups by name, in the order of a legend.
SCRIPT_GROUPS = (*_SCRIPTS, _OTHER)
#: Scripts written with the letters of another, whose font they share.
SAME_LETTERS = {"Hani": "Hans", "Kore": "Hang", "Hira": "Jpan", "Kana": "Jpan"}
_GROUP_OF = {script: group for group, scripts in _SCRIPTS.items() for script in scripts}


def script_group(script: str) -> str:
    """The group of a script (ISO 15924)."""
    return _GROUP_OF.get(script, _OTHER)
