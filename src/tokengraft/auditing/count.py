"""What a tokenizer makes of lines of text: the only place where an audit encodes.

Where a line's ids are those of its words (`tokenizer.words`), each distinct word is encoded once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokengraft.tokenizer import Tokenizer
from tokengraft.tokenizer.words import Ints, Listed, Places, Rows, Words, holding

_FIELDS = ("tokens", "unks", "inside", "exact", "pretokens", "dropped")
_FEW = 512  # texts, in which too few words come back to be worth cutting them
_BETWEEN = "\ud800"  # half a surrogate pair is in no text


@dataclass(frozen=True)
class Counts:
    """What one tokenizer makes of one language, a number a line; lines of shards concatenate."""

    tokens: Ints
    unks: Ints  # tokens that stand for text the tokenizer cannot represent
    inside: Ints  # tokens that begin inside a character
    exact: Ints  # 1 where decoding gives the line back, 0 where not
    pretokens: Ints  # pieces before any vocabulary is consulted; -1 where nothing is cut
    dropped: Ints  # characters, spaces apart, that no token stands for, UNK or not

    @property
    def table(self) -> Ints:
        """All of it, a row a line."""
        return np.stack([getattr(self, name) for name in _FIELDS], axis=1)

    def parted(self, lines: int) -> tuple[Counts, Counts]:
        """Those of the first lines, and of the others."""
        return Counts(*self.table[:lines].T), Counts(*self.table[lines:].T)

    def pack(self) -> bytes:
        """Compact bytes, read back by `unpack`."""
        return zlib.compress(self.table.T.astype("<i4").tobytes(), level=1)

    @classmethod
    def unpack(cls, data: bytes) -> Counts:
        """Inverse of `pack`."""
        table = np.frombuffer(zlib.decompress(data), "<i4").reshape(len(_FIELDS), -1)
        return cls(*table.astype(np.int64))


@dataclass(frozen=True)
class TextCounts:
    """What a language's text is made of, whatever the tokenizer."""

    bytes: Ints  # a number a line
    characters: Ints
    histogram: dict[str, int]  # non-space characters of all lines


def count(
    tokenizer: Tokenizer, texts: Sequence[str], cut: Cut | None = None, alone: bool = False
) -> Counts:
    """Count `texts`; ids are reduced to numbers at once and dropped.

    `cut` is what `Cut.of` made of the same texts, where several tokenizers count them; `alone` as
    in `count_words`.
    """
    if by_words(tokenizer, len(texts)):
        return count_by_words(tokenizer, texts, cut or Cut.of(texts), alone)
    return count_whole(tokenizer, texts, alone)


def by_words(tokenizer: Tokenizer, texts: int) -> bool:
    """Whether `count` goes by distinct words: they are encoded alone, and come back often."""
    return tokenizer.word_prefix is not None and texts >= _FEW


@dataclass(frozen=True)
class Cut:
    """Texts as distinct words, in little memory: those that begin a text, and all others."""

    places: Places
    _first: str
    _later: str
    _plain: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    _characters: frozenset[str]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Cut:
        """Cut the texts."""
        words = Words()
        places = words.cut(texts)
        first, later = Listed.of([*words.first], True), Listed.of([*words.later], False)
        joined = (_BETWEEN.join(first.words), _BETWEEN.join(later.words))
        characters = first.characters | later.characters
        return cls(places, *joined, (first.plain, later.plain), characters)

    @property
    def first(self) -> Listed:
        """The words that begin a text."""
        return Listed(self._first.split(_BETWEEN), True, self._plain[0], self._characters)

    @property
    def later(self) -> Listed:
        """The words after a space."""
        words = self._later.split(_BETWEEN) if self._later else []
        return Listed(words, False, self._plain[1], self._characters)


