"""How a plan's strings are chosen: one row a mode.

`--help` and the contract suite (`tests/contract/test_plan_modes.py`) are made from the table.
`tokengraft.paper` adds modes of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokengraft.core.options import find_row


@dataclass(frozen=True)
class PlanMode:
    """One way to choose strings.

    `rule` takes a learner before its first step, the budget and the least number of occurrences,
    and returns the function that names the next pair. Without a rule the objective names it.
    `literal` makes a whole plan of added tokens instead, from the tokenizer, the lines of each
    language, the test lines and the pivot; such a plan promises nothing about lengths.
    """

    name: str
    help: str
    reference: str
    rule: Callable[..., Any] | None = None
    literal: Callable[..., Any] | None = None


MODES: dict[str, PlanMode] = {
    mode.name: mode
    for mode in (
        PlanMode(
            "merges",
            "continued BPE on the old tokens, which saves most",
            "Sennrich, Haddow and Birch 2016",
        ),
        PlanMode("characters", "completes split characters, no more", "tokengraft"),
    )
}


def mode_named(name: str, recorded: bool = False) -> PlanMode:
    """The mode of that name; UsageError with the known names otherwise.

    In a plan that was `recorded` earlier, those of `paper` may go without its name.
    """
    return find_row("mode", name, MODES, recorded=recorded)
