"""The tokenizer's files in a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokengraft.core.errors import ModelError, TokenizerError
from tokengraft.model.checkpoint import read_if_there, read_json
from tokengraft.tokenizer.classes import completed
from tokengraft.tokenizer.insert_sentencepiece import from_sentencepiece

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
#: The old vocabulary in other formats: a program that read one would see another tokenizer.
STALE = frozenset(
    {"vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "tekken.json", "vocab.txt"}
)


def base_tokenizer(folder: Path) -> dict[str, Any]:
    """The base's tokenizer as a parsed `tokenizer.json`, converted where it is SentencePiece."""
    if (folder / TOKENIZER).is_file():
        return read_json(folder / TOKENIZER)
    if (folder / "tokenizer.model").is_file():
        try:
            parsed = from_sentencepiece((folder / "tokenizer.model").read_bytes())
        except RuntimeError as error:
            raise TokenizerError(f"tokenizer.model cannot be read: {error}") from None
        return completed(parsed, read_if_there(folder / CONFIG))
    raise ModelError(
        f"{folder.name} holds no {TOKENIZER}: save the fast tokenizer with "
        "`AutoTokenizer.from_pretrained(MODEL).save_pretrained(DIR)`"
    )
