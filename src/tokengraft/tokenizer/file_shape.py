"""Checks that a tokenizer's files have the shape of a tokenizer.

Code after these checks may rely on names being strings, ids being numbers within bounds, and steps
being steps, whoever wrote the file.
"""

from __future__ import annotations

import json
from collections.abc import Sized
from typing import Any

from tokengraft.core.errors import TokenizerError
from tokengraft.core.untrusted import parse_json

#: Ids below this are allowed in a file of any size: tables of as many cost little.
_FREE_IDS = 1 << 20


def json_object(data: bytes, where: str, what: str = "a JSON object") -> dict[str, Any]:
    """The JSON object in a file's bytes; TokenizerError where there is none."""
    try:
        value = parse_json(data)
    except ValueError as error:
        raise TokenizerError(f"{where} cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{where} is not {what}")
    return value


def settings(data: bytes, where: str) -> dict[str, Any]:
    """The contents of a `tokenizer_config.json`; TokenizerError if it is not a JSON object."""
    return json_object(data, f"{where}: tokenizer_config.json")


def checked(parsed: Any, size: int, where: str) -> dict[str, Any]:
    """`parsed`, from a file of `size` bytes; TokenizerError unless it is a sound tokenizer.json."""
    model = parsed.get("model") if isinstance(parsed, dict) else None
    vocab = model.get("vocab") if isinstance(model, dict) else None
    added = parsed.get("added_tokens") or [] if isinstance(parsed, dict) else None
    listed = isinstance(vocab, list) and all(_is_scored(entry) for entry in vocab)
    numbered = isinstance(vocab, dict) and all(type(number) is int for number in vocab.values())
    if not (listed or numbered):
        raise TokenizerError(f"{where}: no tokenizer.json, since it has no model with a vocabulary")
    if not isinstance(added, list) or not all(_is_added(token) for token in added):
        raise TokenizerError(f"{where}: added_tokens of this tokenizer.json are damaged")
    if not all(_is_step(parsed.get(step)) for step in ("normalizer", "pre_tokenizer")):
        raise TokenizerError(f"{where}: the normalizer or pre_tokenizer is damaged")
    ids = vocab.values() if isinstance(vocab, dict) else range(len(vocab or ()))
    for number in (min(ids, default=0), max(ids, default=0), *(token["id"] for token in added)):
        check_highest_id(number, size, where)
    if len(set(ids)) != len(vocab or ()):
        raise TokenizerError(f"{where}: two tokens of this tokenizer.json have the same id")
    return dict(parsed)


def check_highest_id(highest: Any, size: int, where: str) -> None:
    """TokenizerError if a file of `size` bytes is too small to list ids up to `highest`."""
    most = max(size, _FREE_IDS)
    if type(highest) is not int or not 0 <= highest < most:
        raise TokenizerError(
            f"{where}: an id is {highest!r}, but a file of {size:,} bytes cannot name as many "
            f"tokens: ids here end below {most:,}. Fetch the tokenizer again."
        )


class TokenizerKey:
    """A parsed `tokenizer.json` as the key of a cache of things that take long to make from it.

    Two keys are equal if all settings are, and if vocabulary and merges are the same objects with
    the same number of entries; comparing the entries would take as long as what is cached saves.
    So a parsed file is never changed in place: `insert` and its kin return new vocabularies and
    merges. The key holds the objects, so their identities cannot pass to others.
    """

    def __init__(self, tokenizer: dict[str, Any]) -> None:
        self.tokenizer = tokenizer
        settings = dict(tokenizer.get("model") or {})
        self._large = settings.pop("vocab", None), settings.pop("merges", None)
        # A damaged file may have anything here; the library will say what is wrong with it.
        sizes = (len(one) if isinstance(one, Sized) else 0 for one in self._large)
        rest = json.dumps({**tokenizer, "model": settings})
        self._key = (*map(id, self._large), *sizes, rest)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenizerKey) and self._key == other._key


def _is_scored(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)


def _is_added(token: Any) -> bool:
    return (
        isinstance(token, dict)
        and isinstance(token.get("content"), str)
        and type(token.get("id")) is int
    )


def _is_step(step: Any) -> bool:
    if step is None:
        return True
    if not isinstance(step, dict) or not isinstance(step.get("type"), str):
        return False
    inner = [step[key] for key in ("pretokenizers", "normalizers") if key in step]
    return all(isinstance(one, list) and all(map(_is_step, one)) for one in inner)


def as_pair(merge: Any) -> tuple[str, str]:
    """A merge, which the file writes as a pair or as a string with a space between its halves."""
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right
