"""Tokenizers of other formats, converted to a parsed `tokenizer.json` that can be extended."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer.adapters import for_oniguruma
from tokengraft.tokenizer.vocabulary import SPACE_MARK, byte_alphabet

BPE = {
    "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
    "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
}  # fmt: skip
END = "<|endoftext|>"
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
#: Kinds of model in a SentencePiece file, and of piece, which llama.cpp numbers alike.
UNIGRAM, BYTE_PAIRS = 1, 2
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def from_tiktoken(
    ranks: Mapping[bytes, int], pattern: str, specials: Mapping[str, int]
) -> dict[str, Any]:
    """A byte-level BPE that gives the ids of the tiktoken encoding with these ranks and pattern.

    tiktoken merges whatever pair has the lowest-ranked concatenation. The one pair from which it
    makes a token is found by encoding the token's bytes with lower ranks only.
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
    # Only in the vocabulary can a token keep an id after a gap (cl100k_base has no 100256).
    vocab.update(specials)
    # tiktoken looks a whole piece up before it merges, hence `ignore_merges`.
    model = {**BPE, "ignore_merges": True, "vocab": vocab, "merges": merges}
    added = sorted(specials.items(), key=lambda item: item[1])
    return file_of(
        model,
        pre_tokenizer={"type": "Sequence", "pretokenizers": steps},
        decoder={**byte_level, "use_regex": False},
        added=[{"id": i, "content": text, **FLAGS, "special": True} for text, i in added],
    )


def from_merges(vocab: Mapping[str, int], merges: Iterable[str]) -> dict[str, Any]:
    """A byte-level BPE from GPT-2's own files: `vocab.json` and the lines of `merges.txt`."""
    pairs = read_merges(merges)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    model = {**BPE, "ignore_merges": False, "vocab": dict(vocab), "merges": pairs}
    added = [{"id": vocab[t], "content": t, **FLAGS, "special": True} for t in (END,) if t in vocab]
    return file_of(
        model,
        pre_tokenizer={**byte_level, "use_regex": True},
        decoder={**byte_level, "use_regex": True},
        added=added,
    )


def read_merges(lines: Iterable[str]) -> list[list[str]]:
    """The pairs in the lines of a `merges.txt`."""
    rows = (line.rstrip("\r\n") for line in lines)
    return [row.split(" ") for row in rows if row and not row.startswith("#version")]


def ids_are_ranks(vocab: Mapping[str, int], merges: Iterable[str]) -> bool:
    """Whether ids of a `vocab.json` follow the order of `merges.txt`, which is then not needed."""
    made = [vocab.get("".join(pair), -1) for pair in read_merges(merges)]
    single = [i for token, i in vocab.items() if len(token) == 1]
    others = set(vocab.values()) - {*made, *single} - {vocab.get(END)}
    return not others and made == list(range(len(single), len(single) + len(made)))


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


def from_vocab_txt(data: bytes, lowercase: bool) -> dict[str, Any]:
    """BERT's `vocab.txt`, one token a line; TokenizerError if it has no [UNK]."""
    lines = [line.rstrip("\r") for line in data.decode("utf-8").split("\n")]
    if "[UNK]" not in lines:
        raise TokenizerError("vocab.txt has no [UNK] token, so it is not a WordPiece file")
    return from_wordpiece(lines, lowercase)


def from_wordpiece(tokens: Sequence[str], lowercase: bool = False) -> dict[str, Any]:
    """The lines of a `vocab.txt` as `tokenizer.json`.

    The line number is the id, as in transformers: an empty line is no token but takes an id.
    """
    vocab = {token: i for i, token in enumerate(tokens) if token}
    special = [t for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if t in vocab]
    model = {
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": vocab,
    }  # fmt: skip
    normalizer = {
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
        "strip_accents": None, "lowercase": lowercase,
    }  # fmt: skip
    return file_of(
        model,
        normalizer=normalizer,
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        added=[{"id": vocab[t], "content": t, **FLAGS, "special": True} for t in special],
    )


def from_sentencepiece(model: bytes) -> dict[str, Any]:
    """BPE with byte fallback (Llama 2, Mistral) or Unigram (T5, mT5) as `tokenizer.json`.

    BPE gives the same ids. So does Unigram, except that the Rust library normalises a letter with
    several marks as one unit (for T5 that concerns one of the UDHR's 25,876 lines).
    Raises TokenizerError for BPE without byte fallback and for other kinds of model.
    """
    from sentencepiece import sentencepiece_model_pb2 as proto

    parsed = proto.ModelProto()
    try:
        parsed.ParseFromString(model)
    except Exception as error:  # protobuf's own errors differ with its backend
        raise TokenizerError(f"this is not a SentencePiece model ({error})") from error
    if not parsed.pieces:
        raise TokenizerError("this is not a SentencePiece model (it has no pieces)")
    kind = parsed.trainer_spec.model_type
    if kind == UNIGRAM:
        return _unigram(parsed)
    if kind != BYTE_PAIRS or not parsed.trainer_spec.byte_fallback:
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
    import sentencepiece

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
    scored = [(p.piece, p.score) for p in parsed.pieces if p.type in (NORMAL, USER)]
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
        {"id": number, "content": piece.piece, **FLAGS, "special": piece.type != USER}
        for number, piece in enumerate(parsed.pieces)
        if piece.type in (UNKNOWN, CONTROL, USER)
    ]


def _all_merges(scored: Sequence[tuple[str, float]]) -> list[list[str]]:
    """Merges for every way to make a piece from two pieces, which SentencePiece allows.

    The best-scored piece comes first, as in SentencePiece.
    """
    rank = {piece: order for order, (piece, _) in enumerate(scored)}
    merges = []
    for piece, _ in sorted(scored, key=lambda item: -item[1]):
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        pairs = [(rank[a], rank[b], a, b) for a, b in cuts if a in rank and b in rank]
        merges += [[a, b] for _, _, a, b in sorted(pairs)]
    return merges


def file_of(
    model: dict[str, Any],
    *,
    decoder: dict[str, Any],
    added: list[dict[str, Any]],
    normalizer: dict[str, Any] | None = None,
    pre_tokenizer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A whole `tokenizer.json` around a model."""
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
        "decoder": decoder, "model": model,
    }  # fmt: skip
