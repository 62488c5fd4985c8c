"""What a premium means in money and context, from a price file the user can edit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from reprlib import repr as short  # an alias in YAML can stand for gigabytes
from typing import Any

import yaml

from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.core.files import ASSETS
from tokengraft.core.untrusted import read_bounded

HALF = 183  # days of half a year
_MOST_BYTES = 4 << 20  # of a price file
_MOST_CONTEXT = 1 << 40  # tokens: more than any model, and it fits into a table


@dataclass(frozen=True)
class Price:
    """A model's list price in dollars per million tokens, and its context in tokens."""

    model: str
    tokenizer: str
    context: int
    source: str
    input: float | None = None
    output: float | None = None


@dataclass(frozen=True)
class PriceList:
    """Prices as of a date."""

    as_of: str
    models: tuple[Price, ...]


def read_prices(path: Path | None = None) -> PriceList:
    """The price list in `path`, or the bundled one; an error names the malformed entry."""
    origin = path or ASSETS / "prices.yaml"
    try:
        data: Any = yaml.safe_load(read_bounded(origin, UsageError, _MOST_BYTES).decode("utf-8"))
    except RecursionError:
        raise TokengraftError(f"{origin}: cannot read the price file (nested too deeply)") from None
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
        raise TokengraftError(f"{origin}: cannot read the price file ({error})") from error
    models = data.get("models") if isinstance(data, dict) else None
    if not isinstance(models, list) or not isinstance(data.get("as_of"), str | date | int):
        raise UsageError(f"{origin}: expected the keys `as_of` (a date) and `models` (a list)")
    prices = tuple(_price(entry, n, origin) for n, entry in enumerate(models))
    return PriceList(str(data["as_of"]), prices)


def age_note(as_of: str, today: date | None = None) -> str:
    """A note if a price list is over half a year old; empty if not, or if `as_of` is no date."""
    try:
        days = ((today or date.today()) - date.fromisoformat(as_of)).days
    except ValueError:
        return ""
    return f"{days // 30} months old: prices may have changed (--prices)" if days > HALF else ""


def _price(entry: Any, number: int, origin: object) -> Price:
    where = f"{origin}: models[{number}]"
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: expected a mapping, got {short(entry)}")
    missing = {"model", "tokenizer", "context", "source"} - entry.keys()
    if missing:
        raise UsageError(f"{where}: missing {', '.join(sorted(missing))}")
    unknown = entry.keys() - {"model", "tokenizer", "context", "source", "input", "output"}
    if unknown:
        raise UsageError(f"{where}: unknown key {', '.join(sorted(map(str, unknown)))}")
    for key in ("model", "tokenizer", "source"):
        if not isinstance(entry[key], str):
            raise UsageError(
                f"{where}: {key} must be text, got {short(entry[key])}: put it in quotes"
            )
    for key in ("input", "output"):
        value = entry.get(key)
        if value is not None and not (_is(value, int | float) and 0 <= value < math.inf):
            raise UsageError(f"{where}: {key} must be a number of dollars, got {short(value)}")
    if not (_is(entry["context"], int) and 1 <= entry["context"] < _MOST_CONTEXT):
        raise UsageError(
            f"{where}: context must be a number of tokens, got {short(entry['context'])}"
        )
    return Price(**entry)


def _is(value: Any, kind: Any) -> bool:
    """`isinstance`, except that True and False are no numbers."""
    return isinstance(value, kind) and not isinstance(value, bool)