def count_by_words(
    tokenizer: Tokenizer, texts: Sequence[str], cut: Cut, alone: bool = False
) -> Counts:
    """Counts of texts whose ids are those of their words, from each distinct word's."""
    first = count_words(tokenizer, cut.first, alone=alone)
    later = count_words(tokenizer, cut.later, alone=alone)
    uncut = bool((first.pretokens < 0).any())
    wrong = [replace(counts, exact=1 - counts.exact).table for counts in (first, later)]
    summed = Counts(*cut.places.sums(*wrong).T)
    counts = replace(
        summed,
        exact=(summed.exact == 0).astype(np.int64),
        pretokens=np.full_like(summed.tokens, -1) if uncut else summed.pretokens,
    )
    if whole := holding(texts, tokenizer.across):
        table = counts.table
        table[whole] = count_whole(tokenizer, [texts[n] for n in whole], alone).table
        return Counts(*table.T)
    return counts


def count_words(
    tokenizer: Tokenizer, listed: Listed, *, only_ids: bool = False, alone: bool = False
) -> Counts:
    """Counts of each word as it begins a text, or as it stands after a space.

    With `only_ids` nothing is measured that takes more than the ids (`exact`, `pretokens`); with
    `alone` the other cores are left to whoever counts beside.
    """
    words, begin = listed.words, listed.begin
    prefix = "" if begin else tokenizer.word_prefix or ""
    together = listed.plain.copy()
    together[holding(words, tokenizer.across | tokenizer.unruly(listed.characters))] = False
    table = np.zeros((len(words), len(_FIELDS)), np.int64)
    for joined in (True, False):
        places = np.flatnonzero(together == joined)
        own = [words[n] for n in places.tolist()]
        texts = [prefix + word for word in own] if prefix else own
        if joined:
            rows = tokenizer.encode_words(own, begin, alone)
        else:
            rows = tokenizer.encode_texts(texts, alone)
        counts = ids_counted(tokenizer, texts, rows)
        if not only_ids:
            if joined:
                pretokens = tokenizer.pretokens_of_words(own, rows, begin)
            else:
                pretokens = tokenizer.pretokens(texts)
            counts = _completed(counts, tokenizer, own, rows, pretokens, begin)
        table[places] = counts.table
    return Counts(*table.T)


def ids_counted(tokenizer: Tokenizer, texts: Sequence[str], rows: Rows) -> Counts:
    """What the ids alone tell, and the characters that none stands for."""
    vocabulary = tokenizer.vocabulary
    none = np.zeros_like(rows.sizes)
    unks = rows.sums(vocabulary.is_unknown) if vocabulary.unknown else none
    inside = rows.sums(vocabulary.starts_inside) if vocabulary.starts_inside.any() else none
    dropped = tokenizer.dropped(texts)
    return Counts(
        rows.sizes, unks, inside, none - 1, none - 1, none if dropped is None else dropped
    )


def count_whole(tokenizer: Tokenizer, texts: Sequence[str], alone: bool = False) -> Counts:
    """Counts of texts that are encoded as they are."""
    rows = tokenizer.encode_texts(texts, alone)
    counts = ids_counted(tokenizer, texts, rows)
    return _completed(counts, tokenizer, texts, rows, tokenizer.pretokens(texts), begin=True)


def _completed(
    counts: Counts, tokenizer: Tokenizer, texts: Sequence[str], rows: Rows,
    pretokens: Ints | None, begin: bool,
) -> Counts:  # fmt: skip
    """With `exact`, 1 where decoding the ids gives the text back, and `pretokens`."""
    exact = np.ones_like(rows.sizes)
    if not tokenizer.lossless:
        # An UNK shows as a text of its own (⁇), which is not the text unless that holds it.
        vocabulary = tokenizer.vocabulary
        all_shown = vocabulary.unknown <= vocabulary.special
        unks = counts.unks if all_shown else rows.sums(vocabulary.is_silent_unknown)
        lost = unks > 0
        lost[holding(texts, tokenizer.shown_unknowns)] = False
        kept = np.flatnonzero(~lost)
        exact[lost] = 0
        own = [texts[n] for n in kept.tolist()] if len(kept) < len(texts) else texts
        exact[kept] = tokenizer.gives_back(rows.chosen(kept), own, begin)
    return replace(
        counts, exact=exact, pretokens=counts.pretokens if pretokens is None else pretokens
    )
