"""A tokenization as the page draws it: text, bytes that are no whole characters, UNK."""

from __future__ import annotations

from collections.abc import Sequence

from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.vocabulary import CONTINUATION_MARK

# A token is its text, [its bytes in hexadecimal], or 0 for UNK.
Shown = str | list[str] | int


def segment(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[Shown]]:
    """The tokens of each text, one entry a token."""
    words = _word_starts(tokenizer)
    return [
        [
            _shown(tokenizer, token, spaced=bool(place) and words is not None and token in words)
            for place, token in enumerate(ids)
        ]
        for ids in tokenizer.encode(texts)
    ]


def _shown(tokenizer: Tokenizer, token: int, spaced: bool) -> Shown:
    vocabulary = tokenizer.vocabulary
    if token in vocabulary.unknown:
        return 0
    piece = vocabulary.pieces[token] if token < len(vocabulary.pieces) else b""
    try:
        return (" " if spaced else "") + piece.decode("utf-8")
    except UnicodeDecodeError:
        return [piece.hex()]


class _WordStarts:
    """Ids of WordPiece tokens that open a word; their pieces carry no space of their own."""

    def __init__(self, pipeline: object) -> None:
        self._name = getattr(pipeline, "id_to_token")  # noqa: B009 - `tokenizers` has no types

    def __contains__(self, token: int) -> bool:
        return not str(self._name(token)).startswith(CONTINUATION_MARK)


def _word_starts(tokenizer: Tokenizer) -> _WordStarts | None:
    return _WordStarts(getattr(tokenizer, "pipeline", None)) if _wordpiece(tokenizer) else None


def _wordpiece(tokenizer: Tokenizer) -> bool:
    return tokenizer.family == "WordPiece"
