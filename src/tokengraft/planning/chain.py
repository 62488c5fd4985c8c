"""Many words as one array of symbols with neighbours, so that a merge is a few array operations."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
_DEAD = -1


class Chain:
    """Symbols in word order; `left` and `right` are neighbours' positions, -1 at a word's ends.

    A position that was merged away keeps its place with the symbol -1 and has no neighbours.
    """

    def __init__(self, symbols: Ints, sizes: Ints) -> None:
        """`symbols` are those of all words end to end, `sizes` how many each word has."""
        ends = np.cumsum(sizes)
        full = sizes > 0
        self.sizes = sizes
        self.sym = symbols.copy()
        self.word = np.repeat(np.arange(len(sizes)), sizes)
        self.right = np.arange(1, len(self.sym) + 1)
        self.left = np.arange(-1, len(self.sym) - 1)
        self._starts = np.where(full, ends - sizes, -1)
        self.right[ends[full] - 1] = -1
        self.left[self._starts[full]] = -1
        order = np.argsort(self.sym, kind="stable")
        values = self.sym[order]
        starts = np.flatnonzero(np.diff(values, prepend=_DEAD))
        # Positions of each symbol; some may hold another symbol by now.
        self._at: dict[int, Ints] = {}
        if len(values):
            self._at = dict(zip(values[starts].tolist(), np.split(order, starts[1:]), strict=True))

    def symbols(self) -> list[int]:
        """Every symbol that occurred at the beginning or was made since."""
        return list(self._at)

    def at(self, symbol: int) -> Ints:
        """The positions of `symbol`."""
        positions = self._at.get(symbol)
        if positions is None:
            return np.empty(0, np.int64)
        live: Ints = positions[self.sym[positions] == symbol]
        if len(live) < len(positions):
            self._at[symbol] = live
        return live

    def find(self, left: int, right: int) -> Ints:
        """Positions where `left` is followed by `right`, without overlaps, taken left to right."""
        from_left, from_right = self.at(left), self.at(right)
        hits: Ints
        if len(from_left) <= len(from_right):
            hits = from_left[self.right[from_left] >= 0]
            hits = hits[self.sym[self.right[hits]] == right]
        else:
            hits = self.left[from_right]
            hits = hits[hits >= 0]
            hits = hits[self.sym[hits] == left]
        if left == right and len(hits) > 1:
            hits = np.sort(hits)
            run_starts = np.concatenate(([True], self.right[hits[:-1]] != hits[1:]))
            place = np.arange(len(hits))
            place -= np.maximum.accumulate(np.where(run_starts, place, 0))
            hits = hits[place % 2 == 0]
        return hits

    def edges(self, *positions: Ints) -> Ints:
        """The pairs that begin at the given positions, each once, by position of the left part."""
        lefts = distinct(np.concatenate(positions))
        lefts = lefts[lefts >= 0]
        return lefts[self.right[lefts] >= 0]

    def inside(self, words: npt.NDArray[np.bool_]) -> Ints:
        """The pairs inside the marked words, by position of the left part."""
        return np.flatnonzero(words[self.word] & (self.sym != _DEAD) & (self.right >= 0))

    def join(self, hits: Ints, result: int) -> None:
        """Replace each hit and its right neighbour by `result`."""
        second = self.right[hits]
        after = self.right[second]
        self.sym[second] = _DEAD
        self.right[hits] = after
        inside = after >= 0
        self.left[after[inside]] = hits[inside]
        self.rename(hits, result)

    def rename(self, positions: Ints, result: int) -> None:
        """Put `result` at each of the positions."""
        self.sym[positions] = result
        earlier = self._at.get(result)
        if earlier is not None:
            positions = np.concatenate((earlier, positions))
        self._at[result] = distinct(positions)

    def collapse(self, places: Ints, result: int) -> None:
        """Replace a whole word, given the positions of its symbols, by `result`."""
        self.sym[places[1:]] = _DEAD
        self.right[places[0]] = -1
        self.rename(places[:1], result)

    def places(self, word: int) -> Ints:
        """The positions of one word's present symbols, in order."""
        at = int(self._starts[word])
        places = []
        while at >= 0:
            places.append(at)
            at = int(self.right[at])
        return np.array(places, np.int64)

    def spell(self, word: int) -> list[int]:
        """One word's present symbols."""
        symbols: list[int] = self.sym[self.places(word)].tolist()
        return symbols


def distinct(values: Ints) -> Ints:
    """Sorted, each once; np.unique hashes since numpy 2.3: far slower on nearly sorted arrays."""
    values = np.sort(values)
    first = np.ones(len(values), bool)
    first[1:] = values[1:] != values[:-1]
    return values[first]
