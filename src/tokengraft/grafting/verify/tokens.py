"""What the new tokenizer does to text, compared with the base's: invariants 2 to 4, first parts."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from tokengraft.corpus import udhr
from tokengraft.model.tokenizer_files import around
from tokengraft.planning.plan import lost_characters, unknown_of
from tokengraft.planning.symbols import borders, completions
from tokengraft.tokenizer.insert import added_ids, family, merge_pairs, vocabulary
from tokengraft.tokenizer.pipeline import Encoder, load
from tokengraft.tokenizer.pre_tokenizer import Splitter, splitter_of
from tokengraft.tokenizer.vocabulary import CONTINUATION_MARK, piece_reader

_BATCH = 1 << 14
_TRIES = 4096  # strings tried for one token before it counts as unproven


@dataclass(frozen=True)
class EncodedBoth:
    """Lines, and the ids that two tokenizers give them without special tokens."""

    lines: list[str]
    old: list[list[int]]
    new: list[list[int]]


class Pair:
    """The base's tokenizer and the grafted one, side by side."""

    def __init__(self, base: dict[str, Any], new: dict[str, Any]) -> None:
        self.base, self.new = base, new
        self._old_pipeline = load(base)
        self._new_pipeline = load(new)

    def encode(self, lines: Sequence[str]) -> EncodedBoth:
        """Both encodings of each line."""
        given = list(lines)
        return EncodedBoth(given, _ids(self._old_pipeline, given), _ids(self._new_pipeline, given))

    def decode(self, encoded: EncodedBoth) -> tuple[list[str], list[str]]:
        """What each tokenizer gives back."""
        old = self._old_pipeline.decode_batch(encoded.old, skip_special_tokens=False)
        return old, self._new_pipeline.decode_batch(encoded.new, skip_special_tokens=False)

    def ids(self) -> tuple[dict[str, int], dict[str, int]]:
        """Each tokenizer's ids by token, added ones included, as the library itself has them."""
        return self._old_pipeline.get_vocab(True), self._new_pipeline.get_vocab(True)

    def premiums(self, languages: Iterable[str]) -> dict[str, tuple[float, float]]:
        """Premium over English on the bundled UDHR by each tokenizer, for the languages in it."""
        corpus = udhr.load()
        premiums = {}
        for code in languages:
            both = zip(corpus.texts.get(code, ()), corpus.texts["eng_Latn"], strict=False)
            units = [pair for pair in both if all(pair)]
            if not units:
                continue
            theirs, english = (
                self.encode([str(text) for text in one]) for one in zip(*units, strict=True)
            )
            premiums[code] = (_ratio(theirs.old, english.old), _ratio(theirs.new, english.new))
        return premiums

    def emitted(self, lines: Iterable[str]) -> set[int]:
        """Ids that the grafted tokenizer emits on the lines."""
        return {i for ids in _ids(self._new_pipeline, list(lines)) for i in ids}

    @property
    def literal(self) -> bool:
        """Whether new tokens are added tokens, cut out of the text first."""
        count = len(self.new.get("added_tokens") or ())
        return count > len(self.base.get("added_tokens") or ())

    def recut(self, line: str) -> bool:
        """Whether the grafted tokenizer splits the line into other words than the base's."""
        if self.base.get("pre_tokenizer") == self.new.get("pre_tokenizer"):
            return False
        before, after = (splitter.pre_tokenize(line) for splitter in self._splitters)
        return before != after

    @functools.cached_property
    def _splitters(self) -> tuple[Splitter, Splitter]:
        return splitter_of(self.base), splitter_of(self.new)


