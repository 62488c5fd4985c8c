"""The working tokenizer of a parsed `tokenizer.json`, and ids of many texts as two arrays."""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from tokengraft.core.errors import TokenizerError, gave_up
from tokengraft.core.files import sha256
from tokengraft.tokenizer.fast import WORTH
from tokengraft.tokenizer.file_shape import TokenizerKey
from tokengraft.tokenizer.insert import added_ids, model_type, vocabulary
from tokengraft.tokenizer.pre_tokenizer import Word
from tokengraft.tokenizer.rows import Ints, Rows

if TYPE_CHECKING:
    from tokengraft.tokenizer.huggingface import HuggingFace

_BATCH = 1 << 14
_ADDED = {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}
_BPE = (
    "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
    "byte_fallback", "ignore_merges",
)  # fmt: skip


@dataclass(frozen=True)
class Encoded:
    """Ids of many words end to end; `sizes` says how many each word has.

    Two arrays instead of a list for each word: a million small lists slow Python's garbage
    collector down.
    """

    ids: Ints
    sizes: Ints

    @classmethod
    def of(cls, words: Iterable[Sequence[int]]) -> Encoded:
        """From one sequence of ids for each word."""
        words = list(words)
        sizes = np.fromiter(map(len, words), np.int64, len(words))
        return cls(np.fromiter(chain.from_iterable(words), np.int64, int(sizes.sum())), sizes)

    def __iter__(self) -> Iterator[list[int]]:
        ids = self.ids.tolist()
        ends = np.cumsum(self.sizes)
        for start, end in zip((ends - self.sizes).tolist(), ends.tolist(), strict=True):
            yield ids[start:end]


class Encoder:
    """A tokenizer's model by itself, for words that are already cut; added tokens stay ids."""

    def __init__(self, pipeline: Tokenizer) -> None:
        self._pipeline = Tokenizer(pipeline.model)

    def ids(self, words: Sequence[Word]) -> Encoded:
        """Ids of each word."""
        texts = [word for word in words if isinstance(word, str)]
        batches = list(encode(self._pipeline, texts)) or [Encoded.of([])]
        ids = np.concatenate([part.ids for part in batches])
        sizes = np.concatenate([part.sizes for part in batches])
        if len(texts) == len(words):
            return Encoded(ids, sizes)
        added = np.fromiter((isinstance(word, int) for word in words), bool, len(words))
        every = np.ones(len(words), np.int64)
        every[~added] = sizes
        own = np.repeat(added, every)
        mixed = np.empty(len(own), np.int64)
        mixed[~own] = ids
        mixed[own] = [word for word in words if isinstance(word, int)]
        return Encoded(mixed, every)


def load(tokenizer: dict[str, Any]) -> Tokenizer:
    """The working tokenizer of a parsed `tokenizer.json`, which neither pads nor truncates.

    Treat it as read-only: it is cached, and a later call with an equal one gets the same object
    (`TokenizerKey`). Raises TokenizerError if the library refuses the file or does not read it as
    we do: two tokens with one id, an added token under another id, another type of model.
    """
    return _loaded(TokenizerKey(tokenizer))


@functools.lru_cache(maxsize=3)  # a plan loads both the base and the extended one several times
def _loaded(key: TokenizerKey) -> Tokenizer:
    tokenizer = key.tokenizer
    try:
        pipeline = _read(tokenizer)
    except BaseException as error:  # the library raises bare Exception, and Rust may panic
        if not gave_up(error):
            raise
        raise TokenizerError(f"this tokenizer.json cannot be used ({error})") from error
    looks, kind = model_type(tokenizer["model"]), type(pipeline.model).__name__
    if looks != kind:
        raise TokenizerError(
            f"the model of this tokenizer.json names no type and looks like {looks}, but the "
            f"library `tokenizers` reads it as {kind}: fetch the tokenizer again"
        )
    said = added_ids(tokenizer)
    for content, number in said.items():
        if (given := pipeline.token_to_id(content)) != number:
            raise TokenizerError(
                f"this tokenizer.json says that {content!r} has id {number}, but the library "
                f"`tokenizers` gives it {given}: fetch the tokenizer again"
            )
    numbers = (vocabulary(tokenizer) | said).values()
    if len(set(numbers)) < len(numbers):
        twice, _ = Counter(numbers).most_common(1)[0]
        raise TokenizerError(
            f"this tokenizer.json gives the id {twice} to more than one token: fetch it again"
        )
    pipeline.no_padding()
    pipeline.no_truncation()
    return pipeline


