"""Added tokens as entries of a Unigram vocabulary that no text reaches.

Unigram ids are places in a list, so added tokens that stand after its end must go into it before
anything new can follow. An entry is a piece, though, and text that normalises to it (`<mask>` in
full-width brackets) would then become the token. Two things keep it out:

- A cut inside the entry. Where no old piece holds two neighbouring characters of it, and one of
  them is a piece itself, no path of any text has a piece or a joined UNK across that place: to cut
  there changes no id, and the entry can never be whole. `<mask>` where no piece begins with `<m`.
- Else a score below every path of old pieces: n characters take at most n of them, each at least
  the lowest. Such a score makes UNK costlier too (lowest - 10), which changes no text without UNK.

A score alone would not do: an UNK costs more than any piece, so an entry that has a character the
vocabulary lacks wins at any score.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any


def placeholders(
    vocab: Sequence[Sequence[Any]], contents: Sequence[str]
) -> tuple[list[float], str | None]:
    """A score for each content, and a pattern of the places to cut at (None where there is none).

    With both in place, text is encoded as before, whatever it normalises to; but for contents that
    old pieces cannot spell and that have no place to cut at (one character, two UNKs in a row).
    """
    scores = {piece: float(score) for piece, score in vocab}
    lowest = min(scores.values(), default=0.0)
    inside = {a + b for piece in scores for a, b in pairwise(piece)}
    own_scores, cuts = [], []
    for content in contents:
        place = _place(content, scores.keys(), inside)
        own_scores.append(lowest)
        if place:
            cuts.append(f"(?<={_literal(content[:place])})(?={_literal(content[place:])})")
        elif _spelled(content, scores.keys()):
            own_scores[-1] = len(content) * min(lowest, 0.0) - 1
    return own_scores, "|".join(cuts) or None


def _place(content: str, pieces: Collection[str], inside: set[str]) -> int:
    """Where to cut, 0 for nowhere."""
    for place, (a, b) in enumerate(pairwise(content), start=1):
        if a + b not in inside and (a in pieces or b in pieces):
            return place
    return 0


def _spelled(content: str, pieces: Collection[str]) -> bool:
    """Whether old pieces spell the content without UNK."""
    reached = {0}
    for end in range(1, len(content) + 1):
        if any(content[start:end] in pieces for start in reached):
            reached.add(end)
    return len(content) in reached


def _literal(text: str) -> str:
    return re.sub(r"[^\w]", lambda match: rf"\x{{{ord(match[0]):x}}}", text)
