r"""The old cuts that a relaxed pattern has to keep, read off the vocabulary.

Two pieces may be joined if no old merge can act across the cut between them. Each side is then
merged as if it stood alone, the joined piece starts out as exactly the tokens of its parts, and
appended merges only make it shorter: no text at all gets longer. A merge can act across a cut only
if some token holds the end of the left piece together with the beginning of the right one, that
is, some last bytes of one character and some first bytes of the next. So a cut stays

- between a letter and a mark, or a mark and a letter, if a token holds an end of the one and a
  beginning of the other. (Llama 3 has alef with the first byte of tanwin, since many letters begin
  with that byte too; joined, ` جدا` + `ً،` became ` جد` + `ا?` + `?` + `،`.)
  Exception: two marks that are one token, if that token and any token with which the following
  piece may begin stay two tokens when encoded as one text. Whenever that holds of the last token
  of A and the first of B, encoding AB gives the ids of A and then those of B: merges go by rank,
  so nothing farther off can make the first merge across. Many Hindi syllables end in two marks
  (`िं`, `ें`);
- around a piece that the encoder knows only as a whole (`ignore_merges`): inside a longer piece
  its merges give more tokens (Llama 3 has 25 such pieces in Arabic script, for one ` ایران`).
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Regex, Tokenizer, pre_tokenizers

from tokengraft.tokenizer.file_shape import TokenizerKey, as_pair
from tokengraft.tokenizer.vocabulary import byte_level_piece, decoded

_OF_A_WORD = re.compile("[Ġ-]?[A-Za-z]*")  # byte-level: Ġ is a space


@dataclass(frozen=True)
class KeptCuts:
    """Where joining stops: between a letter and its marks, a mark and its letters, around pieces.

    `parted` are the exceptions: runs of two marks, each with the letters that may still be joined.
    """

    letter_mark: Mapping[str, frozenset[str]] = field(default_factory=dict)
    mark_letter: Mapping[str, frozenset[str]] = field(default_factory=dict)
    pieces: tuple[str, ...] = ()
    parted: Mapping[str, frozenset[str]] = field(default_factory=dict)


def kept_cuts(tokenizer: dict[str, Any], letters: str, marks: str) -> KeptCuts:
    """What must stay cut under a byte-level BPE, for these classes of letters and marks.

    Classes are written as in a regular expression, and go by the regex engine's own tables.
    """
    known = _vocabulary_of(TokenizerKey(tokenizer))
    before, after = _beside_marks(known.neighbours, in_class(_candidates("M"), marks))
    # Only these few letters are looked up in the engine: all of Unicode would take seconds.
    beside = _letters_with(before, bytes.endswith) | _letters_with(after, bytes.startswith)
    letter_mark: dict[str, set[str]] = defaultdict(set)
    mark_letter: dict[str, set[str]] = defaultdict(set)
    for letter in in_class("".join(sorted(beside)), letters):
        for end in _ends(letter.encode("utf-8")) & before.keys():
            letter_mark[letter] |= before[end]
        for start in _starts(letter.encode("utf-8")) & after.keys():
            for mark in after[start]:
                mark_letter[mark].add(letter)
    return KeptCuts(
        {letter: frozenset(letter_mark[letter]) for letter in sorted(letter_mark)},
        {mark: frozenset(mark_letter[mark]) for mark in sorted(mark_letter)},
        _only_whole(known, letters) if tokenizer["model"].get("ignore_merges") else (),
        _parted(known, mark_letter),
    )


class _ByteLevelVocabulary:
    """Facts about a vocabulary that do not depend on the script, worked out once."""

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._model = model
        self.pieces = {token: byte_level_piece(token) for token in model["vocab"]}

    @functools.cached_property
    def neighbours(self) -> set[tuple[bytes, bytes]]:
        """(Last bytes of a character, first bytes of the next) that some token holds together."""
        pieces = self.pieces.values()
        return {pair for piece in pieces if not piece.isascii() for pair in _shared(piece)}

    @functools.cached_property
    def ranks(self) -> dict[tuple[str, str], int]:
        """Each merge's place in the list of merges."""
        return {as_pair(merge): rank for rank, merge in enumerate(self._model["merges"])}


@functools.lru_cache(maxsize=1)
def _vocabulary_of(key: TokenizerKey) -> _ByteLevelVocabulary:
    return _ByteLevelVocabulary(key.tokenizer["model"])


def _beside_marks(
    neighbours: Iterable[tuple[bytes, bytes]], marks: str
) -> tuple[dict[bytes, set[str]], dict[bytes, set[str]]]:
    """Which marks may follow a character's last bytes in a token, and which precede its first."""
    ends, starts = defaultdict(set), defaultdict(set)
    for mark in marks:
        for end in _ends(mark.encode("utf-8")):
            ends[end].add(mark)
        for start in _starts(mark.encode("utf-8")):
            starts[start].add(mark)
    before: dict[bytes, set[str]] = defaultdict(set)
    after: dict[bytes, set[str]] = defaultdict(set)
    for left, right in neighbours:
        if right in starts:
            before[left] |= starts[right]
        if left in ends:
            after[right] |= ends[left]
    return before, after


def _ends(spelled: bytes) -> set[bytes]:
    return {spelled[-1:], spelled[-2:], spelled[-3:], spelled}


def _starts(spelled: bytes) -> set[bytes]:
    return {spelled[:1], spelled[:2], spelled[:3], spelled}


