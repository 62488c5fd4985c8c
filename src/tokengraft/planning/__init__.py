"""How a plan's strings are chosen: one row a mode.

`--help` and the contract suite (`tests/contract/test_plan_modes.py`) are made from the table; a new
mode of merges is a function like those of `baselines` and a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tokengraft.core.options import Later

Mode: TypeAlias = Literal["merges", "characters", "paper", "likelihood", "unigram", "prefix-free"]


@dataclass(frozen=True)
class PlanMode:
    """One way to choose strings.

    `rule` takes a learner before its first step, the budget and the least number of occurrences,
    and returns the function that names the next pair. Without a rule the objective names it.
    """

    name: Mode
    help: str
    reference: str
    rule: Callable[..., Any] | None = None


MODES: dict[Mode, PlanMode] = {
    mode.name: mode
    for mode in (
        PlanMode(
            "merges", "continued BPE on the old tokens, which saves most",
            "Sennrich, Haddow and Birch 2016",
        ),
        PlanMode("characters", "completes split characters, no more", "tokengraft"),
        PlanMode(
            "paper", "the paper's procedure, for reproduction (makes many languages longer)",
            "Churchill and Skiena",
        ),
        PlanMode(
            "likelihood", "a baseline, pairs likelier than their parts (WordPiece's rule)",
            "Schuster and Nakajima 2012", Later("tokengraft.planning.baselines:by_likelihood"),
        ),
        PlanMode(
            "unigram", "a baseline, the likeliest pieces of a Unigram model",
            "Kudo 2018", Later("tokengraft.planning.baselines:by_unigram"),
        ),
        PlanMode(
            "prefix-free", "a baseline, the paper's ideal of equiprobable strings",
            "Tunstall 1967", Later("tokengraft.planning.baselines:by_prefix_free"),
        ),
    )
}  # fmt: skip
