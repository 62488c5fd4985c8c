"""Text as distinct words: what the model sees between two cuts, counted once.

A line is first broken before each space, since split patterns never let a match run from a word
into the space behind it; so each distinct chunk is cut by the pattern once, however often it
occurs. Where a model has no split pattern (Llama 2, Gemma) words begin at their space mark, and
no merge is ever learned across it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from tokenizers import Tokenizer

from tokengraft.planning.symbols import WHOLE, Symbols
from tokengraft.tokenizer.boundaries import splitter_of
from tokengraft.tokenizer.insert import family
from tokengraft.tokenizer.vocabulary import SPACE_MARK

_AT_MARK = re.compile(rf"(?<=[^{SPACE_MARK}])(?={SPACE_MARK})")
_BATCH = 1 << 16


class Cutter:
    """Cuts text into the strings that the model encodes one by one."""

    def __init__(self, tokenizer: dict[str, Any]) -> None:
        self._splitter = splitter_of(tokenizer)
        self._at_marks = family(tokenizer) == "byte-fallback-bpe"
        first = self._splitter.pre_tokenize("a")
        # A tokenizer that puts a space before every text already does so for each chunk.
        self.prefixes = bool(first) and len(first[0]) > 1

    def words(self, text: str) -> list[str]:
        """The words of `text`, in order."""
        pieces = self._splitter.pre_tokenize(text)
        if self._at_marks:
            return [word for piece in pieces for word in _AT_MARK.split(piece)]
        return pieces

    def chunks(self, lines: Iterable[str]) -> Counter[str]:
        """Distinct space-initial chunks of the lines with their counts."""
        found: Counter[str] = Counter()
        behind: Counter[str] = Counter()
        for line in lines:
            parts = line.rstrip("\r\n").split(" ")
            found[parts[0]] += 1
            del parts[0]
            behind.update(parts)
        mark = "" if self.prefixes else " "
        del behind[""]
        del found[""]
        for part, times in behind.items():
            found[mark + part] += times
        return found


@dataclass
class Pool:
    """Distinct words of all text in play, with their counts per planning language."""

    cutter: Cutter
    languages: tuple[str, ...]
    index: dict[str, int] = field(default_factory=dict)
    _counts: list[Counter[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._counts = [Counter() for _ in self.languages]

    def add_text(self, language: str, lines: Iterable[str]) -> Counter[str]:
        """Count the words of a planning text; returns its distinct chunks."""
        counts = self._counts[self.languages.index(language)]
        chunks = self.cutter.chunks(lines)
        for chunk, times in chunks.items():
            for word in self.cutter.words(chunk):
                counts[self._number(word)] += times
        return chunks

    def add_check(self, lines: Iterable[str]) -> None:
        """Take the words of lines that are only to be checked."""
        for chunk in self.cutter.chunks(lines):
            for word in self.cutter.words(chunk):
                self._number(word)

    def add_sentences(self, lines: Sequence[str]) -> list[Counter[int]]:
        """Each line as counts of its words; lines are cut whole, so lengths are exact."""
        return [Counter(self._number(w) for w in self.cutter.words(line)) for line in lines]

    def _number(self, word: str) -> int:
        return self.index.setdefault(word, len(self.index))

    def counts(self) -> npt.NDArray[np.int64]:  # (words, languages)
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


class Encoder:
    """The model of a tokenizer alone: words that are already cut, in its own alphabet."""

    def __init__(self, pipeline: Tokenizer) -> None:
        self._pipeline = Tokenizer(pipeline.model)

    def ids(self, words: Sequence[str]) -> list[list[int]]:
        """Ids of each word."""
        found: list[list[int]] = []
        for start in range(0, len(words), _BATCH):
            batch = list(words[start : start + _BATCH])
            encoded = self._pipeline.encode_batch_fast(batch, add_special_tokens=False)
            found += [one.ids for one in encoded]
        return found


def join_bytes(words: Iterable[Sequence[int]], symbols: Symbols) -> list[list[int]]:
    """Words with every run of byte tokens read as whole characters (`Symbols.wholes`)."""
    byte_of = {
        number: symbols.piece(name)[0]
        for name, number in symbols.ids.items()
        if len(name) == 6 and name.startswith("<0x")
    }
    characters: dict[str, int] = {}
    joined = []
    for word in words:
        if byte_of.keys().isdisjoint(word):
            joined.append(list(word))
            continue
        out: list[int] = []
        run = bytearray()
        for number in [*word, -1]:
            if number in byte_of:
                run.append(byte_of[number])
                continue
            for character in run.decode("utf-8"):
                symbol = characters.setdefault(character, WHOLE + len(characters))
                out.append(symbol)
            run.clear()
            if number >= 0:
                out.append(number)
        joined.append(out)
    for character, symbol in characters.items():
        symbols.names[symbol] = character
        symbols.wholes[symbol] = len(character.encode("utf-8")) - 1
    return joined


def load(tokenizer: dict[str, Any]) -> Tokenizer:
    """The working tokenizer of a parsed `tokenizer.json`."""
    return Tokenizer.from_str(json.dumps(tokenizer))


def lengths(pipeline: Tokenizer, texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """Tokens of each text, without special tokens."""
    found = [
        len(one)
        for start in range(0, len(texts), _BATCH)
        for one in pipeline.encode_batch_fast(
            list(texts[start : start + _BATCH]), add_special_tokens=False
        )
    ]
    return np.array(found, np.int64)
