"""New tokens into a parsed `tokenizer.json`: appended, so that nothing old moves.

Byte-level BPE: merges at the end of the list act only on the finished old tokenization. No old
merge can apply to a symbol that did not exist, so no text gets longer and text without a new pair
keeps its ids. BPE with byte fallback: a character put into the vocabulary replaces its bytes, and
further merges are appended as above. Unigram and WordPiece: characters that are UNK today become
pieces; there the promise is "never more characters UNK", since one UNK may have stood for a whole
clause.

Every old id, the special tokens, the normaliser, the post-processor and the decoder stay as they
are; the split pattern too, unless a relaxed one is given (`boundaries`). A Unigram
with added tokens after its vocabulary gets one more cut that keeps text from becoming one of them
(`placeholders`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tokengraft.core.errors import TokenizerError
from tokengraft.core.files import sha256
from tokengraft.tokenizer.boundaries import steps_of, with_pattern
from tokengraft.tokenizer.placeholders import placeholders

Family: TypeAlias = Literal["byte-level-bpe", "byte-fallback-bpe", "unigram", "wordpiece"]


@dataclass(frozen=True)
class Additions:
    """What is put into a tokenizer, in its own alphabet (`Ġ`, `▁`, `##`).

    `tokens` are (id, string) with ids that follow each other from `first_free_id`; `merges` may
    hold more pairs than there are tokens, since two pairs can make the same string. `literal`
    tokens go to the added tokens, which are cut out of the text before anything else (the paper's
    way); `scores` belong to Unigram pieces; `pattern` takes the place of the split pattern.
    """

    tokens: tuple[tuple[int, str], ...] = ()
    merges: tuple[tuple[str, str], ...] = ()
    scores: tuple[float, ...] = ()
    literal: bool = False
    pattern: str | None = None


def fingerprint(tokenizer: dict[str, Any]) -> str:
    """sha256 of a parsed `tokenizer.json`, whatever its key order and spacing on disk."""
    text = json.dumps(tokenizer, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass"))


def family(tokenizer: dict[str, Any]) -> Family:
    """Which of the four supported kinds a parsed `tokenizer.json` is; TokenizerError for others."""
    model = tokenizer.get("model")
    if not isinstance(model, dict) or "vocab" not in model:
        raise TokenizerError("this is not a tokenizer.json: it has no model with a vocabulary")
    kind = model.get("type") or _guessed_type(model)
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
            "BPE without bytes (neither byte-level nor byte fallback) is not served"
        )
    raise TokenizerError(
        f"tokens cannot be added to a {kind} model; served are BPE, Unigram and WordPiece"
    )


def _guessed_type(model: dict[str, Any]) -> str | None:
    """Files older than tokenizers 0.8 leave the type out."""
    if "merges" in model:
        return "BPE"
    if "unk_id" in model:
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else None


def vocabulary(tokenizer: dict[str, Any]) -> dict[str, int]:
    """Token string to id of the model itself, without added tokens."""
    vocab = tokenizer["model"]["vocab"]
    if isinstance(vocab, list):
        return {piece: index for index, (piece, _) in enumerate(vocab)}
    return dict(vocab)


def added_ids(tokenizer: dict[str, Any]) -> dict[str, int]:
    """Content to id of the added tokens, special or not, whether the model knows them or not."""
    return {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or ()}


def first_free_id(tokenizer: dict[str, Any]) -> int:
    """One more than the highest id in use, added tokens included."""
    vocab = tokenizer["model"]["vocab"]
    highest = len(vocab) - 1 if isinstance(vocab, list) else max(vocab.values(), default=-1)
    return int(max(highest, *added_ids(tokenizer).values(), -1)) + 1


def merge_pairs(tokenizer: dict[str, Any]) -> list[tuple[str, str]]:
    """The merges in rank order as pairs, from either way of writing them."""
    return [_as_pair(merge) for merge in tokenizer["model"]["merges"]]


def _as_pair(merge: Any) -> tuple[str, str]:
    if isinstance(merge, str):
        left, _, right = merge.partition(" ")
        return left, right
    return merge[0], merge[1]


def insert(tokenizer: dict[str, Any], additions: Additions) -> dict[str, Any]:
    """A new `tokenizer.json` with the additions; the given one is left untouched.

    Guarantees: every old token, added ones included, keeps its id; the new ids follow the highest
    old one; merges are strings where they can be (`written`). Raises TokenizerError where an id or
    a string is taken, a merge lacks a part, or the family cannot hold what is asked.
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
        _check_merges(model["vocab"], additions.merges)
        model["merges"] = written([*merge_pairs(tokenizer), *additions.merges])
    elif additions.merges:
        raise TokenizerError("WordPiece has no merges: plan characters for it")
    return result


def settle(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer with every added token in the model's vocabulary, under its own id.

    `tokenizers` ignores the ids in the file's list of added tokens: one that the model does not
    know gets the next id after the vocabulary's size, so a longer vocabulary would move them all.
    Text keeps its ids (`placeholders`), but for what only a lookup of whole strings sees: a model
    that takes characters or words from its vocabulary now finds an added one where the pipeline
    did not cut it out (inside a word, for a token that must stand alone).
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


def _check_merges(vocab: dict[str, int], merges: Iterable[tuple[str, str]]) -> None:
    for left, right in merges:
        for token in (left, right, left + right):
            if token not in vocab:
                raise TokenizerError(f"the merge {left!r} + {right!r} needs {token!r}: not a token")


def written(pairs: Sequence[tuple[str, str]]) -> list[Any]:
    """Merges as a file has them: strings, or pairs where a string could not be read back.

    Strings take half the space and load faster (Llama 3: .81 of the time of pairs), and programs
    from before 2025 read nothing else.
    """
    if any(" " in left or " " in right or left.startswith("#version") for left, right in pairs):
        return list(map(list, pairs))
    return [f"{left} {right}" for left, right in pairs]


def _added_token(number: int, content: str) -> dict[str, Any]:
    """As `add_tokens` of transformers writes a plain string."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return {"id": number, "content": content, **flags, "normalized": True, "special": False}
