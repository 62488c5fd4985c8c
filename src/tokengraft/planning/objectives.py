"""Which pair next: the ways to spend one budget on several languages.

- total: the pair that saves most tokens of all planning text together;
- parity: the pair that helps the language whose premium is the highest now;
- equal: languages take turns, so that each gets as many tokens (one that has no use for more leaves
  its turn to the others);
- speakers: as total, each language's saving weighted by its speakers (Petrov et al. 2023 and the
  paper argue for it) and taken per unit of content, so that long texts do not count more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tokengraft.core.errors import UsageError
from tokengraft.planning.learn import Learner
from tokengraft.planning.plan import Objective

Choose: TypeAlias = Callable[[Learner], int | None]
_SCALE = 10**6


def weights_for(
    objective: Objective,
    counts: npt.NDArray[np.int64],  # (words, languages)
    factors: npt.NDArray[np.int64],  # (languages,)
) -> npt.NDArray[np.int64]:
    """What the learner counts: (words, 1), or (words, languages) where languages take turns."""
    if objective in ("parity", "equal"):
        return counts
    return (counts @ factors)[:, None]


def factors_for(
    objective: Objective,
    languages: Sequence[str],
    base_tokens: npt.NDArray[np.int64],  # (languages,), of the planning text
    premiums: Mapping[str, float],
    speakers: Mapping[str, float] | None,
) -> npt.NDArray[np.int64]:
    """Each language's weight per token saved, in whole numbers so that sums are exact."""
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
) -> Choose:
    """The rule that names the next pair, or None when nothing useful is left."""
    if objective == "equal":
        return _in_turn(len(languages), least)
    if objective != "parity":
        return lambda learner: learner.best(0, least)
    missing = [code for code in languages if code not in premiums]
    if missing:
        raise UsageError(f"the objective parity needs a parallel test corpus with {missing}")
    start: list[npt.NDArray[np.int64]] = []

    def worst_first(learner: Learner) -> int | None:
        if not start:
            start.append(learner.totals.copy())
        now = [
            premiums[code] * learner.totals[i] / max(int(start[0][i]), 1)
            for i, code in enumerate(languages)
        ]
        for group in sorted(range(len(languages)), key=lambda i: (-now[i], i)):
            key = learner.best(group, least)
            if key is not None:
                return key
        return None

    return worst_first


def _in_turn(languages: int, least: int) -> Choose:
    given = [0] * languages
    last, spent = -1, 0

    def fewest_first(learner: Learner) -> int | None:
        nonlocal last, spent
        if last >= 0 and learner.spent > spent:  # a merge may reach an old token for nothing
            given[last] += 1
        spent = learner.spent
        for group in sorted(range(languages), key=lambda i: (given[i], i)):
            key = learner.best(group, least)
            if key is not None:
                last = group
                return key
        return None

    return fewest_first
