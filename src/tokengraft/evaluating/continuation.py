"""Continuation bits per byte: what a user of `input-only` gets.

    −log2 p(continuation in old tokens | prompt) / bytes of the continuation

The prompt is the first half of a line, up to the middle one of the common positions that end a
character: in new tokens for the graft, in old ones for the base. The continuation is the rest, in
old tokens and over the old vocabulary for both. Lines with a single common position have no
continuation and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengraft.evaluating.fidelity import derangement, mean_rows
from tokengraft.evaluating.lines import Case, Segmenter
from tokengraft.evaluating.score import Bootstrap, Metric, Score, Sums, score
from tokengraft.model.divergence import Head, likelihoods
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.reading import BATCH_TOKENS, OnRead, read
from tokengraft.tokenizer.align import Floats, Ints

_WHAT = "of the second half of each line in old tokens, after its first half in"
BPB = Metric("continuation_bpb", f"bits per byte {_WHAT} new tokens", higher=False)
BASE_BPB = Metric(
    "base_continuation_bpb", f"bits per byte {_WHAT} old tokens, by the base model", higher=False
)
EXCESS = Metric(
    "continuation_excess",
    f"relative excess over the base of the bits {_WHAT} new tokens against old ones",
    higher=False,
)


@dataclass(frozen=True)
class Halves:
    """Lines cut in two: prompts in old and in new tokens, and the rest in old tokens."""

    old: list[Ints]
    new: list[Ints]
    rest: list[Ints]
    size: Floats  # bytes of the rest, line by line

    @property
    def same(self) -> list[bool]:
        """Whether a line's prompt has the same ids under both tokenizations."""
        return [np.array_equal(a, b) for a, b in zip(self.old, self.new, strict=True)]


def halve(case: Case) -> Halves:
    """Cut every line at the middle one of its common positions that end a character."""
    parts: tuple[list[Ints], list[Ints], list[Ints]] = ([], [], [])
    for pair in case.pairs:
        if len(pair) < 2:
            continue
        after_it = pair.old[np.minimum(pair.old_at + 1, len(pair.old) - 1)]
        places = np.flatnonzero(~case.inside[after_it[:-1]])
        if not len(places):
            places = np.arange(len(pair) - 1)
        middle = int(places[len(places) // 2])
        before, after = int(pair.old_at[middle]) + 1, int(pair.new_at[middle]) + 1
        # Under a plan of single characters a prompt may take more new tokens than old ones.
        end = min(int(pair.old_at[-1]) + 1, before + case.room - max(before, after))
        rest = pair.old[before:end]
        for part, ids in zip(parts, (pair.old[:before], pair.new[:after], rest), strict=True):
            part.append(ids)
    size = np.array([case.lengths[rest].sum() for rest in parts[2]], np.float64)
    return Halves(*parts, size)


class Continuation:
    """The base's bits for one language, computed once and compared with any number of grafts."""

    def __init__(
        self,
        model: FrozenModel,
        case: Case,
        seed: int = 0,
        tokens: int = BATCH_TOKENS,
        progress: OnRead | None = None,
    ) -> None:
        self.model, self.case, self.seed, self.tokens = model, case, seed, tokens
        self.halves = halve(case)
        self.head = model.head(case.rows).exact()
        self.base = self._bits(model, self.halves.old, self.head, same=self.halves.same,
                               progress=progress)  # fmt: skip

    def measure(
        self,
        model: FrozenModel | None = None,
        new: NewRows | None = None,
        head: Head | None = None,
        progress: OnRead | None = None,
    ) -> Floats:
        """Bits of each line's rest after its prompt in new tokens; `new` are rows for these."""
        return self._bits(
            model or self.model, self.halves.new, head or self.head, new, self.halves.same,
            progress,
        )  # fmt: skip

    def scores(self, bits: Floats, drawn: Bootstrap, floors: bool = True) -> dict[str, Score]:
        """The figures; `floors=False` leaves out floors and ceiling, which take three readings."""
        size, base = self.halves.size, self.base
        against: dict[str, Floats] = {}
        if floors:
            own = self.halves.old
            left = [self.case.room - len(rest) for rest in self.halves.rest]
            if len(own) > 1:
                order = derangement(len(own), self.seed)
                others = [own[n][:most] for n, most in zip(order, left, strict=True)]
                against["unrelated"] = self._bits(self.model, others, self.head)
            against["mean_row"] = self.measure(new=mean_rows(self.model, self.case))
            cut = Segmenter(self.model.tokenizer, seed=self.seed)
            prompts = [
                cut(ids, most - len(ids) if len(ids) > 1 else 0)[0]
                for ids, most in zip(own, left, strict=True)
            ]
            if cut.enough(own, prompts):
                against["ceiling"] = self._bits(self.model, prompts, self.head)
        plain: dict[str, Any] = {name: float(v.sum() / size.sum()) for name, v in against.items()}
        excess: dict[str, Any] = {
            name: float((v - base).sum() / base.sum()) for name, v in against.items()
        }
        return {
            BPB.name: score(BPB, Sums(bits, size), drawn, **plain),
            BASE_BPB.name: score(BASE_BPB, Sums(base, size), drawn),
            EXCESS.name: score(EXCESS, Sums(bits - base, base), drawn, n=len(base), **excess),
        }

    def _bits(
        self,
        model: FrozenModel,
        prompts: Sequence[Ints],
        head: Head,
        new: NewRows | None = None,
        same: Sequence[bool] | None = None,
        progress: OnRead | None = None,
    ) -> Floats:
        rests = self.halves.rest
        whole = [np.concatenate(pair) for pair in zip(prompts, rests, strict=True)]
        at = [
            np.arange(len(prompt) - 1, len(prompt) + len(rest) - 1)
            for prompt, rest in zip(prompts, rests, strict=True)
        ]
        reading = read(model, whole, at, same=same, new=new, tokens=self.tokens, progress=progress)
        targets = np.concatenate(rests) if rests else np.zeros(0, np.int64)
        bits = -likelihoods(reading.states, targets, head) / np.log(2)
        edges = np.cumsum(reading.counts)[:-1]
        return np.array([part.sum() for part in np.split(bits, edges)])
