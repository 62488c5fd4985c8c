"""Character coverage: which characters of a language are one token, and which are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokengraft.auditing.count import TextCounts


@dataclass(frozen=True)
class Coverage:
    """How much of a language's script a vocabulary holds; spaces are not counted."""

    distinct: int
    distinct_covered: int
    running_share: float  # share of running text whose characters are one token
    missing: str  # most frequent first


def cover(text: TextCounts, characters: frozenset[str]) -> Coverage:
    """Coverage of `text` by the one-token `characters` of a vocabulary."""
    histogram: Mapping[str, int] = text.histogram
    total = sum(histogram.values())
    missing = [c for c in histogram if c not in characters]
    lost = sum(histogram[c] for c in missing)
    return Coverage(
        distinct=len(histogram),
        distinct_covered=len(histogram) - len(missing),
        running_share=1 - lost / total if total else float("nan"),
        missing="".join(missing),
    )
