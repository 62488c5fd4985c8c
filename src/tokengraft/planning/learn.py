"""Continued byte-pair encoding: the merges to append to a finished tokenization.

    while tokens are left to spend:
        (x, y) = the adjacent pair with the highest weighted count
        append the merge (x, y) -> xy and apply it to every word

A word enters as the old tokenizer's own ids, so every step is a merge that the real encoder
performs after all its old ones. Counts are kept per pair and changed only where a merge acts
(Sennrich et al. 2016 train the same way, from single characters).

What differs from a trainer that starts from scratch:
- a merge that would use up the last occurrence of a token added earlier waits, so every new
  token is emitted on the planning text (this costs nothing measurable: Shan 1.873 against 1.874);
- a result whose string the vocabulary already holds is reached without spending a token, and
  the merges that then apply to it are replayed in rank order, as the encoder will do;
- if the encoder looks up words before it merges (`whole_words`), a word spelled like a new token
  becomes that token. A word may then also become a token at once (`_offer_words`), which saves all
  but one of its tokens, changes no other word and needs no merge, so that protected text forbids
  only the word itself. What it saves counts for less, and for least if its pairs are common in
  other words (seven languages, chosen and tested on parts of FLORES dev, 2,000 tokens of Llama 3:
  mean premium 1.439 instead of 1.450);
- a pair whose result begins or ends inside a character counts a little less (`border_penalty`).
"""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from tokengraft.planning.chain import Chain, Ints
from tokengraft.planning.symbols import WHOLE, Symbols
from tokengraft.tokenizer.pipeline import Encoded
from tokengraft.tokenizer.pre_tokenizer import Word

_SHIFT = 32
_ALONE, _SHARED = 0.7, 0.45  # weights of what a word saves: it recurs less than a pair does
_MOSTLY = 1.5  # a pair at most this many times as frequent as a word belongs to that word
_WORDS = 1 << 31  # keys from here on are words, below pairs and above characters
Table: TypeAlias = Any  # a two-dimensional array of whole numbers, dense or sparse


@dataclass(frozen=True)
class Step:
    """One merge as it was learned.

    `right` is -1 if a whole character was adopted, or a whole word, whose symbols are `word`.
    """

    left: int
    right: int
    result: int
    spends: bool
    word: tuple[int, ...] = ()


