"""Sums → data frames: one row per tokenizer and language, no I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import polars as pl

from tokengraft.auditing.frames import UNK_LIMIT, about, against_first
from tokengraft.auditing.premium import CONFIDENCE
from tokengraft.engine.count_shards import Payload
from tokengraft.languages.codes import language_name
from tokengraft.tokenizer.packed import Packed

_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_SCHEMA: dict[str, Any] = {
    "tokenizer": pl.String,
    "label": pl.String,
    "language": pl.String,
    "name": pl.String,
    "rows": pl.Int64,
    "bytes": pl.Int64,
    "characters": pl.Int64,
    "tokens": pl.Int64,
    "bytes_per_token": pl.Float64,
    "characters_per_token": pl.Float64,
    "tokens_per_byte": pl.Float64,
    "tokens_per_character": pl.Float64,
    "unk_share": pl.Float64,
    "inside_share": pl.Float64,
    "meaningless": pl.Boolean,
}
_RELATIVE: dict[str, Any] = {
    "relative_tokens_per_byte": pl.Float64,
    "relative_tokens_per_character": pl.Float64,
}
_PREMIUM: dict[str, Any] = {
    "n": pl.Int64,
    "premium": pl.Float64,
    "premium_low": pl.Float64,
    "premium_high": pl.Float64,
    "ratio_of_sums": pl.Float64,
    "ratio_of_sums_low": pl.Float64,
    "ratio_of_sums_high": pl.Float64,
    "missing_characters": pl.Float64,
    "tokens_per_unit": pl.Float64,
}
# What an audit in memory says besides: about the language, and what sums do not hold (null).
_BESIDES: dict[str, Any] = {
    "script": pl.String,
    "family": pl.String,
    "speakers_total": pl.Int64,
    "lossless_share": pl.Float64,
    "utf8": pl.Float64,
    "floor": pl.Float64,
    "missing_tokens": pl.Float64,
    "floor_lines": pl.Int64,
}


def counts(payload: Payload, tokenizers: Sequence[Packed], pivot: str | None) -> pl.DataFrame:
    """What each language's text costs; texts differ between languages, so this is no premium.

    The `relative_` columns divide by the pivot language's figure; null where it is not there.
    """
    rows = []
    for packed in tokenizers:
        cells = _cells(payload, packed)
        base = cells.get(pivot) if pivot is not None else None
        for cell in cells.values():
            for name in ("tokens_per_byte", "tokens_per_character"):
                value, other = cell[name], base[name] if base else None
                cell[f"relative_{name}"] = value / other if value is not None and other else None
            rows.append(cell)
    return pl.DataFrame(rows, schema=_SCHEMA | _RELATIVE)


def premiums(payload: Payload, tokenizers: Sequence[Packed]) -> pl.DataFrame:
    """Premiums of a parallel corpus, both definitions, with normal 95 % intervals over units."""
    rows = []
    for packed in tokenizers:
        pairs = payload.get("pairs", {}).get(packed.name, {})
        for code, cell in _cells(payload, packed).items():
            absolute = {"tokens_per_unit": _ratio(cell["tokens"], cell["rows"])}
            rows.append(cell | absolute | _premium(pairs.get(code, {})) | about(code))
    return against_first(pl.DataFrame(rows, schema=_SCHEMA | _PREMIUM | _BESIDES))


def _cells(payload: Payload, packed: Packed) -> dict[str, dict[str, Any]]:
    """By language, sorted: the figures that need no other language."""
    cells = {}
    for code in sorted(payload.get("text", {})):
        rows, size, characters = payload["text"][code]
        tokens, unks, inside = payload["tokens"][packed.name][code]
        cells[code] = {
            "tokenizer": packed.name,
            "label": packed.label,
            "language": code,
            "name": language_name(code),
            "rows": rows,
            "bytes": size,
            "characters": characters,
            "tokens": tokens,
            "bytes_per_token": _ratio(size, tokens),
            "characters_per_token": _ratio(characters, tokens),
            "tokens_per_byte": _ratio(tokens, size),
            "tokens_per_character": _ratio(tokens, characters),
            "unk_share": _ratio(unks, max(tokens, unks)),
            "inside_share": _ratio(inside, tokens),
            "meaningless": unks > UNK_LIMIT * tokens,
        }
    return cells


def _premium(pairs: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Both premiums from the sums by pivot tokens p: [units, Σc, Σc², Σ inside].

    Intervals by the central limit theorem: the mean's standard error, and for the ratio of sums
    that of the residuals c - R·p (the delta method).
    """
    by_pivot = sorted((int(p), sums) for p, sums in pairs.items())
    n = sum(sums[0] for _, sums in by_pivot)
    if not n:
        return {name: 0 if name == "n" else None for name in _PREMIUM}
    mean = math.fsum(sums[1] / p for p, sums in by_pivot) / n
    squares = math.fsum(sums[2] / p**2 for p, sums in by_pivot)
    tokens = sum(sums[1] for _, sums in by_pivot)
    pivots = sum(p * sums[0] for p, sums in by_pivot)
    ratio = tokens / pivots
    products = sum(p * sums[1] for p, sums in by_pivot)
    rest = (
        sum(sums[2] for _, sums in by_pivot)
        - 2 * ratio * products
        + ratio**2 * sum(p * p * sums[0] for p, sums in by_pivot)
    )
    within = {"premium": (mean, squares - n * mean**2), "ratio_of_sums": (ratio, rest)}
    result: dict[str, Any] = {"n": n}
    for name, (value, spread) in within.items():
        error = math.sqrt(max(0.0, spread) / max(1, n - 1) / n) if n > 1 else math.nan
        error *= 1.0 if name == "premium" else n / pivots
        result[name] = value
        result[f"{name}_low"] = value - _Z * error if n > 1 else None
        result[f"{name}_high"] = value + _Z * error if n > 1 else None
    result["missing_characters"] = math.fsum(sums[3] / p for p, sums in by_pivot) / n
    return result


def _ratio(top: int, bottom: int) -> float | None:
    return top / bottom if bottom else None
