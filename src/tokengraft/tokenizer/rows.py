"""Ids of many texts as two arrays, and what is asked of many texts at once."""

from __future__ import annotations

import functools
import re
import unicodedata
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokengraft.tokenizer.vocabulary import Spelling

Ints = NDArray[np.int64]
Ids = NDArray[np.uint32]

#: The known alternatives of split patterns, without possessive quantifiers. Those that match more
#: than white space match a space only as their first character.
_ALTERNATIVES = frozenset(
    [
        r"'(?:[sdmt]|ll|ve|re)", r"'(?i:[sdmt]|ll|ve|re)", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"'s", r"'t", r"'re", r"'ve", r"'m", r"'ll", r"'d",
        r" ?\p{L}+", r" ?\p{N}+", r"\p{N}", r"\p{N}{1,3}", r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r" ?[^\s\p{L}\p{N}]+", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\s*[\r\n]+", r"\s*[\r\n]", r"\s+(?!\S)", r"\s+$", r"\s+", r"\s",
    ]
)  # fmt: skip
_POSSESSIVE = re.compile(r"(?<!\\)([+*?]|\{\d+(?:,\d*)?\})\+")
_OUTSIDE = re.compile(r"\|(?![^(]*\))(?![^\[]*\])")


def plain_quantifiers(pattern: str) -> str:
    """A split pattern with plain quantifiers, which match the same text here, if more slowly."""
    return _POSSESSIVE.sub(r"\1", pattern)


def characters(texts: Iterable[str]) -> frozenset[str]:
    """The distinct characters of the texts."""
    seen = np.zeros(0x110000, bool)
    seen[np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4")] = True
    return frozenset(map(chr, np.flatnonzero(seen).tolist()))


def holding(texts: Sequence[str], strings: Collection[str]) -> list[int]:
    """The numbers of the texts that contain one of the strings."""
    joined = "\n".join(texts) if strings else ""
    present = [x for x in strings if x in joined]
    return sorted({n for x in present for n, text in enumerate(texts) if x in text})


def count_pieces(pattern: str, texts: Sequence[str]) -> tuple[Ints, Ints] | None:
    r"""How many pieces a split pattern cuts each text into, counted by polars.

    The second array has the numbers of the texts whose count is not to be trusted. Polars' regex
    engine has no lookahead; none is needed where all white space is single spaces between other
    characters, so that `\s` can replace all alternatives that begin with it. None for a pattern
    with unknown alternatives, or one that leaves characters unmatched.
    """
    alternatives = _OUTSIDE.split(plain_quantifiers(pattern))
    if not _ALTERNATIVES.issuperset(alternatives) or {r"\s+", r"\s"}.isdisjoint(alternatives):
        return None
    matched = "|".join([one for one in alternatives if not one.startswith(r"\s")] + [r"\s"])
    counts = _matches(matched, ("aAǅʰ中\u0301\u09011²!€\u200c", *texts))
    return None if counts[0] < 0 else (counts[1:].copy(), _uncertain(tuple(texts)))


# Several tokenizers read the same lines, and some have the same pattern.
@functools.lru_cache(maxsize=512)
def _matches(pattern: str, texts: tuple[str, ...]) -> Ints:
    """How often the pattern matches in each text; -1 for the first if not all of it is matched."""
    import polars as pl

    series = pl.Series(texts, dtype=pl.String)
    counts = series.str.count_matches(pattern).to_numpy().astype(np.int64)
    if series[:1].str.replace_all(pattern, "")[0]:
        counts[0] = -1
    return counts


@functools.lru_cache(maxsize=512)
def _uncertain(texts: tuple[str, ...]) -> Ints:
    """The texts with other white space than single spaces inside, or with unassigned characters.

    Libraries may differ about characters that are so new.
    """
    import polars as pl

    odd = pl.Series(texts, dtype=pl.String).str.contains(r"^\s|\s$|\s\s|[^\S ]").to_numpy().copy()
    odd[holding(texts, {c for c in characters(texts) if unicodedata.category(c) == "Cn"})] = True
    return np.flatnonzero(odd)


@dataclass(frozen=True)
class Rows:
    """Ids of many texts end to end, and how many ids each has."""

    sizes: Ints
    ids: Ids

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Rows:
        """From one sequence of ids for each text."""
        flat, sizes = array("I"), array("q")
        for row in rows:
            flat.fromlist(list(row))  # three times as fast as numpy's fromiter
            sizes.append(len(row))
        return cls(np.array(sizes, np.int64), np.array(flat, np.uint32))

    def sums(self, values: NDArray[np.bool_] | Ints) -> Ints:
        """For each row, the sum of its ids' `values`, which are given by id."""
        running = np.zeros(len(self.ids) + 1, np.int32 if values.dtype == bool else np.int64)
        np.cumsum(values.take(self.ids), out=running[1:])
        ends = np.cumsum(self.sizes)
        return np.asarray(running[ends] - running[ends - self.sizes], np.int64)

    def arrays(self) -> Iterator[Ids]:
        """The ids of each row."""
        end = 0
        for size in self.sizes.tolist():
            yield self.ids[end : end + size]
            end += size

    def lists(self) -> list[list[int]]:
        """The ids of each row as Python's integers."""
        ids, ends = self.ids.tolist(), np.cumsum(self.sizes).tolist()
        return [ids[end - size : end] for end, size in zip(ends, self.sizes.tolist(), strict=True)]

    def chosen(self, numbers: Sequence[int] | Ints) -> Rows:
        """The rows with these numbers, which must be ascending."""
        if len(numbers) == len(self.sizes):
            return self
        wanted = np.zeros(len(self.sizes), bool)
        wanted[numbers] = True
        return Rows(self.sizes[wanted], self.ids[np.repeat(wanted, self.sizes)])

    def replaced(self, numbers: Sequence[int], others: Rows) -> Rows:
        """The rows, with those of these numbers replaced by the others."""
        arrays = [*self.arrays()]
        for number, ids in zip(numbers, others.arrays(), strict=True):
            arrays[number] = ids
        sizes = np.fromiter(map(len, arrays), np.int64, len(arrays))
        return Rows(sizes, np.concatenate([np.zeros(0, np.uint32), *arrays]))

    def same(self, other: Rows) -> bool:
        """Whether both have the same ids for every text."""
        return np.array_equal(self.sizes, other.sizes) and np.array_equal(self.ids, other.ids)

    def spell(self, texts: Sequence[str], before: bytes, spelling: Spelling) -> NDArray[np.bool_]:
        """For each row, whether its ids spell `before` followed by the row's text."""
        parts = [text.encode("utf-8") for text in texts]
        data = b"".join([before + part for part in parts] if before else parts)
        given = np.fromiter(map(len, parts), np.int64, len(parts)) + len(before)
        flat = np.frombuffer(data, np.uint8)
        spelled, starts, sizes = spelling
        same: NDArray[np.bool_] = self.sums(sizes) == given
        alike = np.flatnonzero(same)
        ids = self.chosen(alike).ids
        if len(alike) < len(same):
            flat = flat[np.repeat(same, given)]
        # The place in `spelled` of each byte of the pieces: the piece's start plus its offset.
        lengths = sizes.take(ids)
        before_each = (starts.take(ids) - (np.cumsum(lengths) - lengths)).astype(np.int32)
        places = np.repeat(before_each, lengths)
        places += np.arange(len(flat), dtype=np.int32)
        wrong = np.flatnonzero(spelled.take(places) != flat)
        same[alike[np.searchsorted(np.cumsum(given[same]), wrong, side="right")]] = False
        return same
