"""Rows for new tokens of a frozen model: the paper's methods, better ones, and distillation.

`derive_rows` is the one call most users need; `grid` gives the paper's 40 strategies; the methods
themselves are arrays in, arrays out (`protocol`). Nothing here is imported until it is used, and
torch only by what runs a model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft.deriving.backbone import Backbone, model_hash
    from tokengraft.deriving.distil import Distiller
    from tokengraft.deriving.judging import HeldOut, judge
    from tokengraft.deriving.knn import KNN
    from tokengraft.deriving.linear import Linear
    from tokengraft.deriving.local_linear import LocalLinear
    from tokengraft.deriving.mean import Mean
    from tokengraft.deriving.paper_grid import Cell, grid, paper_layers
    from tokengraft.deriving.procrustes import Procrustes
    from tokengraft.deriving.reading import Reader
    from tokengraft.deriving.recipe import Recipe
    from tokengraft.deriving.registry import METHODS, TRAINING_FREE
    from tokengraft.deriving.run import Derived, derive_rows
    from tokengraft.deriving.specials import prefix_ids
    from tokengraft.deriving.states import part_states, vocabulary_states
    from tokengraft.deriving.teacher import Teacher
    from tokengraft.errors import ModelError

_WHERE = {
    "backbone": ("Backbone", "ModelError", "model_hash"),
    "distil": ("Distiller",),
    "judging": ("HeldOut", "judge"),
    "paper_grid": ("Cell", "grid", "paper_layers"),
    "knn": ("KNN",),
    "linear": ("Linear",),
    "local_linear": ("LocalLinear",),
    "mean": ("Mean",),
    "procrustes": ("Procrustes",),
    "reading": ("Reader",),
    "recipe": ("Recipe",),
    "registry": ("METHODS", "TRAINING_FREE"),
    "run": ("Derived", "derive_rows"),
    "specials": ("prefix_ids",),
    "states": ("part_states", "vocabulary_states"),
    "teacher": ("Teacher",),
}
_MODULE = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "METHODS", "TRAINING_FREE", "Backbone", "Cell", "Derived", "Distiller", "HeldOut", "KNN",
    "Linear", "LocalLinear", "Mean", "ModelError", "Procrustes", "Reader", "Recipe", "Teacher",
    "derive_rows", "grid", "judge", "model_hash", "paper_layers", "part_states", "prefix_ids",
    "vocabulary_states",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_MODULE[name]}")
    except ImportError as error:
        if (error.name or "").split(".")[0] in ("torch", "transformers", "safetensors"):
            from tokengraft.errors import MissingExtra

            raise MissingExtra("Deriving rows", "model") from error
        raise
    return getattr(module, name)
