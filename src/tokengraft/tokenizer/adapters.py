"""One interface over the field's tokenizer libraries; an adapter calls its library, no more."""

from __future__ import annotations

import abc
import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.tokenizer.vocabulary import Vocabulary
from tokengraft.tokenizer.words import Ints, Rows, together


class Tokenizer(abc.ABC):
    """Text to ids and back, without special tokens, exactly as the wrapped library does it."""

    def __init__(self, name: str, fingerprint: str) -> None:
        self.name = name
        self.fingerprint = fingerprint  # sha256 over the files that define the tokenizer

    @property
    @abc.abstractmethod
    def family(self) -> str:
        """What kind of tokenizer it is, in words."""

    @property
    @abc.abstractmethod
    def lossless(self) -> bool:
        """Whether decode(encode(x)) == x holds for every x by construction."""

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text; no special tokens are added."""

    def encode_alone(self, texts: Sequence[str]) -> list[list[int]]:
        """The same in this thread alone, where other processes want the cores."""
        return self.encode(texts)

    def encode_texts(self, texts: Sequence[str], alone: bool = False) -> Rows:
        """`encode` as arrays; with `alone` in this thread only."""
        return Rows.of(self.encode_alone(texts) if alone else self.encode(texts))

    @functools.cached_property
    def word_prefix(self) -> str | None:
        """What a word has before it inside a text, where a text's ids are those of its words.

        A space, or nothing where the tokenizer puts one there itself. None where words cannot be
        encoded by themselves (`words`).
        """
        return None

    def encode_words(self, words: Sequence[str], alone: bool = False) -> Rows:
        """Ids of each of these `plain` words as it stands after a space; many are read at once.

        With `alone` in this thread only.
        """
        prefix = self.word_prefix or ""
        encode = self.encode_alone if alone else self.encode
        blocks = list(together(words))
        parts = []
        texts = [prefix + " ".join(block) for block in blocks]
        for block, ids in zip(blocks, encode(texts), strict=True):
            flat = np.array(ids, np.uint32)
            heads = np.flatnonzero(self.vocabulary.starts_with_space[flat])
            if len(heads) == len(block) and heads[0] == 0:
                parts.append(Rows(np.diff(heads, append=len(flat)), flat))
            else:  # a normaliser made spaces of other characters
                parts.append(self.encode_texts([prefix + word for word in block], alone))
        return Rows.joined(parts)

    def pretokens_of_words(self, words: Sequence[str]) -> Ints | None:
        """`pretokens` of the same words."""
        return self.pretokens([f"{self.word_prefix or ''}{word}" for word in words])

    @abc.abstractmethod
    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each id sequence, special tokens shown."""

    @abc.abstractmethod
    def pretokens(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
        """How many pieces each text is cut into before any vocabulary is consulted.

        No vocabulary can encode a text in fewer tokens. None where the tokenizer cuts nothing.
        """

    def dropped(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
        """Characters of each text, spaces apart, that no token stands for; None: it drops none."""
        del texts
        return None

    @functools.cached_property
    @abc.abstractmethod
    def vocabulary(self) -> Vocabulary:
        """Each token as bytes."""

    @abc.abstractmethod
    def clean_vocabulary(self) -> frozenset[bytes]:
        """The vocabulary as the paper compares it (see `vocabulary.py`)."""

    @property
    def raw_bytes(self) -> bool:
        """Whether the paper reads this vocabulary as raw bytes instead of decoded strings."""
        return False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.family}, {len(self.vocabulary)} tokens>"


#: A space that is no part of a word and is never read together with the space after it.
WIDE_SPACE = "\u3000"


def pretoken_counter(pre_tokenizer: Any, normalizer: Any = None) -> Any:
    """A `tokenizers` pipeline in which every pre-token becomes exactly one token: 1 or 0.

    1 is a wide space.

    Counting its output in Rust batches is several times faster than `pre_tokenize_str`.
    """
    from tokenizers import Tokenizer as Pipeline
    from tokenizers.models import WordLevel

    counter = Pipeline(WordLevel({"?": 0, WIDE_SPACE: 1}, unk_token="?"))  # noqa: S106
    counter.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        counter.normalizer = normalizer
    return counter


def count_batch(pipeline: Any, texts: Sequence[str]) -> NDArray[np.int64]:
    """Number of tokens of each text."""
    encodings = pipeline.encode_batch_fast(list(texts), add_special_tokens=False)
    return np.fromiter(map(len, encodings), np.int64, len(texts))


def by_word(block: Sequence[str], encoding: Any) -> NDArray[np.int64]:
    """Of each token of a block of words read as one text, the number of its word."""
    heads = np.cumsum([0, *(len(word) + 1 for word in block)])[:-1]
    starts = np.fromiter((start for start, _ in encoding.offsets), np.int64, len(encoding))
    return np.asarray(np.searchsorted(heads, starts, side="right") - 1, np.int64)


def for_oniguruma(pattern: str) -> str:
    r"""Rewrite a tiktoken pattern for the regex engine of `tokenizers`.

    Oniguruma reads `{1,3}+` as "repeat", not as possessive, and `$` as end of line. Possessive
    quantifiers only save backtracking in these patterns, so plain ones match the same text.
    """
    plain = re.sub(r"(?<!\\)([+*?]|\{\d+(?:,\d*)?\})\+", r"\1", pattern)
    return re.sub(r"(?<!\\)\$", r"\\z", plain)
