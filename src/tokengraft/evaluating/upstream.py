"""The packages before this one, in the flow from audit to report.

They are imported when used: a table of scores needs neither torch nor a model.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from tokengraft.errors import MissingExtra


def deriving(module: str = "") -> Any:
    """The package that makes rows, or one of its modules."""
    return _imported("tokengraft.deriving", module)


def grafting(module: str = "") -> Any:
    """The package that writes model folders, or one of its modules."""
    return _imported("tokengraft.grafting", module)


def planning(module: str = "") -> Any:
    """The package that chooses tokens, or one of its modules."""
    return _imported("tokengraft.planning", module)


def require_torch() -> Any:
    """The torch module, or MissingExtra."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("Evaluating a model", "model") from error
    return torch


def require_transformers() -> Any:
    """The transformers module, or MissingExtra."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra("Evaluating a model", "model") from error
    return transformers


def resolve(model: str | Path) -> tuple[Path, str]:
    """Folder and citable name of a model: `rootstock`, a folder or a hub id."""
    found = grafting("resolve").resolve(model)
    return found.path, found.name


def _imported(package: str, module: str) -> Any:
    return importlib.import_module(f"{package}.{module}" if module else package)
