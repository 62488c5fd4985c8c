"""Put new tokens into a parsed `tokenizer.json`: they are appended, so nothing old moves.

Byte-level BPE: merges at the end of the list act only on the finished old tokenization. No old
merge uses a symbol that did not exist, so no text gets longer, and text without a new pair keeps
its ids. BPE with byte fallback: a character put into the vocabulary replaces its bytes, and
further merges are appended as above. Unigram and WordPiece: characters that are UNK today become
pieces. There the promise is only that no more characters become UNK: text may get longer, since
one UNK may have stood for a whole clause.

Every old id, the special tokens, the normaliser, the post-processor and the decoder stay as they
are; the split pattern too, unless a relaxed one is given (`pre_tokenizer`).

Unigram ids are positions in a list, so added tokens whose ids lie beyond its end must be entered
in it before anything new can follow. But every entry is a piece, and text that normalises to it
(`<mask>` in full-width brackets) would then become the token. Two things prevent that:

- A cut inside the entry. If no old piece holds two neighbouring characters of it together, and one
  of the two is a piece itself, then in no text does a piece or a joined UNK reach across that
  point. Cutting there changes no id, and the entry can never match as a whole. Example: `<mask>`
  where no piece begins with `<m`.
- Otherwise, a score below that of every path of old pieces: n characters take at most n pieces,
  and none scores less than the lowest. This also makes UNK costlier (lowest - 10), which changes
  no text without UNK.

A score alone would not do: an UNK costs more than any piece, so an entry with a character that the
vocabulary lacks would win at any score.

The vocabulary need not grow: new tokens may take the ids of old ones that are given up.
`insert` appends n tokens at the ids V … V+n-1; `fold` then moves each to its place:

    V + i  →  places[i]        an id without a token (a padding row of the table, or V + i itself),
                               a reserved token, or a leaf

A *leaf* is a token that some merge makes and no merge uses. Once made it stays to the end, so a
text whose tokens do not include the leaf never made it. Without the leaf and its merges such text
is encoded exactly as before. Text that did include it falls into the leaf's parts and gets longer;
the planner chooses which text that may be (`planning.same_size`). Leaf pruning of vocabularies is
known from Purason et al. 2025 (arXiv 2512.03989); changed: leaves go only to make room, one for
each new token.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from tokengraft.core.errors import TokenizerError
from tokengraft.core.files import sha256
from tokengraft.tokenizer.file_shape import TokenizerKey, as_pair
from tokengraft.tokenizer.pre_tokenizer import steps_of, with_pattern

Family: TypeAlias = Literal["byte-level-bpe", "byte-fallback-bpe", "unigram", "wordpiece"]


@dataclass(frozen=True)
class Additions:
    """What is put into a tokenizer, in the tokenizer's own alphabet (`Ġ`, `▁`, `##`).

    `tokens` are (id, string) with consecutive ids from `first_free_id`; `merges` may hold more
    pairs than there are tokens, since two pairs can make the same string. `literal` tokens become
    added tokens, which are cut out of the text before anything else (the paper's way); `scores`
    are for Unigram pieces; `pattern` replaces the split pattern.
    """

    tokens: tuple[tuple[int, str], ...] = ()
    merges: tuple[tuple[str, str], ...] = ()
    scores: tuple[float, ...] = ()
    literal: bool = False
    pattern: str | None = None


def fingerprint(tokenizer: dict[str, Any]) -> str:
    """sha256 of a parsed `tokenizer.json`, whatever its key order and spacing on disk."""
    return _fingerprint(TokenizerKey(tokenizer))


@functools.lru_cache(maxsize=1)
def _fingerprint(key: TokenizerKey) -> str:
    text = json.dumps(key.tokenizer, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass"))


def family(tokenizer: dict[str, Any]) -> Family:
    """Which of the four supported kinds a parsed `tokenizer.json` is; TokenizerError for others."""
    model = tokenizer.get("model")
    if not isinstance(model, dict) or "vocab" not in model:
        raise TokenizerError("this is not a tokenizer.json: it has no model with a vocabulary")
    kind = model_type(model)
    if kind == "Unigram":
        return "unigram"
    if kind == "WordPiece":
        return "wordpiece"
    if kind == "BPE":
        if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
            raise TokenizerError(
                "BPE with a subword prefix or word suffix (CLIP) cannot be extended"
            )
        if model.get("dropout"):
            raise TokenizerError("BPE with dropout encodes at random: no promise can be kept on it")
        if any(step["type"] == "ByteLevel" for step in steps_of(tokenizer.get("pre_tokenizer"))):
            return "byte-level-bpe"
        if model.get("byte_fallback"):
            return "byte-fallback-bpe"
        raise TokenizerError(
            "BPE without bytes (neither byte-level nor byte fallback) cannot be extended"
        )
    raise TokenizerError(
        f"tokens cannot be added to a {kind} model, only to BPE, Unigram and WordPiece"
    )


def model_type(model: dict[str, Any]) -> str | None:
    """The model's type, inferred where the file has none (older than tokenizers 0.8)."""
    if said := model.get("type"):
        return str(said)
    if "merges" in model:
        return "BPE"
    if "unk_id" in model:
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else None


def vocabulary(tokenizer: dict[str, Any]) -> dict[str, int]:
    """The model's own vocabulary, token string to id; added tokens only if the model has them."""
    vocab = tokenizer["model"]["vocab"]
    if isinstance(vocab, list):
        return {piece: index for index, (piece, _) in enumerate(vocab)}
    return dict(vocab)


def added_ids(tokenizer: dict[str, Any]) -> dict[str, int]:
    """The added tokens, content to id: special or not, in the model's vocabulary or not."""
    return {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}


def first_free_id(tokenizer: dict[str, Any]) -> int:
    """One more than the highest id in use, added tokens included."""
    vocab = tokenizer["model"]["vocab"]
    highest = len(vocab) - 1 if isinstance(vocab, list) else max(vocab.values(), default=-1)
    return int(max(highest, *added_ids(tokenizer).values(), -1)) + 1


def merge_pairs(tokenizer: dict[str, Any]) -> list[tuple[str, str]]:
    """The merges in rank order as pairs, whether the file has them as strings or as pairs."""
    return [as_pair(merge) for merge in tokenizer["model"]["merges"]]


def insert(tokenizer: dict[str, Any], additions: Additions) -> dict[str, Any]:
    """A new `tokenizer.json` with the additions; the given one is left untouched.

    Guarantees: every old token, added ones included, keeps its id; the new ids follow the highest
    old one; merges are written as strings where possible (`written`). Raises TokenizerError if an
    id or a string is taken, a merge lacks a part, or the family does not support the addition.
    """
    kind = family(tokenizer)
    _check_ids(tokenizer, additions)
    result = dict(tokenizer)
    if additions.pattern is not None:
        result = with_pattern(tokenizer, additions.pattern)
    if additions.literal:
        entries = [_added_token(number, content) for number, content in additions.tokens]
        result["added_tokens"] = [*(tokenizer.get("added_tokens") or ()), *entries]
        return result
    result = settle(result)
    model = result["model"] = dict(result["model"])
    if kind == "unigram":
        if len(additions.scores) != len(additions.tokens):
            raise TokenizerError("each new Unigram piece needs a score")
        scored = zip(additions.tokens, additions.scores, strict=True)
        model["vocab"] = [*model["vocab"], *([token, score] for (_, token), score in scored)]
        return result
    new = {token: number for number, token in additions.tokens}
    model["vocab"] = {**model["vocab"], **new}
    if kind != "wordpiece":
        old = merge_pairs(tokenizer)
        _check_merges(model["vocab"], additions.merges, old)
        model["merges"] = written([*old, *additions.merges])
    elif additions.merges:
        raise TokenizerError("WordPiece has no merges: plan characters for it")
    return result


def settle(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer with every added token in the model's vocabulary, under its present id.

    `tokenizers` ignores the ids in the file's list of added tokens: one that the model does not
    know gets the next id after the vocabulary's size, so a longer vocabulary would move them all.
    Text keeps its ids (`placeholders`) with one exception: a model that looks up whole characters
    or words in its vocabulary now finds an added token where the pipeline did not cut it out (say,
    inside a word, if the token must stand alone).
    """
    vocab, known = tokenizer["model"]["vocab"], vocabulary(tokenizer)
    hidden = {c: i for c, i in added_ids(tokenizer).items() if c not in known}
    if not hidden:
        return tokenizer
    if not isinstance(vocab, list):
        return {**tokenizer, "model": {**tokenizer["model"], "vocab": {**vocab, **hidden}}}
    at = {number: content for content, number in hidden.items()}
    after = range(len(vocab), first_free_id(tokenizer))
    if free := [number for number in after if number not in at]:
        raise TokenizerError(f"id {free[0]} is free between old tokens: a Unigram list has no gaps")
    contents = [at[number] for number in after]
    scores, pattern = placeholders(vocab, contents)
    entries = [[content, score] for content, score in zip(contents, scores, strict=True)]
    result = {**tokenizer, "model": {**tokenizer["model"], "vocab": [*vocab, *entries]}}
    if pattern is not None:
        cut = {"pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        steps = [*steps_of(tokenizer.get("pre_tokenizer")), {"type": "Split", **cut}]
        result["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    return result


def _check_ids(tokenizer: dict[str, Any], additions: Additions) -> None:
    start = first_free_id(tokenizer)
    expected = range(start, start + len(additions.tokens))
    got = [number for number, _ in additions.tokens]
    if got != list(expected):
        raise TokenizerError(f"new ids must follow each other from {start}; got {got[:3]} …")
    known = vocabulary(tokenizer) | added_ids(tokenizer)
    taken = [token for _, token in additions.tokens if token in known]
    if taken:
        raise TokenizerError(f"{taken[0]!r} is already in the vocabulary with id {known[taken[0]]}")


def _check_merges(
    vocab: dict[str, int], merges: Sequence[tuple[str, str]], old: Iterable[tuple[str, str]]
) -> None:
    if again := repeated(old, merges):
        raise TokenizerError(f"the merge {again[0]!r} + {again[1]!r} is there already")
    for left, right in merges:
        for token in (left, right, left + right):
            if token not in vocab:
                raise TokenizerError(f"the merge {left!r} + {right!r} needs {token!r}: not a token")


def repeated(
    old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]]
) -> tuple[str, str] | None:
    """A new merge that is an old one too, or None.

    `tokenizers` takes the last place of a pair that is there twice, so that an old merge would come
    after all others, and text would change or get longer.
    """
    wanted = set(new)
    return next((pair for pair in old if pair in wanted), None)


def written(pairs: Sequence[tuple[str, str]]) -> list[Any]:
    """Merges as written to a file: strings, or pairs if a string could not be read back.

    Strings take half the space and load faster (Llama 3: .81 of the time of pairs), and programs
    from before 2025 read nothing else.
    """
    if any(" " in left or " " in right or left.startswith("#version") for left, right in pairs):
        return list(map(list, pairs))
    return [f"{left} {right}" for left, right in pairs]


def _added_token(number: int, content: str) -> dict[str, Any]:
    """The entry that `add_tokens` of transformers makes for a plain string."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return {"id": number, "content": content, **flags, "normalized": True, "special": False}


def placeholders(
    vocab: Sequence[Sequence[Any]], contents: Sequence[str]
) -> tuple[list[float], str | None]:
    """A score for each content, and a pattern that matches where to cut (None for nowhere).

    With both in place, text is encoded as before, whatever it normalises to. The exception is a
    content that old pieces cannot spell and that cannot be cut (one character, two UNKs in a row).
    """
    scores = {piece: float(score) for piece, score in vocab}
    lowest = min(scores.values(), default=0.0)
    inside = {a + b for piece in scores for a, b in pairwise(piece)}
    own_scores, cuts = [], []
    for content in contents:
        place = _place(content, scores.keys(), inside)
        own_scores.append(lowest)
        if place:
            cuts.append(f"(?<={_literal(content[:place])})(?={_literal(content[place:])})")
        elif _spelled(content, scores.keys()):
            own_scores[-1] = len(content) * min(lowest, 0.0) - 1
    return own_scores, "|".join(cuts) or None


def _place(content: str, pieces: Collection[str], inside: set[str]) -> int:
    """After how many characters to cut the content, 0 for nowhere."""
    for place, (a, b) in enumerate(pairwise(content), start=1):
        if a + b not in inside and (a in pieces or b in pieces):
            return place
    return 0


def _spelled(content: str, pieces: Collection[str]) -> bool:
    """Whether old pieces spell the content without UNK."""
    reached = {0}
    for end in range(1, len(content) + 1):
        if any(content[start:end] in pieces for start in reached):
            reached.add(end)
    return len(content) in reached


def _literal(text: str) -> str:
    return re.sub(r"[^\w]", lambda match: rf"\x{{{ord(match[0]):x}}}", text)


_RESERVED = re.compile(r"(<\|?|\[)(reserved(_special)?_token|unused|control)_?\d+(\|?>|\])")


def retirable(tokenizer: dict[str, Any]) -> dict[int, str]:
    """Tokens that may be given up, by id: reserved ones, then leaves, the last learned first."""
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
    """What `insert` made, with its new tokens moved to `places`; TokenizerError for a bad place."""
    first = first_free_id(tokenizer) - len(places)
    moved = {first + order: place for order, place in enumerate(places)}
    going = {place for number, place in moved.items() if place != number}
    may_go = retirable(tokenizer)
    wrong = [place for place in going if place >= first or place not in may_go]
    if wrong or len(set(places)) < len(places):
        which = f"a new token cannot take id {min(wrong)}" if wrong else "an id is given twice"
        raise TokenizerError(
            f"{which}: new tokens may take ids without a token, those of reserved tokens, and "
            "those of tokens that no merge builds on. Plan again."
        )
    gone = {may_go[place] for place in going}
    model = dict(tokenizer["model"])
    model["vocab"] = {t: moved.get(i, i) for t, i in model["vocab"].items() if t not in gone}
    model["merges"] = _without(tokenizer, gone)
    added = [token for token in tokenizer.get("added_tokens") or () if token["id"] not in going]
    return {**tokenizer, "model": model, "added_tokens": added}


def unfold(folded: dict[str, Any], base: dict[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """The inverse of `fold`: the grown tokenizer; TokenizerError if it does not give `folded`."""
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
        raise TokenizerError("the tokenizer is not the base's with new tokens in place of old ones")
    return result


def replaced(grown: dict[str, Any], places: Sequence[int]) -> dict[str, str]:
    """The old tokens, by id, that `fold` of `grown` replaces: ids that change their meaning."""
    names = {number: token for token, number in vocabulary(grown).items()}
    new = range(first_free_id(grown) - len(places), first_free_id(grown))
    return {str(place): names[place] for place in places if place not in new}


def without_entries(config: Mapping[str, Any], places: Iterable[int]) -> dict[str, Any]:
    """A `tokenizer_config.json` without the added tokens whose ids are in `places`."""
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
    """The merges as the file writes them, without those that make a token of `gone`."""
    written, pairs = tokenizer["model"]["merges"], merge_pairs(tokenizer)
    return [
        merge
        for merge, (left, right) in zip(written, pairs, strict=True)
        if left + right not in gone
    ]
