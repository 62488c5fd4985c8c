"""Adapter over Hugging Face `tokenizers`: any `tokenizer.json`, read or converted (`as_json`)."""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Pipeline

from tokengraft.core.errors import TokenizerError, gave_up, panics_as_errors
from tokengraft.core.files import not_the_file, sha256
from tokengraft.tokenizer import vocabulary as pieces
from tokengraft.tokenizer.adapters import Tokenizer, count_batch, pretoken_counter
from tokengraft.tokenizer.fast import Definition
from tokengraft.tokenizer.file_shape import check_highest_id
from tokengraft.tokenizer.pre_tokenizer import pattern_of, steps_of
from tokengraft.tokenizer.rows import Ids, Ints, Rows, characters
from tokengraft.tokenizer.vocabulary import Spelling, Vocabulary, spelling

#: The attributes of a model that are read.
_SETTINGS = (
    "unk_token", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix",
    "ignore_merges",
)  # fmt: skip
#: Steps that turn spaces into marks and put one before a text, and that turn these into text again.
_SPACE = {"String": " "}
_TO_MARKS = {"type": "Replace", "pattern": _SPACE, "content": pieces.SPACE_MARK}
_MARK_FIRST = {"type": "Prepend", "prepend": pieces.SPACE_MARK}
_TO_TEXT = [
    {"type": "Replace", "pattern": {"String": pieces.SPACE_MARK}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"},
]  # fmt: skip
_UNMARK_FIRST = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
#: Steps that cut text and drop what they cut at.
_LEAVING_OUT = ("CharDelimiterSplit", "Whitespace", "WhitespaceSplit", "BertPreTokenizer")


class HuggingFace(Tokenizer):
    """A `tokenizers` pipeline, encoded in Rust batches on all cores."""

    library = "tokenizers"

    def __init__(self, name: str, fingerprint: str, pipeline: Any, size: int = 0) -> None:
        """`size` is that of the file in bytes, which limits how high an id can be."""
        super().__init__(name, fingerprint)
        self._size = size
        pipeline.no_truncation()
        pipeline.no_padding()
        self.pipeline = pipeline
        self._spec = _outline(pipeline)
        self._decoded_so_far: dict[int, bytes] = {}
        self._formed: dict[str, bool] = {}  # characters: whether Python normalises them alike

    @classmethod
    def from_json(cls, name: str, fingerprint: str, data: bytes) -> HuggingFace:
        """Read a `tokenizer.json`."""
        try:
            return cls(name, fingerprint, Pipeline.from_str(data.decode("utf-8")), len(data))
        except BaseException as error:  # tokenizers raises bare Exception, and Rust may panic
            if not gave_up(error):
                raise
            why = not_the_file(data[:99]) or error
            raise TokenizerError(f"{name}: not a readable tokenizer.json ({why})") from error

    @classmethod
    def from_parsed(cls, name: str, parsed: Mapping[str, Any]) -> HuggingFace:
        """From a parsed `tokenizer.json`; the fingerprint is the hash of its JSON."""
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
            for part in self._spec[step]
        )

    @property
    def _reads_bytes(self) -> bool:
        """Whether text is spelled in bytes first; a decoder may expect that where no step does."""
        steps = (*self._spec["normalizer"], *self._spec["pre_tokenizer"])
        return any(step["type"] == "ByteLevel" for step in steps)

    @functools.cached_property
    def lossless(self) -> bool:
        # Byte-level, nothing normalised or stripped, all 256 bytes present: any string comes back.
        return (
            self._reads_bytes
            and not self._spec["normalizer"]
            and not any(p.get("add_prefix_space") for p in self._spec["pre_tokenizer"])
            and not self._cut_out
            and not any(token.lstrip or token.rstrip for token in self._added.values())
            and {bytes([b]) for b in range(256)} <= set(self.vocabulary.pieces)
        )

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        with self._failing_clearly():
            batch = self.pipeline.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in batch]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        with panics_as_errors("decoding"):
            decoded: list[str] = self.pipeline.decode_batch(
                [list(row) for row in ids], skip_special_tokens=False
            )
        return decoded

    def _definition(self) -> Definition:
        if self._spec["normalizer"] != [{"type": "NFKC"}]:
            return Definition("json", self.pipeline.to_str().encode("utf-8"))
        # Fast libraries lack this form.
        parsed = json.loads(self.pipeline.to_str()) | {"normalizer": None}
        return Definition(
            "json",
            json.dumps(parsed).encode("utf-8"),
            normal=self._in_form,
            added=tuple(token.content for token in self._added.values()),
        )

    def pretokens(self, texts: Sequence[str], rows: Rows | None = None) -> Ints | None:
        if self._cuts_nothing:
            return None
        steps = self._spec["pre_tokenizer"]
        kinds = [step["type"] for step in steps]
        if rows is not None and kinds == ["BertPreTokenizer"] and self._continues:
            counts = rows.sums(self._begins_word)
            if len(added := np.flatnonzero(rows.sums(self._is_added))):
                counts[added] = self._cut([texts[n] for n in added.tolist()])
            return counts
        plain = set(kinds) <= {"Split", "ByteLevel"} and len(self._patterns) == 1
        whole = all(step["type"] != "Split" or "Regex" in step["pattern"] for step in steps)
        first = any(step.get("add_prefix_space") for step in steps)
        if plain and whole and not first and self._forms in ([], ["NFC"], ["NFKC"]):
            normal = self._in_form(texts) if self._forms else None
            return self._pieces(self._patterns[0], texts, self._cut, normal)
        return self._cut(texts)

    def _in_form(self, texts: Sequence[str]) -> list[str]:
        """The texts as the normaliser, NFC or NFKC, makes them; by Python, six times as fast.

        Python may know a later Unicode, so each character is tried: how it decomposes, and how it
        is ordered among marks. Texts with one that differs are left to the normaliser.
        """
        (form,) = self._forms
        by_library, present = self.pipeline.normalizer.normalize_str, characters(texts)
        for c in present - self._formed.keys():
            tried = f"{c}a\u0301{c}\u0323"
            self._formed[c] = by_library(tried) == unicodedata.normalize(form, tried)
        if all(map(self._formed.__getitem__, present)):
            return [unicodedata.normalize(form, text) for text in texts]
        return [text if text.isascii() else by_library(text) for text in texts]

    def _cut(self, texts: Sequence[str]) -> Ints:
        with panics_as_errors("cutting text into words"):
            return count_batch(self._counter, texts)

    @functools.cached_property
    def _continues(self) -> str | None:
        """What WordPiece puts before a token that continues a word."""
        model = self._spec["model"]
        return model["continuing_subword_prefix"] if model["type"] == "WordPiece" else None

    @functools.cached_property
    def _marked(self) -> bool | None:
        """Whether a mark is put before each text, if the model is BPE over marks for spaces.

        None for any other model, and for one with further rules for words, decoding or normalising.
        """
        model, forms = self._spec["model"], self._spec["normalizer"]
        own = ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
        plain = model["type"] == "BPE" and not any(model.get(rule) for rule in own)
        first = _MARK_FIRST in forms
        known = _TO_MARKS in forms and all(form in (_TO_MARKS, _MARK_FIRST) for form in forms)
        decoder = [*_TO_TEXT, _UNMARK_FIRST] if first else _TO_TEXT
        if not (plain and known and self._cuts_nothing and self._spec["decoder"] == decoder):
            return None
        return None if self.pipeline.token_to_id(pieces.SPACE_MARK) is None else first

    @functools.cached_property
    def _cuts_nothing(self) -> bool:
        """Whether there is no pre-tokenizer, or one that cuts at spaces, all replaced by then."""
        cuts = self._spec["pre_tokenizer"]
        at_space = all(cut["type"] == "Split" and cut["pattern"] == _SPACE for cut in cuts)
        return not cuts or (at_space and _TO_MARKS in self._spec["normalizer"])

    @functools.cached_property
    def _added(self) -> dict[int, Any]:
        added: dict[int, Any] = self.pipeline.get_added_tokens_decoder()
        return added

    @property
    def spelled_after(self) -> bytes | None:
        by_bytes = [part["type"] for part in self._spec["decoder"]] == ["ByteLevel"]
        return b" " if self._marked else b"" if self._marked is False or by_bytes else None

    @functools.cached_property
    def not_spelled(self) -> NDArray[np.bool_] | None:
        return None if self._marked is None else self._is_added | self.vocabulary.is_unknown

    def gives_back(self, rows: Rows, texts: Sequence[str]) -> NDArray[np.bool_]:
        """As in `Tokenizer`; for WordPiece by what each token decodes to, first or after others."""
        if [part["type"] for part in self._spec["decoder"]] != ["WordPiece"]:
            return super().gives_back(rows, texts)
        ids = rows.ids.copy()
        starts = (np.cumsum(rows.sizes) - rows.sizes)[rows.sizes > 0]
        ids[starts] += len(self.vocabulary)
        return Rows(rows.sizes, ids).spell(texts, b"", self._decoded(ids))

    def _decoded(self, ids: Ids) -> Spelling:
        """What each of these ids decodes to: an id after others, id + vocabulary size as the first.

        A text decodes to these strings in a row.
        """
        known, size = self._decoded_so_far, len(self.vocabulary)
        wanted = np.zeros(2 * size, bool)
        wanted[ids] = True
        numbers = np.flatnonzero(wanted).tolist()
        if new := [n for n in numbers if n not in known]:
            (a,), rest = self.encode(["a"])[0], len("a")
            rows = [[n - size] if n >= size else [a, n] for n in new]
            texts = zip(new, self.decode(rows), strict=True)
            known.update((n, (t if n >= size else t[rest:]).encode("utf-8")) for n, t in texts)
        spelled, *about = spelling([known[n] for n in numbers])
        starts, sizes = np.zeros((2, 2 * size), np.int64)
        starts[numbers], sizes[numbers] = about
        return spelled, starts, sizes

    @functools.cached_property
    def _forms(self) -> list[Any]:
        """The types of the normaliser's steps."""
        return [part["type"] for part in self._spec["normalizer"]]

    @functools.cached_property
    def _patterns(self) -> list[str]:
        """The regular expressions of the pre-tokenizer's steps."""
        patterns = map(pattern_of, self._spec["pre_tokenizer"])
        return [pattern for pattern in patterns if pattern is not None]

    @functools.cached_property
    def _begins_word(self) -> NDArray[np.bool_]:
        flags = np.ones(len(self.vocabulary), bool)
        for token, number in self.pipeline.get_vocab(with_added_tokens=True).items():
            flags[number] = not token.startswith(self._continues or "")
        return flags

    @functools.cached_property
    def _is_added(self) -> NDArray[np.bool_]:
        flags = np.zeros(len(self.vocabulary), bool)
        flags[list(self._added)] = True
        return flags & ~self.vocabulary.is_unknown

    def dropped(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
        """As in `Tokenizer`, plus the characters that no token covers.

        A model that has neither UNK nor all bytes silently leaves out what it does not know, and a
        pre-tokenizer may remove what it cuts at.
        """
        if not self._drops:
            return super().dropped(texts)
        lost = self._lost(texts)
        with self._failing_clearly():
            batch = self.pipeline.encode_batch(list(texts), add_special_tokens=False)
        dropped = np.zeros(len(texts), np.int64)
        for number, (text, encoding) in enumerate(zip(texts, batch, strict=True)):
            covered = np.array([char.isspace() for char in text], bool)
            for start, end in encoding.offsets:
                covered[start:end] = True
            dropped[number] = len(text) - sum(
                kept and char not in lost for char, kept in zip(text, covered.tolist(), strict=True)
            )
        return dropped

    @functools.cached_property
    def _drops(self) -> bool:
        whole = {bytes([b]) for b in range(256)} <= set(self.vocabulary.pieces)
        spelled = self._reads_bytes or bool(self._spec["model"].get("byte_fallback"))
        takes = any(step.get("content") == "" for step in self._spec["normalizer"])
        unsaid = not (self.vocabulary.unknown or (whole and spelled))
        return unsaid or takes or any(not char.isspace() for char in self._cut_out)

    @functools.cached_property
    def _cut_out(self) -> str:
        """Characters that the pre-tokenizer removes; all of Unicode's first plane is tried."""
        steps = self._spec["pre_tokenizer"]
        if all(s["type"] not in _LEAVING_OUT and s.get("behavior") != "Removed" for s in steps):
            return ""
        every = "".join(map(chr, (*range(1, 0xD800), *range(0xE000, 0x10000))))
        covered = np.zeros(len(every), bool)
        with panics_as_errors("cutting text into words"):
            for _, (start, end) in self.pipeline.pre_tokenizer.pre_tokenize_str(every):
                covered[start:end] = True
        return "".join(every[n] for n in np.flatnonzero(~covered).tolist())

    @functools.cached_property
    def _normal(self) -> Callable[[str], str] | None:
        return self.pipeline.normalizer.normalize_str if self._forms else None

    @functools.cached_property
    def _counter(self) -> Any:
        return pretoken_counter(self.pipeline.pre_tokenizer, self.pipeline.normalizer)

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        table: dict[str, int] = self.pipeline.get_vocab(with_added_tokens=True)
        added = self._added
        to_piece = {
            "WordPiece": pieces.wordpiece_piece,
            "BPE": pieces.byte_level_piece if self._byte_level else pieces.sentencepiece_piece,
        }.get(self._spec["model"]["type"], pieces.sentencepiece_piece)
        check_highest_id(max(table.values(), default=0), self._size, self.name)
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
        return frozenset() if self._byte_level or unk not in table else frozenset([table[unk]])

    def clean_vocabulary(self) -> frozenset[bytes]:
        with panics_as_errors("reading its vocabulary"):
            prefix = self.pipeline.encode(pieces.CLEAN_PREFIX, add_special_tokens=False).tokens
            tokens = self.pipeline.get_vocab(with_added_tokens=True)
            decoder = self.pipeline.decoder
            decode = decoder.decode if decoder is not None else " ".join
            return pieces.clean_decoded(tokens, prefix, decode)


def _outline(pipeline: Any) -> dict[str, Any]:
    """The pipeline's own description: each part's steps, and the model's settings."""
    parts = {name: getattr(pipeline, name) for name in ("normalizer", "pre_tokenizer", "decoder")}
    spec: dict[str, Any] = {
        name: [] if part is None else steps_of(json.loads(part.__getstate__()))
        for name, part in parts.items()
    }
    model = pipeline.model
    if type(model).__name__ == "Unigram":  # has no attribute for its UNK
        spec["model"] = {k: v for k, v in json.loads(model.__getstate__()).items() if k != "vocab"}
    else:
        settings = {name: getattr(model, name, None) for name in _SETTINGS}
        spec["model"] = {"type": type(model).__name__, **settings}
    return spec
