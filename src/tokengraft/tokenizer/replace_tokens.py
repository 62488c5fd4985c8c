"""A tokenizer that does not grow: new tokens at the ids of old ones that are given up.

`insert` appends n tokens at the ids V … V+n-1; `fold` then moves each to its place:

    V + i  →  places[i]        an id that no token has (a row that pads a table, V + i itself),
                               a reserved token, or a leaf

A *leaf* is a token that some merge makes and no merge uses. Once made it stays to the end, so a
text without that token among its tokens never made it: without its merges, and without itself where
whole words are looked up, such text is encoded exactly as before. Text that held one falls into
the leaf's parts and gets longer; which text that may be is for the planner to choose
(`planning.places`). Leaf pruning of vocabularies is known from Purason et al. 2025
(arXiv 2512.03989); changed: leaves go only to make room, one for each new token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer.insert import (
    added_ids,
    family,
    first_free_id,
    merge_pairs,
    settle,
    vocabulary,
    written,
)

_RESERVED = re.compile(r"(<\|?|\[)(reserved(_special)?_token|unused|control)_?\d+(\|?>|\])")


def retirable(tokenizer: dict[str, Any]) -> dict[int, str]:
    """Tokens that may go, by id: reserved ones first, then leaves, the last learned first."""
    if family(tokenizer) not in ("byte-level-bpe", "byte-fallback-bpe"):
        raise TokenizerError("only BPE can take new tokens without growing: plan without same size")
    frame = json.dumps(tokenizer.get("post_processor"), ensure_ascii=False)
    added = added_ids(tokenizer)
    reserved = {i: c for c, i in added.items() if _RESERVED.fullmatch(c) and c not in frame}
    pairs = merge_pairs(tokenizer)
    used = {part for pair in pairs for part in pair} | added.keys()
    known = vocabulary(tokenizer)
    leaves = dict.fromkeys(left + right for left, right in reversed(pairs))
    return reserved | {known[leaf]: leaf for leaf in leaves if leaf not in used}


def fold(tokenizer: dict[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """What `insert` made, with its `len(places)` new tokens, the last ids, at their places.

    TokenizerError where a place is given twice or holds a token that may not go.
    """
    first = first_free_id(tokenizer) - len(places)
    moved = {first + order: place for order, place in enumerate(places)}
    going = {place for number, place in moved.items() if place != number}
    may_go = retirable(tokenizer)
    wrong = [place for place in going if place >= first or place not in may_go]
    if wrong or len(set(places)) < len(places):
        which = f"{min(wrong)} is no place" if wrong else "a place is given twice"
        raise TokenizerError(
            f"{which} for a new token: free are ids without a token, reserved tokens and tokens "
            "that no merge builds on. Plan again."
        )
    gone = {may_go[place] for place in going}
    model = dict(tokenizer["model"])
    model["vocab"] = {t: moved.get(i, i) for t, i in model["vocab"].items() if t not in gone}
    model["merges"] = _without(tokenizer, gone)
    added = [token for token in tokenizer.get("added_tokens") or () if token["id"] not in going]
    return {**tokenizer, "model": model, "added_tokens": added}


def unfold(folded: dict[str, Any], base: dict[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """What `fold` was given. TokenizerError where `folded` is not what it makes of that."""
    settled, first = settle(base), first_free_id(base)
    moved = {place: first + order for order, place in enumerate(places)}
    new = {t: moved[i] for t, i in vocabulary(folded).items() if i in moved}
    gone = {token for token, number in vocabulary(settled).items() if number in moved}
    model = dict(folded["model"])
    model["vocab"] = {**settled["model"]["vocab"], **new}
    kept = len(_without(base, gone))
    pairs = [*merge_pairs(base), *merge_pairs(folded)[kept:]]
    as_pairs = not isinstance(next(iter(model["merges"]), ""), str)
    model["merges"] = list(map(list, pairs)) if as_pairs else written(pairs)
    result = {**folded, "model": model, "added_tokens": base.get("added_tokens") or []}
    if len(new) != len(places) or fold(result, places) != folded:
        raise TokenizerError("the tokenizer is not the base's with some tokens replaced by new")
    return result


def replaced(grown: dict[str, Any], places: Sequence[int]) -> dict[str, str]:
    """The old tokens at the places, by id, of what `insert` made: ids that change their meaning."""
    names = {number: token for token, number in vocabulary(grown).items()}
    new = range(first_free_id(grown) - len(places), first_free_id(grown))
    return {str(place): names[place] for place in places if place not in new}


def without_entries(config: Mapping[str, Any], places: Iterable[int]) -> dict[str, Any]:
    """A `tokenizer_config.json` that no longer lists added tokens at the places."""
    decoder = config.get("added_tokens_decoder")
    if not isinstance(decoder, Mapping):
        return dict(config)
    going = set(map(str, places))
    gone = {entry.get("content") for number, entry in decoder.items() if number in going}
    kept = {number: entry for number, entry in decoder.items() if number not in going}
    rest = {**config, "added_tokens_decoder": kept}
    for name in ("additional_special_tokens", "extra_special_tokens"):
        if isinstance(config.get(name), list):
            rest[name] = [token for token in config[name] if token not in gone]
    return rest


def _without(tokenizer: dict[str, Any], gone: Iterable[str]) -> list[Any]:
    """The merges, as they are written, but for those that make what is gone."""
    written, pairs = tokenizer["model"]["merges"], merge_pairs(tokenizer)
    return [
        merge
        for merge, (left, right) in zip(written, pairs, strict=True)
        if left + right not in gone
    ]
