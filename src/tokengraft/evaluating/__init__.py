"""How much of a model's behaviour survived a vocabulary graft.

    from tokengraft.evaluating import evaluate
    found = evaluate("rootstock", "grafted/", languages=["shn_Mymr"])
    found.scores             # a polars DataFrame: each figure with floor, ceiling, n, interval
    found.save("evaluation/")

Names are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft.evaluating.disjoint import assert_disjoint
    from tokengraft.evaluating.run import Evaluation, evaluate
    from tokengraft.evaluating.score import Score
    from tokengraft.evaluating.subject import open_subject

_EXPORTS = {
    "Evaluation": "run",
    "Score": "score",
    "assert_disjoint": "disjoint",
    "evaluate": "run",
    "open_subject": "subject",
}

__all__ = ["Evaluation", "Score", "assert_disjoint", "evaluate", "open_subject"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
