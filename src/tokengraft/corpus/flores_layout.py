"""FLORES as text files: FLORES-200 and the text releases of FLORES+.

FLORES-200 has `dev/xxx_Ssss.dev` and `devtest/xxx_Ssss.devtest`, every language in both.
FLORES+ has `dev/dev.xxx_Ssss`, and some of its languages are in one split only.

Reference: NLLB Team, "No Language Left Behind" (2022), https://arxiv.org/abs/2207.04672
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from tokengraft.core.errors import CorpusError
from tokengraft.corpus.archive import Bundle
from tokengraft.corpus.layout import CorpusLayout, check_counts, choose_splits, read_lines
from tokengraft.corpus.parallel import ParallelCorpus, choose, whole_units
from tokengraft.languages.codes import check_code

_GLOTTOCODE = re.compile(r"_(?=[a-z]{4}\d{4}$)")

PREFIXES = ("dev", "devtest")


def recognise(bundle: Bundle) -> bool:
    """Whether the bundle has files of this layout."""
    return any(_parse(name) for name in bundle.names)


def load(bundle: Bundle, split: str | None, languages: Iterable[str] | None) -> ParallelCorpus:
    """The chosen languages over the chosen splits; units are named `dev.1`, `devtest.1`."""
    files: dict[str, dict[str, str]] = {}
    plus = False
    for name in bundle.names:
        parsed = _parse(name)
        if parsed is None:
            continue
        part, label = parsed
        plus = plus or PurePosixPath(name).stem == part
        names = files.setdefault(part, {})
        code = check_code(label, bundle.place(name))
        if code in names:
            raise CorpusError(f"{code} occurs twice: {names[code]} and {bundle.place(name)}.")
        names[code] = name
    splits = choose_splits(split, files, bundle.where)
    codes = choose(languages, {code for part in splits for code in files[part]}, bundle.where)
    units: list[str] = []
    texts: dict[str, tuple[str | None, ...]] = dict.fromkeys(codes, ())
    for part in splits:
        missing = [code for code in codes if code not in files[part]]
        if missing and (not plus or len(missing) == len(codes)):
            raise CorpusError(
                f"{bundle.where} has no {part} file for {missing[0]}; add "
                f"{part}/{missing[0]}.{part}, leave {missing[0]} out or choose another split."
            )
        names, counts = files[part], {}
        for code in codes:
            if code in names:
                lines = read_lines(
                    bundle.read(names[code]), bundle.place(names[code]), bundle.skip_empty
                )
                counts[code] = (bundle.place(names[code]), len(lines))
                texts[code] += lines
        check_counts(counts)
        length = next(iter(counts.values()))[1]
        for code in missing:
            texts[code] += (None,) * length
        units += [f"{part}.{number}" for number in range(1, length + 1)]
    name, title = ("flores+", "FLORES+") if plus else ("flores200", "FLORES-200")
    source = f"{title}, {' + '.join(splits)}, from {bundle.title}"
    return whole_units(name, source, units, texts)


def _parse(name: str) -> tuple[str, str] | None:
    """The split and code in a file's name, or None if it is not a FLORES text file."""
    path = PurePosixPath(name)
    if path.suffix[1:] in PREFIXES:
        return path.suffix[1:], path.stem
    # `dev.parquet` names a split too, but is a table (see `table_layout`).
    if path.stem in PREFIXES and re.match(r"\.[a-z]{3}_", path.suffix):
        return path.stem, _GLOTTOCODE.sub("-", path.suffix[1:])
    return None


LAYOUT = CorpusLayout(
    "FLORES",
    "a folder or archive with dev/xxx_Ssss.dev and devtest/xxx_Ssss.devtest (FLORES-200),\n"
    "or with dev/dev.xxx_Ssss and devtest/devtest.xxx_Ssss (FLORES+)",
    recognise,
    load,
    {
        "dev/eng_Latn.dev": "One.\nTwo.\n",
        "dev/fra_Latn.dev": "Un.\nDeux.\n",
        "devtest/eng_Latn.devtest": "Three.\n",
        "devtest/fra_Latn.devtest": "Trois.\n",
    },
    (".dev", ".devtest"),
    PREFIXES,
)
