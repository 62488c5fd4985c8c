"""What a tokenizer makes of lines of text: the only place where an audit encodes.

If a line's ids are just those of its words (`tokenizer.words`), each distinct word is encoded once.
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
_FEW = 512  # with fewer texts, too few words repeat for cutting into words to pay
_BETWEEN = "\ud800"  # a separator: no text holds a lone surrogate


@dataclass(frozen=True)
class Counts:
    """Counts of one language under one tokenizer: arrays with one number per line of text."""

    tokens: Ints
    unks: Ints  # tokens that stand for text the tokenizer cannot represent
    inside: Ints  # tokens that begin inside a character
    exact: Ints  # 1 if decoding gives the line back, 0 if not; -1 if not measured
    pretokens: Ints  # pieces before any vocabulary is consulted; -1 if nothing is cut
    dropped: Ints  # characters, other than spaces, that no token stands for, not even UNK

    @property
    def table(self) -> Ints:
        """All counts as one array, (lines, 6)."""
        return np.stack([getattr(self, name) for name in _FIELDS], axis=1)

    def parted(self, lines: int) -> tuple[Counts, Counts]:
        """The counts of the first `lines` lines, and of the others."""
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

    bytes: Ints  # per line
    characters: Ints  # per line
    histogram: dict[str, int]  # non-space characters of all lines, most frequent first


def count(
    tokenizer: Tokenizer, texts: Sequence[str], cut: Cut | None = None, alone: bool = False
) -> Counts:
    """Count `texts`; ids are reduced to counts at once and not kept.

    `cut` is `Cut.of(texts)`, made once if several tokenizers count them; `alone` as in
    `count_words`.
    """
    if by_words(tokenizer, len(texts)):
        return count_by_words(tokenizer, texts, cut or Cut.of(texts), alone)
    return count_whole(tokenizer, texts, alone)


def by_words(tokenizer: Tokenizer, texts: int) -> bool:
    """Whether `count` encodes distinct words: the tokenizer allows it, and enough repeat."""
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
    """Counts of texts, as sums of the counts of their words."""
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

    With `only_ids`, what takes more than the ids (`exact`, `pretokens`) is not measured. With
    `alone`, only this thread is used, which leaves the other cores to those who count in parallel.
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
    """The counts that need only the ids, and `dropped`; the others are -1."""
    vocabulary = tokenizer.vocabulary
    none = np.zeros_like(rows.sizes)
    unks = rows.sums(vocabulary.is_unknown) if vocabulary.unknown else none
    inside = rows.sums(vocabulary.starts_inside) if vocabulary.starts_inside.any() else none
    dropped = tokenizer.dropped(texts)
    return Counts(
        rows.sizes, unks, inside, none - 1, none - 1, none if dropped is None else dropped
    )


def count_whole(tokenizer: Tokenizer, texts: Sequence[str], alone: bool = False) -> Counts:
    """Counts of texts, each encoded as a whole."""
    rows = tokenizer.encode_texts(texts, alone)
    counts = ids_counted(tokenizer, texts, rows)
    return _completed(counts, tokenizer, texts, rows, tokenizer.pretokens(texts), begin=True)


def _completed(
    counts: Counts, tokenizer: Tokenizer, texts: Sequence[str], rows: Rows,
    pretokens: Ints | None, begin: bool,
) -> Counts:  # fmt: skip
    """The counts with `exact` (whether decoding gives the text back) and `pretokens` added."""
    exact = np.ones_like(rows.sizes)
    if not tokenizer.lossless:
        # UNK decodes to a text like ⁇, so the text is lost, unless it holds that very string.
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
