"""NTREX-128: `newstest2019-src.eng.txt` and `newstest2019-ref.xxx.txt`, 1,997 lines each.

Its names carry macrolanguages, regions and scripts in no fixed order (`aze-Latn`, `zho-CN`,
`eng-GB`); here each gets the code that FLORES-200 uses, so that results can be joined. A
region stays as a suffix (`eng_Latn-GB`), a second reference becomes `spa_Latn-ref2`.

Reference: Federmann, Kocmi, Xin, "NTREX-128" (2022), https://aclanthology.org/2022.sumeval-1.4
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from tokengraft.core.errors import CorpusError
from tokengraft.corpus.archive import Bundle
from tokengraft.corpus.layout import CorpusLayout, choose_splits, load_files
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages import codes as table

_NAME = re.compile(r"newstest2019-(?:src|ref)(?:-(?P<more>\d))?\.(?P<label>[^.]+)\.txt")
_LABEL = re.compile(r"(?P<iso>[a-z]{3})(?:-(?P<script>[A-Z][a-z]{3})|-(?P<region>\w+))?", re.ASCII)

#: Macrolanguages and standard forms that NTREX names → the language that FLORES-200 has.
_MEMBER = {
    "aze": "azj", "fas": "pes", "fil": "tgl", "lav": "lvs", "mlg": "plt", "mon": "khk",
    "msa": "zsm", "nep": "npi", "orm": "gaz", "pus": "pbt", "sqi": "als", "swa": "swh",
    "uzb": "uzn",
}  # fmt: skip

#: Labels whose script does not follow from the language table, which lists several for them.
_CODES = {
    "arb": "arb_Arab", "bos": "bos_Latn", "msa": "zsm_Latn", "tuk": "tuk_Latn", "uig": "uig_Arab",
    "uzb": "uzn_Latn", "vie": "vie_Latn", "yue": "yue_Hant", "zho-CN": "zho_Hans",
    "zho-TW": "zho_Hant",
}  # fmt: skip


def recognise(bundle: Bundle) -> bool:
    """Whether the bundle has files of this layout."""
    return any(_NAME.fullmatch(PurePosixPath(name).name) for name in bundle.names)


def load(bundle: Bundle, split: str | None, languages: Iterable[str] | None) -> ParallelCorpus:
    """The chosen languages; there are no splits, so choosing one is a CorpusError."""
    choose_splits(split, (), bundle.where)
    source = f"NTREX-128, from {bundle.title}"
    return load_files(bundle, _named(bundle), languages, "ntrex128", source)


def _named(bundle: Bundle) -> Iterator[tuple[str, str]]:
    for name in bundle.names:
        if match := _NAME.fullmatch(PurePosixPath(name).name):
            code = code_of(match["label"], bundle.place(name))
            yield f"{code}-ref{match['more']}" if match["more"] else code, name


def code_of(label: str, where: str) -> str:
    """The FLORES-style code of an NTREX label: `zho_Hant` for `zho-TW`, `spa_Latn-MX`."""
    if label in _CODES:
        return _CODES[label]
    match = _LABEL.fullmatch(label)
    if match is None:
        raise CorpusError(
            f"{where}: {label!r} is not a language of NTREX-128; expected a name like "
            f"newstest2019-ref.deu.txt.{table.suggest(label, table.known())}"
        )
    iso = _MEMBER.get(match["iso"], match["iso"])
    script = match["script"] or _scripts().get(iso)
    if script is None:
        raise CorpusError(
            f"{where}: the script of {label!r} is not known; name it in the file name, as in "
            f"newstest2019-ref.{label}-Latn.txt."
        )
    return f"{iso}_{script}" + (f"-{match['region']}" if match["region"] else "")


@functools.cache
def _scripts() -> Mapping[str, str]:
    scripts: dict[str, set[str]] = {}
    for code, language in table.known().items():
        scripts.setdefault(code[:3], set()).add(language.script)
    return {iso: known.pop() for iso, known in scripts.items() if len(known) == 1}


LAYOUT = CorpusLayout(
    "NTREX-128",
    "a folder or archive with newstest2019-src.eng.txt and newstest2019-ref.xxx.txt",
    recognise,
    load,
    {
        "NTREX-128/newstest2019-src.eng.txt": "One.\nTwo.\n",
        "NTREX-128/newstest2019-ref.fra.txt": "Un.\nDeux.\n",
    },
    (".txt",),
)
