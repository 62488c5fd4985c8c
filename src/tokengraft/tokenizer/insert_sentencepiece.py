"""A SentencePiece model as a parsed `tokenizer.json`, so that it can be extended."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer.insert_convert import BPE, FLAGS, file_of
from tokengraft.tokenizer.vocabulary import SPACE_MARK

_UNIGRAM, _BYTE_PAIRS = 1, 2
_NORMAL, _UNKNOWN, _CONTROL, _USER = 1, 2, 3, 4


def from_sentencepiece(model: bytes) -> dict[str, Any]:
    """BPE with byte fallback (Llama 2, Mistral) or Unigram (T5, mT5) as `tokenizer.json`.

    BPE gives the same ids. Unigram does so up to the Rust library's reading of the normaliser,
    which takes a letter with several marks as one (one line of the UDHR's 25,876, for T5).
    Raises TokenizerError for BPE without byte fallback and for other kinds of model.
    """
    parsed = proto.ModelProto()
    try:
        parsed.ParseFromString(model)
    except Exception as error:  # protobuf's own errors differ with its backend
        raise TokenizerError(f"this is no SentencePiece model ({error})") from error
    kind = parsed.trainer_spec.model_type
    if kind == _UNIGRAM:
        return _unigram(parsed)
    if kind != _BYTE_PAIRS or not parsed.trainer_spec.byte_fallback:
        raise TokenizerError("a SentencePiece model without byte fallback: give its tokenizer.json")
    return _byte_pairs(parsed, model)


def _unigram(parsed: Any) -> dict[str, Any]:
    rules = parsed.normalizer_spec
    steps: list[dict[str, Any]] = []
    if rules.precompiled_charsmap:
        charsmap = base64.b64encode(rules.precompiled_charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if rules.remove_extra_whitespaces:
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    metaspace = {
        "type": "Metaspace", "replacement": SPACE_MARK, "split": True,
        "prepend_scheme": "always" if rules.add_dummy_prefix else "never",
    }  # fmt: skip
    fallback = bool(parsed.trainer_spec.byte_fallback)
    model = {
        "type": "Unigram", "unk_id": parsed.trainer_spec.unk_id, "byte_fallback": fallback,
        "vocab": [[piece.piece, piece.score] for piece in parsed.pieces],
    }  # fmt: skip
    decoders = [{"type": "ByteFallback"}, metaspace]
    return file_of(
        model,
        normalizer={"type": "Sequence", "normalizers": steps} if steps else None,
        pre_tokenizer=metaspace,
        decoder={"type": "Sequence", "decoders": decoders} if fallback else metaspace,
        added=_added(parsed),
    )


def _byte_pairs(parsed: Any, model: bytes) -> dict[str, Any]:
    normalizers = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    if processor.encode("a", out_type=str)[0].startswith(SPACE_MARK):
        normalizers.insert(0, {"type": "Prepend", "prepend": SPACE_MARK})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    scored = [(p.piece, p.score) for p in parsed.pieces if p.type in (_NORMAL, _USER)]
    bpe = {
        **BPE, "unk_token": parsed.pieces[parsed.trainer_spec.unk_id].piece, "fuse_unk": True,
        "byte_fallback": True, "ignore_merges": False, "merges": _all_merges(scored),
        "vocab": {piece.piece: number for number, piece in enumerate(parsed.pieces)},
    }  # fmt: skip
    return file_of(
        bpe,
        normalizer={"type": "Sequence", "normalizers": normalizers},
        decoder={"type": "Sequence", "decoders": decoders},
        added=[row for row in _added(parsed) if row["special"]],
    )


def _added(parsed: Any) -> list[dict[str, Any]]:
    return [
        {"id": number, "content": piece.piece, **FLAGS, "special": piece.type != _USER}
        for number, piece in enumerate(parsed.pieces)
        if piece.type in (_UNKNOWN, _CONTROL, _USER)
    ]


def _all_merges(scored: Sequence[tuple[str, float]]) -> list[list[str]]:
    """SentencePiece may build a piece from any two pieces, the best-scored piece first."""
    rank = {piece: order for order, (piece, _) in enumerate(scored)}
    merges = []
    for piece, _ in sorted(scored, key=lambda item: -item[1]):
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        pairs = [(rank[a], rank[b], a, b) for a, b in cuts if a in rank and b in rank]
        merges += [[a, b] for _, _, a, b in sorted(pairs)]
    return merges
