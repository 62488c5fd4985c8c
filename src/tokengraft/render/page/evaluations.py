"""A tolerant reader of `evaluation.json`: whatever in it is a score, wherever it stands.

A score is an object with a number `value`, and optionally `floor`, `ceiling`, `n` and an interval
(`low`/`high`, or a pair `interval`). Its language, method and measure are read off its own fields
or off the keys on the way to it, so a new nesting or a new measure needs no change here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokengraft.core.files import read_json
from tokengraft.evaluating.generation import fewer_steps
from tokengraft.evaluating.measures import described
from tokengraft.languages.codes import language_name, well_formed
from tokengraft.render.page.shown import digits, without_paths

_MEASURE = ("measure", "metric", "name", "score")
_METHOD = ("method", "strategy", "rows", "variant")
_COSTS = (
    "tokens_per_prompt",
    "prefill_ms_per_character",
    "decode_ms_per_character",
    "characters_per_token_out",
    "cache_bytes_per_character",
)
_WRAPPERS = {"languages", "scores", "methods", "measures", "metrics", "results", "fidelity"}


def evaluation_data(path: Path) -> dict[str, Any]:
    """Scores, samples and the plain facts of an evaluation.

    `name` is the folder's, `graft` and `base` are the models' where the evaluation names them.
    """
    value = read_json(path)
    scores = list(_scores(value, {}, ()))
    notes = value.get("notes")
    return {
        "name": path.parent.resolve().name,
        "graft": _text(value.get("graft")),
        "base": _text(value.get("base")),
        "scores": scores,
        "measures": {score["measure"]: described(score["measure"]) for score in scores},
        "notes": [_named_in(note) for note in notes if isinstance(note, str)]
        if isinstance(notes, list)
        else [],
        "costs": list(_costs(value.get("generation"))),
        "writing": list(_writing(value.get("generation"), scores)),
        "samples": list(_samples(value))[:12],  # to be compared letter by letter: nothing is cut
        "facts": without_paths(
            {key: inner for key, inner in value.items() if isinstance(inner, str | int | float)}
        ),
    }


def _text(value: Any) -> str | None:
    return str(without_paths(value)) if isinstance(value, str) and value else None


def _named_in(note: str) -> str:
    """The note with the names of languages in place of their codes."""
    named = re.sub(r"\b[a-z]{3}_[A-Z][a-z]{3}(-\w+)?\b", lambda m: language_name(m[0]), note)
    return str(without_paths(named))


def _scores(
    value: Any, context: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    if isinstance(value, Mapping):
        here = {**context, **_named(value)}
        if _is_number(value.get("value")):
            yield _score(value, here, path)
            return
        for key, inner in value.items():
            place = {**here, "language": key} if well_formed(str(key)) else here
            yield from _scores(inner, place, (*path, str(key)))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _scores(inner, context, path)


def _named(value: Mapping[str, Any]) -> dict[str, Any]:
    texts = {}
    for kind, keys in (("measure", _MEASURE), ("method", _METHOD), ("language", ("language",))):
        text = next((value[key] for key in keys if isinstance(value.get(key), str)), None)
        if text is not None:
            texts[kind] = text
    return texts


def _score(
    value: Mapping[str, Any], context: Mapping[str, Any], path: tuple[str, ...]
) -> dict[str, Any]:
    words = [word for word in path if not well_formed(word) and word.lower() not in _WRAPPERS]
    measure = str(context.get("measure") or (words.pop() if words else "score"))
    method = context.get("method") or (words[-1] if words else None)
    code = context.get("language")
    low, high = _interval(value)
    return {
        "measure": measure,
        "method": None if method is None else str(method),
        "language": code,
        "name": None if code is None else language_name(str(code)),
        "value": digits(value["value"]),
        "low": low,
        "high": high,
        "floor": _number(value.get("floor")),
        "ceiling": _number(value.get("ceiling")),
        "n": value.get("n"),
        "definition": str(value["definition"]) if "definition" in value else None,
    }


def _interval(value: Mapping[str, Any]) -> tuple[float | None, float | None]:
    pair = value.get("interval")
    if isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2:
        return _number(pair[0]), _number(pair[1])
    return _number(value.get("low")), _number(value.get("high"))


def _samples(value: Any) -> Iterator[dict[str, str]]:
    """Objects with a prompt and what came after it under two models."""
    if isinstance(value, Mapping):
        if isinstance(value.get("prompt"), str):
            texts = {str(k): v for k, v in value.items() if isinstance(v, str)}
            yield texts
            return
        for inner in value.values():
            yield from _samples(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _samples(inner)


def _costs(rows: Any) -> Iterator[dict[str, Any]]:
    """What generation cost, a row per language: each figure as [base, graft]."""
    by_language: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows if isinstance(rows, Sequence) and not isinstance(rows, str) else ():
        if isinstance(row, Mapping) and row.get("model") in ("base", "graft"):
            by_language.setdefault(str(row.get("language")), {})[str(row["model"])] = row
    for code, sides in by_language.items():
        if len(sides) == 2:
            pairs = {
                key: [_number(sides[side].get(key)) for side in ("base", "graft")] for key in _COSTS
            }
            yield {"name": language_name(code), **pairs}


def _writing(rows: Any, scores: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each language that the graft writes in fewer steps than its base.

    Greedy steps where they were counted, else what a sampled token is worth; a graft that may not
    write has neither.
    """
    worth = {s["language"]: s["value"] for s in scores if s["measure"] == "written_worth"}
    told = isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows)
    counted = fewer_steps(rows) if told and not isinstance(rows, str) else {}
    for code, sampled in worth.items():
        times, how = (counted[code], "greedily") if code in counted else (sampled, "sampled")
        if times >= 1.05:
            yield f"Writes {language_name(code)} in {times:.1f} times fewer steps ({how})"


def _number(value: Any) -> float | None:
    if isinstance(value, Mapping):
        value = value.get("value")
    return digits(float(value)) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
