r"""What layouts of parallel text share: the registry row, splits, validated lines, alignment.

A layout is a module with a `CorpusLayout`, listed in `catalog.LAYOUTS`.

Lines end at `\n` only: `str.splitlines` would also cut at U+0085, U+2028 or `\x0b`, which
occur inside sentences of real corpora and would shift every line after them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tokengraft.core.errors import CorpusError, did_you_mean
from tokengraft.corpus.archive import Bundle
from tokengraft.corpus.parallel import ParallelCorpus, choose, whole_units

_BOM = b"\xef\xbb\xbf"
#: Published numbers on FLORES use both splits in this order.
_ORDER = {"dev": 0, "devtest": 1}
_NAMED = 5  # empty lines that a message names


@dataclass(frozen=True)
class CorpusLayout:
    """A way in which parallel text is laid out in files.

    `load` takes the files, and the splits and languages wanted (None: all). `example` holds the
    files of a small corpus in this layout, by name; the contract suite runs on them. Of a folder or
    archive only files are read whose suffix is one of `suffixes`, or whose name without it one of
    `stems`, of any layout. `alone` is whether a single file may be a corpus.
    """

    name: str
    help: str
    recognise: Callable[[Bundle], bool]
    load: Callable[[Bundle, str | None, Iterable[str] | None], ParallelCorpus]
    example: Mapping[str, str]
    suffixes: tuple[str, ...]
    stems: tuple[str, ...] = ()
    alone: bool = False


def choose_splits(split: str | None, have: Iterable[str], where: str) -> list[str]:
    """The splits named by `split` ("dev", "dev+devtest"), in that order; all of them for None.

    Without a choice, dev comes before devtest and both before others. An unknown
    split, or any split of a corpus that has none, is a CorpusError.
    """
    known = sorted(dict.fromkeys(have), key=lambda name: _ORDER.get(name, len(_ORDER)))
    if split is None:
        return known
    if not known:
        raise CorpusError(f"{where} has no splits; leave out the split {split!r}.")
    chosen = list(dict.fromkeys(split.split("+")))
    for name in chosen:
        if name not in known:
            raise CorpusError(
                f"{where} has no split {name!r}; it has {', '.join(known)}, and + joins several "
                f"({'+'.join(known)}).{did_you_mean(name, known)}"
            )
    return chosen


def decode(data: bytes, where: str) -> str:
    """UTF-8 text without its BOM; broken UTF-8 and NUL bytes are errors naming the place."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        # A byte order mark alone proves nothing.
        utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff")) and b"\0" in data
        hint = " It looks like UTF-16." if utf16 else ""
        raise CorpusError(
            f"{where}, line {_line_at(data, error.start)}: byte {error.start} "
            f"(0x{data[error.start]:02x}) is not valid UTF-8.{hint} Save the file as UTF-8."
        ) from None
    if "\0" in text:
        position = data.index(b"\0")
        raise CorpusError(
            f"{where}, line {_line_at(data, position)}: byte {position} is NUL, which is not "
            f"text; the file is binary or damaged."
        )
    return text[1:] if data.startswith(_BOM) else text


def split(text: str) -> list[str]:
    """The lines of `text`, with or without a final newline; a CR at a line's end is removed."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_lines(data: bytes, where: str, empty: bool = False) -> tuple[str, ...]:
    """The stripped lines of a text file; a CorpusError if there are none or one is empty.

    With `empty`, empty lines stay, for `whole_units` to leave out.
    """
    lines = tuple([line.strip() for line in split(decode(data, where))])
    if not lines:
        raise CorpusError(f"{where} is empty; it needs one unit of text per line.")
    if "" in lines and not empty:
        raise CorpusError(
            f"{where}, {describe([i for i, line in enumerate(lines, 1) if not line])}: a unit "
            f"needs text on every side; remove the line from every language's file, or leave such "
            f"lines out with --skip-empty (skip_empty=True)."
        )
    return lines


def describe(numbers: Sequence[int], what: str = "line") -> str:
    """'line 3 is empty' or 'lines 3, 9, 12, … are empty (17 in all)'."""
    if len(numbers) == 1:
        return f"{what} {numbers[0]} is empty"
    shown = ", ".join(str(number) for number in numbers[:_NAMED])
    more = ", …" if len(numbers) > _NAMED else ""
    return f"{what}s {shown}{more} are empty ({len(numbers)} in all)"


def check_counts(counts: Mapping[str, tuple[str, int]]) -> None:
    """CorpusError unless all languages (code → file, lines) have the same number of lines."""
    usual = Counter(count for _, count in counts.values()).most_common(1)[0][0]
    model = next(where for where, count in counts.values() if count == usual)
    wrong = [code for code, (_, count) in counts.items() if count != usual]
    if wrong:
        where, count = counts[wrong[0]]
        others = f" {len(wrong) - 1} more languages deviate too." if len(wrong) > 1 else ""
        raise CorpusError(
            f"{wrong[0]} is not parallel: {where} has {count} lines, {model} has {usual}.{others} "
            f"Line n of every file must be the same unit: add the missing lines or leave "
            f"{wrong[0]} out."
        )


def load_files(
    bundle: Bundle,
    named: Iterable[tuple[str, str]],
    languages: Iterable[str] | None,
    name: str,
    source: str,
) -> ParallelCorpus:
    """A corpus of the chosen languages with one file each, given as (code, file).

    Two files of one language are a CorpusError.
    """
    files: dict[str, str] = {}
    for code, file in named:
        if code in files:
            raise CorpusError(f"{code} occurs twice: {files[code]} and {bundle.place(file)}.")
        files[code] = file
    texts = {}
    for code in choose(languages, files, bundle.where):
        place = bundle.place(files[code])
        texts[code] = (place, read_lines(bundle.read(files[code]), place, bundle.skip_empty))
    return align(name, source, texts)


def align(
    name: str, source: str, files: Mapping[str, tuple[str, tuple[str, ...]]]
) -> ParallelCorpus:
    """A corpus of `files` (code → file, lines), units numbered from 1; lengths must be equal."""
    check_counts({code: (where, len(lines)) for code, (where, lines) in files.items()})
    length = len(next(iter(files.values()))[1])
    units = tuple(str(number) for number in range(1, length + 1))
    return whole_units(name, source, units, {code: lines for code, (_, lines) in files.items()})


def _line_at(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1
