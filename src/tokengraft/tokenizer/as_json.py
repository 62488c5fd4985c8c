"""Any tokenizer of the catalog as a parsed `tokenizer.json`, the form that can be extended."""

from __future__ import annotations

from typing import Any

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer import insert_convert as convert
from tokengraft.tokenizer.catalog import Found
from tokengraft.tokenizer.openai import TikToken
from tokengraft.tokenizer.parse import parse

#: Files beside `tokenizer.json` that a model folder needs to tokenize as before.
SIDE_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)


def as_json(found: Found) -> dict[str, Any]:
    """The tokenizer as `tokenizer.json`: read as it is, or converted so that it gives the same ids.

    Unigram: but for rare letters with several marks (`from_sentencepiece`). Raises TokenizerError
    where there is no conversion (SentencePiece BPE without byte fallback).
    """
    source, kind = found.source, found.kind
    if source is None or kind is None or kind.endswith(".tiktoken"):
        tokenizer = found.open()
        if not isinstance(tokenizer, TikToken):
            raise TokenizerError(f"{found.name}: no tokenizer.json and no way to make one")
        encoding = tokenizer.encoding
        return convert.from_tiktoken(
            encoding._mergeable_ranks, encoding._pat_str, tokenizer.specials
        )
    try:
        return parse(source, kind)
    except TokenizerError as error:
        raise TokenizerError(f"{found.name}: {error}") from error


def side_files(found: Found) -> dict[str, bytes]:
    """What stands beside the tokenizer and travels with it, by file name."""
    if found.source is None:
        return {}
    return {n: found.source.read(n) for n in SIDE_FILES if n in found.source.files}
