"""Tokenizers kept in other formats as a parsed `tokenizer.json`, so that they can be extended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sentencepiece

from tokengraft.errors import TokenizerError
from tokengraft.tokenizer.adapters import for_oniguruma
from tokengraft.tokenizer.vocabulary import SPACE_MARK, byte_alphabet

_BPE = {
    "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
    "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
}  # fmt: skip
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


def from_tiktoken(
    ranks: Mapping[bytes, int], pattern: str, specials: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """A byte-level BPE that gives the ids of the tiktoken encoding with these ranks and pattern.

    tiktoken merges whatever pair has the lowest-ranked concatenation; the one pair that makes a
    token there is found by encoding the token's bytes with lower ranks only.
    """
    letters = {byte: letter for letter, byte in byte_alphabet().items()}

    def spell(piece: bytes) -> str:
        return "".join(letters[byte] for byte in piece)

    merges: list[list[str]] = []
    for piece, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(piece) > 1:
            parts = _parts_below(ranks, piece, rank)
            if len(parts) == 2:
                merges.append([spell(parts[0]), spell(parts[1])])
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    steps = [
        {**split, "pattern": {"Regex": for_oniguruma(pattern)}},
        {**byte_level, "use_regex": False},
    ]
    vocab = {spell(piece): rank for piece, rank in ranks.items()}
    # Only a token in the vocabulary keeps an id that leaves a gap (cl100k_base has no 100256).
    vocab.update(specials or {})
    # tiktoken looks a whole piece up before it merges, hence `ignore_merges`.
    model = {**_BPE, "ignore_merges": True, "vocab": vocab, "merges": merges}
    added = sorted((specials or {}).items(), key=lambda item: item[1])
    return _file(
        model,
        pre_tokenizer={"type": "Sequence", "pretokenizers": steps},
        decoder={**byte_level, "use_regex": False},
        added=[{"id": i, "content": text, **_FLAGS, "special": True} for text, i in added],
    )


def from_merges(vocab: Mapping[str, int], merges: Iterable[str]) -> dict[str, Any]:
    """GPT-2's own files: `vocab.json`, and the lines of `merges.txt`."""
    rows = (line.rstrip("\r\n") for line in merges)
    pairs = [row.split(" ") for row in rows if row and not row.startswith("#version")]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    model = {**_BPE, "ignore_merges": False, "vocab": dict(vocab), "merges": pairs}
    content = "<|endoftext|>"
    added = [{"id": vocab[content], "content": content, **_FLAGS, "special": True}]
    return _file(
        model,
        pre_tokenizer={**byte_level, "use_regex": True},
        decoder={**byte_level, "use_regex": True},
        added=added if content in vocab else [],
    )


def _parts_below(ranks: Mapping[bytes, int], piece: bytes, limit: int) -> list[bytes]:
    parts = [bytes([byte]) for byte in piece]
    while len(parts) > 2:
        best, place = limit, -1
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1], limit)
            if rank < best:
                best, place = rank, i
        if place < 0:
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts


def from_sentencepiece(model: bytes) -> dict[str, Any]:
    """A SentencePiece BPE model with byte fallback (Llama 2, Mistral) as `tokenizer.json`.

    Raises TokenizerError for a Unigram model (its normaliser is compiled into the file: give the
    `tokenizer.json` that its publisher made) and for BPE without byte fallback.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    size = processor.get_piece_size()
    pieces = [processor.id_to_piece(i) for i in range(size)]
    scores = [processor.get_score(i) for i in range(size)]
    plain = [
        i
        for i in range(size)
        if not (processor.is_byte(i) or processor.is_control(i) or processor.is_unknown(i))
    ]
    if not any(processor.is_byte(i) for i in range(size)):
        raise TokenizerError("a SentencePiece model without byte fallback: give its tokenizer.json")
    if any(scores[i] != int(scores[i]) for i in plain):
        raise TokenizerError("a SentencePiece Unigram model: give its tokenizer.json")
    vocab = {piece: i for i, piece in enumerate(pieces)}
    special = [i for i in range(size) if processor.is_control(i) or processor.is_unknown(i)]
    added = [{"id": i, "content": pieces[i], **_FLAGS, "special": True} for i in special]
    normalizers = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if processor.encode("a", out_type=str)[0].startswith(SPACE_MARK):
        normalizers.insert(0, {"type": "Prepend", "prepend": SPACE_MARK})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    bpe = {
        **_BPE, "unk_token": pieces[processor.unk_id()], "fuse_unk": True, "byte_fallback": True,
        "ignore_merges": False, "vocab": vocab,
        "merges": _all_merges([(pieces[i], scores[i]) for i in plain]),
    }  # fmt: skip
    return _file(
        bpe,
        normalizer={"type": "Sequence", "normalizers": normalizers},
        decoder={"type": "Sequence", "decoders": decoders},
        added=added,
    )


def _all_merges(scored: Sequence[tuple[str, float]]) -> list[list[str]]:
    """SentencePiece may build a piece from any two pieces, the best-scored piece first."""
    rank = {piece: order for order, (piece, _) in enumerate(scored)}
    merges = []
    for piece, _ in sorted(scored, key=lambda item: -item[1]):
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        pairs = [(rank[a], rank[b], a, b) for a, b in cuts if a in rank and b in rank]
        merges += [[a, b] for _, _, a, b in sorted(pairs)]
    return merges


def from_wordpiece(tokens: Sequence[str], lowercase: bool = False) -> dict[str, Any]:
    """BERT's `vocab.txt` as `tokenizer.json`."""
    vocab = {token: i for i, token in enumerate(tokens)}
    special = [t for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if t in vocab]
    model = {
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": vocab,
    }  # fmt: skip
    normalizer = {
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": None, "lowercase": lowercase,
    }  # fmt: skip
    return _file(
        model,
        normalizer=normalizer,
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        added=[{"id": vocab[t], "content": t, **_FLAGS, "special": True} for t in special],
    )


def _file(
    model: dict[str, Any],
    *,
    decoder: dict[str, Any],
    added: list[dict[str, Any]],
    normalizer: dict[str, Any] | None = None,
    pre_tokenizer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
        "decoder": decoder, "model": model,
    }  # fmt: skip
