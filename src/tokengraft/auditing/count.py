"""What a tokenizer makes of lines of text: the only place where an audit encodes.

Where a line's ids are those of its words (`tokenizer.words`), each distinct word is encoded once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

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

    def pack(self) -> bytes:
        """Compact bytes, read back by `unpack`."""
        table = np.stack([getattr(self, name) for name in _FIELDS]).astype("<i4")
        return zlib.compress(table.tobytes(), level=1)

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
    if by_words(tokenizer, texts):
        return count_by_words(tokenizer, cut or Cut.of(texts))
    return count_whole(tokenizer, texts)


def by_words(tokenizer: Tokenizer, texts: Sequence[str]) -> bool:
    """Whether `count` goes by distinct words: they are encoded alone, and come back often."""
    return tokenizer.word_prefix is not None and len(texts) >= _FEW


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

    def sums(name: str) -> Ints:
        return cut.places.sums(getattr(first, name), getattr(later, name))

    wrong = cut.places.sums(1 - first.exact, 1 - later.exact)
    uncut = (first.pretokens < 0).any()
    return Counts(
        sums("tokens"),
        sums("unks"),
        sums("inside"),
        (wrong == 0).astype(np.int64),
        np.full_like(wrong, -1) if uncut else sums("pretokens"),
        sums("dropped"),
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
    together = np.fromiter(map(plain, words), bool, len(words))
    if begin and tokenizer.word_prefix:  # a space before it would be another token
        together[:] = False
    table = np.zeros((len(_FIELDS), len(words)), np.int64)
    for joined in (True, False):
        places = np.flatnonzero(together == joined)
        own = [words[n] for n in places.tolist()]
        texts = [prefix + word for word in own]
        if joined:
            rows = tokenizer.encode_words(own, alone)
        else:
            rows = tokenizer.encode_texts(texts, alone)
        counts = ids_counted(tokenizer, texts, rows)
        if not only_ids:
            pretokens = rows.pretokens
            if pretokens is None and joined:
                pretokens = tokenizer.pretokens_of_words(own)
            if pretokens is None:
                pretokens = tokenizer.pretokens(texts)
            if begin:
                exact = _exact(tokenizer, texts, rows)
            else:
                exact = _exact_later(tokenizer, own, rows, pretokens)
            counts = _completed(counts, exact, pretokens)
        table[:, places] = [getattr(counts, name) for name in _FIELDS]
    return Counts(*table)


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
    rows = Rows.of(tokenizer.encode(texts))
    counts = ids_counted(tokenizer, texts, rows)
    return _completed(counts, _exact(tokenizer, texts, rows), tokenizer.pretokens(texts))


def _completed(counts: Counts, exact: Ints, pretokens: Ints | None) -> Counts:
    return replace(
        counts, exact=exact, pretokens=counts.pretokens if pretokens is None else pretokens
    )


def _exact(tokenizer: Tokenizer, texts: Sequence[str], rows: Rows) -> Ints:
    """1 where decoding the ids gives the text back, else 0."""
    if tokenizer.lossless:
        return np.ones_like(rows.sizes)
    decoded = tokenizer.decode(list(rows.lists()))
    return np.array([one == text for one, text in zip(decoded, texts, strict=True)], np.int64)


def _exact_later(
    tokenizer: Tokenizer, words: Sequence[str], rows: Rows, pretokens: Ints | None
) -> Ints:
    """The same of words after a space. What its tokens spell comes back and need not be decoded.

    Unless decoding puts spaces between pieces or takes them away before signs, as BERT's does.
    """
    exact = np.ones_like(rows.sizes)
    if tokenizer.lossless:
        return exact
    pieces = tokenizer.vocabulary.pieces
    joins = pretokens is None or bool(tokenizer.word_prefix)
    if joins and b"".join([pieces[i] for i in rows.ids.tolist()]) == _spelled(words):
        return exact
    ids = list(rows.lists())
    exact[:] = [
        b"".join([pieces[i] for i in own]).removeprefix(b" ") == word.encode("utf-8")
        and (joins or word[0].isalnum())
        for word, own in zip(words, ids, strict=True)
    ]
    if pretokens is not None and not joins:
        exact[pretokens != 1] = 0
    doubtful = np.flatnonzero(exact == 0).tolist()
    before = tokenizer.encode(["a"])[0]
    decoded = tokenizer.decode([before + ids[n] for n in doubtful])
    exact[doubtful] = [f"a {words[n]}" == text for n, text in zip(doubtful, decoded, strict=True)]
    return exact


def _spelled(words: Sequence[str]) -> bytes:
    return "".join([f" {word}" for word in words]).encode("utf-8")
