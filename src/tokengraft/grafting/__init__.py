"""Write a model folder with new tokens, and prove it sound.

    from tokengraft.grafting import graft, logits_processor, verify_model
    graft("rootstock", Path("plan.json"), Path("grafted"))

Names are imported when first used: reading a plan needs neither torch nor transformers. Functions
that share a module's name are taken from it: `tokengraft.grafting.export.export`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft.grafting.errors import GraftError, ModelError
    from tokengraft.grafting.export import Written
    from tokengraft.grafting.policy import POLICIES
    from tokengraft.grafting.run import (
        Grafted,
        Rows,
        graft,
        logits_processor,
        verify_model,
    )
    from tokengraft.grafting.verify import Check, Report

_EXPORTS = {
    "POLICIES": "policy",
    "Check": "verify",
    "GraftError": "errors",
    "Grafted": "run",
    "ModelError": "errors",
    "Report": "verify",
    "Rows": "run",
    "Written": "export",
    "graft": "run",
    "logits_processor": "run",
    "verify_model": "run",
}

__all__ = [
    "POLICIES",
    "Check",
    "GraftError",
    "Grafted",
    "ModelError",
    "Report",
    "Rows",
    "Written",
    "graft",
    "logits_processor",
    "verify_model",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'tokengraft.grafting' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tokengraft.grafting.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value
