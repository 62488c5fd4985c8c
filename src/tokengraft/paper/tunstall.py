"""What a language would pay with a vocabulary of its own: N roughly equiprobable strings.

The paper dreams of complete prefix-free vocabularies of equiprobable strings. These are grown as in
Tunstall (1967): the commonest string is replaced by its continuations until there are N. That
replaces every string of fewer bits (−log2 p) than a threshold, which N determines. Occurrences are
counted at every position in a chunk of text, as a suffix automaton would; here from a sorted list
of suffixes, in which the occurrences of a string are adjacent. A text is read from the left, the
longest string each time. A replaced string is still used at the end of a chunk and before a
continuation never seen, so it counts among the N. A character that begins no string is read alone.

With N strings each for the language and the pivot, the ratio is what the language itself costs:
neither shares a vocabulary with anyone. Strings are chosen on every other unit of the corpus, and
the remaining units are counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice, pairwise

import numpy as np
import polars as pl

from tokengraft.auditing.frames import about, without_nan
from tokengraft.auditing.premium import estimate
from tokengraft.corpus.lines_of import count_chunks
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import language
from tokengraft.render.tables import Cell, Printed

LONGEST = 32  # characters of a string
_END = "\0"


def grow(chunks: Mapping[str, int]) -> Iterator[str]:
    """The strings in the order in which they are added; the first n are the vocabulary of n."""
    joined = "".join(chunk + _END for chunk in chunks)
    text = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    times = np.repeat([*chunks.values()], [len(chunk) + 1 for chunk in chunks])
    places = np.flatnonzero(text > 0).tolist()
    order = np.array(sorted(places, key=lambda at: joined[at : at + LONGEST]), np.int64)
    before = np.concatenate(([0], np.cumsum(times[order]))) if len(order) else np.zeros(1, int)
    heap = [(-int(before[-1]), "", 0, len(order))]
    while heap:
        _, string, first, last = heapq.heappop(heap)
        following = text[order[first:last] + len(string)]
        starts = np.flatnonzero(np.diff(following, prepend=0)).tolist()
        for start, end in pairwise([*starts, len(following)]):
            longer = string + chr(following[start])
            yield longer
            count = int(before[first + end] - before[first + start])
            if len(longer) < LONGEST and count > 1:
                heapq.heappush(heap, (-count, longer, first + start, first + end))


def strings_in(chunk: str, vocabulary: Collection[str]) -> int:
    """How many strings a chunk of text is read as."""
    count = at = 0
    while at < len(chunk):
        end = at + 1
        while end < len(chunk) and chunk[at : end + 1] in vocabulary:
            end += 1
        count, at = count + 1, end
    return count


def read_by_own(chosen_on: Iterable[str], lines: Iterable[str | None], size: int) -> list[float]:
    """Strings that each line takes (None: NaN), with a vocabulary of `size` from other lines."""
    vocabulary = frozenset(islice(grow(count_chunks(chosen_on)), size))
    known: dict[str, int] = {}
    counts = []
    for line in lines:
        count = 0
        for chunk, times in count_chunks([line or ""]).items():
            if chunk not in known:
                known[chunk] = strings_in(chunk, vocabulary)
            count += times * known[chunk]
        counts.append(float("nan") if line is None else float(count))
    return counts


def equiprobable(corpus: ParallelCorpus, pivot: str, size: int, resamples: int) -> pl.DataFrame:
    """One row per language: its premium if it and the pivot had `size` strings each."""
    codes = corpus.languages
    columns = []
    for code in codes:
        units = corpus.texts[code]
        columns.append(read_by_own([t for t in units[::2] if t is not None], units[1::2], size))
    cost = np.array(columns, float).T  # (units, languages)
    unit = np.repeat(cost[:, [codes.index(pivot)]], len(codes), axis=1)
    estimates = estimate(cost, unit, resamples)
    figures = {
        "n": estimates.n,
        "premium": estimates.mean_of_ratios,
        "premium_low": estimates.mean_low,
        "premium_high": estimates.mean_high,
    }
    rows = [{"language": code, **about(code), "strings": size} for code in codes]
    return without_nan(pl.DataFrame(rows, infer_schema_length=None).with_columns(**figures))


def printed(frame: pl.DataFrame, pivot: str) -> Printed:
    """The table in printed form, the highest premium first."""
    rows = [
        [Cell(row["name"]), Cell(row["language"]), *map(_number, figures)]
        for row in frame.sort("premium", "language", descending=[True, False]).to_dicts()
        if (figures := [row[name] for name in ("premium", "premium_low", "premium_high")])
    ]
    caption = (
        f"What each language would pay if it and {language(pivot).name} had "
        f"{frame['strings'][0]:,} equiprobable strings of their own and nothing else; chosen on "
        "every other unit, counted on the others"
    )
    header = ["Language", "Code", "Premium", "from", "to"]
    return Printed("equiprobable", caption, header, rows, left=2, codes=1)


def _number(value: float | None) -> Cell:
    return Cell("" if value is None else f"{value:.2f}", value)
