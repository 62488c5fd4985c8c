"""Whether the values in a plan's file are such as a plan can hold; `check_tokens` comes later.

What is not a code, a count or a finite figure would otherwise reach a model card or a page, or end
a run in the middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from tokengraft.core.errors import TokengraftError
from tokengraft.languages.codes import well_formed
from tokengraft.tokenizer.boundaries import SCRIPTS


def check_values(data: Mapping[str, Any], choices: Mapping[str, Iterable[str]]) -> None:
    """TokengraftError for a parsed `plan.json` with a value of the wrong kind or out of range.

    `choices` are the words that a key may hold. KeyError, TypeError or AttributeError where the
    file has another shape.
    """
    for key, known in choices.items():
        _one_of(key, data[key], known)
    _text("tokenizer", data["tokenizer"])
    _count("budget", data["budget"])
    _check("label", data.get("label"), _text_or_none, "text")
    for note in data["notes"]:
        _text("a note", note)
    for name in data["cut"]["scripts"]:
        _one_of("a script", name, {script for names in SCRIPTS.values() for script in names})
    for key, what in (("tokens", "at least one token"), ("languages", "at least one language")):
        if not data[key]:
            _refuse(key, data[key], what)
    for token in data["tokens"]:
        _check_token(token)
    for pair in data["merges"]:
        for part in pair:
            _text("a merge", part)
    for name, value in data["check"].items():
        _count(f"check.{name}", value)
    if (protected := data.get("protected")) is not None:
        _check_protected(protected)
    pivot = data["pivot"]
    for code in (*data["languages"], *([] if pivot is None else [pivot])):
        _check("a language", code, lambda c: isinstance(c, str) and well_formed(c), "like shn_Mymr")
    for code, effect in data["languages"].items():
        _check_effect(code, effect)


def _check_token(token: Mapping[str, Any]) -> None:
    _count("the id of a token", token["id"])
    what = f"of token {token['id']}"
    _text(f"token {what}", token["token"])
    _text(f"bytes {what}", token["bytes"])
    for name in ("text", "example"):
        _check(f"{name} {what}", token.get(name), _text_or_none, "text")
    _count(f"count {what}", token["count"])
    _check(f"score {what}", token.get("score"), lambda s: s is None or _finite(s), "a number")
    if not token["parts"]:
        _refuse(f"parts {what}", token["parts"], "old ids")
    for part in token["parts"]:
        _count(f"a part {what}", part)


def _check_protected(said: Mapping[str, Any]) -> None:
    for source in said["sources"]:
        _text("a source of protected text", source)
    _text("the hash of protected text", said["sha256"])
    _count("the lines of protected text", said["lines"])
    for one in said["elsewhere"]:
        _text("text that was not protected", one["text"])
        _count("words of it", one["words"])
        _count("words that changed", one["changed"])


def _check_effect(code: str, effect: Mapping[str, Any]) -> None:
    for values, what in ((effect, code), *((point, code) for point in effect["curve"])):
        for name, value in values.items():
            if name.startswith(("premium", "floor")):
                _check(f"{name} of {what}", value, _ratio, "a number above 0")
            elif name.startswith("unk_share"):
                _check(f"{name} of {what}", value, _share, "a share from 0 to 1")
            elif name != "curve":
                _count(f"{name} of {what}", value)
    if effect["curve"]:
        first, last = effect["curve"][0]["premium"], effect["curve"][-1]["premium"]
        for name, end in (("premium_before", first), ("premium_after", last)):
            said = effect.get(name)
            if said != end and not (said and end and math.isclose(said, end, rel_tol=1e-6)):
                _refuse(f"{name} of {code}", said, f"where its curve ends, {end}")


def _ratio(value: Any) -> bool:
    return value is None or (_finite(value) and value > 0)


def _share(value: Any) -> bool:
    return value is None or (_finite(value) and 0 <= value <= 1)


def _finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _one_of(what: str, got: Any, known: Iterable[str]) -> None:
    words = sorted(known)
    _check(what, got, words.__contains__, f"one of {', '.join(words)}")


def _text(what: str, got: Any) -> None:
    _check(what, got, lambda value: isinstance(value, str), "text")


def _count(what: str, got: Any) -> None:
    _check(what, got, lambda value: type(value) is int and value >= 0, "a whole number")


def _check(what: str, got: Any, sound: Callable[[Any], bool], wanted: str) -> None:
    if not sound(got):
        _refuse(what, got, wanted)


def _refuse(what: str, got: Any, wanted: str) -> NoReturn:
    raise TokengraftError(
        f"this is not a plan: {what} is {str(got)[:60]!r}, not {wanted}. It was edited or damaged: "
        "plan again."
    )
