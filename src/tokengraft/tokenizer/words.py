r"""Texts as distinct words, for tokenizers under which a text's ids are its words' ids in a row.

The same words come back all the time, so each distinct word is encoded only once. A text is cut at
every single space between two characters that are neither white space nor SentencePiece's mark for
it, `▁`. For these tokenizers no token ever reaches across such a cut, and none depends on what
stands beyond it:

- byte-level BPE with split patterns of GPT-2's family: each alternative takes a space only as its
  first character, or takes nothing but white space; a lookahead asks about white space alone, which
  a word neither begins nor ends with. A space is inert under NFC and NFKC (nothing composes with
  it, no character turns into one that ends in it);
- BERT's, which cuts at white space and normalises character by character;
- BPE over text whose spaces are marks `▁` (SentencePiece's, and the same in `tokenizers`): a merge
  across the cut would make a piece with a mark after other characters. (Not Unigram: it adds up
  scores over the whole text in single precision, so a word's position can break a tie.)

The few tokens that reach across all the same (a piece with a mark inside, an added token with a
space inside or one that swallows the spaces beside it) are recognised by a string that any text
with them contains (`Tokenizer.across`); such a text is encoded whole. Words are encoded many at
once, as one text, and separated again by what stands between them (`Tokenizer.encode_words`).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokengraft.tokenizer.vocabulary import SPACE_MARK, Spelling

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Ids = NDArray[np.uint32]

_CUT = re.compile(rf"(?<=[^\s{SPACE_MARK}]) (?=[^\s{SPACE_MARK}])")
_TOGETHER = 256  # words that are encoded as one text
_MOST_ACROSS = 32  # strings that are worth searching every text for
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


def cuts_at_spaces(pattern: str) -> bool:
    """Whether a split pattern is known to cut before every space that stands alone."""
    alternatives = set(_OUTSIDE.split(plain_quantifiers(pattern)))
    return alternatives <= _ALTERNATIVES and not {r"\s+", r"\s"}.isdisjoint(alternatives)


def reaching(spaced: Iterable[str]) -> frozenset[str] | None:
    """For tokens with a space or mark inside, a string each that any text with the token contains.

    None if some token gives no such string (it is all spaces), or if they are too many to search.
    """
    longest = {max(text.replace(SPACE_MARK, " ").split(), key=len, default="") for text in spaced}
    return None if "" in longest or len(longest) > _MOST_ACROSS else frozenset(longest)


def holding(texts: Sequence[str], across: Collection[str]) -> list[int]:
    """The numbers of the texts that contain one of the strings `across`."""
    joined = "\n".join(texts) if across else ""
    present = [x for x in across if x in joined]
    return sorted({n for x in present for n, text in enumerate(texts) if x in text})


def count_pieces(pattern: str, words: Sequence[str]) -> Ints | None:
    r"""How many pieces a split pattern cuts each word into, counted by polars.

    Its regex engine has no lookahead, but none is needed: the only white space in these words is
    one leading character, so `\s` replaces all alternatives that begin with `\s`. None for a
    pattern that leaves characters unmatched.
    """
    import polars as pl

    alternatives = _OUTSIDE.split(plain_quantifiers(pattern))
    matched = "|".join([one for one in alternatives if not one.startswith(r"\s")] + [r"\s"])
    every_kind = pl.Series(["aAǅʰ中\u0301\u09011²!€\u200c"])
    if every_kind.str.replace_all(matched, "")[0]:
        return None
    return pl.Series(words, dtype=pl.String).str.count_matches(matched).to_numpy().astype(np.int64)


@dataclass(frozen=True)
class Places:
    """Texts as word numbers: each text's first word, and the later words of all texts in a row."""

    first: Ints
    later: Ids
    sizes: Ints  # how many of `later` belong to each text

    def sums(self, first: Ints | Small, later: Ints | Small) -> Ints:
        """For each text, the sum over its words; `first` and `later` have one row for each word."""
        running = np.zeros((len(self.later) + 1, later.shape[1]), np.int64)
        np.cumsum(later[self.later], axis=0, out=running[1:])
        ends = np.cumsum(self.sizes)
        return np.asarray(first[self.first] + running[ends] - running[ends - self.sizes], np.int64)


