"""`lines_of`: the one reader of text, whatever it comes from; and text kept as counted words.

A single string or `Path` names files: one file, a folder, a glob or a URL of plain text, JSONL or
Parquet, compressed or not. So does a list of `Path`s, and a list of strings that all name existing
files. Any other iterable of strings is lines. A list that could be either is refused, since a
file's name must never be taken for text. A `CountedText` gives the lines that it was counted from.
"""

from __future__ import annotations

import glob
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.core.untrusted import check_ratio
from tokengraft.corpus.archive import Broken
from tokengraft.corpus.rows import Layout, Seen, read_rows
from tokengraft.corpus.shards import (
    COMPRESSIONS,
    SUFFIXES,
    TABLES,
    File,
    Format,
    Shard,
    cut,
    find_files,
)


@dataclass(frozen=True)
class CountedText:
    """A text's distinct chunks with their counts, and its first non-blank lines.

    `lines` reads the whole text again, if it was counted from files.
    """

    chunks: Mapping[str, int]
    sample: tuple[str, ...]
    lines: Callable[[], Iterator[str]] | None = field(default=None, compare=False, repr=False)


Source: TypeAlias = str | Path | Iterable[str] | Sequence[str | Path] | CountedText
Sources: TypeAlias = Source | Mapping[str, Source]  # also by language

_SAMPLE = 500  # lines on which a premium's floor is measured without a test corpus
_MOST_LINE = 64 << 20  # bytes of one line
_OBJECT = 50  # bytes that a line takes in memory besides its text
_EXAMINED = 1000  # strings of a list that are examined to tell file names from lines


def lines_of(
    source: Sources, *, text_column: str = "text", format_: Format | None = None
) -> Iterator[str]:
    r"""The non-blank lines of `source`, one by one, without their ends.

    A mapping gives the lines of all its languages, one after the other. Lines end at `\n` or
    `\r\n` only, in plain text as in a row of JSONL (`text_column`) or Parquet, and are otherwise
    unchanged. The format follows from the suffix unless given; a file with an unknown suffix is
    plain text. A missing file is an error at once; broken UTF-8, a row without text, a damaged
    archive, or a source without any line is a CorpusError when it is reached.
    """
    if isinstance(source, Mapping):
        every = [lines_of(one, text_column=text_column, format_=format_) for one in source.values()]
        return (line for lines in every for line in lines)
    if isinstance(source, CountedText) and source.lines is not None:
        return source.lines()
    named = files_named(source)
    if named is None:
        return _given(source)
    return lines_of_files(named, text_column=text_column, format_=format_)


def texts_of(source: Sources) -> list[list[str]]:
    """`lines_of` each language of a mapping; of anything else, of all as one."""
    each = source.values() if isinstance(source, Mapping) else (source,)
    return [list(lines_of(one)) for one in each]


def lines_of_files(
    sources: Iterable[str | Path], *, text_column: str = "text", format_: Format | None = None
) -> Iterator[str]:
    """`lines_of` for what can only be files: paths, folders, globs, URLs; each file is read once.

    Lines come in the order of `sources`, since training depends on it.
    """
    files = files_in_order(sources, format_)
    return _read(files, Layout(text_column=text_column, max_row_bytes=_MOST_LINE))


def files_in_order(sources: Iterable[str | Path], format_: Format | None) -> list[File]:
    """The files of one source after the other, each file once."""
    named = (file for one in sources for file in find_files(one, format_, otherwise="text"))
    return list(dict.fromkeys(named))


def files_named(source: Source) -> list[str | Path] | None:
    """The files, folders, globs and URLs that `source` names; None if it holds the lines itself."""
    if isinstance(source, CountedText):
        raise UsageError(
            "these counted words have no lines, which are needed here: give the lines that were "
            "counted, or count files (count_words)"
        )
    if isinstance(source, str | Path):
        return [source]
    if not isinstance(source, Iterable):
        raise UsageError(f"{source!r} is not text: give a file, a list of files, or lines")
    if not isinstance(source, Sequence) or not source:
        return None
    if all(isinstance(one, str | Path) for one in source) and any(
        isinstance(one, Path) for one in source
    ):
        return list(source)
    strings = [one for one in islice(source, _EXAMINED) if isinstance(one, str)]
    if strings and all(map(_exists, strings)):
        return list(source)
    doubtful = next((one for one in strings if _looks_like_a_file(one)), None)
    if doubtful is not None:
        raise UsageError(
            f"{doubtful!r} looks like a file, but not every string of the list is one: give files "
            f"that exist, or lines as an iterator, iter(lines)"
        )
    return None


