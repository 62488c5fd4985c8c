"""Which pair next: the ways to spend one budget on several languages.

- total: the pair that saves most tokens of all planning text together;
- parity: the pair that helps the language whose premium is the highest now;
- equal: languages take turns, so that each gets as many tokens (one that has no use for more leaves
  its turn to the others);
- minimax:T (as `minimax:2.0`): the fewest tokens that bring every language down to the premium T,
  found greedily: the pair that takes most from the sum of the premiums above T (it is credited with
  what it saves every such language). A language that has reached T counts no more, and when none is
  left above it the plan ends, whatever the budget (the greedy rule for covering, Wolsey 1982);
- speakers: as total, each language's saving weighted by its speakers (Petrov et al. 2023 and the
  paper argue for it) and taken per unit of content, so that long texts do not count more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tokengraft.core.errors import UsageError, no_such
from tokengraft.core.wording import some_languages
from tokengraft.planning.learn import Choose, Learner, Table
from tokengraft.planning.plan import OBJECTIVES, Objective

_SCALE = 10**6


def weights_for(
    objective: Objective,
    counts: Table,  # (words, languages)
    factors: npt.NDArray[np.int64],  # (languages,)
) -> Table:
    """What the learner counts: (words, 1), or (words, languages) if languages take turns."""
    if objective in ("parity", "equal"):
        return counts
    return sparse.csr_array((counts @ factors)[:, None])


def factors_for(
    objective: Objective,
    languages: Sequence[str],
    base_tokens: npt.NDArray[np.int64],  # (languages,), of the planning text
    premiums: Mapping[str, float],
    speakers: Mapping[str, float] | None,
) -> npt.NDArray[np.int64]:
    """Each language's weight per token saved, in whole numbers so that sums are exact."""
    target = target_of(objective)
    if target is not None:
        above = _require(premiums, languages, objective) > target
        return np.where(above, _per_content(premiums, languages, base_tokens), 0)
    if objective != "speakers":
        return np.ones(len(languages), np.int64)
    missing = [code for code in languages if not (speakers or {}).get(code)]
    if missing or speakers is None:
        raise UsageError(f"the objective speakers needs the number of speakers of {missing}")
    content = [premiums.get(code, 1.0) for code in languages]
    raw = [
        speakers[code] * premium / max(int(tokens), 1)
        for code, premium, tokens in zip(languages, content, base_tokens, strict=True)
    ]
    return np.array([max(1, round(_SCALE * value / max(raw))) for value in raw], np.int64)


def chooser(
    objective: Objective,
    languages: Sequence[str],
    premiums: Mapping[str, float],
    least: int,
    base_tokens: npt.NDArray[np.int64],
) -> Choose:
    """The rule that names the next pair, or None when nothing useful is left."""
    if objective == "equal":
        return _in_turn(len(languages), least)
    target = target_of(objective)
    if objective != "parity" and target is None:
        return lambda learner: learner.best(0, least)
    before = _require(premiums, languages, objective)
    start: list[npt.NDArray[np.float64]] = []

    def now(learner: Learner) -> npt.NDArray[np.float64]:
        if not start:
            start.append(np.maximum(learner.totals, 1).astype(float))
        premium: npt.NDArray[np.float64] = before * learner.totals / start[0]
        return premium

    def worst_first(learner: Learner) -> int | None:
        for group in np.argsort(-now(learner), kind="stable").tolist():
            key = learner.best(group, least)
            if key is not None:
                return key
        return None

    if target is None:
        return worst_first
    factors = _per_content(premiums, languages, base_tokens)
    above = before > target

    def until_all_reach(learner: Learner) -> int | None:
        nonlocal above
        still = above & (now(learner) > target)
        if (still != above).any():
            above = still
            learner.reweigh(weights_for(objective, learner.counts, np.where(above, factors, 0)))
        return learner.best(0, least) if above.any() else None

    return until_all_reach


def target_of(objective: str) -> float | None:
    """The premium that `minimax:2.0` aims at, None for other objectives."""
    name, sign, number = objective.partition(":")
    if name != "minimax":
        return None
    try:
        target = float(number)
    except ValueError:
        target = 0.0
    if not sign or not 0 < target < math.inf:
        raise UsageError(
            f"the objective {objective!r} needs a premium to aim at, as in minimax:2.0"
        )
    return target


def check_objective(objective: str) -> None:
    """UsageError unless there is such an objective."""
    if objective not in OBJECTIVES and target_of(objective) is None:
        raise no_such("objective", objective, (*OBJECTIVES, "minimax:PREMIUM"))


def _require(
    premiums: Mapping[str, float], languages: Sequence[str], objective: str
) -> npt.NDArray[np.float64]:
    missing = [code for code in languages if code not in premiums]
    if missing:
        raise UsageError(
            f"the objective {objective} goes by premiums, and the test corpus has none for "
            f"{some_languages(missing)}: give a parallel corpus that has them (--test), leave "
            "these languages out, or take the objective total or equal"
        )
    return np.array([premiums[code] for code in languages])


def _per_content(
    premiums: Mapping[str, float], languages: Sequence[str], base_tokens: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """By how much one token saved lowers each language's premium, scaled to whole numbers."""
    raw = [premiums[c] / max(int(n), 1) for c, n in zip(languages, base_tokens, strict=True)]
    return np.array([max(1, round(1000 * value / max(raw))) for value in raw], np.int64)


def _in_turn(languages: int, least: int) -> Choose:
    given = [0] * languages
    last, spent = -1, 0

    def fewest_first(learner: Learner) -> int | None:
        nonlocal last, spent
        if last >= 0 and learner.spent > spent:  # a merge that makes an old token spends none
            given[last] += 1
        spent = learner.spent
        for group in np.argsort(given, kind="stable").tolist():
            key = learner.best(group, least)
            if key is not None:
                last = group
                return key
        return None

    return fewest_first
