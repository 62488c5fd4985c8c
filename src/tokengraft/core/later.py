"""What is imported when it is used: rows of registries and names of the package cost nothing."""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """What stands at `module:name`; calling it imports it first."""

    def __init__(self, place: str) -> None:
        self.place = place

    def load(self) -> Any:
        """Import it now."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(module), name)

    def __call__(self, *given: Any, **options: Any) -> Any:
        """Import and call it."""
        return self.load()(*given, **options)