def _shared(piece: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each two neighbouring characters in `piece`, cut off where the piece begins or ends."""
    heads = [0, *(at for at in range(1, len(piece)) if piece[at] & 0xC0 != 0x80), len(piece)]
    for start, head, end in zip(heads, heads[1:], heads[2:], strict=False):
        yield piece[start:head], piece[head:end]


@functools.cache
def _candidates(category: str) -> str:
    """Characters that Python's tables put into a category, or that they do not know yet."""
    points = (*range(0xD800), *range(0xE000, 0x32000), *range(0xE0100, 0xE01F0))
    kinds = ((chr(point), unicodedata.category(chr(point))) for point in points)
    return "".join(char for char, kind in kinds if kind[0] == category or kind == "Cn")


@functools.cache
def _spelled(category: str, at: int) -> dict[int, list[tuple[str, bytes]]]:
    """The candidates and how they are spelled, by their first byte or their last (-1)."""
    groups: dict[int, list[tuple[str, bytes]]] = defaultdict(list)
    for character in _candidates(category):
        spelled = character.encode("utf-8")
        groups[spelled[at]].append((character, spelled))
    return groups


def _letters_with(
    parts: Iterable[bytes], holds: Callable[[bytes, tuple[bytes, ...]], bool]
) -> set[str]:
    """The candidate letters that end (or start, as `holds` says) with one of the `parts`."""
    at = -1 if holds is bytes.endswith else 0
    wanted: dict[int, list[bytes]] = defaultdict(list)
    for part in parts:
        wanted[part[at]].append(part)
    return {
        character
        for byte, own in wanted.items()
        for character, spelled in _spelled("L", at).get(byte, ())
        if holds(spelled, tuple(own))
    }


def in_class(text: str, name: str) -> str:
    """The characters of `text` that are in the regex class `name`."""
    others = pre_tokenizers.Split(Regex(rf"[^{name}]+"), "removed")
    return "".join(piece for piece, _ in others.pre_tokenize_str(text))


def _only_whole(known: _ByteLevelVocabulary, letters: str) -> tuple[str, ...]:
    """Tokens that may be pieces of a word but that no merges build: only a lookup finds them."""
    read = {
        token: text
        for token, piece in known.pieces.items()
        if not piece.isascii() and (text := decoded(piece)) is not None
    }
    concerned = set(in_class("".join(set().union(*read.values())), rf"{letters}\p{{M}}"))
    return tuple(
        sorted(
            text
            for token, text in read.items()
            if not concerned.isdisjoint(text) and merged(token, known.ranks) != [token]
        )
    )


def only_whole_words(tokenizer: Mapping[str, Any]) -> tuple[str, ...]:
    """Words of ASCII letters that are tokens but that no merges build: only a lookup finds them."""
    model = tokenizer["model"]
    if not model.get("ignore_merges"):
        return ()
    vocab = {token: n for token, n in model["vocab"].items() if _OF_A_WORD.fullmatch(token)}
    merges = [pair for pair in map(as_pair, model["merges"]) if "".join(pair) in vocab]
    own = {**model, "vocab": vocab, "merges": merges, "ignore_merges": False}
    encoder = Tokenizer.from_str(json.dumps({"version": "1.0", "model": own, "added_tokens": []}))
    words = [token for token in vocab if token[-1].isascii() and token[-1].isalpha()]
    encoded = encoder.encode_batch_fast(words, add_special_tokens=False)
    spelled = (byte_level_piece(w) for w, one in zip(words, encoded, strict=True) if len(one) > 1)
    return tuple(sorted(piece.decode("ascii") for piece in spelled))


def _parted(
    known: _ByteLevelVocabulary, mark_letter: Mapping[str, set[str]]
) -> dict[str, frozenset[str]]:
    """Runs of two marks that are one token, with the letters before which they stay one."""
    ends = {mark.encode("utf-8"): mark for mark in mark_letter}
    runs = {}
    for token, piece in known.pieces.items():
        for size in (2, 3, 4):
            if len(piece) > size and piece[-size:] in ends and len(piece) <= 8:
                text = piece.decode("utf-8", "ignore")
                if len(text) == 2 and text.encode("utf-8") == piece and in_class(text[0], r"\p{M}"):
                    runs[token] = text
    if not runs:
        return {}
    ranks, tokens = known.ranks, {piece: token for token, piece in known.pieces.items()}
    firsts: dict[str, list[str]] = defaultdict(list)  # tokens that a letter may begin with
    spelled = {letter.encode("utf-8"): letter for letter in set().union(*mark_letter.values())}
    for start, letter in spelled.items():
        firsts[letter] += [tokens[start[:n]] for n in range(1, len(start)) if start[:n] in tokens]
    for token, piece in known.pieces.items():
        for size in (1, 2, 3, 4):
            if len(piece) >= size and piece[:size] in spelled:
                firsts[spelled[piece[:size]]].append(token)
    parted = {}
    for token, run in sorted(runs.items(), key=lambda item: item[1]):
        if merged(token, ranks) == [token]:
            parted[run] = frozenset(
                letter
                for letter in mark_letter[run[1]]
                if all(
                    merged(token + first, ranks) == [token, first]
                    for first in firsts[letter]
                    if merged(first, ranks) == [first]
                )
            )
    return {run: letters for run, letters in parted.items() if letters}


def merged(token: Iterable[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Byte-pair encoding by merges alone: lowest rank first, leftmost first among equals."""
    symbols = list(token)
    while len(symbols) > 1:
        rank, at = min(
            (ranks.get((symbols[i], symbols[i + 1]), len(ranks)), i)
            for i in range(len(symbols) - 1)
        )
        if rank == len(ranks):
            break
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return symbols