def frames(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The special tokens that a `tokenizer.json` by itself puts around one text and around two."""
    pipeline = load(tokenizer)
    a, b = _ids(pipeline, ["a", "b"])
    return {
        "around a text": around(pipeline.encode("a").ids, a),
        "around two texts": around(pipeline.encode("a", "b").ids, a, b),
    }


def round_trip(pair: Pair, encoded: EncodedBoth) -> tuple[bool, str]:
    """Invariant 2: lines decode as with the base (UNKs may be fewer), and none is longer."""
    old, new = pair.decode(encoded)
    unknown = unknown_of(pair.base)
    name = next((n for n, number in vocabulary(pair.base).items() if number == unknown), "")
    pipelines = load(pair.base), load(pair.new)
    for line, before, after in zip(encoded.lines, old, new, strict=True):
        if before == after:
            continue
        lost = [lost_characters(one, unknown, [line]) for one in pipelines]
        if not name or lost[1] >= lost[0] or not _only_found(before, after, name):
            return False, f"{_short(line)} comes back as {_short(after)}, was {_short(before)}"
    count = len(encoded.lines)
    longer = [i for i in range(count) if len(encoded.new[i]) > len(encoded.old[i])]
    totals = sum(map(len, encoded.old)), sum(map(len, encoded.new))
    summary = f"{count:,} lines, {totals[0]:,} tokens before, {totals[1]:,} after"
    if pair.literal or family(pair.base) in ("unigram", "wordpiece"):
        kind = "a plan of added tokens" if pair.literal else f"a {family(pair.base)} tokenizer"
        return True, f"{summary}; {kind} may make text longer: {len(longer)} lines are"
    if longer:
        first = longer[0]
        change = f"{len(encoded.old[first])} to {len(encoded.new[first])} tokens"
        line = _short(encoded.lines[first])
        return False, f"{len(longer)} of {count} lines are longer, first {line}: {change}"
    return True, f"{summary}, none longer"


def _only_found(before: str, after: str, unknown: str) -> bool:
    """Whether `after` is `before` with UNKs turned into text, ignoring spaces."""
    first, *rest = "".join(before.split()).split(unknown)
    text = "".join(after.split())
    if not rest or not text.startswith(first) or not text.endswith(rest[-1]):
        return False
    at = len(first)
    for kept in rest:
        if (at := text.find(kept, at)) < 0:
            return False
        at += len(kept)
    return True


def untouched(pair: Pair, encoded: EncodedBoth, new: range) -> tuple[bool, str]:
    """Invariant 3, on whole lines and on their words: where no new merge acts, the ids stay.

    A new merge may also lead to an old token by another way; the text then gets shorter.
    """
    words = sorted({word for line in encoded.lines for word in line.split(" ") if word})
    both = pair.encode([f" {word}" for word in words])
    kept = 0
    for group in (encoded, both):
        for line, before, after in zip(group.lines, group.old, group.new, strict=True):
            if before == after:
                kept += 1
                continue
            touched = any(i in new for i in after) or len(after) < len(before)
            if not touched and not pair.recut(line):
                return False, f"{_short(line)} had ids {before[:8]}, has {after[:8]}"
    return True, f"{kept:,} lines and words keep their ids"


def unproven(pair: Pair, new: range, lines: Sequence[str], seen: set[int]) -> list[int]:
    """New ids emitted neither on `lines` nor on text built around the token's own bytes.

    Such text is the token alone, after a space, and with each character of `lines` and of the new
    tokens on either side; a character that the token holds only in part is completed first.
    """
    left = [i for i in new if i not in seen]
    if not left:
        return []
    names = {number: name for name, number in vocabulary(pair.new).items()}
    literals = {t["id"]: t["content"] for t in pair.new.get("added_tokens") or ()}
    read = piece_reader(family(pair.new))
    pieces = {i: literals[i].encode() if i in literals else read(names[i]) for i in new}
    characters = _Characters([*lines, *(p.decode("utf-8", "ignore") for p in pieces.values())])
    emitted: set[int] = set()
    remaining = []
    for number in left:
        if number in emitted:
            continue
        tried: list[str] = []
        for text in characters.around(pieces[number]):
            tried.append(text)
            if len(tried) in (16, 256, _TRIES):
                emitted |= pair.emitted(tried)
                if number in emitted or len(tried) == _TRIES:
                    break
        if number not in emitted:
            emitted |= pair.emitted(tried)
            if number not in emitted:
                remaining.append(number)
    return [number for number in remaining if number not in emitted]


class _Characters:
    """Characters in use, the most frequent first; found by the bytes they begin and end with."""

    def __init__(self, texts: Iterable[str]) -> None:
        counts: dict[str, int] = defaultdict(int)
        for text in texts:
            for character in text:
                counts[character] += 1
        self.all = sorted(counts, key=lambda c: (-counts[c], c))
        self._by_start: dict[bytes, list[str]] = defaultdict(list)
        self._by_end: dict[bytes, list[str]] = defaultdict(list)
        for character in self.all:
            spelled = character.encode("utf-8", "ignore")
            for cut in range(1, len(spelled)):
                self._by_start[spelled[:cut]].append(character)
                self._by_end[spelled[cut:]].append(character)

    def around(self, piece: bytes) -> Iterator[str]:
        """Texts that hold `piece`, the likeliest contexts first."""
        head = 0
        while head < len(piece) and piece[head] & 0xC0 == 0x80:
            head += 1
        tail = len(piece)
        if not borders(piece)[1]:
            tail = max(i for i in range(len(piece)) if piece[i] & 0xC0 != 0x80)
        if head > tail:
            starts, middle, ends = self._inside(piece), "", [""]
        else:
            starts = self._by_end[piece[:head]] if head else [""]
            ends = [""]
            if tail < len(piece):
                known = self._by_start[piece[tail:]]
                ends = [*known, *itertools.islice(completions(piece[tail:]), 256)]
            middle = piece[head:tail].decode("utf-8", "replace")
        cores = [start + middle + end for start in starts for end in ends]
        for before in ("", " ", "\n"):
            yield from (before + core for core in cores)
        for core in cores:
            for character in self.all[:256]:
                yield character + core
                yield core + character
                yield f" {core}{character}"

    def _inside(self, piece: bytes) -> list[str]:
        return [c for c in self.all if piece in c.encode("utf-8", "ignore")]


def _ids(pipeline: Tokenizer, lines: list[str]) -> list[list[int]]:
    """The library's own word: nothing of the planner's encoding is between."""
    return [
        one.ids
        for start in range(0, len(lines), _BATCH)
        for one in pipeline.encode_batch_fast(
            lines[start : start + _BATCH], add_special_tokens=False
        )
    ]


def _ratio(tokens: Sequence[Sequence[int]], pivot: Sequence[Sequence[int]]) -> float:
    return sum(len(a) / max(1, len(b)) for a, b in zip(tokens, pivot, strict=True)) / len(tokens)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def wrong_first_part(
    base: dict[str, Any], new: dict[str, Any], ids: range, rows: int, given: Sequence[int]
) -> str | None:
    """What is wrong with the first parts that a manifest gives for the new `ids`, or None.

    A first part must be one of the base's `rows` and the one that a plan gives: the leftmost leaf
    of the token's merges; its first byte, if the old tokenizer spells it in bytes; for other
    tokens, the first id that the old tokenizer gives them.
    """
    if outside := [part for part in given if not 0 <= part < rows]:
        return f"a first part is {outside[0]}, the base has {rows} rows"
    for number, part, known in zip(ids, given, _first_parts(base, new, ids), strict=True):
        if part not in known:
            return f"the first part of token {number} is {min(known, default=None)}, not {part}"
    return None


def _first_parts(base: dict[str, Any], new: dict[str, Any], ids: range) -> list[set[int]]:
    """Possible first parts of each id; several only if the token can be made in several ways."""
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
    if new["model"].get("ignore_merges"):
        # A word may have become a token at once, of what the base or new merges make of it.
        merging = {**new, "model": {**new["model"], "ignore_merges": False}}
        for encoder in (Encoder(load(base)), Encoder(load(merging))):
            spelled = encoder.ids([names[i] for i in ids])
            for number, word in zip(ids, spelled, strict=True):
                lefts[number].add(int(word[0]))
    firsts: dict[int, set[int]] = {}

    def first(number: int) -> set[int]:
        if number not in ids:
            return {number}
        if number not in firsts:
            byte = known.get(f"<0x{names[number].encode()[0]:02X}>")
            alone = set() if byte is None or number in lefts else {byte}
            firsts[number] = alone.union(*map(first, lefts[number] - {number}))
        return firsts[number]

    return [first(number) for number in ids]
