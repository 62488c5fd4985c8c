"""A token is its bytes. The only module that knows `Ġ`, `▁`, `##` and `<0xE0>`.

`Vocabulary` gives each id's bytes. `clean_*` give the normalised vocabularies of the paper, whose
tables reproduce only with exactly these readings:

- Hugging Face tokenizers: the string a token decodes to after the fixed prefix `abcdef`
  (`transformers`' `StopStringCriteria.clean_tokenizer_vocab`): `Ġthe` and `▁the` are both ` the`,
  and all fragments of a character become U+FFFD.
- OpenAI encodings: the mergeable ranks as raw bytes, without special tokens.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

CLEAN_PREFIX = "abcdef"  # each token of a clean vocabulary is decoded after it
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
SPACE_MARK = "▁"  # SentencePiece writes a space as U+2581
CONTINUATION_MARK = "##"  # WordPiece marks pieces inside a word
# Bytes to drop from the front and from the back of a piece, the fewest first.
_TRIMS = tuple(sorted(product(range(4), repeat=2), key=sum))


#: All pieces end to end, the start of each id's piece in them, and its number of bytes.
Spelling: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]


def spelling(by_id: Sequence[bytes]) -> Spelling:
    """The `Spelling` of a list of pieces by id."""
    sizes = np.fromiter(map(len, by_id), np.int64, len(by_id))
    return np.frombuffer(b"".join(by_id), np.uint8), np.cumsum(sizes) - sizes, sizes


@dataclass(frozen=True)
class Vocabulary:
    """Each token as bytes, by id; `b""` for an id that stands for no text of its own."""

    pieces: tuple[bytes, ...]
    unknown: frozenset[int] = frozenset()
    special: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.pieces)

    @functools.cached_property
    def starts_inside(self) -> NDArray[np.bool_]:
        """For each id, whether its first byte continues a UTF-8 character begun by another token.

        The number of such tokens in a text is exactly what splitting characters costs it.
        """
        return np.asarray((self._first & 0xC0) == 0x80)

    @functools.cached_property
    def _first(self) -> NDArray[np.uint8]:
        """For each id, its first byte, 0 where it has none."""
        spelled, starts, sizes = self.spelling
        first = np.zeros(len(sizes), np.uint8)
        first[sizes > 0] = spelled[starts[sizes > 0]]
        return first

    @functools.cached_property
    def is_unknown(self) -> NDArray[np.bool_]:
        """For each id, whether it stands for text the tokenizer could not represent."""
        return self._among(self.unknown)

    @functools.cached_property
    def is_silent_unknown(self) -> NDArray[np.bool_]:
        """`is_unknown` without ids that are text to the tokenizer and UNK to the model only."""
        return self._among(self.unknown & self.special)

    def _among(self, numbers: Iterable[int]) -> NDArray[np.bool_]:
        flags = np.zeros(len(self.pieces), dtype=bool)
        flags[list(numbers)] = True
        return flags

    @functools.cached_property
    def spelling(self) -> Spelling:
        """The pieces as a `Spelling`."""
        return spelling(self.pieces)

    @functools.cached_property
    def characters(self) -> frozenset[str]:
        """The characters that are one token, alone or after a space."""
        texts = set()
        for piece in self.pieces:
            if 0 < len(piece) <= 5:
                text = decoded(piece) or ""
                text = text[1:] if len(text) == 2 and text[0] == " " else text
                if len(text) == 1:
                    texts.add(text)
        return frozenset(texts)


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """GPT-2's table: the printable character that stands for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(0x100 + n): byte for n, byte in enumerate(others)})
    return table


def byte_level_piece(token: str) -> bytes:
    """Bytes of a byte-level token; one outside that alphabet (an added token) is its own text."""
    try:
        return token.translate(_latin()).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode("utf-8")


@functools.cache
def _latin() -> dict[int, int]:
    """A table for `translate` to characters that Latin-1 encodes as the bytes.

    Characters that stand for no byte go to U+0100, which Latin-1 cannot encode.
    """
    bytes_of = {ord(character): byte for character, byte in byte_alphabet().items()}
    return dict.fromkeys(range(0x100), 0x100) | bytes_of


def sentencepiece_piece(token: str) -> bytes:
    """Bytes of a SentencePiece token: `▁` is a space, `<0xE0>` a byte."""
    if token.startswith("<") and (match := _BYTE_PIECE.fullmatch(token)):
        return bytes([int(match[1], 16)])
    return token.replace(SPACE_MARK, " ").encode("utf-8")


def wordpiece_piece(token: str) -> bytes:
    """Bytes of a WordPiece token, without the `##` of a continuation."""
    inner = token[len(CONTINUATION_MARK) :] if token.startswith(CONTINUATION_MARK) else token
    return (inner or token).encode("utf-8")


def piece_reader(family: str) -> Callable[[str], bytes]:
    """The function that turns a token string of this family (`insert.family`) into bytes."""
    return {"byte-level-bpe": byte_level_piece, "wordpiece": wordpiece_piece}.get(
        family, sentencepiece_piece
    )


def decoded(piece: bytes) -> str | None:
    """A token's text; None if its bytes are not whole characters."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return None


def clean_decoded(
    tokens: Iterable[str], prefix_tokens: Sequence[str], decode: Callable[[list[str]], str]
) -> frozenset[bytes]:
    """The paper's normalisation for a tokenizer that decodes token strings."""
    base = list(prefix_tokens)
    if CLEAN_PREFIX not in decode(base):
        base = []  # the vocabulary cannot spell the prefix: decode each token by itself
    skip = len(CLEAN_PREFIX) if base else 0
    texts = (decode([*base, token]) for token in tokens)
    strings = {text[text.index(CLEAN_PREFIX if base else "") + skip :] for text in texts}
    return frozenset(text.encode("utf-8") for text in strings)


def recovered_text(piece: bytes) -> str:
    """The longest valid UTF-8 of at least two bytes left by dropping up to three at either end.

    "" if there is none. This is the paper's rule.
    """
    for front, back in _TRIMS:
        inner = piece[front : len(piece) - back]
        if len(inner) > 1 and (text := decoded(inner)) is not None:
            return text
    return ""
