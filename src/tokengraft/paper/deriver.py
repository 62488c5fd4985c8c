"""The one protocol of array methods, and the options that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tokengraft.core.errors import UsageError
from tokengraft.deriving.methods import Floats, Rows
from tokengraft.deriving.states import Layer


class Fitted(Protocol):
    """What a method learned from the anchors."""

    def derive(self, hidden: Floats) -> Rows:
        """Rows (n, d) for hidden states (n, h)."""
        ...


class Deriver(Protocol):
    """A method with its parameters; neither it nor what it fits changes its inputs."""

    def fit(self, anchors_hidden: Floats, anchors_rows: Floats) -> Fitted:
        """Learn from anchors: hidden states (m, h) and their rows (m, d)."""
        ...


def layer_of(more: Mapping[str, Any], default: Layer = 0) -> Layer:
    """The option `layer`, as a number or `norm`."""
    given = more.get("layer", default)
    if given == "norm" or isinstance(given, int):
        return given  # type: ignore[no-any-return]
    if not str(given).isdecimal():
        raise UsageError(f"layer {given!r}: give a number from 0, or norm")
    return int(given)


def count_of(more: Mapping[str, Any], name: str, default: int) -> int:
    """An option that is a whole number, 1 or more."""
    given = more.get(name, default)
    if name in more and not (str(given).isdecimal() and int(given) > 0):
        raise UsageError(f"{name} {given!r}: give a whole number, 1 or more")
    return int(given)