def _read(tokenizer: dict[str, Any]) -> Tokenizer:
    """What the library would read from the file's text.

    BPE is built from the parsed objects, in half the time. If that fails, or if added tokens might
    get other ids in this way, the text is read after all, so that the library itself says what is
    wrong.
    """
    model, added = tokenizer["model"], tokenizer.get("added_tokens", [])
    with contextlib.suppress(Exception):
        merges = model["merges"]
        listed = model["type"] == "BPE" and isinstance(merges, list)
        if listed and _numbered_alike(added, model["vocab"]):
            if merges and isinstance(merges[0], str):  # all are strings, or all are pairs
                merges = [merge.split(" ") for merge in merges]
            settings = {name: model[name] for name in _BPE if model.get(name) is not None}
            bpe = BPE(model["vocab"], list(map(tuple, merges)), **settings)
            rest = {**tokenizer, "added_tokens": [], "model": {**model, "vocab": {}, "merges": []}}
            pipeline = Tokenizer.from_str(json.dumps(rest))
            pipeline.model = bpe
            for special, tokens in groupby(added, lambda token: bool(token["special"])):
                add = pipeline.add_special_tokens if special else pipeline.add_tokens
                add([AddedToken(**{k: v for k, v in t.items() if k != "id"}) for t in tokens])
            return pipeline
    return Tokenizer.from_str(json.dumps(tokenizer, ensure_ascii=False))


def _numbered_alike(added: list[dict[str, Any]], vocab: Mapping[str, int]) -> bool:
    """Whether added tokens get the same ids, all at once or in groups, as they do in `_read`."""
    absent = [token["id"] for token in added if token["content"] not in vocab]
    after = range(len(vocab), len(vocab) + len(absent))
    return (
        isinstance(added, list)
        and all(token.keys() == _ADDED for token in added)
        and (not absent or (absent == list(after) and max(vocab.values(), default=-1) < after[0]))
    )


def lengths(pipeline: Tokenizer, texts: Sequence[str]) -> Ints:
    """Tokens of each text, without special tokens."""
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *(batch.sizes for batch in _batches(pipeline, texts))])


def emitted_ids(pipeline: Tokenizer, texts: Sequence[str]) -> set[int]:
    """Every id that occurs in the encoded texts."""
    return {n for batch in _batches(pipeline, texts) for n in np.unique(batch.ids).tolist()}


def encode(pipeline: Tokenizer, texts: Sequence[str]) -> Iterator[Encoded]:
    """The ids of the texts, a batch at a time, without special tokens."""
    for batch in _batches(pipeline, texts):
        yield Encoded(batch.ids.astype(np.int64), batch.sizes)


def _batches(pipeline: Tokenizer, texts: Sequence[str]) -> Iterator[Rows]:
    adapter = _adapter(pipeline) if (length := sum(map(len, texts))) >= WORTH else None
    if adapter is not None:
        adapter.hasten(length)
    for start in range(0, len(texts), _BATCH):
        batch = list(texts[start : start + _BATCH])
        if adapter is not None:
            yield adapter.encode_texts(batch)
        else:
            made = pipeline.encode_batch_fast(batch, add_special_tokens=False)
            yield Rows.of(one.ids for one in made)


@functools.lru_cache(maxsize=3)
def _adapter(pipeline: Tokenizer) -> HuggingFace:
    """The pipeline as an adapter, which may encode with a faster library."""
    from tokengraft.tokenizer.huggingface import HuggingFace

    written = pipeline.to_str().encode("utf-8")
    return HuggingFace("this tokenizer", sha256(written), pipeline, len(written))
