"""The special tokens that a tokenizer's own template puts around every text (BOS, EOS, [CLS] …)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokengraft.core.errors import ModelError
from tokengraft.model.checkpoint import read_if_there
from tokengraft.model.tokenizer_files import CONFIG, base_tokenizer
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.catalog import load
from tokengraft.tokenizer.classes import with_start


def model_tokenizer(folder: Path) -> Tokenizer:
    """A model's tokenizer as a graft of it has it: what its class puts around a text included.

    SentencePiece files leave that to transformers' code, some `tokenizer.json` too.
    """
    try:
        parsed = base_tokenizer(folder)
    except ModelError:  # older formats, which no graft is made of
        return load(folder)
    from tokengraft.tokenizer.huggingface import HuggingFace

    whole = with_start(parsed, read_if_there(folder / CONFIG))
    return HuggingFace.from_parsed(str(folder), whole)


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
