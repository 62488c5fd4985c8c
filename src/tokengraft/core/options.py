"""Options as small frozen objects, shared defaults, and registry rows that are imported late.

Options are made from flat keywords (`options_from`), and plans read from JSON (`read_as`), which
checks every type: a value that is not text, a count or a finite number would otherwise reach a
model card or a page, or stop a run halfway. A registry row names its target (`Later`), which is
imported when it is called.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from tokengraft.core.errors import TokengraftError, UsageError, no_such

PIVOT = "eng_Latn"  # the language that premiums are relative to
RESAMPLES = 1000  # of the bootstrap
TRAINING_FREE = "mean-late"  # default without training: lower KL than `mean` in all 12 languages
MOST_POSITIONS = 4096  # where distributions are compared; a random sample if there are more


Options = TypeVar("Options")


def options_from(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """A `kind` with its defaults replaced by `given`, where None keeps the default.

    Keywords reach nested options too: `Deriving` has a `Recipe`, so `steps=100` is set there.
    UsageError for a keyword that none of them has.
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
    """Whatever `module:name` is; imported only when it is called."""

    def __init__(self, place: str) -> None:
        self.place = place

    def load(self) -> Any:
        """Import it now."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(module), name)

    def __call__(self, *given: Any, **options: Any) -> Any:
        """Import and call it."""
        return self.load()(*given, **options)


PLUGINS = ("paper",)  # packages of tokengraft that add rows to registries
Row = TypeVar("Row")


def load_plugin(name: str) -> Any:
    """Import `tokengraft.NAME`, which adds its rows to the registries."""
    return importlib.import_module(f"{__package__.partition('.')[0]}.{name}")


def find_row(
    what: str,
    name: str,
    table: Mapping[str, Row],
    also: Sequence[str] = (),
    recorded: bool = False,
) -> Row:
    """The row called `name` ("paper.knn" is one of the plugin `tokengraft.paper`), or UsageError.

    The error lists the known names, `also` some that are no rows, and says what a name without its
    plugin is called now. A name that is `recorded` in an older file needs no plugin's name.
    """
    known = [*also, *table]
    if name not in table and name.partition(".")[0] in PLUGINS:
        load_plugin(name.partition(".")[0])
        known = [*also, *table]
    if name in table:
        return table[name]
    for plugin in PLUGINS:
        load_plugin(plugin)
        full = f"{plugin}.{name}"
        if full in table and recorded:
            return table[full]
        if full in table:
            raise UsageError(f"{what} {name!r} is called {full} now: it belongs to `{plugin}`")
    raise no_such(what, name, known)


def refuse_unknown(given: Collection[str], known: Sequence[str], what: str) -> None:
    """UsageError for the first of the `given` names that `what` does not take."""
    for name in given:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UsageError(f"{what} has no option {name!r}: {takes}")


_types: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = {str: "text", int: "a whole number", float: "a number"}


def read_as(kind: Any, value: Any, what: str) -> Any:
    """A `value` from a JSON file as a `kind`; TokengraftError if it does not fit.

    A kind is a dataclass, a tuple, a mapping with text keys, a literal, text, a count (`int`, never
    negative) or a finite number (`float`), or any of these or None.
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
    if kind is str:  # a lone surrogate is not text
        return isinstance(value, str) and not _SURROGATE.search(value)
    if kind is int:
        return type(value) is int and value >= 0
    return type(value) in (int, float) and math.isfinite(value)


def require(holds: object, what: str, got: Any, wanted: str) -> None:
    """TokengraftError ("this is not a plan: WHAT is GOT, not WANTED") unless it `holds`."""
    if not holds:
        _refuse(what, got, wanted)


def _refuse(what: str, got: Any, wanted: str) -> NoReturn:
    raise TokengraftError(
        f"this is not a plan: {what} is {str(got)[:60]!r}, not {wanted}. It was edited or damaged: "
        "plan again."
    )
