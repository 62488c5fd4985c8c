"""The first old part of each new token, found again in the tokenizers alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tokengraft.planning.words import Encoder, load
from tokengraft.tokenizer.boundaries import splitter_of
from tokengraft.tokenizer.insert import added_ids, family, merge_pairs, vocabulary
from tokengraft.tokenizer.vocabulary import CONTINUATION_MARK


def wrong_first_part(
    base: dict[str, Any], new: dict[str, Any], ids: range, rows: int, given: Sequence[int]
) -> str | None:
    """What is wrong with the first parts that a manifest gives for the new `ids`, or None.

    A first part must have one of the base's `rows` and be the one that a plan gives: the leftmost
    leaf of the token's merges; its first byte, where the old tokenizer spells it in bytes; for
    other tokens the first id that the old tokenizer gives them.
    """
    if outside := [part for part in given if not 0 <= part < rows]:
        return f"a first part is {outside[0]}, the base has {rows} rows"
    for number, part, known in zip(ids, given, _first_parts(base, new, ids), strict=True):
        if part not in known:
            return f"the first part of token {number} is {min(known, default=None)}, not {part}"
    return None


def _first_parts(base: dict[str, Any], new: dict[str, Any], ids: range) -> list[set[int]]:
    """Possible first parts of each id; several only where several merges make one token."""
    known = vocabulary(new)
    names = {number: name for name, number in known.items() if number in ids}
    literals = {number: text for text, number in added_ids(new).items() if number in ids}
    if literals:
        encoder, splitter = Encoder(load(base)), splitter_of(base)
        words = [encoder.ids(splitter.pre_tokenize(literals[i])) for i in ids]
        return [set([part for word in one for part in word][:1]) for one in words]
    if family(base) in ("unigram", "wordpiece"):
        pieces = [names[i].removeprefix(CONTINUATION_MARK) for i in ids]
        return [set(list(one)[:1]) for one in Encoder(load(base)).ids(pieces)]
    lefts: dict[int, set[int]] = defaultdict(set)
    for left, right in merge_pairs(new):
        made = known.get(left + right, -1)
        if made in ids:
            lefts[made].add(known[left])
    firsts: dict[int, set[int]] = {}
    for number in ids:  # a left half was there before what is made of it
        if number in lefts:
            halves = [firsts.get(left, {left}) for left in lefts[number] if left < number]
            firsts[number] = set().union(*halves)
        else:
            byte = known.get(f"<0x{names[number].encode()[0]:02X}>")
            firsts[number] = set() if byte is None else {byte}
    return [firsts[number] for number in ids]
