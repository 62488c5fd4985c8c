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
are left to encode whole texts. Words that are read together as one text are told apart by the
spaces they begin with, which no other token of theirs does: `Tokenizer.encode_words` looks.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tokengraft.tokenizer.vocabulary import SPACE_MARK

Ints = NDArray[np.int64]
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


@dataclass(frozen=True)
class Places:
    """Which words texts are made of: the number of the first, and of all the others in a row."""

    first: Ints
    later: Ids
    sizes: Ints  # how many of `later` each text has

    def sums(self, first: Ints, later: Ints) -> Ints:
        """The sum over each text's words of what is given for each word."""
        running = np.concatenate([[0], np.cumsum(later[self.later])])
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
    """Ids of many words (or texts) end to end, and how many each has.

    `pretokens` is how many pieces each was cut into, where that came with the ids.
    """

    sizes: Ints
    ids: Ids
    pretokens: Ints | None = None

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
        if not parts:
            return cls.of([])
        pretokens = [part.pretokens for part in parts if part.pretokens is not None]
        return cls(
            np.concatenate([part.sizes for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate(pretokens) if len(pretokens) == len(parts) else None,
        )

    def sums(self, flags: NDArray[np.bool_]) -> Ints:
        """How many ids of each row are flagged."""
        running = np.concatenate([[0], np.cumsum(flags[self.ids])])
        ends = np.cumsum(self.sizes)
        return np.asarray(running[ends] - running[ends - self.sizes], np.int64)

    def lists(self) -> Iterator[list[int]]:
        """The ids of each row."""
        ids, end = self.ids.tolist(), 0
        for size in self.sizes.tolist():
            yield ids[end : end + size]
            end += size


def together(words: Sequence[str]) -> Iterator[list[str]]:
    """The words in blocks, each to be read as one text."""
    rest = iter(words)
    while block := list(islice(rest, _TOGETHER)):
        yield block


def plain(word: str) -> bool:
    """Whether a word is made of characters that are seen: none is dropped, none is a space."""
    return bool(word) and word.isprintable() and " " not in word
