"""Text as distinct words with their counts; a word is what the model sees between two cuts.

Each distinct chunk of a text is cut by the split pattern only once. An added token that the
pipeline cuts out of the text is a word of its own, given as its id. If a model has no split pattern
(Llama 2, Gemma), words begin at their space mark, and no merge is ever learned across it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice, pairwise
from typing import Any

import numpy as np
from scipy import sparse
from tokenizers import AddedToken, Encoding, Tokenizer
from tokenizers.models import BPE

from tokengraft.core.errors import TokenizerError, gave_up
from tokengraft.corpus.lines_of import CountedText
from tokengraft.planning.chain import Ints
from tokengraft.planning.symbols import WHOLE, Symbols
from tokengraft.tokenizer.boundaries import Word, splitter_of
from tokengraft.tokenizer.file_shape import TokenizerKey
from tokengraft.tokenizer.insert import added_ids, family, model_type, vocabulary
from tokengraft.tokenizer.vocabulary import SPACE_MARK, byte_alphabet

_AT_MARK = re.compile(rf"(?<=[^{SPACE_MARK}])(?={SPACE_MARK})")
_SPACE = next(letter for letter, byte in byte_alphabet().items() if byte == ord(" "))
_JOINED = 64  # chunks cut by one call
_BATCH = 1 << 14
_ADDED = {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}
_BPE = (
    "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
    "byte_fallback", "ignore_merges",
)  # fmt: skip


class Cutter:
    """Cuts text into the strings that the model encodes one by one."""

    def __init__(self, tokenizer: dict[str, Any]) -> None:
        self._splitter = splitter_of(tokenizer)
        self._at_marks = family(tokenizer) == "byte-fallback-bpe"
        first = self._splitter.pre_tokenize("a")
        # A tokenizer that puts a space before every text already does so for each chunk.
        self._prefixes = isinstance(first[0], str) and len(first[0]) > 1 if first else False
        self._joins = self.words(" a b") == [f"{_SPACE}a", f"{_SPACE}b"]

    def words(self, text: str) -> list[Word]:
        """The words of `text`, in order."""
        pieces = self._splitter.pre_tokenize(text)
        if not self._at_marks:
            return pieces
        words: list[Word] = []
        for piece in pieces:
            words += _AT_MARK.split(piece) if isinstance(piece, str) else [piece]
        return words

    def in_text(self, chunk: str) -> str:
        """A text in which the chunk is cut as it would be after other text."""
        return f"a{chunk}" if self._prefixes and chunk.startswith(" ") else chunk

    def words_of_chunks(self, chunks: Iterable[str]) -> Iterator[list[Word]]:
        """The words of each chunk (`lines_of.count_chunks`)."""
        for spaced, group in groupby(chunks, lambda chunk: chunk.startswith(" ")):
            if not (spaced and self._joins):
                for chunk in group:
                    words = self.words(chunk.removeprefix(" ") if self._prefixes else chunk)
                    if spaced and self._prefixes and words and isinstance(words[0], int):
                        # No space is put before an added token, so the chunk's own space counts.
                        words = self.words(self.in_text(chunk))[1:]
                    yield words
                continue
            while joined := list(islice(group, _JOINED)):
                yield from self._words_of_joined(joined)

    def _words_of_joined(self, chunks: Sequence[str]) -> Iterable[list[Word]]:
        """The words of chunks that begin with a space, cut in one call, since calls are costly."""
        pieces = self.words("".join(chunks))
        starts = [n for n, p in enumerate(pieces) if isinstance(p, str) and p[0] == _SPACE]
        if len(starts) != len(chunks) or starts[0]:
            return map(self.words, chunks)
        return (pieces[a:b] for a, b in pairwise([*starts, len(pieces)]))


@dataclass
class Pool:
    """The distinct words of all text, with counts by language, and for each a text that holds it.

    `index` numbers the words in order of first occurrence; `origins` gives that text by number.
    """

    cutter: Cutter
    languages: tuple[str, ...]
    index: dict[Word, int] = field(default_factory=dict)
    origins: list[str] = field(default_factory=list)
    _counts: list[Counter[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._counts = [Counter() for _ in self.languages]

    def add_text(self, language: str, text: CountedText) -> None:
        """Count the words of a planning text."""
        counts = self._counts[self.languages.index(language)]
        cut = self.cutter.words_of_chunks(text.chunks)
        for words, (chunk, times) in zip(cut, text.chunks.items(), strict=True):
            origin = self.cutter.in_text(chunk)
            for word in words:
                counts[self._number(word, origin)] += times

    def add_sentences(self, lines: Sequence[str]) -> Encoded:
        """Each line as numbers of words; lines are cut as a whole, so lengths are exact."""
        return Encoded.of(
            [self._number(w, line) for w in self.cutter.words(line)] for line in lines
        )

    def _number(self, word: Word, origin: str) -> int:
        number = self.index.setdefault(word, len(self.index))
        if number == len(self.origins):
            self.origins.append(origin)
        return number

    def counts(self) -> sparse.csr_array:  # (words, languages)
        """Occurrences of each word in each language's planning text."""
        sizes = [len(counts) for counts in self._counts]
        words = np.fromiter((w for counts in self._counts for w in counts), np.int64, sum(sizes))
        times = np.fromiter((n for c in self._counts for n in c.values()), np.int64, sum(sizes))
        columns = np.repeat(np.arange(len(sizes)), sizes)
        shape = (len(self.index), len(self.languages))
        return sparse.csr_array((times, (words, columns)), shape=shape)

    def matrix(self, sentences: Encoded) -> sparse.csr_array:
        """Counts, (sentences, words), so that `matrix @ lengths` is tokens per sentence."""
        ends = np.concatenate(([0], np.cumsum(sentences.sizes)))
        ones = np.ones(len(sentences.ids), np.int64)
        shape = (len(sentences.sizes), len(self.index))
        return sparse.csr_array((ones, sentences.ids, ends), shape=shape)


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


