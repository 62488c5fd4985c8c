"""What a tokenizer makes of lines of text: the only place where an audit encodes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokengraft.tokenizer import Tokenizer
from tokengraft.tokenizer.rows import Ints, Rows, holding

_FIELDS = ("tokens", "unks", "inside", "exact", "pretokens", "dropped")


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
    tokenizer: Tokenizer, texts: Sequence[str], alone: bool = False,
    sample: Sequence[int] | None = None,
) -> Counts:  # fmt: skip
    """Count `texts`; ids are reduced to counts at once and not kept.

    `alone` and `sample` are as in `Tokenizer.encode_texts`.
    """
    rows = tokenizer.encode_texts(texts, alone, sample)
    counts = ids_counted(tokenizer, texts, rows)
    pretokens = tokenizer.pretokens(texts, rows)
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
        exact[kept] = tokenizer.gives_back(rows.chosen(kept), own)
    return replace(
        counts, exact=exact, pretokens=counts.pretokens if pretokens is None else pretokens
    )


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
