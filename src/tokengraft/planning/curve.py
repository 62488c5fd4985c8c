"""The what-if curve: premium against number of new tokens, read off one pass of the learner.

How evenly a plan treats languages is shown by four figures over their premiums (`Spread`), at each
size of the plan. The frontier over plans of different objectives shows what can be had: the plan
with the lowest maximum is seldom the one with the lowest median.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokengraft.auditing.premium import gini
from tokengraft.planning.chain import Ints
from tokengraft.planning.learn import Choose, Learner
from tokengraft.planning.plan import Plan, Point

_POINTS = 40


def mean_ratio(tokens: npt.NDArray[Any], pivot: npt.NDArray[Any]) -> float:
    """The premium: mean over sentences of the ratio of tokens; empty pivot lines are left out."""
    full = np.asarray(pivot) > 0
    return float(np.mean(np.asarray(tokens)[full] / np.asarray(pivot)[full]))


class Curve:
    """Premiums and lengths at about forty sizes, denser where the curve is steep.

    It begins with the old tokenizer's lengths, which differ from the learner's first ones if
    boundaries are relaxed.
    """

    def __init__(
        self,
        budget: int,
        matrices: Mapping[str, Any],
        pivot: str,
        old: Ints,  # (words,), tokens of each
        old_totals: Ints,  # (languages,), of the planning text
    ) -> None:
        self._marks = {round(budget * (i / _POINTS) ** 2) for i in range(_POINTS + 1)}
        self._matrices, self._pivot = matrices, pivot
        self.sizes: list[int] = [0]
        self.totals: list[Ints] = [old_totals]
        self._premiums = [self._measure(old)]
        self._first = np.zeros(len(old_totals), np.int64)  # 0 where nothing has helped yet

    def follow(self, learner: Learner, choose: Choose, budget: int) -> None:
        """Take what `choose` names until `budget` tokens are spent, recording the curve."""
        self._note(learner)
        while learner.spent < budget:
            key = choose(learner)
            if key is None:
                break
            learner.take(key)
            self._first[(self._first == 0) & (learner.totals < self.totals[0])] = learner.spent
            if learner.spent in self._marks:
                self._note(learner)
        self._note(learner)

    def _note(self, learner: Learner) -> None:
        if not learner.spent:
            return
        if self.sizes[-1] == learner.spent:
            # A merge that spends no token belongs to the size already recorded.
            self.sizes.pop()
            self.totals.pop()
            self._premiums.pop()
        self.sizes.append(learner.spent)
        self.totals.append(learner.totals.copy())
        self._premiums.append(self._measure(learner.lengths))

    def _measure(self, lengths: Ints) -> dict[str, float]:
        """The premium of each language, given each word's number of tokens."""
        if not self._matrices:
            return {}
        pivot = self._matrices[self._pivot] @ lengths
        return {code: mean_ratio(m @ lengths, pivot) for code, m in self._matrices.items()}

    def first_token(self, column: int) -> int | None:
        """After how many tokens a language's planning text first got shorter.

        None if it never did, or if the plan is for one language only.
        """
        return int(self._first[column]) or None if len(self._first) > 1 else None

    def points(self, language: str, column: int) -> tuple[Point, ...]:
        """The curve of one planned language."""
        return tuple(
            Point(size, int(totals[column]), premiums.get(language))
            for size, totals, premiums in zip(self.sizes, self.totals, self._premiums, strict=True)
        )


LIMIT = 2.0  # twice the pivot: premiums above it are counted


@dataclass(frozen=True)
class Spread:
    """A summary of the premiums of several languages, without the pivot."""

    highest: float
    whose: str
    median: float
    gini: float
    above: int  # languages above `LIMIT`


def spread(premiums: Mapping[str, float]) -> Spread:
    """The spread of at least one language's premiums, by code."""
    values = np.array(list(premiums.values()))
    whose = max(premiums, key=lambda code: premiums[code])
    above = int((values > LIMIT).sum())
    return Spread(premiums[whose], whose, float(np.median(values)), gini(values), above)


def frontier(plan: Plan) -> dict[int, Spread]:
    """The spread at each size of the what-if curve, over languages with a premium at every one."""
    curves = {
        code: {point.tokens: point.premium for point in effect.curve}
        for code, effect in plan.languages.items()
        if effect.curve and all(point.premium is not None for point in effect.curve)
    }
    sizes = sorted(set.intersection(*map(set, curves.values()))) if curves else []
    return {
        size: spread({code: curve[size] or 0.0 for code, curve in curves.items()}) for size in sizes
    }
