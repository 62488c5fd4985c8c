r"""Texts as distinct words, where a text's ids are those of its words one after the other.

The same words come back all the time, so each is encoded once, whatever the text and however often
it holds it. A text is cut at every space that stands alone between two characters that are none
(nor SentencePiece's `▁`, which is one to it). For these tokenizers no token ever reaches across
such a cut, and none depends on what stands beyond it:

- byte-level BPE with split patterns of GPT-2's family: each alternative takes a space only as its
  first character, or takes nothing but white space; a lookahead asks about white space alone, which
  a word neither begins nor ends with. A space is inert under NFC and NFKC (nothing composes with
  it, no character turns into one that ends in it);
- BERT's, which cuts at white space and normalises character by character;
- SentencePiece's BPE with the mark `▁` put before a text, no piece of which holds a mark after
  other characters: a merge across would make such a piece. (Not its Unigram: it adds the scores of
  a whole text up in single precision, and so where a word stands can break a tie.)

An added token that takes the spaces beside it, or holds one, would reach across: such tokenizers
are left to encode whole texts. Words are read many at once, as one text, and told apart again by
what stands between them (`Tokenizer.encode_words`).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokengraft.tokenizer.vocabulary import SPACE_MARK, Vocabulary

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Ids = NDArray[np.uint32]

_CUT = re.compile(rf"(?<=[^\s{SPACE_MARK}]) (?=[^\s{SPACE_MARK}])")
_TOGETHER = 256  # words that are encoded as one text
#: What split patterns are made of, without possessive signs: all of it takes a space only first.
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


def cuts_at_spaces(pattern: str) -> bool:
    """Whether a split pattern is known to cut before every space that stands alone."""
    plain = _POSSESSIVE.sub(r"\1", pattern)
    alternatives = set(_OUTSIDE.split(plain))
    return alternatives <= _ALTERNATIVES and not {r"\s+", r"\s"}.isdisjoint(alternatives)


def count_pieces(pattern: str, words: Sequence[str]) -> Ints | None:
    r"""How many pieces a split pattern cuts each word into, by polars: no lookahead is needed.

    White space stands in these words only as the first character, and alone, so that `\s` is all
    that is left of the alternatives for it. None for a pattern that leaves characters unmatched.
    """
    import polars as pl

    alternatives = _OUTSIDE.split(_POSSESSIVE.sub(r"\1", pattern))
    matched = "|".join([one for one in alternatives if not one.startswith(r"\s")] + [r"\s"])
    every_kind = pl.Series(["aAǅʰ中\u0301\u09011²!€\u200c"])
    if every_kind.str.replace_all(matched, "")[0]:
        return None
    return pl.Series(words, dtype=pl.String).str.count_matches(matched).to_numpy().astype(np.int64)


@dataclass(frozen=True)
class Places:
    """Which words texts are made of: the number of the first, and of all the others in a row."""

    first: Ints
    later: Ids
    sizes: Ints  # how many of `later` each text has

    def sums(self, first: Ints | Small, later: Ints | Small) -> Ints:
        """The sums over each text's words of the rows that are given for each word."""
        running = np.zeros((len(self.later) + 1, later.shape[1]), np.int64)
        np.cumsum(later[self.later], axis=0, out=running[1:])
        ends = np.cumsum(self.sizes)
        return np.asarray(first[self.first] + running[ends] - running[ends - self.sizes], np.int64)


class Words:
    """Distinct words, numbered as they come: those that begin a text, and those after a space."""

    def __init__(self) -> None:
        self.first: dict[str, int] = {}
        self.later: dict[str, int] = {}

    def cut(self, texts: Iterable[str]) -> Places:
        """The words of each text; new ones are numbered."""
        first, later = self.first, self.later
        beginnings, numbers, sizes = array("q"), array("I"), array("q")
        for text in texts:
            words = text.split()
            if " ".join(words) != text or not words or SPACE_MARK in text:
                words = _CUT.split(text)
            beginnings.append(first.setdefault(words[0], len(first)))
            others = [later.setdefault(word, len(later)) for word in words[1:]]
            numbers.fromlist(others)
            sizes.append(len(others))
        return Places(
            np.array(beginnings, np.int64), np.array(numbers, np.uint32), np.array(sizes, np.int64)
        )


@dataclass(frozen=True)
class Rows:
    """Ids of many words (or texts) end to end, and how many each has."""

    sizes: Ints
    ids: Ids

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Rows:
        """The same from a list each."""
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
        """The sum over each row of what is given for each id."""
        running = np.concatenate([[0], np.cumsum(values[self.ids])])
        ends = np.cumsum(self.sizes)
        return np.asarray(running[ends] - running[ends - self.sizes], np.int64)

    def arrays(self) -> Iterator[Ids]:
        """The ids of each row."""
        end = 0
        for size in self.sizes.tolist():
            yield self.ids[end : end + size]
            end += size

    def chosen(self, numbers: Ints) -> Rows:
        """The rows of these numbers, which rise."""
        wanted = np.zeros(len(self.sizes), bool)
        wanted[numbers] = True
        return Rows(self.sizes[wanted], self.ids[np.repeat(wanted, self.sizes)])

    def spell(self, texts: Sequence[bytes], vocabulary: Vocabulary) -> NDArray[np.bool_]:
        """Whether the pieces of each row, one after the other, are the bytes of its text."""
        spelled, starts, sizes = vocabulary.spelling
        given = np.fromiter(map(len, texts), np.int64, len(texts))
        same: NDArray[np.bool_] = self.sums(sizes) == given
        ids = self.chosen(np.flatnonzero(same)).ids
        flat = np.frombuffer(b"".join(texts), np.uint8)[np.repeat(same, given)]
        lengths = sizes[ids]
        # Where each byte of the pieces lies: its piece's start, and how far it is into the piece.
        ends = np.cumsum(lengths)
        places = np.repeat(starts[ids] - (ends - lengths), lengths) + np.arange(len(flat))
        wrong = np.concatenate([[0], np.cumsum(spelled[places] != flat)])
        ends = np.cumsum(given[same])
        same[same] = wrong[ends] == wrong[ends - given[same]]
        return same


def parted(ids: Ids, marks: NDArray[np.bool_], count: int, each: int) -> Rows | None:
    """`count` words read as one text, `each` marked tokens between two, which are left out.

    None where there are more marked tokens, or fewer, or words without a token.
    """
    between = marks[ids]
    heads = between & ~np.concatenate([[True], between[:-1]])
    if between.sum() != each * (count - 1) or heads.sum() != count - 1 or between[-1:].any():
        return None
    numbers = np.cumsum(heads)[~between]
    return Rows(np.bincount(numbers, minlength=count), ids[~between])


def together(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """The words in blocks, each to be read as one text."""
    return (words[n : n + _TOGETHER] for n in range(0, len(words), _TOGETHER))


def plain(words: Sequence[str]) -> list[bool]:
    """Whether each word is one: it holds no white space of any kind."""
    if " ".join(words).split() == words:
        return [True] * len(words)
    return [word.split() == [word] for word in words]
