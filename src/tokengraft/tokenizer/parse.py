"""A tokenizer's files as a parsed `tokenizer.json`."""

from __future__ import annotations

import json
from typing import Any

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer import insert_convert as convert
from tokengraft.tokenizer.classes import completed
from tokengraft.tokenizer.insert_sentencepiece import from_sentencepiece
from tokengraft.tokenizer.sources import Source


def parse(source: Source, kind: str) -> dict[str, Any]:
    """The file `kind` of `source`, with those beside it that it needs, as `tokenizer.json`."""
    data = source.read(kind)
    try:
        if kind == "vocab.json":
            if "merges.txt" not in source.files:
                raise TokenizerError("vocab.json has no merges.txt beside it")
            merges = source.read("merges.txt").decode("utf-8").split("\n")
            return convert.from_merges(json.loads(data), merges)
        config = "tokenizer_config.json"
        said = json.loads(source.read(config)) if config in source.files else {}
        if kind.endswith(".model"):
            return completed(from_sentencepiece(data), said)
        if kind.endswith(".txt"):
            lower = bool(said.get("do_lower_case", True))
            return completed(convert.from_vocab_txt(data, lower), said)
        parsed: dict[str, Any] = json.loads(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TokenizerError(f"{source.where}/{kind}: cannot be read ({error})") from error
    return parsed
