"""How even a plan makes languages: their premiums summed up in four figures, token by token.

Of plans by different objectives the frontier is what can be had: the one with the lowest highest
premium is seldom the one with the lowest median.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tokengraft.auditing.premium import gini
from tokengraft.planning.plan import Plan

LIMIT = 2.0  # twice the pivot: premiums above it are counted


@dataclass(frozen=True)
class Spread:
    """The premiums of several languages (the pivot left out) in short."""

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
    """The spread at each size of the what-if curve; empty where there is no premium to speak of.

    Taken over the languages that have a premium at every size.
    """
    curves = {
        code: {point.tokens: point.premium for point in effect.curve}
        for code, effect in plan.languages.items()
        if effect.curve and all(point.premium is not None for point in effect.curve)
    }
    sizes = sorted(set.intersection(*map(set, curves.values()))) if curves else []
    return {
        size: spread({code: curve[size] or 0.0 for code, curve in curves.items()}) for size in sizes
    }
