"""What the learner needs to know about a tokenizer's symbols, by family."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokengraft.tokenizer.insert import family, first_free_id, merge_pairs, vocabulary
from tokengraft.tokenizer.vocabulary import decoded, piece_reader

WHOLE = 1 << 30  # symbols from here on are whole characters that the old tokenizer spells in bytes


@dataclass
class Symbols:
    """Strings and ids, growing as the learner names new tokens.

    `wholes` maps a character spelled in bytes (byte fallback) to the number of tokens it saves
    once it is in the vocabulary; until then no pair may include it. `refuses` says which pairs may
    never be merged; `old_merges` gives the old merges (rank, left, right) that a token is part of.
    """

    ids: dict[str, int]
    names: dict[int, str]
    first_new: int
    piece: Callable[[str], bytes]
    old_merges: Callable[[int], Sequence[tuple[int, int, int]]] = lambda _part: ()
    wholes: dict[int, int] = field(default_factory=dict)
    refuses: Callable[[str, str], bool] = lambda _left, _right: False

    def borders(self, symbol: int) -> tuple[bool, bool]:
        """Whether the symbol's bytes begin, and whether they end, between two characters."""
        return borders(self.piece(self.names[symbol]))


def symbols_of(tokenizer: dict[str, Any]) -> Symbols:
    """The symbols of a tokenizer before anything is learned."""
    ids = vocabulary(tokenizer)

    @functools.cache
    def merges_by_part() -> dict[int, list[tuple[int, int, int]]]:
        """Built on first use: few plans ever need it."""
        merges: dict[int, list[tuple[int, int, int]]] = {}
        pairs = merge_pairs(tokenizer) if "merges" in tokenizer["model"] else []
        for rank, pair in enumerate(pairs):
            left, right = ids[pair[0]], ids[pair[1]]
            for part in {left, right}:
                merges.setdefault(part, []).append((rank, left, right))
        return merges

    return Symbols(
        ids=dict(ids),
        names={number: token for token, number in ids.items()},
        first_new=first_free_id(tokenizer),
        piece=piece_reader(family(tokenizer)),
        old_merges=lambda part: merges_by_part().get(part, ()),
    )


def borders(piece: bytes) -> tuple[bool, bool]:
    """Whether UTF-8 bytes begin, and whether they end, between two characters."""
    starts = piece[:1] < b"\x80" or piece[:1] >= b"\xc0"
    for back in range(1, min(len(piece), 4) + 1):
        lead = piece[-back]
        if lead & 0xC0 != 0x80:
            return starts, back >= character_size(lead)
    # Only continuation bytes: they may complete a character begun by the token before.
    return starts, not starts


def character_size(lead: int) -> int:
    """How many bytes a character has in UTF-8, by its first."""
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def completions(lead: bytes) -> Iterator[str]:
    """Every assigned character whose UTF-8 begins with `lead`, in order."""
    missing = character_size(lead[0]) - len(lead)
    for number in range(64**missing):
        rest = bytes(0x80 | number >> 6 * (missing - 1 - i) & 63 for i in range(missing))
        character = decoded(lead + rest)
        if character and unicodedata.category(character) not in ("Cn", "Cs"):
            yield character


def within_character(piece: bytes) -> bool:
    """Whether the bytes are part of one character, with or without one space before it."""
    inner = piece[1:] if piece[:1] == b" " else piece
    return sum(byte & 0xC0 != 0x80 for byte in inner) <= 1 and (
        not inner or inner[0] & 0xC0 != 0x80 or all(byte & 0xC0 == 0x80 for byte in inner)
    )
