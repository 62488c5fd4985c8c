"""The special tokens that a tokenizer's own template puts around every text (BOS, EOS, [CLS] …)."""

from __future__ import annotations

from typing import Any

from tokengraft.tokenizer.adapters import Tokenizer


def surroundings(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids before and behind every text."""
    pipeline: Any = getattr(tokenizer, "pipeline", None)
    if pipeline is None:
        return (), ()
    # Some character is one token everywhere; an UNK would serve as well.
    inner = pipeline.encode("a", add_special_tokens=False).ids
    whole = pipeline.encode("a", add_special_tokens=True).ids
    for start in range(len(whole) - len(inner) + 1):
        if inner and whole[start : start + len(inner)] == inner:
            return tuple(whole[:start]), tuple(whole[start + len(inner) :])
    return (), ()


def prefix_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids before every text: what distillation reads it with."""
    return list(surroundings(tokenizer)[0])
