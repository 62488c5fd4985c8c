r"""Byte-level tokenizers for a page that tokenizes by itself (`static/bpe.js`), one file each.

A file is gzipped JSON: the pieces by id, the merges as pairs of ids in their order, and the split
pattern in JavaScript's words. Patterns of `tokenizers` and of a browser differ in three things that
matter here: `\s` (a browser counts U+FEFF in and U+0085 out), `\z`, and `(?i:…)`, which older
browsers do not know. A tokenizer that needs anything else is not offered.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer import Located
from tokengraft.tokenizer.catalog import as_json
from tokengraft.tokenizer.vocabulary import byte_level_piece

#: What `ByteLevel` with `use_regex` cuts by: GPT-2's pattern.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_FOLDED = {"s": "sS\u017f", "k": "kK\u212a"}  # letters with a third form in Unicode


def packed(located: Located) -> bytes:
    """The tokenizer's file; TokenizerError where a browser could not give the same ids."""
    parsed = as_json(located)
    model = parsed["model"]
    pattern, keep = _cut(parsed["pre_tokenizer"], located.name)
    normalizer = (parsed.get("normalizer") or {}).get("type")
    if model.get("type", "BPE") != "BPE" or normalizer not in (None, "NFKC"):
        raise TokenizerError(f"{located.name}: a browser cannot tokenize as this one does")
    # What tiktoken reads knows no special tokens in text; a `tokenizer.json` finds its own.
    added = _added(parsed, located.name) if located.kind == "tokenizer.json" else {}
    vocabulary: dict[str, int] = model["vocab"]
    pieces = [""] * (max(vocabulary.values()) + 1)
    for token, number in vocabulary.items():
        if token not in added:
            pieces[number] = byte_level_piece(token).decode("latin-1")
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    spec = {
        "label": located.label,
        "pattern": pattern,
        "keep": keep,
        "normalized": normalizer,
        "whole": bool(model.get("ignore_merges")),
        "pieces": pieces,
        "merges": [vocabulary[part] for pair in pairs for part in pair],
        "added": added,
    }
    return gzip.compress(json.dumps(spec, ensure_ascii=False).encode("utf-8"), 6, mtime=0)


def in_javascript(pattern: str) -> str:
    """The pattern for a `RegExp` with the flag u; TokenizerError for what it cannot say."""
    for group in re.findall(r"\(\?i:([^()]*)\)", pattern):
        pattern = pattern.replace(f"(?i:{group})", f"(?:{_any_case(group)})")
    pattern = pattern.replace(r"\s", r"\p{White_Space}").replace(r"\S", r"\P{White_Space}")
    pattern = pattern.replace(r"\z", "(?![^])")
    if re.search(r"\(\?[^:!=]|[+*?]\+|\{\d+(,\d*)?\}\+|&&|\\[AGhHRX]", pattern):
        raise TokenizerError(f"a browser cannot cut by {pattern}")
    return pattern


def _any_case(group: str) -> str:
    words, inside = "", False
    for character in group:
        inside = (inside or character == "[") and character != "]"
        forms = _FOLDED.get(character, character + character.upper())
        if not character.isalpha():
            words += character
        else:
            words += forms if inside else f"[{forms}]"
    return words


def _cut(step: dict[str, Any] | None, name: str) -> tuple[str, bool]:
    """The split pattern, and whether what it does not match is kept."""
    steps = (step or {}).get("pretokenizers") or [step or {}]
    *splits, last = steps
    if last.get("type") == "ByteLevel" and not last.get("add_prefix_space"):
        if not splits and last.get("use_regex", True):
            return in_javascript(_GPT2), True
        if len(splits) == 1 and splits[0]["type"] == "Split" and not last.get("use_regex", True):
            behaviour = (splits[0]["behavior"], splits[0]["invert"])
            pattern = splits[0]["pattern"].get("Regex")
            if pattern and behaviour in (("Isolated", False), ("Removed", True)):
                return in_javascript(pattern), behaviour[0] == "Isolated"
    raise TokenizerError(f"{name}: a browser cannot cut text as this one does")


def _added(parsed: dict[str, Any], name: str) -> dict[str, int]:
    for token in parsed["added_tokens"]:
        if token["lstrip"] or token["rstrip"] or token["single_word"] or token["normalized"]:
            raise TokenizerError(f"{name}: its added tokens are not matched as they stand")
    return {token["content"]: token["id"] for token in parsed["added_tokens"]}
