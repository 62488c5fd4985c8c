"""Where two tokenizations of one text end at the same byte.

    ends(ids) = cumulative sum of len(piece(id));   aligned = ends(old) ∩ ends(new)

A model that reads up to an aligned position has read the same text under either tokenization, so
its hidden states and next-token distributions can be compared there and only there.

Byte lengths of pieces are exact whenever both sequences spell the same bytes: byte-level BPE,
SentencePiece (its dummy space opens both), byte fallback, WordPiece (both drop the same spaces),
and any normaliser, since a tokenizer and its extension share it. If an UNK hides some text, the
spelled bytes differ; then the character offsets that `tokenizers` reports are compared instead,
and of several tokens that end at the same character (byte tokens) only the last counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer.adapters import Tokenizer

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Alignment:
    """A text under both tokenizers; `old_at[i]` and `new_at[i]` end at the same byte."""

    old: Ints
    new: Ints
    old_at: Ints
    new_at: Ints

    def __len__(self) -> int:
        return len(self.old_at)


class Aligner:
    """Encodes texts with a tokenizer and its extension, and finds their common ends."""

    def __init__(self, old: Tokenizer, new: Tokenizer) -> None:
        self.old, self.new = old, new
        self._lengths = tuple(_lengths(one) for one in (old, new))
        self._silent = tuple(_silent(one) for one in (old, new))

    def __call__(self, texts: Sequence[str]) -> list[Alignment]:
        """One alignment for each text, without special tokens."""
        pairs = zip(self.old.encode(texts), self.new.encode(texts), strict=True)
        return [self._align(text, *ids) for text, ids in zip(texts, pairs, strict=True)]

    def _align(self, text: str, old: list[int], new: list[int]) -> Alignment:
        ids = np.asarray(old, np.int64), np.asarray(new, np.int64)
        hidden = any(bool(silent[row].any()) for silent, row in zip(self._silent, ids, strict=True))
        if not hidden:
            ends = [np.cumsum(size[row]) for size, row in zip(self._lengths, ids, strict=True)]
            if (ends[0][-1:] == ends[1][-1:]).all() and len(ends[0]) and len(ends[1]):
                return Alignment(*ids, *common_ends(*ends))
        if not (len(old) or len(new)):
            return Alignment(*ids, *ids)
        return Alignment(*ids, *common_ends(*(_offsets(one, text) for one in (self.old, self.new))))


def common_ends(old: Ints, new: Ints) -> tuple[Ints, Ints]:
    """Positions in two non-decreasing lists of ends at which the same value is reached.

    If several positions share a value (tokens of no length), the last of them is taken: only then
    has all of the text up to there been read.
    """
    old_at, new_at = _last_of_each(old), _last_of_each(new)
    _, from_old, from_new = np.intersect1d(
        old[old_at], new[new_at], assume_unique=True, return_indices=True
    )
    return old_at[from_old].astype(np.int64), new_at[from_new].astype(np.int64)


def _last_of_each(ends: Ints) -> Ints:
    return np.flatnonzero(np.append(ends[1:] != ends[:-1], len(ends) > 0)[: len(ends)])


def _lengths(tokenizer: Tokenizer) -> Ints:
    return np.fromiter(map(len, tokenizer.vocabulary.pieces), np.int64)


def _silent(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """The ids whose bytes are not the text they stand for."""
    empty = np.fromiter((not piece for piece in tokenizer.vocabulary.pieces), bool)
    silent: npt.NDArray[np.bool_] = tokenizer.vocabulary.is_unknown | empty
    return silent


def _offsets(tokenizer: Tokenizer, text: str) -> Ints:
    pipeline: Any = getattr(tokenizer, "pipeline", None)
    if pipeline is None:
        raise TokenizerError(
            f"{tokenizer.name} writes an unknown token for {text[:40]!r} and reports no offsets; "
            "give it as tokenizer.json to align it"
        )
    spans = pipeline.encode(text, add_special_tokens=False).offsets
    # A token may report an earlier end than the one before it (a mark moved by the normaliser).
    return np.maximum.accumulate(np.asarray([end for _, end in spans], np.int64))
