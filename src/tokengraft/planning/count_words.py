"""Counts words for `plan`, on any engine: each language's text as a `CountedText`.

A shard's lines are cut by the same `count_chunks`, and counts are additive, so the sum over shards
is what one pass over all lines gives.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.core.files import sha256
from tokengraft.core.progress import OnProgress
from tokengraft.corpus.lines_of import (
    CountedText,
    count_chunks,
    count_text,
    files_in_order,
    rows_of,
    text_lines,
)
from tokengraft.corpus.rows import Batch, Layout, Seen
from tokengraft.corpus.shards import Format, cut
from tokengraft.engine import Counting
from tokengraft.engine.count_shards import Payload, Total, count_all
from tokengraft.languages.codes import resolve

VERSION = "1"  # part of every cache key: raise it when the meaning of a chunk changes
_BEGINNING = 1000  # lines from which a text's sample is taken


class CountedTexts(dict[str, CountedText]):
    """Each language's text, as `plan` takes it; `total` says what was counted and left out."""

    def __init__(self, texts: Mapping[str, CountedText], total: Total) -> None:
        super().__init__(texts)
        self.total = total

    def __repr__(self) -> str:
        sizes = (f"{code}: {len(text.chunks):,} distinct chunks" for code, text in self.items())
        return f"CountedTexts({', '.join(sizes)})"


@dataclass(frozen=True)
class WordWork:
    """Count the chunks of every language."""

    layout: Layout

    @property
    def fingerprint(self) -> str:
        """Hash of the options and of the meaning of a chunk."""
        return sha256(json.dumps(["words", VERSION, self.layout.fingerprint]).encode())

    def open(self, threads: int) -> WordCounter:
        """A counter in this process; counting chunks uses no further threads."""
        del threads
        return WordCounter()


class WordCounter:
    """The chunks of one shard at a time, a `Counter`. Payload: language → chunk → count."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget all counts."""
        self._chunks: dict[str, Counter[str]] = {}
        self._rows = self._bytes = 0

    def progress(self) -> tuple[int, int, int]:
        """Rows and bytes since `begin`; no tokens are counted."""
        return self._rows, self._bytes, 0

    def add(self, batch: Batch, seen: Seen) -> None:
        """Count the chunks of the rows; a row's lines are cut one by one, as `plan` does."""
        del seen
        lines: dict[str, list[str]] = {}
        for row in batch.rows:
            for code, text, size in row:
                lines.setdefault(code, []).extend(text_lines(text))
                self._bytes += size
                self._rows += 1
        for code, own in lines.items():
            self._chunks.setdefault(code, Counter()).update(count_chunks(own))

    def payload(self) -> Payload:
        """The counts since `begin`."""
        return {code: dict(chunks) for code, chunks in self._chunks.items()}


def count_words(
    texts: Mapping[str, str | Path | Sequence[str | Path]],
    *,
    text_column: str = "text",
    format_: Format | None = None,
    counting: Counting = Counting(),  # noqa: B008 - frozen
    progress: OnProgress | None = None,
) -> CountedTexts:
    """Each language's text from its files (paths, folders, globs, URLs), to be given to `plan`.

    Chunks come in sorted order, so the result is the same, even in its order, whatever the engine
    and however the text is split into shards. Memory grows with the number of distinct chunks, not
    with the size of the text.
    """
    layout = Layout(text_column=text_column)
    by_code = {}
    for given, sources in texts.items():
        code = resolve(given)
        named = [sources] if isinstance(sources, str | Path) else sources
        files = files_in_order(named, format_)
        if pipe := next((file.url for file in files if file.piped), None):
            raise UsageError(f"{pipe} is a pipe, which can be read once only: write it to a file")
        by_code[code] = cut(files, counting.shard_bytes, code)
    shards = [shard for own in by_code.values() for shard in own]
    small = sum(shard.size for shard in shards) < 2 * counting.shard_bytes
    if counting.workers is None and small and counting.engine == "local":
        # For text that is read in seconds, starting processes is not worth it.
        counting = replace(counting, workers=1)
    total = count_all(
        WordWork(layout), shards, counting.open(), skip_bad=counting.skip_bad,
        state=counting.state, progress=progress,
    )  # fmt: skip
    empty = [code for code in by_code if not total.payload.get(code)]
    if empty:
        raise CorpusError(f"{empty[0]}: no line of text to choose tokens on in its files.")
    result = {}
    for code, own in by_code.items():
        kept = [shard for shard in own if shard.file.url not in total.broken]
        lines = partial(rows_of, kept, layout, skip_bad=True)
        chunks = Counter(dict(sorted(total.payload[code].items())))
        sample = count_text(islice(lines(), _BEGINNING)).sample
        result[code] = CountedText(chunks, sample, lines)
    return CountedTexts(result, total)
