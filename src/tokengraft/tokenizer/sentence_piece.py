"""SentencePiece `.model` files: the adapter that reads them, and a writer of such files.

BPE with byte fallback is also written as `tokenizer.model`, for programs that do not read JSON.
SentencePiece has no list of merges: of all neighbours it joins the two whose concatenation scores
highest. A piece's score is therefore minus the rank of the first merge that makes it. llama.cpp's
`llama` vocabulary works in the same way, with the same tokens, types and scores.

If the base has such a file, it is extended: its pieces, scores and settings stay, and new pieces
follow in the order of their merges, below every old score. Otherwise a new file is made. It is kept
only if SentencePiece then encodes every line as `tokenizer.json` does. Text that spells a special
token is not compared, since SentencePiece never reads one from text.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer import vocabulary as pieces
from tokengraft.tokenizer.adapters import AWKWARD, Tokenizer, difference
from tokengraft.tokenizer.convert import (
    BYTE,
    BYTE_PAIRS,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER,
)
from tokengraft.tokenizer.fast import Definition
from tokengraft.tokenizer.file_shape import check_highest_id, json_object, settings
from tokengraft.tokenizer.insert import added_ids, family, merge_pairs, vocabulary
from tokengraft.tokenizer.pipeline import load
from tokengraft.tokenizer.rows import Rows
from tokengraft.tokenizer.vocabulary import SPACE_MARK, Vocabulary

_INERT = ("identity", "nmt_nfkc", "nfkc")  # normalisers that combine nothing with a space
_OWN = (*_INERT, "nmt_nfkc_cf", "nfkc_cf")  # the library's normalisers, which remove no letter


class SentencePiece(Tokenizer):
    """A SentencePiece model, called directly.

    `config` is the model folder's `tokenizer_config.json`, which may declare further special tokens
    (T5's sentinels, M2M-100's language tokens). `table` is a `vocab.json`, for a model that knows
    fewer pieces than SentencePiece emits (M2M-100): the rest are UNK to the model.
    """

    library = "sentencepiece"

    def __init__(
        self,
        name: str,
        fingerprint: str,
        model: bytes,
        config: dict[str, Any] | None = None,
        table: dict[str, int] | None = None,
    ) -> None:
        super().__init__(name, fingerprint)
        if not model:  # SentencePiece would complain only when it is first used
            raise TokenizerError(f"{name}: the SentencePiece model is an empty file")
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise TokenizerError(f"{name}: not a readable SentencePiece model") from error
        self._config = config or {}
        self._table = table
        self._threads = os.cpu_count() or 1

    @classmethod
    def from_files(
        cls, name: str, fingerprint: str, model: bytes, config: bytes | None, table: bytes | None
    ) -> SentencePiece:
        """Read the model with its folder's optional JSON files."""
        said = settings(config, name) if config else None
        return cls(name, fingerprint, model, said, _ids_of(table, name) if table else None)

    @property
    def family(self) -> str:
        fallback = any(kind == BYTE for _, kind in self._named)
        return "SentencePiece" + (" with byte fallback" if fallback else "")

    @property
    def lossless(self) -> bool:
        return False  # even with byte fallback, some models normalise or trim spaces

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self.processor.encode(list(texts), num_threads=self._threads)
        return ids

    def _encode_texts(self, texts: Sequence[str], alone: bool = False) -> Rows:
        threads = 1 if alone else self._threads
        with self._failing_clearly():
            rows = list(map(bytes, self._buffers(list(texts), threads)))
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        return Rows(sizes // 4, np.frombuffer(b"".join(rows), np.uint32))

    @functools.cached_property
    def _buffers(self) -> Callable[[list[str], int], Iterable[Any]]:
        """A function that gives each text's ids as a buffer, four bytes an id.

        The library makes its numpy arrays from such buffers, and an array for each line takes a
        seventh of T5's time. If the library lacks that private call, or it gives other ids on some
        awkward text, arrays are used.
        """

        def arrays(texts: list[str], threads: int) -> Any:
            return self.processor.encode(texts, num_threads=threads, return_type="numpy")

        def buffers(texts: list[str], threads: int) -> Any:
            library: Any = self.processor
            encode = library._processor._EncodeAsBufferBatch
            return encode(texts, threads, None, False, -1, 0.1, False, False, False)

        with contextlib.suppress(AttributeError, TypeError):
            texts = [*AWKWARD]
            if [*map(bytes, buffers(texts, 1))] == [*map(bytes, arrays(texts, 1))]:
                return buffers
        return arrays

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        rows = [list(row) for row in ids]
        decoded: list[str] = self.processor.decode(rows, num_threads=self._threads)
        return decoded

    @functools.cached_property
    def _model(self) -> Any:
        """The parsed file: pieces, and how text was normalised and the model trained."""
        from sentencepiece import sentencepiece_model_pb2 as proto

        return proto.ModelProto.FromString(self.processor.serialized_model_proto())

    @property
    def spelled_after(self) -> bytes | None:
        rules, trained = self._model.normalizer_spec, self._model.trainer_spec
        marks = rules.add_dummy_prefix and rules.escape_whitespaces
        return b" " if marks and not trained.treat_whitespace_as_suffix else None

    @functools.cached_property
    def not_spelled(self) -> NDArray[np.bool_] | None:
        changed = self.spelled_after is None or self._model.denormalizer_spec.precompiled_charsmap
        return None if changed else self.vocabulary.is_silent_unknown

    def gives_back(self, rows: Rows, texts: Sequence[str]) -> NDArray[np.bool_]:
        """As in `Tokenizer`, with a shortcut: plain ASCII without UNK is spelled by its pieces."""
        if self.not_spelled is None or self._model.normalizer_spec.name not in _INERT:
            return super().gives_back(rows, texts)
        back = _plain(texts)
        back &= (rows.sums(self.not_spelled) == 0) & (rows.sizes > 0)
        others = np.flatnonzero(~back)
        back[others] = super().gives_back(rows.chosen(others), [texts[n] for n in others.tolist()])
        return back

    def _definition(self) -> Definition | None:
        trained = self._model.trainer_spec
        if trained.model_type != BYTE_PAIRS or not trained.byte_fallback or self._table is not None:
            return None
        return Definition("sentencepiece", self.processor.serialized_model_proto())

    def pretokens(self, texts: Sequence[str], rows: Rows | None = None) -> None:
        return None  # SentencePiece cuts nothing before it consults the vocabulary

    @functools.cached_property
    def _normal(self) -> Callable[[str], str] | None:
        return None if self._model.normalizer_spec.name in _OWN else self.processor.normalize

    @functools.cached_property
    def _names(self) -> list[str]:
        return [name for name, _ in self._named]

    @functools.cached_property
    def _named(self) -> list[tuple[str, int]]:
        """Name and kind of each piece."""
        return [(piece.piece, piece.type) for piece in self._model.pieces]

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        unknown = {n for n, (_, kind) in enumerate(self._named) if kind == UNKNOWN}
        silent = unknown | {n for n, (_, kind) in enumerate(self._named) if kind == CONTROL}
        if self._table is not None:
            unknown |= {n for n, name in enumerate(self._names) if name not in self._table}
        by_id = [pieces.sentencepiece_piece(name) for name in self._names]
        for number in silent:
            by_id[number] = b""
        return Vocabulary(tuple(by_id), frozenset(unknown), frozenset(silent))

    def clean_vocabulary(self) -> frozenset[bytes]:
        from tokenizers import decoders

        prefix = self.processor.encode(pieces.CLEAN_PREFIX, out_type=str)
        tokens = [*(self._table or self._names), *self._config.get("additional_special_tokens", [])]
        if self._config.get("tokenizer_class") == "M2M100Tokenizer":
            # transformers decodes this one with SentencePiece itself and strips the result.
            silent = {self._names[n] for n in self.vocabulary.special}
            specials = silent | (set(tokens) - set(self._names))

            def decode(row: list[str]) -> str:
                last = row[-1]
                if last in specials:
                    return f"{self.processor.decode(row[:-1])}{last}"
                return str(self.processor.decode(row)).strip()

            return pieces.clean_decoded(tokens, prefix, decode)
        fallback = decoders.Sequence(
            [decoders.Replace(pieces.SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        return pieces.clean_decoded(tokens, prefix, fallback.decode)


def _plain(texts: Sequence[str]) -> NDArray[np.bool_]:
    """For each text, whether it is printable ASCII whose only spaces are single ones inside."""
    plain = list(map(str.isascii, texts))
    joined = " ".join(["", *compress(texts, plain), ""])
    if "  " in joined or not joined.isprintable():
        plain = [t.isascii() and t.isprintable() and "  " not in f" {t} " for t in texts]
    return np.array(plain, bool)


def _ids_of(table: bytes, name: str) -> dict[str, int]:
    ids = json_object(table, f"{name}: vocab.json", "a table of ids")
    for number in ids.values():
        check_highest_id(number, len(table), f"{name}: vocab.json")
    return ids


SENTENCEPIECE = "tokenizer.model"
_UNREACHED = -1e6  # the score of a token that no merge makes


def named_pieces(tokenizer: dict[str, Any], rows: int) -> tuple[list[str], list[int]]:
    """Token and kind by id, for ids below `rows`; an id without a token gets a made-up name."""
    names = {number: token for token, number in vocabulary(tokenizer).items()}
    names |= {number: content for content, number in added_ids(tokenizer).items()}
    tokens = [names.get(number, f"[PAD{number}]") for number in range(rows)]
    kinds = [NORMAL if number in names else UNUSED for number in range(rows)]
    for entry in tokenizer.get("added_tokens") or ():
        if entry["id"] < rows:
            kinds[entry["id"]] = CONTROL if entry.get("special") else USER
    return tokens, kinds


def scored_pieces(tokenizer: dict[str, Any], rows: int) -> tuple[list[str], list[int], list[float]]:
    """Token, kind and score by id of a BPE with byte fallback, for a table of `rows` rows."""
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
    scores = [
        -float(ranks[token]) if token in ranks else _UNREACHED if kind == NORMAL else 0.0
        for token, kind in zip(tokens, kinds, strict=True)
    ]
    return tokens, kinds, scores


def scores_below(lowest: float, count: int) -> list[float]:
    """`count` falling scores below `lowest` that stay distinct in the 32 bits of the file.

    Mistral scores runs of spaces at -1e9, where numbers one apart are the same in 32 bits.
    """
    scores, last = [], np.float32(lowest)
    for _ in range(count):
        last = min(np.float32(last - 1), np.nextafter(last, np.float32(-np.inf)))
        scores.append(float(last))
    return scores


def checked_file(
    tokenizer: dict[str, Any], lines: Iterable[str], old: bytes | None = None
) -> tuple[bytes | None, str]:
    """A tokenizer's `tokenizer.model`, and a note.

    The file is None if the tokenizer is of another family, or if SentencePiece would encode one of
    the lines otherwise; the note then says why (it is empty for another family).
    """
    if family(tokenizer) != "byte-fallback-bpe":
        return None, ""
    said = ""
    for start in dict.fromkeys((old, None)):  # if the base's file does not fit, make a new one
        model = sentencepiece_model(tokenizer, start)
        otherwise = read_otherwise(model, tokenizer, lines := list(lines))
        if otherwise is None:
            return model, ""
        said = said or otherwise
    return None, f"no {SENTENCEPIECE} is written: {said}"


def sentencepiece_model(tokenizer: dict[str, Any], old: bytes | None = None) -> bytes:
    """The tokenizer as a SentencePiece file; `old`, the base's file, is extended if given."""
    from sentencepiece import sentencepiece_model_pb2 as proto

    made = proto.ModelProto()
    if old is not None:
        try:
            made.ParseFromString(old)
        except Exception as error:  # protobuf's own errors differ with its backend
            raise TokenizerError(
                f"the base's {SENTENCEPIECE} is not a SentencePiece model"
            ) from error
    kept = len(made.pieces)
    rows = 1 + max(*vocabulary(tokenizer).values(), *added_ids(tokenizer).values())
    tokens, kinds, scores = scored_pieces(tokenizer, rows)
    lowest = min((piece.score for piece in made.pieces), default=0.0)
    after = sorted(range(kept, rows), key=lambda number: -scores[number])
    below = dict(zip(after, scores_below(lowest, len(after)), strict=True))
    for number in range(kept, rows):
        score = below[number] if kept else scores[number]
        made.pieces.add(piece=tokens[number], score=score, type=kinds[number])
    made.trainer_spec.vocab_size = len(made.pieces)
    if not kept:
        _settle(made, tokenizer)
    return bytes(made.SerializeToString())


def _settle(made: Any, tokenizer: dict[str, Any]) -> None:
    """Fill in the settings of a new file: nothing is normalised but the space."""
    made.trainer_spec.model_type = BYTE_PAIRS
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
    first = load(tokenizer).encode("a", add_special_tokens=False)
    rules.add_dummy_prefix = first.tokens[0].startswith(SPACE_MARK)


def read_otherwise(model: bytes, tokenizer: dict[str, Any], lines: Iterable[str]) -> str | None:
    """How SentencePiece with `model` encodes lines unlike `tokenizer.json`, in words, or None."""
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        return f"SentencePiece cannot load it ({str(error).splitlines()[0][:120]})"
    special = [t["content"] for t in tokenizer.get("added_tokens") or () if t.get("special")]
    every = dict.fromkeys((*AWKWARD, *lines))
    texts = [line for line in every if line and not any(word in line for word in special)]
    ids = [one.ids for one in load(tokenizer).encode_batch(texts, add_special_tokens=False)]
    apart = difference(processor.encode, texts, ids)
    if apart is None:
        return None
    line = json.dumps(apart.line[:60], ensure_ascii=False)
    return f"SentencePiece gives other ids on {apart.wrong} of {apart.lines} lines, first {line}"
