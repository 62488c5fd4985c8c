"""What the learner has to know of a tokenizer's symbols, by family."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokengraft.tokenizer.insert import Family, family, first_free_id, merge_pairs, vocabulary
from tokengraft.tokenizer.vocabulary import byte_level_piece, sentencepiece_piece, wordpiece_piece

WHOLE = 1 << 30  # symbols from here on are characters that the old tokenizer spells in bytes


@dataclass
class Symbols:
    """Strings and ids, growing as the learner names new tokens.

    `wholes` maps a character spelled in bytes (byte fallback) to the number of tokens it saves
    once it is in the vocabulary; no pair may touch it before. `refuses` says which pairs may never
    be merged; `old_merges` gives, for a token, the old merges it is a part of, by rank.
    """

    ids: dict[str, int]
    names: dict[int, str]
    first_new: int
    piece: Callable[[str], bytes]
    old_merges: Mapping[int, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    wholes: dict[int, int] = field(default_factory=dict)
    refuses: Callable[[str, str], bool] = lambda _left, _right: False

    def borders(self, symbol: int) -> tuple[bool, bool]:
        """Whether the symbol's bytes begin, and whether they end, at a character's border."""
        return borders(self.piece(self.names[symbol]))


class OldMerges(dict[int, list[tuple[int, int, int]]]):
    """Old merges by part, built when first asked for: few plans ever need them."""

    def __init__(self, tokenizer: dict[str, Any], ids: Mapping[str, int]) -> None:
        super().__init__()
        self._tokenizer, self._ids = tokenizer, ids
        self._ready = False

    def get(self, key: int, default: Any = ()) -> Any:
        """The merges (rank, left, right) that have token `key` as a part."""
        if not self._ready:
            self._ready = True
            for rank, pair in enumerate(merge_pairs(self._tokenizer)):
                left, right = self._ids[pair[0]], self._ids[pair[1]]
                for part in {left, right}:
                    self.setdefault(part, []).append((rank, left, right))
        return super().get(key, default)


def symbols_of(tokenizer: dict[str, Any], merges: bool = True) -> Symbols:
    """The symbols of a tokenizer before anything is learned; `merges` says whether it has some."""
    ids = vocabulary(tokenizer)
    return Symbols(
        ids=dict(ids),
        names={number: token for token, number in ids.items()},
        first_new=first_free_id(tokenizer),
        piece=piece_reader(family(tokenizer)),
        old_merges=OldMerges(tokenizer, ids) if merges else {},
    )


def piece_reader(kind: Family) -> Callable[[str], bytes]:
    """How a token string of this family is read as bytes."""
    return {
        "byte-level-bpe": byte_level_piece,
        "byte-fallback-bpe": sentencepiece_piece,
        "unigram": sentencepiece_piece,
        "wordpiece": wordpiece_piece,
    }[kind]


def borders(piece: bytes) -> tuple[bool, bool]:
    """Whether UTF-8 bytes begin, and whether they end, at a character's border."""
    starts = piece[:1] < b"\x80" or piece[:1] >= b"\xc0"
    for back in range(1, min(len(piece), 4) + 1):
        lead = piece[-back]
        if lead & 0xC0 != 0x80:
            size = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return starts, back >= size
    # Only continuation bytes: they may end a character begun by the token before.
    return starts, not starts


def completions(lead: bytes) -> Iterator[str]:
    """Every assigned character whose UTF-8 begins with `lead`, in order."""
    size = 2 if lead[0] < 0xE0 else 3 if lead[0] < 0xF0 else 4
    missing = size - len(lead)
    for number in range(64**missing):
        rest = bytes(0x80 | number >> 6 * (missing - 1 - i) & 63 for i in range(missing))
        try:
            character = (lead + rest).decode("utf-8")
        except UnicodeDecodeError:
            continue
        if unicodedata.category(character) not in ("Cn", "Cs"):
            yield character


def within_character(piece: bytes) -> bool:
    """Whether bytes lie inside one character, with or without one space before it."""
    inner = piece[1:] if piece[:1] == b" " else piece
    return sum(byte & 0xC0 != 0x80 for byte in inner) <= 1 and (
        not inner or inner[0] & 0xC0 != 0x80 or all(byte & 0xC0 == 0x80 for byte in inner)
    )