@dataclass(frozen=True)
class Listed:
    """Distinct words in the order of their numbers: those that begin a text, or all others."""

    words: list[str]
    begin: bool
    plain: NDArray[np.bool_]  # for each, whether it has neither white space nor a mark for it
    characters: frozenset[str]  # all their characters except white space

    @classmethod
    def of(cls, words: list[str], begin: bool) -> Listed:
        """List words; which are plain is found once, for all tokenizers."""
        joined = " ".join(words)
        plain = [True] * len(words)
        if SPACE_MARK in joined or joined.split() != words:
            plain = [word.split() == [word] and SPACE_MARK not in word for word in words]
        return cls(words, begin, np.array(plain, bool), frozenset("".join(joined.split())))


class Numbers(dict[str, int]):
    """Numbers words in the order in which they are first looked up."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


class Words:
    """Distinct words, numbered as they come; `first` begin a text, `later` follow a space."""

    def __init__(self) -> None:
        self.first, self.later = Numbers(), Numbers()

    def cut(self, texts: Iterable[str]) -> Places:
        """The words of each text by number; new words get the next number."""
        first, number = self.first, self.later.__getitem__
        beginnings, numbers, sizes = array("q"), array("I"), array("q")
        for text in texts:
            words = text.split()
            if " ".join(words) != text or not words or SPACE_MARK in text:
                words = _CUT.split(text)
            beginnings.append(first[words[0]])
            numbers.fromlist(list(map(number, words[1:])))
            sizes.append(len(words) - 1)
        return Places(
            np.array(beginnings, np.int64), np.array(numbers, np.uint32), np.array(sizes, np.int64)
        )


@dataclass(frozen=True)
class Rows:
    """Ids of many words (or texts) end to end, and how many ids each has."""

    sizes: Ints
    ids: Ids

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Rows:
        """From one sequence of ids for each word."""
        flat, sizes = array("I"), array("q")
        for row in rows:
            flat.fromlist(list(row))  # three times as fast as numpy's fromiter
            sizes.append(len(row))
        return cls(np.array(sizes, np.int64), np.array(flat, np.uint32))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All rows one after the other."""
        none = np.zeros(0, np.int64)
        return cls(
            np.concatenate([none, *(part.sizes for part in parts)]),
            np.concatenate([none.astype(np.uint32), *(part.ids for part in parts)]),
        )

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

    def chosen(self, numbers: Ints) -> Rows:
        """The rows with these numbers, which must be ascending."""
        if len(numbers) == len(self.sizes):
            return self
        wanted = np.zeros(len(self.sizes), bool)
        wanted[numbers] = True
        return Rows(self.sizes[wanted], self.ids[np.repeat(wanted, self.sizes)])

    def spell(self, texts: Sequence[str], before: bytes, spelling: Spelling) -> NDArray[np.bool_]:
        """For each row, whether its ids spell `before` followed by the row's text."""
        data = " ".join(texts).encode("utf-8")
        if before == b" " and data.count(b" ") == len(texts) - 1:  # no text has a space
            data, parts = b" " + data, data.split(b" ")
        else:
            parts = [text.encode("utf-8") for text in texts]
            data = b"".join([before + part for part in parts])
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
        places = np.repeat(starts.take(ids) - (np.cumsum(lengths) - lengths), lengths)
        places += np.arange(len(flat))
        wrong = np.flatnonzero(spelled.take(places) != flat)
        same[alike[np.searchsorted(np.cumsum(given[same]), wrong, side="right")]] = False
        return same


def parted(ids: Ids, marks: NDArray[np.bool_], count: int, each: int) -> Rows | None:
    """Split the `ids` of a text that joined `count` words into the words' own.

    `each` marked tokens stand between two words and are left out; if `each` is 0, a marked token
    begins each word. None if the marked tokens are more or fewer than that, or a word has no token.
    """
    between = marks.take(ids)
    if not each:
        begin = np.flatnonzero(between)
        whole = len(begin) == count and not begin[:1].any()
        return Rows(np.diff(begin, append=len(ids)), ids) if whole else None
    heads = between & ~np.concatenate([[True], between[:-1]])
    if between.sum() != each * (count - 1) or heads.sum() != count - 1 or between[-1:].any():
        return None
    numbers = np.cumsum(heads)[~between]
    return Rows(np.bincount(numbers, minlength=count), ids[~between])


def together(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """The words in blocks, each to be encoded as one text."""
    return (words[n : n + _TOGETHER] for n in range(0, len(words), _TOGETHER))
