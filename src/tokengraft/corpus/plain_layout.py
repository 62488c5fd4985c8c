"""Plain text, one unit per line: `code=path` pairs, or a folder of `xxx_Ssss.txt` files.

A file may also be `en.txt` or `Shan.txt`: languages are named as everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tokengraft.core.errors import CorpusError
from tokengraft.corpus.archive import Bundle, read_file
from tokengraft.corpus.layout import CorpusLayout, align, choose_splits, load_files, read_lines
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import resolve, resolve_at

#: What to do with text that has no translation beside it.
ONE_LANGUAGE = "Text in one language is counted with --monolingual -l CODE."

#: Files that describe a folder rather than belong to its corpus.
_ABOUT = {"readme", "license", "licence", "notice", "copying", "sources"}


def load_pairs(pairs: Iterable[str], skip_empty: bool = False) -> ParallelCorpus:
    """The corpus of `code=path` pairs, two or more; a bare ISO code will do if unambiguous.

    The files are UTF-8, plain or compressed, with one unit per line, line n being the same unit in
    each; with `skip_empty`, as in `load`.
    """
    files: dict[str, Path] = {}
    for pair in pairs:
        label, equals, path = pair.partition("=")
        if not equals or not label or not path:
            raise CorpusError(
                f"{pair!r} is not code=path: say each file's language, like "
                f"eng_Latn={(path if equals else label) or 'english.txt'}."
            )
        code = resolve(label)
        if code in files:
            raise CorpusError(f"{code} is given twice: {files[code]} and {path}.")
        files[code] = Path(path).expanduser()
    if len(files) < 2:
        raise CorpusError(
            f"{len(files)} language given; parallel text needs two or more code=path pairs. "
            f"{ONE_LANGUAGE}"
        )
    texts = {}
    for code, file in files.items():
        texts[code] = (str(file), read_lines(read_file(file), str(file), skip_empty))
    source = f"own text files: {', '.join(file.name for file in files.values())}"
    return align("my-files", source, texts)


def recognise(bundle: Bundle) -> bool:
    """Whether the bundle has files of this layout."""
    return bool(_files(bundle))


def load(bundle: Bundle, split: str | None, languages: Iterable[str] | None) -> ParallelCorpus:
    """The chosen languages; there are no splits, so choosing one is a CorpusError."""
    choose_splits(split, (), bundle.where)
    named = (
        (resolve_at(PurePosixPath(name).stem, bundle.place(name)), name) for name in _files(bundle)
    )
    source = f"text files from {bundle.title}"
    return load_files(bundle, named, languages, Path(bundle.title).stem, source)


def _files(bundle: Bundle) -> list[str]:
    paths = (PurePosixPath(name) for name in bundle.names)
    return [
        str(path) for path in paths if path.suffix == ".txt" and path.stem.lower() not in _ABOUT
    ]


LAYOUT = CorpusLayout(
    "text files",
    "a folder or archive of xxx_Ssss.txt, or code=path pairs; one unit per line",
    recognise,
    load,
    {"eng_Latn.txt": "One.\nTwo.\n", "fra_Latn.txt": "Un.\nDeux.\n"},
    (".txt",),
)
