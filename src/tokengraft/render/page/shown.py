"""Values as the page may hold them: no machine paths, no NaN, no more digits than are shown."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from typing import Any

#: Where an absolute path begins: not inside a word (`tokens/byte`) nor an address (`https://`).
_START = re.compile(
    r"""(?<![\w/.)\]}<-])
    (?: file:/+ | ~\w*/ | [A-Za-z]:[/\\] | \\\\(?=\w) | \.\./ | /(?=[\w.~]) )""",
    re.VERBOSE,
)
#: What ends one, though not inside a folder's name (`O'Brien`, `copy (2)/x`).
_END = re.compile(r"""[\n;"<>|] | (?<!\w)' | '(?!\w) | \)(?![/\\])""", re.VERBOSE)
_SURROGATE = re.compile("[\ud800-\udfff]")
# In a JSON string these stand for themselves, and no markup can be written without them.
_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def digits(value: Any) -> float | None:
    """`value` at four significant digits; None where it is no number."""
    number = isinstance(value, int | float) and math.isfinite(value)
    return float(f"{value:.4g}") if number else None


def without_paths(value: Any) -> Any:
    """The same value with every absolute path cut to its last name.

    In doubt too much is cut: a folder's name may hold spaces and commas.
    """
    if isinstance(value, dict):
        return {without_paths(key): without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(inner) for inner in value]
    return _cut(value) if isinstance(value, str) else value


def _cut(text: str) -> str:
    shown = ""
    while path_start := _START.search(text):
        stop = _END.search(text, path_start.end())
        end = stop.start() if stop else len(text)
        # Each part of a list keeps its last name; `Doe, John/x` goes on with the folder before it.
        names = [last_name(part) for part in text[path_start.start() : end].split(", ")]
        shown += text[: path_start.start()] + ", ".join(names)
        text = text[end:]
    return shown + text


def last_name(path: str) -> str:
    """What stands after the last separator that has something after it."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def safe_json(value: Any) -> str:
    """JSON that can stand inside a `<script>` element: no character of it can end or open one."""
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text.translate(_ESCAPED)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def pack(data: bytes) -> str:
    """Gzip in base64, without a date; the page unpacks it with the browser's own gunzip."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
