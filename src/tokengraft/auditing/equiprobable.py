"""What a language would pay with a vocabulary of its own: N roughly equiprobable strings.

The paper dreams of complete prefix-free vocabularies of equiprobable strings. Grown as Tunstall
(1967) grows them: the commonest string is replaced by its continuations until there are N, that is,
every string that says fewer bits (−log2 p) than a threshold; N stands for the threshold. Counts are
over every place of a chunk of text, as a suffix automaton has them; here a sorted list of suffixes,
in which the places of a string lie together. A text is read from the left by the longest
string each time, so what was replaced is still used at the end of a chunk and before what was never
seen; it counts among the N. What no string begins with is read by character.

With as many strings for the pivot as for the language, their ratio is what the language itself
costs: neither shares a vocabulary with anyone. Strings are chosen on every other unit of the
corpus, the others are counted.
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

LONGEST = 32  # characters of a string
_END = "\0"


def grow(chunks: Mapping[str, int]) -> Iterator[str]:
    """The strings in the order in which they come in; the first n are the vocabulary of n."""
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
    """Strings each line (NaN: none) takes, by a vocabulary of `size` grown on other lines."""
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
    """A row a language: its premium where it and the pivot have `size` strings of their own."""
    codes = corpus.languages
    columns = []
    for code in codes:
        units = corpus.texts[code]
        columns.append(read_by_own([t for t in units[::2] if t is not None], units[1::2], size))
    cost = np.array(columns, float).T  # (units, languages)
    unit = np.repeat(cost[:, [codes.index(pivot)]], len(codes), axis=1)
    estimates = estimate(cost, unit, resamples)
    figures = {
        "n": estimates.n, "premium": estimates.mean_of_ratios,
        "premium_low": estimates.mean_low, "premium_high": estimates.mean_high,
    }  # fmt: skip
    rows = [{"language": code, **about(code), "strings": size} for code in codes]
    return without_nan(pl.DataFrame(rows, infer_schema_length=None).with_columns(**figures))
