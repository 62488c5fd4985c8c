"""Adapter over Hugging Face `tokenizers`: any `tokenizer.json`, read or converted (`as_json`)."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Pipeline

from tokengraft.core.errors import TokenizerError, gave_up, panics_told
from tokengraft.core.files import sha256
from tokengraft.core.limits import check_highest_id
from tokengraft.tokenizer import vocabulary as pieces
from tokengraft.tokenizer.adapters import Tokenizer, count_batch, pretoken_counter
from tokengraft.tokenizer.boundaries import pattern_of
from tokengraft.tokenizer.vocabulary import Vocabulary
from tokengraft.tokenizer.words import Ints, Rows, cuts_at_spaces

#: What a model says of itself.
_TOLD = ("unk_token", "byte_fallback", "continuing_subword_prefix")
#: Patterns that match no space: what they cut out first changes nothing about the words.
_SPACELESS = (r"\p{N}", r"\p{N}{1,3}")


class HuggingFace(Tokenizer):
    """A `tokenizers` pipeline, encoded in Rust batches on all cores."""

    def __init__(self, name: str, fingerprint: str, pipeline: Any, size: int = 0) -> None:
        """`size` is that of the file in bytes: it says how many ids there can be."""
        super().__init__(name, fingerprint)
        self._size = size
        pipeline.no_truncation()
        pipeline.no_padding()
        self.pipeline = pipeline
        self._spec = _outline(pipeline)

    @classmethod
    def from_json(cls, name: str, fingerprint: str, data: bytes) -> HuggingFace:
        """Read a `tokenizer.json`."""
        try:
            return cls(name, fingerprint, Pipeline.from_str(data.decode("utf-8")), len(data))
        except BaseException as error:  # tokenizers raises bare Exception, and Rust may panic
            if not gave_up(error):
                raise
            raise TokenizerError(f"{name}: not a readable tokenizer.json ({error})") from error

    @classmethod
    def from_parsed(cls, name: str, parsed: Mapping[str, Any]) -> HuggingFace:
        """The same of a parsed `tokenizer.json`, known by the hash of what it is written as."""
        data = json.dumps(parsed, ensure_ascii=False).encode("utf-8")
        return cls.from_json(name, sha256(data), data)

    @property
    def family(self) -> str:
        model = self._spec["model"]
        kind = model["type"]
        if kind != "BPE":
            return str(kind)
        if self._byte_level:
            return "byte-level BPE"
        return "BPE with byte fallback" if model.get("byte_fallback") else "BPE"

    @property
    def _byte_level(self) -> bool:
        return any(
            part["type"] == "ByteLevel"
            for step in ("pre_tokenizer", "decoder")
            for part in _parts(self._spec[step])
        )

    @property
    def lossless(self) -> bool:
        return self._lossless

    @functools.cached_property
    def _lossless(self) -> bool:
        # Byte-level, nothing normalised, all 256 bytes present: every string comes back.
        return (
            self._byte_level
            and self._spec["normalizer"] is None
            and not any(p.get("add_prefix_space") for p in _parts(self._spec["pre_tokenizer"]))
            and {bytes([b]) for b in range(256)} <= set(self.vocabulary.pieces)
        )

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        with self._told():
            batch = self.pipeline.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        with panics_told("decoding"):
            decoded: list[str] = self.pipeline.decode_batch(
                [list(row) for row in ids], skip_special_tokens=False
            )
        return decoded

    def pretokens(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
        if self.pipeline.pre_tokenizer is None:
            return None
        with panics_told("cutting text into words"):
            return count_batch(self._counter, texts)

    @functools.cached_property
    def word_prefix(self) -> str | None:
        added = self.pipeline.get_added_tokens_decoder().values()
        if any(t.lstrip or t.rstrip or any(map(str.isspace, t.content)) for t in added):
            return None
        steps = _parts(self._spec["pre_tokenizer"])
        kinds = [step["type"] for step in steps]
        if kinds == ["BertPreTokenizer"] and self._forms in ([], ["BertNormalizer"]):
            return "" if self._sign else None
        cuts = [step for step in steps if step["type"] in ("Split", "ByteLevel")]
        known = all(kind in ("Split", "ByteLevel", "Digits") for kind in kinds)
        if not (self._byte_level and known and set(self._forms) <= {"NFC", "NFKC"}):
            return None
        if any(step.get("add_prefix_space") for step in steps):
            return None
        patterns = self._patterns
        whole = [step["type"] != "Split" or "Regex" in step["pattern"] for step in cuts]
        last = bool(patterns) and cuts_at_spaces(patterns[-1])
        before = all(pattern in _SPACELESS for pattern in patterns[:-1])
        return " " if last and before and all(whole) else None

    @functools.cached_property
    def _forms(self) -> list[Any]:
        """What the text is normalised to."""
        return [part["type"] for part in _parts(self._spec["normalizer"])]

    @functools.cached_property
    def _patterns(self) -> list[str]:
        """What the text is cut by."""
        patterns = map(pattern_of, _parts(self._spec["pre_tokenizer"]))
        return [pattern for pattern in patterns if pattern is not None]

    @functools.cached_property
    def _sign(self) -> str | None:
        """A sign that is a word of its own to BERT, and a token."""
        model = self._spec["model"]["type"]
        signs = (sign for sign in "|~^;" if self.pipeline.token_to_id(sign) is not None)
        return next(signs, None) if model == "WordPiece" else None

    @functools.cached_property
    def _between(self) -> tuple[str, NDArray[np.bool_], int]:
        if self.word_prefix or self._sign is None:
            return super()._between
        marks = np.zeros(len(self.vocabulary), bool)
        marks[self.pipeline.token_to_id(self._sign)] = True
        return f" {self._sign} ", marks, 1

    def pretokens_of_words(self, words: Sequence[str], rows: Rows, begin: bool) -> Ints | None:
        if not self.word_prefix:  # WordPiece: what does not continue a word begins one
            counts = rows.sums(self._begins_word)
            added = np.flatnonzero(rows.sums(self._is_added)).tolist()
            counts[added] = np.asarray(self.pretokens([words[n] for n in added]))
            return counts
        (*before, pattern) = self._patterns
        if before or any(step["type"] == "Digits" for step in _parts(self._spec["pre_tokenizer"])):
            return super().pretokens_of_words(words, rows, begin)
        return self._pieces_of_words(pattern, words, begin, self._forms)

    @functools.cached_property
    def _begins_word(self) -> NDArray[np.bool_]:
        continues = self._spec["model"]["continuing_subword_prefix"]
        flags = np.ones(len(self.vocabulary), bool)
        for token, number in self.pipeline.get_vocab(with_added_tokens=True).items():
            flags[number] = not token.startswith(continues)
        return flags

    @functools.cached_property
    def _is_added(self) -> NDArray[np.bool_]:
        flags = np.zeros(len(self.vocabulary), bool)
        flags[list(self.pipeline.get_added_tokens_decoder())] = True
        return flags & ~self.vocabulary.is_unknown

    def dropped(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
        """A model without UNK and without all bytes leaves out what it does not know, unsaid."""
        if not self._drops:
            return None
        with self._told():
            batch = self.pipeline.encode_batch(list(texts), add_special_tokens=False)
        dropped = np.zeros(len(texts), np.int64)
        for number, (text, encoding) in enumerate(zip(texts, batch, strict=True)):
            covered = np.zeros(len(text), bool)
            for start, end in encoding.offsets:
                covered[start:end] = True
            dropped[number] = sum(
                not char.isspace() for char, held in zip(text, covered, strict=True) if not held
            )
        return dropped

    @functools.cached_property
    def _drops(self) -> bool:
        whole = {bytes([b]) for b in range(256)} <= set(self.vocabulary.pieces)
        spelled = self._byte_level or bool(self._spec["model"].get("byte_fallback"))
        return not self.vocabulary.unknown and not (whole and spelled)

    @functools.cached_property
    def _counter(self) -> Any:
        return pretoken_counter(self.pipeline.pre_tokenizer, self.pipeline.normalizer)

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        table: dict[str, int] = self.pipeline.get_vocab(with_added_tokens=True)
        added = self.pipeline.get_added_tokens_decoder()
        to_piece = {
            "WordPiece": pieces.wordpiece_piece,
            "BPE": pieces.byte_level_piece if self._byte_level else pieces.sentencepiece_piece,
        }.get(self._spec["model"]["type"], pieces.sentencepiece_piece)
        check_highest_id(max(table.values(), default=0), self._size, self.name, TokenizerError)
        by_id = [b""] * (max(table.values(), default=-1) + 1)
        for token, number in table.items():
            by_id[number] = token.encode("utf-8") if number in added else to_piece(token)
        special = frozenset(number for number, token in added.items() if token.special)
        return Vocabulary(tuple(by_id), self._unknown(table), special)

    def _unknown(self, table: dict[str, int]) -> frozenset[int]:
        model = self._spec["model"]
        if model["type"] == "Unigram":
            return frozenset() if model["unk_id"] is None else frozenset([model["unk_id"]])
        unk = model.get("unk_token")
        # A byte-level tokenizer may name an UNK token (GPT-2: <|endoftext|>) that it never emits.
        return frozenset() if unk is None or self._byte_level else frozenset([table[unk]])

    def clean_vocabulary(self) -> frozenset[bytes]:
        with panics_told("reading its vocabulary"):
            prefix = self.pipeline.encode(pieces.clean_prefix(), add_special_tokens=False).tokens
            tokens = self.pipeline.get_vocab(with_added_tokens=True)
            decoder = self.pipeline.decoder
            decode = decoder.decode if decoder is not None else " ".join
            return pieces.clean_decoded(tokens, prefix, decode)


def _outline(pipeline: Any) -> dict[str, Any]:
    """The pipeline's own description, without vocabulary and merges."""
    spec: dict[str, Any] = {
        step: None if (part := getattr(pipeline, step)) is None else json.loads(part.__getstate__())
        for step in ("normalizer", "pre_tokenizer", "decoder")
    }
    model = pipeline.model
    if type(model).__name__ == "Unigram":  # has no attribute for its UNK
        spec["model"] = {k: v for k, v in json.loads(model.__getstate__()).items() if k != "vocab"}
    else:
        told = {name: getattr(model, name, None) for name in _TOLD}
        spec["model"] = {"type": type(model).__name__, **told}
    return spec


def _parts(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The members of a pipeline step, whether it is a Sequence or a single part."""
    if step is None:
        return []
    for key in ("pretokenizers", "decoders", "normalizers"):
        if key in step:
            return [inner for part in step[key] for inner in _parts(part)]
    return [step]
