"""Options as small frozen objects, the defaults that floors share, and rows that load later.

Objects are made from flat keywords (`options_from`) or read from a file (`read_as`): what is not a
code, a count or a finite figure there would otherwise reach a model card or a page, or end a run in
the middle. A row of a registry names what it stands for (`Later`), which is imported when used.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from tokengraft.core.errors import TokengraftError, no_such

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


_types: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = {str: "text", int: "a whole number", float: "a number"}


def read_as(kind: Any, value: Any, what: str) -> Any:
    """`value`, out of a JSON file, as `kind`; TokengraftError for anything else.

    Served are dataclasses, tuples, mappings by text, literals, text, counts (`int`) and finite
    figures (`float`), each with None or without.
    """
    if kind in _PLAIN:
        return value if _is_plain(kind, value) else _refuse(what, value, _PLAIN[kind])
    origin, kinds = get_origin(kind), get_args(kind)
    if type(None) in kinds:
        return None if value is None else read_as(kinds[0], value, what)
    if origin is Literal:
        return value if value in kinds else _refuse(what, value, f"one of {', '.join(kinds)}")
    if origin is tuple and isinstance(value, list | tuple):
        if kinds[-1] is ...:
            kinds = kinds[:1] * len(value)
        if len(kinds) == len(value):
            return tuple(read_as(kinds[i], one, f"{what} {i}") for i, one in enumerate(value))
    if origin is Mapping and isinstance(value, Mapping):
        return {key: read_as(kinds[1], one, f"{what} {key}") for key, one in value.items()}
    types = _types(kind) if is_dataclass(kind) else {}
    if types and isinstance(value, Mapping) and value.keys() <= types.keys():
        given = {key: read_as(types[key], one, f"{key} of {what}") for key, one in value.items()}
        try:
            return kind(**given)
        except TypeError as error:  # a value is missing
            raise TokengraftError(f"this is not a plan: {error}") from error
    return _refuse(what, value, "what a plan holds there")


def _is_plain(kind: type, value: Any) -> bool:
    if kind is str:  # half a surrogate pair is no text
        return isinstance(value, str) and not _SURROGATE.search(value)
    if kind is int:
        return type(value) is int and value >= 0
    return type(value) in (int, float) and math.isfinite(value)


def require(holds: object, what: str, got: Any, wanted: str) -> None:
    """TokengraftError unless what was read of `what` is as a plan has it."""
    if not holds:
        _refuse(what, got, wanted)


def _refuse(what: str, got: Any, wanted: str) -> NoReturn:
    raise TokengraftError(
        f"this is not a plan: {what} is {str(got)[:60]!r}, not {wanted}. It was edited or damaged: "
        "plan again."
    )