def join_bytes(words: Encoded, symbols: Symbols) -> Encoded:
    """The words with every run of byte tokens replaced by the characters it spells.

    Each such character gets a new symbol, which is entered in `symbols` (`Symbols.wholes`).
    """
    byte_of = {
        number: symbols.piece(name)[0]
        for name, number in symbols.ids.items()
        if len(name) == 6 and name.startswith("<0x")
    }
    joined = [
        word if byte_of.keys().isdisjoint(word) else _with_characters(word, byte_of)
        for word in words
    ]
    # Numbered by code point, since ties are broken by number: the text's order must not matter.
    characters = sorted({part for word in joined for part in word if isinstance(part, str)})
    numbers = {character: WHOLE + place for place, character in enumerate(characters)}
    for character, symbol in numbers.items():
        symbols.names[symbol] = character
        symbols.wholes[symbol] = len(character.encode("utf-8")) - 1
    return Encoded.of(
        [numbers[part] if isinstance(part, str) else part for part in word] for word in joined
    )


def _with_characters(word: Sequence[int], byte_of: Mapping[int, int]) -> list[int | str]:
    out: list[int | str] = []
    for is_bytes, group in groupby(word, byte_of.__contains__):
        run = list(group)
        out += bytes(byte_of[number] for number in run).decode("utf-8") if is_bytes else run
    return out


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
    sizes = (len(one) for batch in _batches(pipeline, texts) for one in batch)
    return np.fromiter(sizes, np.int64, len(texts))


def emitted_ids(pipeline: Tokenizer, texts: Sequence[str]) -> set[int]:
    """Every id that occurs in the encoded texts."""
    return {number for batch in _batches(pipeline, texts) for one in batch for number in one.ids}


def encode(pipeline: Tokenizer, texts: Sequence[str]) -> Iterator[Encoded]:
    """The ids of the texts, a batch at a time, without special tokens."""
    for batch in _batches(pipeline, texts):
        yield Encoded.of([one.ids for one in batch])


def _batches(pipeline: Tokenizer, texts: Sequence[str]) -> Iterator[list[Encoding]]:
    for start in range(0, len(texts), _BATCH):
        yield pipeline.encode_batch_fast(
            list(texts[start : start + _BATCH]), add_special_tokens=False
        )
