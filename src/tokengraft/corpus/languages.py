"""Languages by FLORES-style code (`shn_Mymr`, `eng_Latn-GB`): names, scripts, speakers.

A code is an ISO 639-3 language, an ISO 15924 script and, for a second variety of the same
two, a suffix. The table is `assets/languages.csv`; codes outside it are allowed as long as
they are well formed, since a corpus may hold a language that the table does not know yet.
"""

from __future__ import annotations

import csv
import difflib
import functools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from types import MappingProxyType

from tokengraft.errors import CorpusError

WELL_FORMED = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}(-\w+)?", re.ASCII)


@dataclass(frozen=True)
class Language:
    """What is known about one language in one script; None where nothing is known."""

    code: str
    name: str
    autonym: str | None
    short: str | None  # ISO 639-1, of the macrolanguage where it has none of its own
    script: str
    script_name: str | None
    direction: str | None
    family: str | None
    speakers_first: int | None
    speakers_first_source: str | None
    speakers_total: int | None
    speakers_total_source: str | None


@functools.cache
def known() -> Mapping[str, Language]:
    """Every language of the bundled table by code, in the table's order; read once."""
    asset = resources.files("tokengraft") / "assets" / "languages.csv"
    rows = csv.DictReader(asset.read_text(encoding="utf-8").split("\n"))
    languages = [_from_row(row) for row in rows]
    return MappingProxyType({language.code: language for language in languages})


def well_formed(code: str) -> bool:
    """Whether `code` looks like `shn_Mymr` or `eng_Latn-GB`, known or not."""
    return WELL_FORMED.fullmatch(code) is not None


def base(code: str) -> str:
    """The code without its variety suffix: `eng_Latn` for `eng_Latn-GB`."""
    return code.partition("-")[0]


def language(code: str) -> Language:
    """What is known about `code`.

    A variety (`deu_Latn-1901`) takes everything from its base row but the speakers, which
    are counted for the language and would be counted twice otherwise. A well-formed code
    outside the table gives a `Language` named by its code. Anything else is a CorpusError.
    """
    table = known()
    if code in table:
        return table[code]
    if not well_formed(code):
        raise CorpusError(_not_a_code(code, table))
    row, variety = table.get(base(code)), code.partition("-")[2]
    if row is None:
        script = code[4:8]
        return Language(code, code, None, None, script, None, None, None, None, None, None, None)
    return replace(
        row,
        code=code,
        name=f"{row.name} ({variety})",
        speakers_first=None,
        speakers_first_source=None,
        speakers_total=None,
        speakers_total_source=None,
    )


def resolve(code: str, among: Collection[str] | None = None, where: str = "") -> str:
    """The full code meant by `code`: itself, or the only one for `shn`, `de`, `zh-Hant` or `Shan`.

    With `among`, the answer is one of those; without, any well-formed code is its own answer.
    A bare code means the plain language before its varieties. A code that means nothing is a
    CorpusError with suggestions by code and by English name, one that means several lists
    them. `where` is named in the message ("udhr").
    """
    choices = known().keys() if among is None else among
    if code in choices or (among is None and well_formed(code)):
        return code
    candidates = _meant(code, choices)
    plain = [choice for choice in candidates if "-" not in choice]
    if len(plain or candidates) == 1:
        return (plain or candidates)[0]
    if candidates:
        listed = ", ".join(_label(choice) for choice in plain or candidates)
        raise CorpusError(f"Language {code!r} is ambiguous; say which one: {listed}.")
    if among is None:
        raise CorpusError(_not_a_code(code, choices))
    place = f" in {where}" if where else ""
    raise CorpusError(
        f"No language {code!r}{place}, which has {len(among)}.{suggest(code, choices)}"
    )


def _meant(said: str, choices: Collection[str]) -> list[str]:
    """Choices for an ISO 639-3 or 639-1 code, a tag like `zh-Hant` or `pt_BR`, or a name."""
    tag, *rest = re.split("[-_]", said)
    script = next((part.title() for part in rest if len(part) == 4), None)
    region = next((part.upper() for part in rest if len(part) == 2), None)
    is_tag = len(rest) == sum(part is not None for part in (script, region))
    rows = [language(choice) for choice in choices if well_formed(choice)]
    by_tag = [
        row.code
        for row in rows
        if is_tag
        and tag
        and tag.lower() in (row.code[:3], row.short)
        and script in (None, row.script)
    ]
    by_region = [code for code in by_tag if region and code.endswith(f"-{region}")]
    by_name = [row.code for row in rows if row.name.casefold() == said.casefold()]
    by_autonym = [row.code for row in rows if said and row.autonym == said]
    return sorted(by_region or by_tag or by_name or by_autonym)


def listed(codes: str | Iterable[str]) -> list[str]:
    """Codes as a list; a single one may stand for itself."""
    return [codes] if isinstance(codes, str) else list(codes)


def check_code(code: str, where: str) -> str:
    """Return `code` if well formed; else raise a CorpusError that names `where` it stands."""
    if not well_formed(code):
        raise CorpusError(f"{where}: {_not_a_code(code, known())}")
    return code


def suggest(got: str, choices: Collection[str], limit: int = 3) -> str:
    """' Did you mean shn_Mymr (Shan)?' for the choices closest in code or name, or ''."""
    keys: dict[str, list[str]] = {}
    for code in choices:
        for key in {code.lower(), code[:3].lower(), language_name(code).lower()}:
            keys.setdefault(key, []).append(code)
    wanted = got.lower()
    close = difflib.get_close_matches(wanted, list(keys), n=limit, cutoff=0.6)
    found = list(dict.fromkeys(code for key in close for code in sorted(keys[key])))[:limit]
    return f" Did you mean {', '.join(_label(code) for code in found)}?" if found else ""


def language_name(code: str) -> str:
    """The English name, or the code itself where none is known; never raises."""
    return language(code).name if well_formed(code) else code


def _label(code: str) -> str:
    name = language_name(code)
    return code if name == code else f"{code} ({name})"


def _not_a_code(code: str, choices: Collection[str]) -> str:
    return (
        f"{code!r} is not a language code; write ISO 639-3, an underscore and the ISO 15924 "
        f"script, like eng_Latn.{suggest(code, choices)}"
    )


def _from_row(row: Mapping[str, str]) -> Language:
    def text(column: str) -> str | None:
        return row[column] or None

    def count(column: str) -> int | None:
        return int(row[column]) if row[column] else None

    return Language(
        code=row["code"],
        name=row["name"],
        autonym=text("autonym"),
        short=text("iso639_1"),
        script=row["script"],
        script_name=text("script_name"),
        direction=text("direction"),
        family=text("family"),
        speakers_first=count("speakers_first"),
        speakers_first_source=text("speakers_first_source"),
        speakers_total=count("speakers_total"),
        speakers_total_source=text("speakers_total_source"),
    )
