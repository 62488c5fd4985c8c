"""Text as distinct words: what the model sees between two cuts, counted once.

Each distinct chunk of a text (`text`) is cut by the split pattern once, however often it occurs.
Where a model has no split pattern (Llama 2, Gemma) words begin at their space mark, and no merge
is ever learned across it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice, pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from tokenizers import Encoding, Tokenizer

from tokengraft.planning.symbols import WHOLE, Symbols
from tokengraft.planning.text import Text, count_chunks
from tokengraft.tokenizer.boundaries import splitter_of
from tokengraft.tokenizer.insert import family
from tokengraft.tokenizer.vocabulary import SPACE_MARK, byte_alphabet

_AT_MARK = re.compile(rf"(?<=[^{SPACE_MARK}])(?={SPACE_MARK})")
_SPACE = next(letter for letter, byte in byte_alphabet().items() if byte == ord(" "))
_JOINED = 64  # chunks cut by one call
_BATCH = 1 << 14

Ints: TypeAlias = npt.NDArray[np.int64]


class Cutter:
    """Cuts text into the strings that the model encodes one by one."""

    def __init__(self, tokenizer: dict[str, Any]) -> None:
        self._splitter = splitter_of(tokenizer)
        self._at_marks = family(tokenizer) == "byte-fallback-bpe"
        first = self._splitter.pre_tokenize("a")
        # A tokenizer that puts a space before every text already does so for each chunk.
        self._prefixes = bool(first) and len(first[0]) > 1
        self._joins = self.words(" a b") == [f"{_SPACE}a", f"{_SPACE}b"]

    def words(self, text: str) -> list[str]:
        """The words of `text`, in order."""
        pieces = self._splitter.pre_tokenize(text)
        if self._at_marks:
            return [word for piece in pieces for word in _AT_MARK.split(piece)]
        return pieces

    def words_of_chunks(self, chunks: Iterable[str]) -> Iterator[list[str]]:
        """The words of each chunk (`text.count_chunks`)."""
        for spaced, group in groupby(chunks, lambda chunk: chunk.startswith(" ")):
            if not (spaced and self._joins):
                for chunk in group:
                    yield self.words(chunk.removeprefix(" ") if self._prefixes else chunk)
                continue
            while joined := list(islice(group, _JOINED)):
                yield from self._words_of_joined(joined)

    def _words_of_joined(self, chunks: Sequence[str]) -> Iterable[list[str]]:
        """The same for chunks that begin with a space: one call for all, since each call costs."""
        pieces = self.words("".join(chunks))
        starts = [place for place, piece in enumerate(pieces) if piece[0] == _SPACE]
        if len(starts) != len(chunks) or starts[0]:
            return map(self.words, chunks)
        return (pieces[a:b] for a, b in pairwise([*starts, len(pieces)]))


@dataclass
class Pool:
    """Distinct words of all text in play, with their counts per planning language."""

    cutter: Cutter
    languages: tuple[str, ...]
    index: dict[str, int] = field(default_factory=dict)
    _counts: list[Counter[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._counts = [Counter() for _ in self.languages]

    def add_text(self, language: str, text: Text) -> None:
        """Count the words of a planning text."""
        counts = self._counts[self.languages.index(language)]
        cut = self.cutter.words_of_chunks(text.chunks)
        for words, times in zip(cut, text.chunks.values(), strict=True):
            for word in words:
                counts[self._number(word)] += times

    def add_check(self, lines: Iterable[str]) -> None:
        """Take the words of lines that are only to be checked."""
        for words in self.cutter.words_of_chunks(count_chunks(lines)):
            for word in words:
                self._number(word)

    def add_sentences(self, lines: Sequence[str]) -> list[Counter[int]]:
        """Each line as counts of its words; lines are cut whole, so lengths are exact."""
        return [Counter(self._number(w) for w in self.cutter.words(line)) for line in lines]

    def _number(self, word: str) -> int:
        return self.index.setdefault(word, len(self.index))

    def counts(self) -> Ints:  # (words, languages)
        """Occurrences of each word in each language's planning text."""
        table = np.zeros((len(self.index), len(self.languages)), np.int64)
        for column, counts in enumerate(self._counts):
            for word, times in counts.items():
                table[word, column] = times
        return table

    def matrix(self, sentences: Sequence[Mapping[int, int]]) -> sparse.csr_matrix:
        """(sentences, words) of counts, so that `matrix @ lengths` is tokens per sentence."""
        rows = np.repeat(np.arange(len(sentences)), [len(s) for s in sentences])
        columns = np.fromiter((w for s in sentences for w in s), np.int64, len(rows))
        values = np.fromiter((n for s in sentences for n in s.values()), np.int64, len(rows))
        shape = (len(sentences), len(self.index))
        return sparse.csr_matrix((values, (rows, columns)), shape=shape)


@dataclass(frozen=True)
class Encoded:
    """Ids of many words end to end; `sizes` says how many each word has.

    Two arrays, not a list a word: a million small lists slow Python's garbage collector down.
    """

    ids: Ints
    sizes: Ints

    @classmethod
    def of(cls, words: Iterable[Sequence[int]]) -> Encoded:
        """The same from a sequence a word."""
        words = list(words)
        sizes = np.fromiter(map(len, words), np.int64, len(words))
        return cls(np.fromiter(chain.from_iterable(words), np.int64, int(sizes.sum())), sizes)

    def __iter__(self) -> Iterator[list[int]]:
        ids = self.ids.tolist()
        ends = np.cumsum(self.sizes)
        for start, end in zip((ends - self.sizes).tolist(), ends.tolist(), strict=True):
            yield ids[start:end]


class Encoder:
    """The model of a tokenizer alone: words that are already cut, in its own alphabet."""

    def __init__(self, pipeline: Tokenizer) -> None:
        self._pipeline = Tokenizer(pipeline.model)

    def ids(self, words: Sequence[str]) -> Encoded:
        """Ids of each word."""
        found = [
            Encoded.of([one.ids for one in batch]) for batch in _batches(self._pipeline, words)
        ]
        if not found:
            return Encoded.of([])
        return Encoded(
            np.concatenate([part.ids for part in found]),
            np.concatenate([part.sizes for part in found]),
        )


def join_bytes(words: Encoded, symbols: Symbols) -> Encoded:
    """Words with every run of byte tokens read as whole characters (`Symbols.wholes`)."""
    byte_of = {
        number: symbols.piece(name)[0]
        for name, number in symbols.ids.items()
        if len(name) == 6 and name.startswith("<0x")
    }
    joined = [
        word if byte_of.keys().isdisjoint(word) else _with_characters(word, byte_of)
        for word in words
    ]
    # In the order of code points, whatever the order of the text: ties are broken by number.
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
    """The working tokenizer of a parsed `tokenizer.json`."""
    return Tokenizer.from_str(json.dumps(tokenizer, ensure_ascii=False))


def lengths(pipeline: Tokenizer, texts: Sequence[str]) -> Ints:
    """Tokens of each text, without special tokens."""
    found = (len(one) for batch in _batches(pipeline, texts) for one in batch)
    return np.fromiter(found, np.int64, len(texts))


def _batches(pipeline: Tokenizer, texts: Sequence[str]) -> Iterator[list[Encoding]]:
    for start in range(0, len(texts), _BATCH):
        yield pipeline.encode_batch_fast(
            list(texts[start : start + _BATCH]), add_special_tokens=False
        )
