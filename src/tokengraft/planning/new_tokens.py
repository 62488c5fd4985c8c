"""A token to add, and the check that what a plan says about it fits the tokenizer.

A plan is a file, and a file can be edited: parts that do not spell their token would give it the
row of something else. So a token's bytes and text must match its string, its parts must be old
tokens that spell it, and a merge must make it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer.insert import family, vocabulary
from tokengraft.tokenizer.pipeline import Encoder, load
from tokengraft.tokenizer.pre_tokenizer import splitter_of
from tokengraft.tokenizer.vocabulary import CONTINUATION_MARK, decoded, piece_reader


@dataclass(frozen=True)
class NewToken:
    """A token to add.

    `parts` are the old ids it stands for in context, the leaves of its merges; `count` is how
    often the planning text emits it once the whole plan is applied; `score` is for Unigram;
    `example` is a word of the planning text that emits it, if one was kept.
    """

    id: int
    token: str
    bytes: str  # hexadecimal
    text: str | None  # None if the bytes are not whole characters
    parts: tuple[int, ...]
    count: int
    score: float | None = None
    example: str | None = None


def check_tokens(
    tokenizer: dict[str, Any],
    tokens: Sequence[NewToken],
    merges: Iterable[tuple[str, str]],
    literal: bool = False,
) -> None:
    """TokenizerError unless what the plan says about each new token is true in this tokenizer.

    `literal` tokens are added tokens (mode paper), which no merge makes.
    """
    kind = family(tokenizer)
    read = piece_reader(kind)
    for token in tokens:
        piece = token.token.encode("utf-8", "surrogatepass") if literal else read(token.token)
        if token.bytes != piece.hex():
            _refuse(token, f"its bytes are {piece.hex()}, not {token.bytes}")
        if token.text != (text := decoded(piece)):
            _refuse(token, f"its text is {text!r}, not {token.text!r}")
    if literal or kind in ("unigram", "wordpiece"):
        _check_encoded(tokenizer, tokens, literal)
        return
    wanted = {part for token in tokens for part in token.parts}
    old = vocabulary(tokenizer).items()
    pieces = {number: read(name) for name, number in old if number in wanted}
    looked_up = bool(tokenizer["model"].get("ignore_merges"))
    made = {left + right for left, right in merges}
    for token in tokens:
        if unknown := [part for part in token.parts if part not in pieces]:
            _refuse(token, f"its part {unknown[0]} is not a token of the old vocabulary")
        spelled = b"".join(pieces[part] for part in token.parts)
        if spelled.hex() != token.bytes:
            _refuse(token, f"its parts spell {_shown(spelled)}")
        # Byte fallback looks up whole characters before it merges; `ignore_merges` whole words.
        whole = looked_up or (kind == "byte-fallback-bpe" and len(token.token) == 1)
        if token.token not in made and not whole:
            _refuse(token, "no merge of the plan makes it")


def _check_encoded(tokenizer: dict[str, Any], tokens: Sequence[NewToken], literal: bool) -> None:
    """If no merge makes a token, its parts must be the old tokenizer's ids of its text."""
    encoder = Encoder(load(tokenizer))
    splitter = splitter_of(tokenizer) if literal else None
    for token in tokens:
        name = token.token
        words = splitter.pre_tokenize(name) if splitter else [name.removeprefix(CONTINUATION_MARK)]
        parts = tuple(part for ids in encoder.ids(words) for part in ids)
        if parts != token.parts:
            _refuse(token, f"the old tokenizer spells it {list(parts)}, not {list(token.parts)}")


def _shown(piece: bytes) -> str:
    text = decoded(piece)
    return piece.hex() if text is None else repr(text)


def _refuse(token: NewToken, why: str) -> NoReturn:
    raise TokenizerError(
        f"this plan was edited or damaged: of token {token.id} ({token.token!r}) {why}. Plan again."
    )
