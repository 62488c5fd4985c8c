"""Which languages a plan is for: named one by one, or as a group.

A group is `all`, a script (`Latn`), a family of the language table (`Niger-Congo`), or `premium>2`:
every language whose premium under the tokenizer, on the test corpus, is above that. Groups are
taken from the languages that there is text for; the pivot is in none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.languages.codes import known, language, meanings, resolve, well_formed
from tokengraft.planning.boundaries import script_of

ALL = "all"
_SCRIPT = re.compile("[A-Z][a-z]{3}")
_ABOVE = re.compile(r"premium\s*>\s*(\d+(?:\.\d+)?)")


def is_group(asked: str) -> bool:
    """Whether `asked` names several languages, not one."""
    if asked == ALL or _ABOVE.fullmatch(asked):
        return True
    return not meanings(asked) and bool(_SCRIPT.fullmatch(asked) or _family(asked))


def languages_for(
    asked: Iterable[str],
    available: Collection[str],
    pivot: str,
    premium_of: Callable[[str], float | None],
) -> list[str]:
    """The codes that `asked` means, in order, each once; groups are taken from `available`.

    UsageError for a group without any language.
    """
    codes: dict[str, None] = {}
    for one in asked:
        if not is_group(one):
            codes[resolve(one)] = None
            continue
        group = [code for code in available if code != pivot and well_formed(code)]
        if (above := _ABOVE.fullmatch(one)) is not None:
            limit = float(above[1])
            group = [code for code in group if (premium_of(code) or 0) > limit]
        elif one != ALL and _SCRIPT.fullmatch(one):
            group = [code for code in group if script_of(code) == one]
        elif one != ALL:
            group = [code for code in group if language(code).family == _family(one)]
        if not group:
            raise UsageError(f"{one}: none of the {len(available)} languages with text is meant")
        codes.update(dict.fromkeys(group))
    return list(codes)


def texts_of_folder(folder: Path) -> dict[str, Path]:
    """The files of a folder that are named by a language (`swh_Latn.txt`, `shn.jsonl.zst`)."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        label = path.name.partition(".")[0]
        try:
            code = resolve(label) if path.is_file() and label else None
        except CorpusError:
            continue
        if code is not None and code in files:
            raise UsageError(f"{folder} has two files for {code}: {files[code].name}, {path.name}")
        if code is not None:
            files[code] = path
    if not files:
        raise UsageError(f"{folder}: no file in it is named by a language, like swh_Latn.txt")
    return files


def _family(said: str) -> str | None:
    families = {row.family.casefold(): row.family for row in known().values() if row.family}
    return families.get(said.casefold())
