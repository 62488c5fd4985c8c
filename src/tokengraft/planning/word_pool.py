"""Text as distinct words with their counts; a word is what the model sees between two cuts.

Each distinct chunk of a text is cut by the split pattern only once. An added token that the
pipeline cuts out of the text is a word of its own, given as its id. If a model has no split pattern
(Llama 2, Gemma), words begin at their space mark, and no merge is ever learned across it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, pairwise
from typing import Any

import numpy as np
from scipy import sparse

from tokengraft.corpus.lines_of import CountedText
from tokengraft.planning.symbols import WHOLE, Symbols
from tokengraft.tokenizer.insert import family
from tokengraft.tokenizer.pipeline import Encoded
from tokengraft.tokenizer.pre_tokenizer import Word, splitter_of
from tokengraft.tokenizer.vocabulary import SPACE_MARK, byte_alphabet

_AT_MARK = re.compile(rf"(?<=[^{SPACE_MARK}])(?={SPACE_MARK})")
_SPACE = next(letter for letter, byte in byte_alphabet().items() if byte == ord(" "))
_JOINED = 64  # chunks cut by one call


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
