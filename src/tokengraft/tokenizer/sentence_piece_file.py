"""BPE with byte fallback as a SentencePiece file, `tokenizer.model`, for what reads no JSON.

SentencePiece keeps no merges: of all neighbours it joins the two whose concatenation scores
highest. A piece's score is therefore minus the rank of the first merge that makes it. llama.cpp's
own `llama` vocabulary is read in the same way, from the same tokens, types and scores.

Where the base brings such a file it is extended: its pieces, scores and settings stay, and new
pieces follow in the order of their merges, below every old score. Else it is made anew. A file is
kept only where SentencePiece itself then reads every line as `tokenizer.json` does; text that
spells a special token is not compared, since SentencePiece never reads one from text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer.insert import added_ids, family, merge_pairs, vocabulary
from tokengraft.tokenizer.other_readers import AWKWARD, difference
from tokengraft.tokenizer.vocabulary import SPACE_MARK

FILE = "tokenizer.model"
#: Kinds of piece, numbered alike by SentencePiece and llama.cpp.
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
_UNREACHED = -1e6  # the score of a token that no merge makes
_BYTE_PAIRS = 2  # SentencePiece's number of the model


@dataclass(frozen=True)
class Pieces:
    """The vocabulary by id, with a kind and a score each."""

    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    scores: tuple[float, ...]


def named_pieces(tokenizer: dict[str, Any], rows: int) -> tuple[tuple[str, ...], list[int]]:
    """Token and kind by id up to `rows`; an id without a token gets a made-up, unused one."""
    names = {number: token for token, number in vocabulary(tokenizer).items()}
    names |= {number: content for content, number in added_ids(tokenizer).items()}
    tokens = tuple(names.get(number, f"[PAD{number}]") for number in range(rows))
    kinds = [NORMAL if number in names else UNUSED for number in range(rows)]
    for entry in tokenizer.get("added_tokens") or ():
        if entry["id"] < rows:
            kinds[entry["id"]] = CONTROL if entry.get("special") else USER
    return tokens, kinds


def scored_pieces(tokenizer: dict[str, Any], rows: int) -> Pieces:
    """The pieces of a BPE with byte fallback, for a table of `rows` rows."""
    tokens, kinds = named_pieces(tokenizer, rows)
    known = vocabulary(tokenizer)
    for byte in range(256):
        if (number := known.get(f"<0x{byte:02X}>", rows)) < rows:
            kinds[number] = BYTE
    unknown = known.get(str(tokenizer["model"].get("unk_token")), rows)
    if unknown < rows:
        kinds[unknown] = UNKNOWN
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merge_pairs(tokenizer)):
        ranks.setdefault(left + right, rank)
    scores = tuple(
        -float(ranks[token]) if token in ranks else _UNREACHED if kind == NORMAL else 0.0
        for token, kind in zip(tokens, kinds, strict=True)
    )
    return Pieces(tokens, tuple(kinds), scores)


def scores_below(lowest: float, count: int) -> list[float]:
    """As many falling scores below `lowest`, each another number as the 32 bits of a file hold it.

    Mistral scores runs of spaces at -1e9, where numbers one apart are the same.
    """
    scores, last = [], np.float32(lowest)
    for _ in range(count):
        last = min(np.float32(last - 1), np.nextafter(last, np.float32(-np.inf)))
        scores.append(float(last))
    return scores


def checked_file(
    tokenizer: dict[str, Any], lines: Iterable[str], old: bytes | None = None
) -> tuple[bytes | None, str]:
    """`tokenizer.model` for a tokenizer, and what to say of it.

    None where the tokenizer is of another family, or SentencePiece would read one of the lines
    otherwise; the second value then says why (nothing for another family).
    """
    if family(tokenizer) != "byte-fallback-bpe":
        return None, ""
    said = ""
    for start in dict.fromkeys((old, None)):  # a base's file that does not fit is made anew
        model = sentencepiece_model(tokenizer, start)
        otherwise = read_otherwise(model, tokenizer, lines := list(lines))
        if otherwise is None:
            return model, ""
        said = said or otherwise
    return None, f"no {FILE} is written: {said}"


def sentencepiece_model(tokenizer: dict[str, Any], old: bytes | None = None) -> bytes:
    """The tokenizer as a SentencePiece file; `old` is its base's, which is extended."""
    from sentencepiece import sentencepiece_model_pb2 as proto

    made = proto.ModelProto()
    if old is not None:
        try:
            made.ParseFromString(old)
        except Exception as error:  # protobuf's own errors differ with its backend
            raise TokenizerError(f"the base's {FILE} is not a SentencePiece model") from error
    kept = len(made.pieces)
    rows = 1 + max(*vocabulary(tokenizer).values(), *added_ids(tokenizer).values())
    pieces = scored_pieces(tokenizer, rows)
    lowest = min((piece.score for piece in made.pieces), default=0.0)
    after = sorted(range(kept, rows), key=lambda number: -pieces.scores[number])
    below = dict(zip(after, scores_below(lowest, len(after)), strict=True))
    for number in range(kept, rows):
        score = below[number] if kept else pieces.scores[number]
        made.pieces.add(piece=pieces.tokens[number], score=score, type=pieces.kinds[number])
    made.trainer_spec.vocab_size = len(made.pieces)
    if not kept:
        _settle(made, tokenizer)
    return bytes(made.SerializeToString())


def _settle(made: Any, tokenizer: dict[str, Any]) -> None:
    """The settings of a file that is made anew: nothing is normalised but the space."""
    from tokenizers import Tokenizer

    made.trainer_spec.model_type = _BYTE_PAIRS
    made.trainer_spec.byte_fallback = True
    ids = vocabulary(tokenizer) | added_ids(tokenizer)
    unknown = tokenizer["model"].get("unk_token")
    starts, ends, pads = ("<s>", "<bos>"), ("</s>", "<eos>"), ("<pad>",)
    for name, words in (("unk", (unknown,)), ("bos", starts), ("eos", ends), ("pad", pads)):
        word = next((word for word in words if word in ids), None)
        setattr(made.trainer_spec, f"{name}_id", -1 if word is None else ids[word])
        if word is not None:
            setattr(made.trainer_spec, f"{name}_piece", word)
    rules = made.normalizer_spec
    rules.name, rules.remove_extra_whitespaces, rules.escape_whitespaces = "identity", False, True
    first = Tokenizer.from_str(json.dumps(tokenizer)).encode("a", add_special_tokens=False)
    rules.add_dummy_prefix = first.tokens[0].startswith(SPACE_MARK)


def read_otherwise(model: bytes, tokenizer: dict[str, Any], lines: Iterable[str]) -> str | None:
    """What SentencePiece reads otherwise from `model` than `tokenizer.json` does, or None."""
    import sentencepiece
    from tokenizers import Tokenizer

    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        return f"SentencePiece cannot load it ({str(error).splitlines()[0][:120]})"
    special = [t["content"] for t in tokenizer.get("added_tokens") or () if t.get("special")]
    every = dict.fromkeys((*AWKWARD, *lines))
    texts = [line for line in every if line and not any(word in line for word in special)]
    pipeline = Tokenizer.from_str(json.dumps(tokenizer))
    ids = [one.ids for one in pipeline.encode_batch(texts, add_special_tokens=False)]
    apart = difference(processor.encode, texts, ids)
    if apart is None:
        return None
    line = json.dumps(apart.line[:60], ensure_ascii=False)
    return f"SentencePiece gives other ids on {apart.wrong} of {apart.lines} lines, first {line}"
