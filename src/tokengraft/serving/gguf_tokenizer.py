"""A tokenizer.json as llama.cpp reads it from a GGUF: tokens, types, and merges or scores.

Byte-level BPE is llama.cpp's `gpt2`: merges in order, and the name of a split pattern in its code
(`tokenizer.ggml.pre`). BPE with byte fallback is its `llama` (SentencePiece): no merges, but a
score for each token (`tokenizer.sentence_piece`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tokengraft.core.errors import TokenizerError
from tokengraft.grafting.small_files import barred_ids
from tokengraft.model.checkpoint import read_if_there
from tokengraft.model.folder import CONFIG
from tokengraft.model.tokenizer_files import TOKENIZER_CONFIG, around
from tokengraft.tokenizer.insert import added_ids, family, merge_pairs, vocabulary
from tokengraft.tokenizer.pipeline import load
from tokengraft.tokenizer.sentence_piece import named_pieces, scored_pieces
from tokengraft.tokenizer.vocabulary import SPACE_MARK

#: GGUF's keys and values; the writer turns Python's types into those that llama.cpp expects.
Fields: TypeAlias = dict[str, Any]

_SPECIALS = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


@dataclass(frozen=True)
class GgufVocabulary:
    """A vocabulary by id; `merges` if `model` is `gpt2`, `scores` if it is `llama`."""

    model: str
    tokens: list[str]
    types: list[int]
    merges: Sequence[str] = ()
    scores: Sequence[float] = ()


def gguf_vocabulary(tokenizer: dict[str, Any], rows: int) -> GgufVocabulary:
    """The vocabulary for `rows` rows, spare ones under made-up names; TokenizerError unless BPE."""
    kind = family(tokenizer)
    if kind not in ("byte-level-bpe", "byte-fallback-bpe"):
        raise TokenizerError(f"a GGUF is written for BPE tokenizers; this one is {kind}")
    if kind == "byte-level-bpe":
        merges = [f"{left} {right}" for left, right in merge_pairs(tokenizer)]
        return GgufVocabulary("gpt2", *named_pieces(tokenizer, rows), merges=merges)
    tokens, kinds, scores = scored_pieces(tokenizer, rows)
    return GgufVocabulary("llama", tokens, kinds, scores=scores)


def tokenizer_fields(folder: Path, tokenizer: dict[str, Any], rows: int, pre: str | None) -> Fields:
    """Every `tokenizer.*` key of a model folder with this tokenizer and `rows` rows."""
    spelled = gguf_vocabulary(tokenizer, rows)
    fields: Fields = {
        "tokenizer.ggml.model": spelled.model,
        "tokenizer.ggml.tokens": spelled.tokens,
        "tokenizer.ggml.token_type": spelled.types,
    }
    if spelled.model == "gpt2":
        fields["tokenizer.ggml.pre"] = pre or "default"
        fields["tokenizer.ggml.merges"] = spelled.merges
    else:
        fields["tokenizer.ggml.pre"] = "default"
        fields["tokenizer.ggml.scores"] = spelled.scores
    said = read_if_there(folder / TOKENIZER_CONFIG)
    ids = special_ids(folder, tokenizer)
    fields |= {f"tokenizer.ggml.{name}_token_id": number for name, number in ids.items()}
    start, end, prefixed = frame(tokenizer)
    fields["tokenizer.ggml.add_bos_token"] = start is not None and start == ids.get("bos")
    fields["tokenizer.ggml.add_eos_token"] = end is not None and end == ids.get("eos")
    if spelled.model == "llama":
        fields["tokenizer.ggml.add_space_prefix"] = prefixed
    template = folder / "chat_template.jinja"
    text = template.read_text("utf-8") if template.is_file() else said.get("chat_template")
    if isinstance(text, str):
        fields["tokenizer.chat_template"] = text
    return fields | suppressed(folder)


def suppressed(folder: Path) -> Fields:
    """The key that tells llama.cpp which ids are barred; empty if none is."""
    ids = sorted(barred_ids(folder))
    return {"tokenizer.ggml.suppress_tokens": ids} if ids else {}


def special_ids(folder: Path, tokenizer: dict[str, Any]) -> dict[str, int]:
    """Ids of the start, end, unknown and padding tokens that the folder names."""
    said, config = (read_if_there(folder / name) for name in (TOKENIZER_CONFIG, CONFIG))
    known = vocabulary(tokenizer) | added_ids(tokenizer)
    ids: dict[str, int] = {}
    for name, key in _SPECIALS.items():
        token = said.get(key)
        content = token.get("content") if isinstance(token, Mapping) else token
        number = known.get(content) if isinstance(content, str) else config.get(f"{key}_id")
        if isinstance(number, int):
            ids[name] = number
    return ids


def frame(tokenizer: dict[str, Any]) -> tuple[int | None, int | None, bool]:
    """Ids put before and after every text, and whether a space is put before it."""
    pipeline = load(tokenizer)
    bare = pipeline.encode("a", add_special_tokens=False)
    before, behind = [*around(pipeline.encode("a").ids, bare.ids), []][:2]
    prefixed = bare.tokens[0].startswith(SPACE_MARK)
    return (before[0] if before else None), (behind[-1] if behind else None), prefixed
