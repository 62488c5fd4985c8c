"""The tokenizer of a model folder: its files, and the special tokens it puts around every text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokengraft.core.errors import ModelError, TokenizerError
from tokengraft.model.checkpoint import read_if_there, read_json
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.catalog import load
from tokengraft.tokenizer.convert import from_sentencepiece
from tokengraft.tokenizer.file_shape import checked
from tokengraft.tokenizer.transformers_classes import completed, with_start

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
#: The old vocabulary in other formats, left out of a graft: a program might read these instead.
STALE = frozenset(
    {"vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "tekken.json", "vocab.txt"}
)


def base_tokenizer(folder: Path) -> dict[str, Any]:
    """The base's tokenizer as a parsed `tokenizer.json`, converted if it is SentencePiece."""
    if read_if_there(folder / TOKENIZER_CONFIG).get("fast_tokenizer_files"):
        raise ModelError(
            f"{TOKENIZER_CONFIG} of {folder.name} has fast_tokenizer_files, which sends each "
            f"version of transformers to another file: remove it, and keep {TOKENIZER} alone"
        )
    if (folder / TOKENIZER).is_file():
        path = folder / TOKENIZER
        return checked(read_json(path), path.stat().st_size, f"{folder.name}/{TOKENIZER}")
    if (pieces := sentencepiece_file(folder)) is not None:
        try:
            parsed = from_sentencepiece(pieces)
        except RuntimeError as error:
            raise TokenizerError(f"tokenizer.model cannot be read: {error}") from None
        return completed(parsed, read_if_there(folder / TOKENIZER_CONFIG))
    raise ModelError(
        f"{folder.name} holds no {TOKENIZER}: save the fast tokenizer with "
        "`AutoTokenizer.from_pretrained(MODEL).save_pretrained(DIR)`"
    )


def write_tokenizer_json(folder: Path, tokenizer: Mapping[str, Any]) -> None:
    """Write a parsed `tokenizer.json` into the folder; equal values give equal bytes."""
    # Lone surrogates cannot occur in a parsed tokenizer.json that was UTF-8.
    text = json.dumps(tokenizer, ensure_ascii=False, indent=1)
    (folder / TOKENIZER).write_text(text, encoding="utf-8", newline="\n")


def sentencepiece_file(folder: Path) -> bytes | None:
    """The bytes of the folder's `tokenizer.model`, if it has one."""
    path = folder / "tokenizer.model"
    return path.read_bytes() if path.is_file() else None


def model_tokenizer(folder: Path) -> Tokenizer:
    """A model's tokenizer, including the special tokens that its transformers class adds.

    SentencePiece files and some `tokenizer.json` leave these to transformers' code; a graft's
    tokenizer states them.
    """
    try:
        parsed = base_tokenizer(folder)
    except ModelError:  # older formats, which cannot be grafted
        return load(folder)
    from tokengraft.tokenizer.huggingface import HuggingFace

    whole = with_start(parsed, read_if_there(folder / TOKENIZER_CONFIG))
    return HuggingFace.from_parsed(str(folder), whole)


def surroundings(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that a tokenizer puts before and after every text (BOS, EOS, [CLS] …)."""
    pipeline: Any = getattr(tokenizer, "pipeline", None)
    if pipeline is None:
        return (), ()
    # Every vocabulary has "a"; an UNK would do as well.
    text = pipeline.encode("a", add_special_tokens=False).ids
    before, *after = around(pipeline.encode("a", add_special_tokens=True).ids, text)
    return (tuple(before), tuple(after[0])) if after else ((), ())


def around(dressed: Sequence[int], *texts: Sequence[int]) -> list[list[int]]:
    """The ids in `dressed` before, between and after the texts'; all of it if a text is absent."""
    whole, pieces, at = list(dressed), [], 0
    for text in map(list, texts):
        places = range(at, len(whole) - len(text) + 1)
        place = next((i for i in places if text and whole[i : i + len(text)] == text), None)
        if place is None:
            return [whole]
        pieces.append(whole[at:place])
        at = place + len(text)
    return [*pieces, whole[at:]]
