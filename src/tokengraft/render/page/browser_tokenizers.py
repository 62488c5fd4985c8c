r"""Tokenizers for the playground of a site, which runs in the browser (`static/bpe.js`).

A tokenizer's file is gzipped JSON: the pieces by id, the merges in order as pairs of ids, and the
split pattern as a JavaScript regular expression. Patterns of `tokenizers` and of a browser differ
in three things that matter here: `\s` (in a browser it includes U+FEFF and excludes U+0085), `\z`,
and `(?i:…)`, which older browsers lack. A tokenizer that needs anything else is not offered.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tokengraft.core.errors import TokenizerError
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.tokenizer import Located, find
from tokengraft.tokenizer.catalog import BUNDLED, as_json
from tokengraft.tokenizer.insert import merge_pairs
from tokengraft.tokenizer.vocabulary import byte_level_piece

Offered = tuple[str, bytes]  # label and content of a tokenizer's file
#: The pattern by which `ByteLevel` with `use_regex` splits: GPT-2's.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_FOLDED = {"s": "sS\u017f", "k": "kK\u212a"}  # letters with a third form in Unicode


def offered(
    names: Sequence[str] = BUNDLED,
    search: Sequence[Path] = (),
    progress: OnProgress | None = None,
) -> dict[str, Offered]:
    """By file, the label and content of those tokenizers of `names` that a browser can run."""
    files = {}
    for done, name in enumerate(names):
        if progress:
            progress(Progress("Tokenizers for the browser", done, len(names), "tokenizers"))
        try:
            located = find(name, search)
            files[f"tokenizers/{quote(name)}.bin"] = located.label, packed(located)
        except TokenizerError:
            continue
    return files


def packed(located: Located) -> bytes:
    """The tokenizer's file; TokenizerError if a browser could not give the same ids."""
    parsed = as_json(located)
    model = parsed["model"]
    pattern, keep = _cut(parsed["pre_tokenizer"], located.name)
    normalizer = (parsed.get("normalizer") or {}).get("type")
    if model.get("type", "BPE") != "BPE" or normalizer not in (None, "NFKC"):
        raise TokenizerError(f"{located.name}: a browser cannot tokenize as this one does")
    # Special tokens are recognised in text with a tokenizer.json, but not with tiktoken's files.
    added = _added(parsed, located.name) if located.kind == "tokenizer.json" else {}
    vocabulary: dict[str, int] = model["vocab"]
    pieces = [""] * (max(vocabulary.values()) + 1)
    for token, number in vocabulary.items():
        if token not in added:
            pieces[number] = byte_level_piece(token).decode("latin-1")
    spec = {
        "label": located.label,
        "pattern": pattern,
        "keep": keep,
        "normalized": normalizer,
        "whole": bool(model.get("ignore_merges")),
        "pieces": pieces,
        "merges": [vocabulary[part] for pair in merge_pairs(parsed) for part in pair],
        "added": added,
    }
    return gzip.compress(json.dumps(spec, ensure_ascii=False).encode("utf-8"), 6, mtime=0)


def in_javascript(pattern: str) -> str:
    """The pattern for a `RegExp` with the flag u; TokenizerError if it cannot express it."""
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