class Learner:
    """Merges over a pool of distinct words; `lengths[w]` is word w's number of tokens so far."""

    def __init__(
        self,
        words: Encoded,
        counts: Table,  # (words, languages), in the planning text
        weights: Table,  # (words, groups), what the objective counts
        symbols: Symbols,
        border_penalty: float = 0.0,
        least: int = 1,
        whole_words: Mapping[Word, int] = MappingProxyType({}),
        forbidden: Ints | None = None,
    ) -> None:
        """Pairs that count less than `least` are never named by `best`.

        `whole_words` gives the numbers of words that the encoder looks up before it merges.
        `forbidden` are sorted keys of pairs that are never merged; if it is given, even as an empty
        array, words may become tokens at once.
        """
        self.symbols = symbols
        self._whole_words = whole_words
        self._forbidden = np.empty(0, np.int64) if forbidden is None else forbidden
        # Most words occur in one language. Sparse, the cost depends on the amount of text, not on
        # the number of languages.
        self.counts = sparse.csr_array(counts)
        self.occurrences: Ints = self.counts.sum(axis=1)
        self.steps: list[Step] = []
        self.spent = 0
        self._weights = sparse.csr_array(weights)
        self._penalty = border_penalty
        self._least = least
        self._next = symbols.first_new
        self._border = functools.cache(symbols.borders)
        self._by_part: dict[int, list[int]] = {}
        self._chain = Chain(words.ids, words.sizes)
        self.lengths = self._chain.sizes.copy()
        self._frequency: dict[int, int] = {}
        for symbol in self._chain.symbols():
            words_with = self._chain.word[self._chain.at(symbol)]
            self._frequency[symbol] = int(self.occurrences[words_with].sum())
            if extra := symbols.wholes.get(symbol):
                np.add.at(self.lengths, words_with, extra)
        self.totals: Ints = self.counts.T @ self.lengths  # (languages,), of the planning text
        groups = self._groups = self._weights.shape[1]
        self._counts: list[dict[int, int]] = [{} for _ in range(groups)]
        # A pair that has become rarer keeps its old entry, now too high, until it comes up.
        self._heaps: list[list[tuple[int, int]]] = [[] for _ in range(groups)]
        self._waiting: list[set[int]] = [set() for _ in range(groups)]
        self._change(np.flatnonzero(self._chain.right >= 0), 1)
        self._offer_characters()
        if forbidden is not None:
            self._offer_words()

    def best(self, group: int = 0, least: int = 2) -> int | None:
        """The key of what helps `group` most now, or None if nothing is left."""
        heap = self._heaps[group]
        while heap:
            score, key = heap[0]
            saved, now = self._value(group, key)
            if not saved or (score > -now and not _is_word(key)):
                heapq.heappop(heap)
            elif score != -now:
                heapq.heapreplace(heap, (-now, key))
            elif self._waits(key):
                heapq.heappop(heap)
                self._waiting[group].add(key)
            elif saved < least:
                return None
            else:
                return key
        return None

    def take(self, key: int) -> Step:
        """Apply the pair, character or word `key`, with every merge that follows from it."""
        if _is_word(key):
            return self._adopt_word(key - _WORDS)
        if key < 1 << _SHIFT:
            return self._adopt(key)
        left, right = _pair(key)
        string = self.symbols.names[left] + self.symbols.names[right]
        known = self.symbols.ids.get(string)
        step = Step(left, right, self._name(string) if known is None else known, known is None)
        for part in {left, right}:
            self._by_part.setdefault(part, []).append(len(self.steps))
        self.steps.append(step)
        self._merge(left, right, step.result)
        if known is not None:
            self._replay(known)
        elif (word := self._whole_words.get(string)) is not None:
            self._become(word, step.result)
        return step

    def pairs(self) -> Mapping[int, int]:
        """The keys of all pairs (and of characters spelled in bytes) with their weighted counts."""
        return self._counts[0]

    def may_take(self, key: int) -> bool:
        """Whether a pair of `pairs` is not refused and does not use up the last of a new token."""
        return not self._waits(key)

    def spell(self, word: int) -> list[int]:
        """The present symbols of word `word`."""
        return self._chain.spell(word)

    def frequency(self, symbol: int) -> int:
        """How often the planning text emits `symbol` now."""
        return self._frequency.get(symbol, 0)

    def occurs(self, left: int, right: int) -> int:
        """How often a merge of the pair would act now: in a run of one symbol, at every other."""
        return int(self.occurrences[self._chain.word[self._chain.find(left, right)]].sum())

    def _offer_characters(self) -> None:
        for symbol, extra in self.symbols.wholes.items():
            words = self._chain.word[self._chain.at(symbol)]
            at, _ = _entries(self._weights, words)
            gains = np.zeros(self._groups, np.int64)
            np.add.at(gains, self._weights.indices[at], self._weights.data[at] * extra)
            for group, gain in enumerate(gains.tolist()):
                if gain:
                    self._counts[group][symbol] = gain
                    heapq.heappush(self._heaps[group], (-self._score(symbol, gain), symbol))

    def _offer_words(self) -> None:
        """Offer words of three or more tokens; one of two is a pair, which other words may share.

        A word of two is offered only if that pair is never merged.
        """
        words = np.fromiter(self._whole_words.values(), np.int64, len(self._whole_words))
        words = np.sort(words[self.lengths[words] > 1])
        for word in words.tolist():
            if self.lengths[word] == 2 and not self._never_merged(*self.spell(word)):
                continue
            at = slice(*self._weights.indptr[word : word + 2].tolist())
            for group, times in zip(
                self._weights.indices[at].tolist(), self._weights.data[at].tolist(), strict=True
            ):
                if times >= self._least:
                    saved = times * (int(self.lengths[word]) - 1)
                    heapq.heappush(self._heaps[group], (-1000 * saved, _WORDS + word))

    def _value(self, group: int, key: int) -> tuple[int, int]:
        """What taking `key` saves `group` now, and its score; 0 for a word that is too rare."""
        if not _is_word(key):
            count = self._counts[group].get(key, 0)
            return count, self._score(key, count)
        word = key - _WORDS
        at = slice(*self._weights.indptr[word : word + 2].tolist())
        times = int(self._weights.data[at][self._weights.indices[at] == group].sum())
        saved = times * (int(self.lengths[word]) - 1)
        if times < self._least or not saved:
            return 0, 0
        pairs = [key_of(a, b) for a, b in pairwise(self.spell(word))]
        elsewhere = [self._counts[group].get(p, 0) for p in pairs if not self._is_forbidden(p)]
        own = max(elsewhere, default=0) <= _MOSTLY * times
        return saved, int(saved * 1000 * (_ALONE if own else _SHARED))

    def _is_forbidden(self, pair: int) -> bool:
        at = np.searchsorted(self._forbidden, pair)
        return bool(at < len(self._forbidden) and self._forbidden[at] == pair)

    def _never_merged(self, left: int, right: int) -> bool:
        names = self.symbols.names
        pair = key_of(left, right)
        return self._is_forbidden(pair) or self.symbols.refuses(names[left], names[right])

    def _change(self, edges: Ints, sign: int) -> None:
        """Add (+1) or take away (-1) the weights of the pairs that start at `edges`."""
        chain = self._chain
        first, second = chain.sym[edges], chain.sym[chain.right[edges]]
        if self.symbols.wholes:
            free = (first < WHOLE) & (second < WHOLE)
            edges, first, second = edges[free], first[free], second[free]
        if not len(edges):
            return
        at, sizes = _entries(self._weights, chain.word[edges])
        keys = np.repeat(key_of(first, second), sizes)
        groups = self._weights.indices[at]
        order = np.lexsort((groups, keys)) if self._groups > 1 else np.argsort(keys, kind="stable")
        keys, groups = keys[order], groups[order]
        new = np.ones(len(keys), bool)
        new[1:] = (keys[1:] != keys[:-1]) | (groups[1:] != groups[:-1])
        starts = np.flatnonzero(new)
        if not len(starts):
            return
        sums = np.add.reduceat(self._weights.data[at[order]], starts)
        for key, group, delta in zip(
            keys[starts].tolist(), groups[starts].tolist(), sums.tolist(), strict=True
        ):
            counts = self._counts[group]
            count = counts.get(key, 0) + sign * delta
            if not count:
                del counts[key]
                continue
            counts[key] = count
            waiting = self._waiting[group]
            if (sign > 0 or key in waiting) and count >= self._least:
                waiting.discard(key)
                heapq.heappush(self._heaps[group], (-self._score(key, count), key))

    def reweigh(self, weights: Table) -> None:
        """Use other weights from now on, with the same number of groups."""
        new = sparse.csr_array(weights)
        differs = np.diff((abs(new - self._weights)).tocsr().indptr) > 0
        edges = self._chain.inside(differs)
        self._change(edges, -1)
        self._weights = new
        self._change(edges, 1)

    def _score(self, key: int, count: int) -> int:
        """The score in whole thousandths, so that equal inputs compare equal on every machine."""
        if not self._penalty or key < 1 << _SHIFT:
            return count * 1000
        left, right = _pair(key)
        if self._border(left)[0] and self._border(right)[1]:
            return count * 1000
        return int(count * 1000 * (1 - self._penalty))

    def _waits(self, key: int) -> bool:
        """Whether `key` may not be taken now: refused, or it uses up the last of a new token."""
        if _is_word(key):
            symbols, times = self.spell(key - _WORDS), int(self.occurrences[key - _WORDS])
            if self.symbols.refuses("".join(self.symbols.names[s] for s in symbols), ""):
                return True
            return any(
                self._frequency.get(symbol, 0) <= times * often
                for symbol, often in Counter(symbols).items()
                if symbol >= self.symbols.first_new
            )
        if key < 1 << _SHIFT:
            return self.symbols.refuses(self.symbols.names[key], "")
        left, right = _pair(key)
        if self._never_merged(left, right):
            return True
        new = [s for s in {left, right} if s >= self.symbols.first_new]
        if not new:
            return False
        used = self.occurs(left, right) * (2 if left == right else 1)
        return any(self._frequency.get(symbol, 0) <= used for symbol in new)

    def _name(self, string: str) -> int:
        number = self._next
        self.symbols.ids[string] = number
        self.symbols.names[number] = string
        self._next += 1
        self.spent += 1
        return number

    def _adopt(self, symbol: int) -> Step:
        chain = self._chain
        positions = chain.at(symbol)
        extra = self.symbols.wholes.pop(symbol)
        for counts in self._counts:
            counts.pop(symbol, None)
        result = self._name(self.symbols.names[symbol])
        self._shorten(chain.word[positions], extra)
        chain.rename(positions, result)
        self._frequency[result] = self._frequency.pop(symbol)
        self._change(chain.edges(positions, chain.left[positions]), 1)
        step = Step(symbol, -1, result, True)
        self.steps.append(step)
        return step

    def _adopt_word(self, word: int) -> Step:
        symbols = tuple(self.spell(word))
        result = self._name("".join(self.symbols.names[symbol] for symbol in symbols))
        self._become(word, result)
        step = Step(symbols[0], -1, result, True, symbols)
        self.steps.append(step)
        return step

    def _merge(self, left: int, right: int, result: int) -> bool:
        """Merge every occurrence of the pair; return whether there was any."""
        chain = self._chain
        hits = chain.find(left, right)
        if not len(hits):
            return False
        self._change(chain.edges(hits, chain.left[hits], chain.right[hits]), -1)
        chain.join(hits, result)
        self._change(chain.edges(hits, chain.left[hits]), 1)
        words = chain.word[hits]
        self._shorten(words, 1)
        used = int(self.occurrences[words].sum())
        for symbol in (left, right):
            self._frequency[symbol] -= used
        self._frequency[result] = self._frequency.get(result, 0) + used
        return True

    def _become(self, word: int, result: int) -> None:
        """Replace all symbols of the word by `result`."""
        chain = self._chain
        places = chain.places(word)
        if len(places) < 2:
            return
        self._change(places[:-1], -1)
        times = int(self.occurrences[word])
        for symbol in chain.sym[places].tolist():
            self._frequency[symbol] -= times
        chain.collapse(places, result)
        self._frequency[result] = self._frequency.get(result, 0) + times
        self._shorten(np.array([word]), len(places) - 1)

    def _shorten(self, words: Ints, by: int) -> None:
        np.subtract.at(self.lengths, words, by)
        at, _ = _entries(self.counts, words)
        np.subtract.at(self.totals, self.counts.indices[at], self.counts.data[at] * by)

    def _replay(self, symbol: int) -> None:
        """Apply every merge that has `symbol` as a part again, lowest rank first."""
        queue = self._merges_of(symbol)
        heapq.heapify(queue)
        while queue:
            _, left, right, result = heapq.heappop(queue)
            if self._merge(left, right, result):
                for entry in self._merges_of(result):
                    heapq.heappush(queue, entry)

    def _merges_of(self, part: int) -> list[tuple[int, int, int, int]]:
        names, ids = self.symbols.names, self.symbols.ids
        old = self.symbols.old_merges(part)
        merges = [(rank, a, b, ids[names[a] + names[b]]) for rank, a, b in old]
        for rank in self._by_part.get(part, ()):
            step = self.steps[rank]
            merges.append(((1 << _SHIFT) + rank, step.left, step.right, step.result))
        return merges


Choose: TypeAlias = Callable[[Learner], int | None]  # names the next pair, None when all is done


def _entries(table: Any, rows: Ints) -> tuple[Ints, Ints]:
    """Positions of the rows' entries in a sparse table, row by row, and how many each row has."""
    starts = table.indptr[rows].astype(np.int64)
    sizes = table.indptr[rows + 1] - starts
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum())), sizes


def key_of(left: Any, right: Any) -> Any:
    """The key of a pair of symbols, or the keys of two arrays of them."""
    return (left + 1) << _SHIFT | (right + 1)


def parts_of(key: int) -> tuple[int, ...]:
    """The two symbols of a pair's key, or the one character that is spelled in bytes."""
    return (key,) if key < 1 << _SHIFT else _pair(key)


def _is_word(key: int) -> bool:
    return _WORDS <= key < 1 << _SHIFT


def _pair(key: int) -> tuple[int, int]:
    return (key >> _SHIFT) - 1, (key & ((1 << _SHIFT) - 1)) - 1
