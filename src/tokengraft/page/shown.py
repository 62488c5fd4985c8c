"""Values as the page may hold them: no machine paths, no NaN, no more digits than are shown."""

from __future__ import annotations

import json
import math
import re
from pathlib import PurePosixPath
from typing import Any

_PATH = re.compile(r"(?:(?<=\s)|^)(?:~|[A-Za-z]:)?[/\\][^\s,;'\"]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
# In a JSON string these stand for themselves, and no markup can be written without them.
_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def digits(value: float | None, count: int = 4) -> float | None:
    """`value` at `count` significant digits; None where it is no number."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{count}g}")


def without_paths(value: Any) -> Any:
    """The same value with every absolute path cut to its last name."""
    if isinstance(value, dict):
        return {without_paths(key): without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(inner) for inner in value]
    if isinstance(value, str):
        return _PATH.sub(lambda match: _last(match[0]), value)
    return value


def _last(path: str) -> str:
    return PurePosixPath(path.replace("\\", "/")).name or path


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
