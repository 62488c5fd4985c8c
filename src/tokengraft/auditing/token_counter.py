"""Tokens, UNKs and split characters of each language, by tokenizer: what an audit adds up.

A parallel corpus also gives, for each number p of pivot tokens, the sums over the units whose
pivot has p tokens. The mean of ratios and its variance follow from those integers alone
(sum of c / p over units = sum over p of (sum of c) / p), so the order of adding changes nothing.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import numpy as np

from tokengraft.auditing.count import ids_counted
from tokengraft.core.errors import TokenizerError
from tokengraft.core.files import sha256
from tokengraft.corpus.rows import Batch, Layout, Seen
from tokengraft.engine.count_shards import Payload
from tokengraft.tokenizer import Tokenizer
from tokengraft.tokenizer.fast import share
from tokengraft.tokenizer.packed import Packed
from tokengraft.tokenizer.rows import Ints

VERSION = "7"  # part of every key: raise it when the meaning of a count changes


@dataclass(frozen=True)
class TokenWork:
    """Count rows, bytes, characters, and each tokenizer's tokens, UNKs and split characters."""

    layout: Layout
    tokenizers: tuple[Packed, ...]
    pivot: str | None = None  # for a parallel corpus only
    reference: frozenset[str] = frozenset()  # tokenizers that no faster library encodes for

    @property
    def fingerprint(self) -> str:
        """Hash of the tokenizers' files, the options and `VERSION`."""
        prints = [(t.name, t.fingerprint) for t in self.tokenizers]
        parts: list[object] = ["tokens", VERSION, self.layout.fingerprint, prints, self.pivot]
        parts += [sorted(self.reference)] if self.reference else []
        return sha256(json.dumps(parts).encode())

    def open(self, threads: int) -> TokenCounter:
        """Open the tokenizers in this process."""
        opened = {packed.name: packed.open() for packed in self.tokenizers}
        for name in self.reference:
            opened[name].by_reference()
        return TokenCounter(opened, self.pivot, threads)


