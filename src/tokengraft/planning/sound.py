"""A plan's file read as the types that a plan is made of; `check_tokens` comes later.

What is not a code, a count or a finite figure would otherwise reach a model card or a page, or end
a run in the middle.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from tokengraft.core.errors import TokengraftError
from tokengraft.languages.codes import well_formed
from tokengraft.tokenizer.boundaries import SCRIPTS

if TYPE_CHECKING:
    from tokengraft.planning.plan import Effect, Plan

_types: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)
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
    if kind is str:
        return isinstance(value, str)
    if kind is int:
        return type(value) is int and value >= 0
    return type(value) in (int, float) and math.isfinite(value)


def check_values(plan: Plan, objectives: tuple[str, ...]) -> None:
    """TokengraftError for a plan with a value out of range."""
    objective = plan.objective.partition(":")[0]
    _require(objective in objectives, "objective", objective, f"one of {', '.join(objectives)}")
    _require(plan.tokens, "tokens", plan.tokens, "at least one token")
    _require(plan.languages, "languages", plan.languages, "at least one language")
    relaxable = {script for names in SCRIPTS.values() for script in names}
    for name in plan.cut.scripts:
        _require(name in relaxable, "a script", name, f"one of {', '.join(sorted(relaxable))}")
    for token in plan.tokens:
        _require(token.parts, f"parts of token {token.id}", token.parts, "old ids")
    for code in (*plan.languages, *([] if plan.pivot is None else [plan.pivot])):
        _require(well_formed(code), "a language", code, "like shn_Mymr")
    for code, effect in plan.languages.items():
        _check_effect(code, effect)


def _check_effect(code: str, effect: Effect) -> None:
    for figures in (effect, *effect.curve):
        for name, value in vars(figures).items():
            if value is not None and name.startswith(("premium", "floor")):
                _require(value > 0, f"{name} of {code}", value, "a number above 0")
            elif value is not None and name.startswith("unk_share"):
                _require(0 <= value <= 1, f"{name} of {code}", value, "a share from 0 to 1")
    if effect.curve:
        ends = (effect.premium_before, effect.curve[0]), (effect.premium_after, effect.curve[-1])
        for said, point in ends:
            end = point.premium
            same = said == end or (said and end and math.isclose(said, end, rel_tol=1e-6))
            _require(same, f"a premium of {code}", said, f"where its curve ends, {end}")


def _require(holds: object, what: str, got: Any, wanted: str) -> None:
    if not holds:
        _refuse(what, got, wanted)


def _refuse(what: str, got: Any, wanted: str) -> NoReturn:
    raise TokengraftError(
        f"this is not a plan: {what} is {str(got)[:60]!r}, not {wanted}. It was edited or damaged: "
        "plan again."
    )
