"""Tokens, UNKs and split characters of each language, by tokenizer: what an audit adds up.

A parallel corpus also gives, for each number p of pivot tokens, the sums over the units whose
pivot has p tokens. The mean of ratios and its variance follow from those integers alone
(sum of c / p over units = sum over p of (sum of c) / p), so they are exact in any order of adding.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from tokengraft.core.errors import gave_up
from tokengraft.core.files import sha256
from tokengraft.corpus.rows import Batch, Layout, Seen
from tokengraft.engine.count_shards import Payload
from tokengraft.tokenizer import Tokenizer
from tokengraft.tokenizer.packed import Ints, Packed, encode

VERSION = "3"  # part of every key: raise it when the meaning of a count changes


@dataclass(frozen=True)
class TokenWork:
    """Count rows, bytes, characters, and each tokenizer's tokens, UNKs and inside-tokens."""

    layout: Layout
    tokenizers: tuple[Packed, ...]
    pivot: str | None = None  # of a parallel corpus

    @property
    def fingerprint(self) -> str:
        """Hash of the tokenizers' files, the options and the meaning of a count."""
        prints = [(t.name, t.fingerprint) for t in self.tokenizers]
        parts = ["tokens", VERSION, self.layout.fingerprint, prints, self.pivot]
        return sha256(json.dumps(parts).encode())

    def open(self, threads: int) -> TokenCounter:
        """Open the tokenizers in this process."""
        opened = {packed.name: packed.open() for packed in self.tokenizers}
        return TokenCounter(opened, self.pivot, threads)


class TokenCounter:
    """The counts of one shard at a time; see `shard.Counter`.

    Payload: `text` language → [rows, bytes, characters]; `tokens` tokenizer → language →
    [tokens, UNKs and characters dropped unsaid, tokens that begin inside a character]; with a
    pivot, `pairs` tokenizer → language → pivot tokens → [units, tokens, squared tokens,
    inside-tokens].
    """

    def __init__(self, tokenizers: dict[str, Tokenizer], pivot: str | None, threads: int) -> None:
        self._tokenizers = tokenizers
        self._pivot = pivot
        self._threads = threads
        self.begin()

    def begin(self) -> None:
        """Forget all counts."""
        self._codes: dict[str, int] = {}
        self._text = np.zeros((0, 3), np.int64)  # (languages, rows bytes characters)
        self._tokens = {name: np.zeros((0, 3), np.int64) for name in self._tokenizers}
        self._pairs: dict[str, dict[str, dict[int, list[int]]]] = {n: {} for n in self._tokenizers}

    def progress(self) -> tuple[int, int, int]:
        """Rows, bytes of text and tokens since `begin`."""
        rows, size, _ = self._text.sum(axis=0).tolist()
        return rows, size, sum(int(table[:, 0].sum()) for table in self._tokens.values())

    def add(self, batch: Batch, seen: Seen) -> None:
        """Count the rows; one that a tokenizer cannot encode goes to `seen`, for all of them."""
        pairs = [pair for row in batch.rows for pair in row]
        texts = [text for _, text, _ in pairs]
        try:
            encoded = {name: self._measure(t, texts) for name, t in self._tokenizers.items()}
        except BaseException as error:
            if not gave_up(error):
                raise
            self._sift(batch, seen)
            return
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
        }
        if self._pivot is not None:
            result["pairs"] = {
                name: {
                    code: {str(p): sums for p, sums in by_pivot.items()}
                    for code, by_pivot in languages.items()
                }
                for name, languages in self._pairs.items()
            }
        return result

    def _measure(self, tokenizer: Tokenizer, texts: list[str]) -> Ints:
        """(texts, 3): tokens, UNKs, tokens that begin inside a character."""
        lengths, flat = encode(tokenizer, texts, self._threads)
        vocabulary = tokenizer.vocabulary
        table = np.zeros((len(texts), 3), np.int64)
        table[:, 0] = lengths
        ends = np.cumsum(lengths)
        flagged = {1: vocabulary.is_unknown if vocabulary.unknown else None}
        for column, flags in (flagged | {2: vocabulary.starts_inside}).items():
            if flags is not None:
                running = np.concatenate([[0], np.cumsum(flags[flat])])
                table[:, column] = running[ends] - running[ends - lengths]
        if (dropped := tokenizer.dropped(texts)) is not None:
            table[:, 1] += dropped
        return table

    def _sift(self, batch: Batch, seen: Seen) -> None:
        """Count the rows of a batch one by one; reject those that cannot be encoded."""
        for row, line in zip(batch.rows, batch.lines, strict=True):
            texts = [text for _, text, _ in row]
            refused = None
            for name, tokenizer in self._tokenizers.items():
                try:
                    encode(tokenizer, texts, self._threads)
                except BaseException as error:
                    if not gave_up(error):
                        raise
                    refused = f"{name} cannot encode it ({str(error)[:80]})"
                    break
            if refused is None:
                self.add(Batch([row], [line]), seen)
            else:
                seen.reject(line, refused)

    def _add_pairs(self, batch: Batch, encoded: dict[str, Ints]) -> None:
        for name, table in encoded.items():
            held = self._pairs[name]
            tokens, inside = table[:, 0].tolist(), table[:, 2].tolist()
            start = 0
            for row in batch.rows:
                unit = range(start, start + len(row))
                start += len(row)
                pivot = next((tokens[n] for n in unit if row[n - unit[0]][0] == self._pivot), 0)
                if not pivot:  # without pivot tokens a unit has no ratio
                    continue
                for (code, _, _), n in zip(row, unit, strict=True):
                    sums = held.setdefault(code, {}).setdefault(pivot, [0, 0, 0, 0])
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