class TokenCounter:
    """The counts of one shard at a time; see `count_shards.Counter`.

    Payload: `text` language → [rows, bytes, characters]; `tokens` tokenizer → language →
    [tokens, UNKs and silently dropped characters, tokens that begin inside a character]; with a
    pivot, `pairs` tokenizer → language → pivot tokens → [units, tokens, squared tokens,
    tokens that begin inside a character]. `encoders` has, for each tokenizer and encoder, the texts
    that it encoded; `refuted`, for a tokenizer, that its faster encoder turned out to be wrong.
    """

    def __init__(self, tokenizers: dict[str, Tokenizer], pivot: str | None, threads: int) -> None:
        self._tokenizers = tokenizers
        self._pivot = pivot
        self._threads = threads
        self._chance = random.SystemRandom()
        self._length = 0  # characters so far, of all shards
        self.begin()

    def begin(self) -> None:
        """Forget all counts."""
        self._codes: dict[str, int] = {}
        self._text = np.zeros((0, 3), np.int64)  # (languages, 3): rows, bytes, characters
        self._tokens = {name: np.zeros((0, 3), np.int64) for name in self._tokenizers}
        self._pairs: dict[str, dict[str, dict[int, list[int]]]] = {n: {} for n in self._tokenizers}
        self._encoders: dict[str, dict[str, int]] = {name: {} for name in self._tokenizers}
        self._refuted: dict[str, int] = {}

    def progress(self) -> tuple[int, int, int]:
        """Rows, bytes of text and tokens since `begin`."""
        rows, size, _ = self._text.sum(axis=0).tolist()
        return rows, size, sum(int(table[:, 0].sum()) for table in self._tokens.values())

    def add(self, batch: Batch, seen: Seen) -> None:
        """Count the rows; one that any tokenizer cannot encode goes to `seen`, counted by none."""
        texts = [text for row in batch.rows for _, text, _ in row]
        self._length += sum(map(len, texts))
        sample = self._sample(batch)
        try:
            encoded = {
                name: self._measure(tokenizer, texts, sample)
                for name, tokenizer in self._tokenizers.items()
            }
        except TokenizerError:
            self._sift(batch, seen)
        else:
            self._add(batch, encoded)

    def _add(self, batch: Batch, encoded: dict[str, Ints]) -> None:
        pairs = [pair for row in batch.rows for pair in row]
        for code, _, _ in pairs:
            self._codes.setdefault(code, len(self._codes))
        which = np.fromiter((self._codes[code] for code, _, _ in pairs), np.int64, len(pairs))
        sizes = np.array([(1, size, len(text)) for _, text, size in pairs], np.int64).reshape(-1, 3)
        self._text = _added(self._text, len(self._codes), which, sizes)
        for name, table in encoded.items():
            self._tokens[name] = _added(self._tokens[name], len(self._codes), which, table)
        if self._pivot is not None:
            self._add_pairs(batch, encoded)

    def payload(self) -> Payload:
        """The counts since `begin`, as plain integers."""
        result: Payload = {
            "text": {code: self._text[n].tolist() for code, n in self._codes.items()},
            "tokens": {
                name: {code: table[n].tolist() for code, n in self._codes.items()}
                for name, table in self._tokens.items()
            },
            "encoders": {name: dict(by) for name, by in self._encoders.items()},
        }
        if self._refuted:
            result["refuted"] = dict(self._refuted)
        if self._pivot is not None:
            result["pairs"] = {
                name: {
                    code: {str(p): sums for p, sums in by_pivot.items()}
                    for code, by_pivot in languages.items()
                }
                for name, languages in self._pairs.items()
            }
        return result

    def _sample(self, batch: Batch) -> list[int]:
        """The texts to encode by both libraries: at first all of a language, later fewer."""
        codes = [code for row in batch.rows for code, _, _ in row]
        seen = {code: int(self._text[n, 0]) for code, n in self._codes.items()}
        numbers = []
        for number, code in enumerate(codes):
            seen[code] = seen.get(code, 0) + 1
            if self._chance.random() < share(seen[code]):
                numbers.append(number)
        return numbers

    def _measure(
        self, tokenizer: Tokenizer, texts: list[str], sample: list[int] | None = None
    ) -> Ints:
        """(texts, 3): tokens, UNKs, tokens that begin inside a character."""
        tokenizer.hasten(self._length)
        before = tokenizer.encoder
        rows = tokenizer.encode_texts(texts, self._threads == 1, sample)
        if tokenizer.encoder != before:
            self._refuted[tokenizer.name] = 1
        by = self._encoders[tokenizer.name]
        by[tokenizer.encoder] = by.get(tokenizer.encoder, 0) + len(texts)
        counts = ids_counted(tokenizer, texts, rows)
        return np.stack([counts.tokens, counts.unks + counts.dropped, counts.inside], axis=1)

    def _sift(self, batch: Batch, seen: Seen) -> None:
        """Count the rows of a batch one by one; reject those that cannot be encoded."""
        for row, line in zip(batch.rows, batch.lines, strict=True):
            texts = [text for _, text, _ in row]
            encoded: dict[str, Ints] = {}
            for name, tokenizer in self._tokenizers.items():
                try:
                    encoded[name] = self._measure(tokenizer, texts)
                except TokenizerError as error:
                    seen.reject(line, f"{name} cannot encode it ({str(error)[:80]})")
                    break
            else:
                self._add(Batch([row], [line]), encoded)

    def _add_pairs(self, batch: Batch, encoded: dict[str, Ints]) -> None:
        for name, table in encoded.items():
            pairs = self._pairs[name]
            tokens, inside = table[:, 0].tolist(), table[:, 2].tolist()
            start = 0
            for row in batch.rows:
                unit = range(start, start + len(row))
                start += len(row)
                pivot = next((tokens[n] for n in unit if row[n - unit[0]][0] == self._pivot), 0)
                if not pivot:  # without pivot tokens a unit has no ratio
                    continue
                for (code, _, _), n in zip(row, unit, strict=True):
                    sums = pairs.setdefault(code, {}).setdefault(pivot, [0, 0, 0, 0])
                    sums[0] += 1
                    sums[1] += tokens[n]
                    sums[2] += tokens[n] ** 2
                    sums[3] += inside[n]


def _added(table: Ints, rows: int, which: Ints, values: Ints) -> Ints:
    """`table`, grown to `rows`, with `values` added to the rows that `which` names."""
    if len(table) < rows:
        table = np.concatenate([table, np.zeros((rows - len(table), table.shape[1]), np.int64)])
    np.add.at(table, which, values)
    return table
