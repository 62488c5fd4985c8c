"""Adapter over SentencePiece `.model` files."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from tokengraft.core.errors import TokenizerError
from tokengraft.core.limits import check_highest_id
from tokengraft.tokenizer import vocabulary as pieces
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.shape import json_object, settings
from tokengraft.tokenizer.vocabulary import Vocabulary
from tokengraft.tokenizer.words import Rows, reaching

_BYTE_PAIRS = 2  # SentencePiece's number of the model
_UNKNOWN, _CONTROL = 2, 3  # and of kinds of pieces
_INERT = ("identity", "nmt_nfkc", "nfkc")  # normalisers that read nothing together with a space


class SentencePiece(Tokenizer):
    """A SentencePiece model, called directly.

    `config` is the model folder's `tokenizer_config.json`, which may declare further special tokens
    (T5's sentinels, M2M-100's language tokens). `table` is a `vocab.json` where the model knows
    fewer pieces than SentencePiece emits (M2M-100): the rest are UNK to the model.
    """

    def __init__(
        self,
        name: str,
        fingerprint: str,
        model: bytes,
        config: dict[str, Any] | None = None,
        table: dict[str, int] | None = None,
    ) -> None:
        super().__init__(name, fingerprint)
        if not model:  # SentencePiece would say so when it is first used
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
        return cls(
            name,
            fingerprint,
            model,
            settings(config, name) if config else None,
            _ids_of(table, name) if table else None,
        )

    @property
    def family(self) -> str:
        fallback = any(self.processor.is_byte(n) for n in range(len(self.processor)))
        return "SentencePiece" + (" with byte fallback" if fallback else "")

    @property
    def lossless(self) -> bool:
        return False  # even with byte fallback, some models normalise or trim spaces

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self.processor.encode(list(texts), num_threads=self._threads)
        return ids

    def encode_texts(self, texts: Sequence[str], alone: bool = False) -> Rows:
        threads = 1 if alone else self._threads
        with self._told():
            rows = self.processor.encode(list(texts), num_threads=threads, return_type="numpy")
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        return Rows(sizes, np.concatenate([np.zeros(0, np.int32), *rows]).view(np.uint32))

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
        return None if changed else self.vocabulary.is_unknown

    def gives_back(self, rows: Rows, texts: Sequence[str], begin: bool) -> NDArray[np.bool_]:
        """The pieces of ASCII without UNK spell it, where such text is normalised to itself."""
        if self.not_spelled is None or self._model.normalizer_spec.name not in _INERT:
            return super().gives_back(rows, texts, begin)
        back = np.array([_plain(text) for text in texts], bool)
        back &= (rows.sums(self.not_spelled) == 0) & (rows.sizes > 0)
        others = np.flatnonzero(~back)
        own = [texts[n] for n in others.tolist()]
        back[others] = super().gives_back(rows.chosen(others), own, begin)
        return back

    @functools.cached_property
    def word_prefix(self) -> str | None:
        rules, trained = self._model.normalizer_spec, self._model.trainer_spec
        apart = (
            trained.model_type == _BYTE_PAIRS
            and rules.name in _INERT
            and self.spelled_after is not None
            and self._reaching is not None
        )
        return "" if apart else None

    @functools.cached_property
    def _reaching(self) -> frozenset[str] | None:
        return reaching(name for name in self._names if pieces.goes_on_after_mark(name))

    @functools.cached_property
    def across(self) -> frozenset[str]:
        return self._reaching or frozenset()

    def unruly(self, characters: Collection[str]) -> frozenset[str]:
        read = self.processor.normalize([f"a{character}b" for character in characters])
        mark, pairs = pieces.SPACE_MARK, zip(characters, read, strict=True)
        return frozenset(c for c, text in pairs if mark in text[1:] or text[1:] == "ab")

    def pretokens(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
        return None  # SentencePiece cuts nothing before it consults the vocabulary

    @functools.cached_property
    def _names(self) -> list[str]:
        return [piece.piece for piece in self._model.pieces]

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        kinds = [piece.type for piece in self._model.pieces]
        unknown = {n for n, kind in enumerate(kinds) if kind == _UNKNOWN}
        silent = unknown | {n for n, kind in enumerate(kinds) if kind == _CONTROL}
        if self._table is not None:
            unknown |= {n for n, name in enumerate(self._names) if name not in self._table}
        by_id = tuple(
            b"" if n in silent else pieces.sentencepiece_piece(name)
            for n, name in enumerate(self._names)
        )
        return Vocabulary(by_id, frozenset(unknown), frozenset(silent))

    def clean_vocabulary(self) -> frozenset[bytes]:
        from tokenizers import decoders

        prefix = self.processor.encode(pieces.clean_prefix(), out_type=str)
        tokens = [*(self._table or self._names), *self._config.get("additional_special_tokens", [])]
        if self._config.get("tokenizer_class") == "M2M100Tokenizer":
            # transformers decodes this one by SentencePiece itself and strips the result.
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


def _plain(text: str) -> bool:
    """Whether a text is printable ASCII with single spaces inside only."""
    if not text.isascii() or "  " in text:
        return False
    return text.isprintable() and text[:1] != " " and text[-1:] != " "


def _ids_of(table: bytes, name: str) -> dict[str, int]:
    ids = json_object(table, f"{name}: vocab.json", "a table of ids")
    for number in ids.values():
        check_highest_id(number, len(table), f"{name}: vocab.json", TokenizerError)
    return ids
