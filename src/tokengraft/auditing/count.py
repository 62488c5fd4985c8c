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
from tokengraft.tokenizer.words import Ints, Places, Rows, Words, plain

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


def count(tokenizer: Tokenizer, texts: Sequence[str], cut: Cut | None = None) -> Counts:
    """Count `texts`; ids are reduced to numbers at once and dropped.

    `cut` is what `Cut.of` made of the same texts, where several tokenizers count them.
    """
    if by_words(tokenizer, len(texts)):
        return count_by_words(tokenizer, cut or Cut.of(texts))
    return count_whole(tokenizer, texts)


def by_words(tokenizer: Tokenizer, texts: int) -> bool:
    """Whether `count` goes by distinct words: they are encoded alone, and come back often."""
    return tokenizer.word_prefix is not None and texts >= _FEW


@dataclass(frozen=True)
class Cut:
    """Texts as distinct words, in little memory: those that begin a text, and all others."""

    places: Places
    _first: str
    _later: str

    @classmethod
    def of(cls, texts: Sequence[str]) -> Cut:
        """Cut the texts."""
        words = Words()
        places = words.cut(texts)
        return cls(places, _BETWEEN.join(words.first), _BETWEEN.join(words.later))

    @property
    def first(self) -> list[str]:
        """The words that begin a text."""
        return self._first.split(_BETWEEN)

    @property
    def later(self) -> list[str]:
        """The words after a space."""
        return self._later.split(_BETWEEN) if self._later else []


def count_by_words(tokenizer: Tokenizer, cut: Cut) -> Counts:
    """Counts of texts whose ids are those of their words, from each distinct word's."""
    first = count_words(tokenizer, cut.first, begin=True)
    later = count_words(tokenizer, cut.later, begin=False)
    uncut = bool((first.pretokens < 0).any())
    wrong = [replace(counts, exact=1 - counts.exact).table for counts in (first, later)]
    summed = Counts(*cut.places.sums(*wrong).T)
    return replace(
        summed,
        exact=(summed.exact == 0).astype(np.int64),
        pretokens=np.full_like(summed.tokens, -1) if uncut else summed.pretokens,
    )


def count_words(
    tokenizer: Tokenizer, words: Sequence[str], *, begin: bool, only_ids: bool = False,
    alone: bool = False,
) -> Counts:  # fmt: skip
    """Counts of each word as it begins a text, or as it stands after a space.

    With `only_ids` nothing is measured that takes more than the ids (`exact`, `pretokens`); with
    `alone` other threads are left to other processes.
    """
    prefix = "" if begin else tokenizer.word_prefix or ""
    together = np.array(plain(words), bool)
    table = np.zeros((len(words), len(_FIELDS)), np.int64)
    for joined in (True, False):
        places = np.flatnonzero(together == joined)
        own = [words[n] for n in places.tolist()]
        texts = [prefix + word for word in own]
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


def count_whole(tokenizer: Tokenizer, texts: Sequence[str]) -> Counts:
    """Counts of texts that are encoded as they are."""
    rows = tokenizer.encode_texts(texts)
    counts = ids_counted(tokenizer, texts, rows)
    return _completed(counts, tokenizer, texts, rows, tokenizer.pretokens(texts), begin=True)


def _completed(
    counts: Counts, tokenizer: Tokenizer, texts: Sequence[str], rows: Rows,
    pretokens: Ints | None, begin: bool,
) -> Counts:  # fmt: skip
    lost = _lost(tokenizer, texts, counts.unks)
    exact = _exact(tokenizer, texts, rows, lost, pretokens, begin)
    return replace(
        counts, exact=exact, pretokens=counts.pretokens if pretokens is None else pretokens
    )


def _exact(
    tokenizer: Tokenizer, texts: Sequence[str], rows: Rows, lost: NDArray[np.bool_],
    pretokens: Ints | None, begin: bool,
) -> Ints:  # fmt: skip
    """1 where decoding the ids gives the text back, else 0; without `begin`, after a space.

    Few texts have to be decoded. Some are known to be `lost`; what its pieces spell comes back,
    unless decoding puts spaces between pieces or takes them away before signs, as BERT's does.
    """
    if tokenizer.lossless:
        return np.ones_like(rows.sizes)
    exact = np.zeros_like(rows.sizes)
    kept = np.flatnonzero(~lost)
    rows, texts = rows.chosen(kept), [texts[n] for n in kept.tolist()]
    joins = pretokens is None or bool(tokenizer.word_prefix)
    before = tokenizer.spelled_after if begin else b" " if joins else b""
    if before is not None:
        given = [before + text.encode("utf-8") for text in texts]
        spelled = rows.spell(given, tokenizer.vocabulary)
        if pretokens is not None and not joins:
            spelled &= pretokens[kept] == 1
            spelled &= np.array([text[:1].isalnum() for text in texts], bool)
        exact[kept] = spelled
    doubtful = np.flatnonzero(exact[kept] == 0)
    if len(doubtful):
        lead, word = ([], "") if begin else (tokenizer.encode(["a"])[0], "a ")
        ids = [lead + row.tolist() for row in rows.chosen(doubtful).arrays()]
        decoded = zip(doubtful.tolist(), tokenizer.decode(ids), strict=True)
        exact[kept[doubtful]] = [word + texts[n] == text for n, text in decoded]
    return exact


def _lost(tokenizer: Tokenizer, texts: Sequence[str], unks: Ints) -> NDArray[np.bool_]:
    """Whether a text has an UNK, which shows as a text of its own (⁇), and does not hold that."""
    lost = np.zeros(len(texts), bool)
    if shown := tokenizer.shown_unknowns:
        places = np.flatnonzero(unks).tolist()
        lost[[n for n in places if not any(text in texts[n] for text in shown)]] = True
    return lost