def text_lines(text: str) -> list[str]:
    r"""The non-blank lines of a row or a string, without their ends.

    An end is `\n` or `\r\n`; any other `\r` is text.
    """
    lines = text.replace("\r\n", "\n").split("\n") if "\n" in text else [text]
    return [line for line in lines if line and not line.isspace()]


def rows_of(shards: Iterable[Shard], layout: Layout, *, skip_bad: bool = False) -> Iterator[str]:
    """The lines of the shards' rows; a bad row is a CorpusError, or left out with `skip_bad`."""
    for shard in shards:
        seen = Seen()
        try:
            for batch in read_rows(shard, layout, seen):
                if not skip_bad:
                    _require_good(seen, shard.file)
                for row in batch.rows:
                    for _, text, _ in row:
                        yield from text_lines(text)
        except Broken as reason:
            raise CorpusError(f"{shard.file.url} cannot be read: {reason}.") from None
        if not skip_bad:
            _require_good(seen, shard.file)


def _read(files: Sequence[File], layout: Layout) -> Iterator[str]:
    empty = True
    for file in files:
        packed = 0  # what its lines take, if it is compressed and could be small for any text
        for line in rows_of(cut([file], sys.maxsize), layout):
            empty = False
            if file.compression:
                packed += len(line) + _OBJECT
                check_ratio(packed, file.size, file.url, CorpusError)
            yield line
    if empty:
        raise CorpusError(f"{', '.join(file.url for file in files)}: there is no line of text")


def _require_good(seen: Seen, file: File) -> None:
    if seen.listed:
        line, reason = seen.listed[0]
        raise CorpusError(f"{file.url}, line {line}: {reason}")


def _given(lines: Any) -> Iterator[str]:
    empty = True
    for text in lines:
        if not isinstance(text, str):
            raise UsageError(f"a line of text must be a string, not {text!r}")
        for line in text_lines(text):
            empty = False
            yield line
    if empty:
        raise CorpusError("the text given holds no line")


def _exists(name: str) -> bool:
    if "://" in name:
        return not any(map(str.isspace, name))
    try:
        path = Path(name).expanduser()
        return path.exists() or (glob.has_magic(name) and any(glob.iglob(str(path))))  # noqa: PTH207
    except (OSError, ValueError, RuntimeError):  # too long, holds a NUL, or `~user` does not exist
        return False


def _looks_like_a_file(name: str) -> bool:
    suffix = PurePosixPath(name).suffix.lower()
    return suffix in {*SUFFIXES, *COMPRESSIONS, *TABLES} and not any(map(str.isspace, name))


def spaced(lines: Sequence[str], most: int) -> list[str]:
    """At most `most` of the lines, evenly spaced."""
    return list(lines[:: -(-len(lines) // most) or 1])


def count_text(lines: Iterable[str]) -> CountedText:
    """Count a text line by line; only the first lines are kept, as the sample."""
    rest = iter(lines)
    begun = list(islice(rest, _SAMPLE))
    chunks = count_chunks(begun)
    sample = [line for line in begun if line.strip()]
    while len(sample) < _SAMPLE and (more := list(islice(rest, _SAMPLE))):
        chunks.update(count_chunks(more))
        sample += [line for line in more if line.strip()]
    chunks.update(count_chunks(rest))
    return CountedText(chunks, tuple(sample[:_SAMPLE]))


def count_chunks(lines: Iterable[str]) -> Counter[str]:
    """Distinct chunks of the lines with their counts; all but a line's first begin with a space.

    A line is broken before each space, since split patterns never let a match run from a word into
    the space after it. The number of distinct chunks grows far slower than the text, and the counts
    of two texts add up to those of both.
    """
    chunks: Counter[str] = Counter()
    later: Counter[str] = Counter()
    for line in lines:
        bare = line[:-1].removesuffix("\r") if line.endswith("\n") else line
        parts = bare.split(" ")
        chunks[parts[0]] += 1
        del parts[0]
        later.update(parts)
    del later[""]
    del chunks[""]
    for part, times in later.items():
        chunks[" " + part] += times
    return chunks
