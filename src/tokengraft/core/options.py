"""Options as small frozen objects, made from flat keywords, and the defaults that floors share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tokengraft.core.errors import no_such

PIVOT = "eng_Latn"  # what premiums are relative to
RESAMPLES = 1000  # of the bootstrap
TRAINING_FREE = "mean-late"  # of methods for rows: lower KL than the mean in all 12 languages
MOST_POSITIONS = 4096  # at which distributions are compared, drawn at random where there are more


Options = TypeVar("Options")


def options_from(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """A `kind` with `given` in place of its defaults; None stands for the default.

    Fields that are options themselves take their own keywords: `Deriving` has a `Recipe`, so
    `steps=100` is set there. UsageError for a keyword that none of them has.
    """
    wanted = {name: value for name, value in given.items() if value is not None}
    made: Options = _filled(kind(), wanted)
    if wanted:
        raise no_such("option", next(iter(wanted)), sorted(_names(made)))
    return made


def _filled(options: Any, wanted: dict[str, Any]) -> Any:
    changes = {f.name: wanted.pop(f.name) for f in fields(options) if f.name in wanted}
    for field in fields(options):
        inner = getattr(options, field.name)
        if field.name not in changes and is_dataclass(inner):
            changes[field.name] = _filled(inner, wanted)
    return replace(options, **changes)


def _names(options: Any) -> set[str]:
    names = {field.name for field in fields(options)}
    for name in tuple(names):
        if is_dataclass(getattr(options, name)):
            names |= _names(getattr(options, name))
    return names
