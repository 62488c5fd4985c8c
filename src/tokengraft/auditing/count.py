"""What a tokenizer makes of lines of text: the only place where an audit encodes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tokengraft.tokenizer import Tokenizer

_FIELDS = ("tokens", "unks", "inside", "exact", "pretokens", "dropped")
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """What one tokenizer makes of one language, a number a line; lines of shards concatenate."""

    tokens: Ints
    unks: Ints  # tokens that stand for text the tokenizer cannot represent
    inside: Ints  # tokens that begin inside a character
    exact: Ints  # 1 where decoding gives the line back, 0 where not; -1 where not measured
    pretokens: Ints  # pieces before any vocabulary is consulted; -1 where not measured
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


def spread_sample(lines: int, limit: int | None) -> Ints:
    """All lines, or `limit` evenly spread ones: on these the costly figures are measured."""
    if limit is None or lines <= limit:
        return np.arange(lines)
    return np.asarray(np.linspace(0, lines - 1, limit).round(), np.int64)


def count(tokenizer: Tokenizer, texts: Sequence[str], sample_lines: int | None = None) -> Counts:
    """Count `texts` with one batch call; ids are reduced to numbers at once and dropped."""
    ids = tokenizer.encode(texts)
    tokens = np.fromiter(map(len, ids), np.int64, len(ids))
    flat = np.fromiter(chain.from_iterable(ids), np.int64, int(tokens.sum()))
    vocabulary = tokenizer.vocabulary
    ends = np.cumsum(tokens)

    def per_line(flags: NDArray[np.bool_]) -> Ints:
        running = np.concatenate([[0], np.cumsum(flags[flat])])
        return np.asarray(running[ends] - running[ends - tokens], np.int64)

    sample = spread_sample(len(texts), sample_lines)
    exact = np.full(len(texts), 1 if tokenizer.lossless else -1, np.int64)
    if not tokenizer.lossless:
        decoded = tokenizer.decode([ids[n] for n in sample])
        exact[sample] = [text == texts[n] for text, n in zip(decoded, sample, strict=True)]
    pretokens = np.full(len(texts), -1, np.int64)
    measured = tokenizer.pretokens([texts[n] for n in sample])
    if measured is not None:
        pretokens[sample] = measured
    unks = per_line(vocabulary.is_unknown) if vocabulary.unknown else np.zeros_like(tokens)
    dropped = tokenizer.dropped(texts)
    dropped = np.zeros_like(tokens) if dropped is None else dropped
    return Counts(tokens, unks, per_line(vocabulary.starts_inside), exact, pretokens, dropped)
