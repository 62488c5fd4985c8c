"""The bundled script fonts as CSS: WOFF in data URIs, only for the scripts a page shows."""

from __future__ import annotations

import base64
import functools
import io
import logging
import unicodedata
from collections.abc import Iterable
from importlib import resources
from typing import Any

from tokengraft.languages.scripts import SAME_LETTERS

# The four share their Han characters, so text must ask for them by script.
_HAN = ("Hans", "Hant", "Jpan", "Hang")
_DOTTED_CIRCLE = 0x25CC
LATIN = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", sans-serif'


def font_css(scripts: Iterable[str]) -> str:
    """`@font-face` rules, the page's `--sans` list, and a rule for each Han script."""
    wanted = sorted({SAME_LETTERS.get(script, script) for script in scripts} & set(_files()))
    faces = [_face(script) for script in wanted]
    plain = "".join(f'"tg-{script}", ' for script in wanted if script not in _HAN)
    rules = [f":root {{ --sans: {plain}{LATIN}; }}"]
    rules += [":root { --script: var(--sans); }", "[data-script] { font-family: var(--script); }"]
    names = SAME_LETTERS | {script: script for script in wanted}
    rules += [
        f'[data-script="{name}"] {{ --script: "tg-{script}", var(--sans); }}'
        for name, script in names.items()
        if script in wanted
    ]
    return "\n".join([*faces, *rules])


@functools.cache
def _files() -> dict[str, str]:
    folder = resources.files("tokengraft") / "assets" / "fonts"
    names = sorted(f.name for f in folder.iterdir() if f.name.endswith(".ttf"))
    return {name.removesuffix(".ttf").rpartition("-")[2]: name for name in names}


@functools.cache
def _face(script: str) -> str:
    from fontTools.ttLib import TTFont

    logging.getLogger("fontTools").setLevel(logging.ERROR)
    asset = resources.files("tokengraft") / "assets" / "fonts" / _files()[script]
    font: Any = TTFont(io.BytesIO(asset.read_bytes()), recalcTimestamp=False)
    covered = sorted(c for c in font.getBestCmap() if _own(c))
    font.flavor = "woff"
    packed = io.BytesIO()
    font.save(packed, reorderTables=None)
    data = base64.b64encode(packed.getvalue()).decode()
    return (
        f'@font-face {{ font-family: "tg-{script}"; font-display: block; '
        f'src: url("data:font/woff;base64,{data}") format("woff"); '
        f"unicode-range: {_ranges(covered)}; }}"
    )


def _own(code: int) -> bool:
    """Whether a character is the script's own, so that Latin and punctuation stay as they are."""
    if code == _DOTTED_CIRCLE:
        return True  # a mark on its own stands on it, and both must come from one font
    if code < 0x250 or 0x2000 <= code < 0x2C00:
        return False
    return unicodedata.category(chr(code))[0] in "LMN" or code >= 0x590


def _ranges(codes: list[int]) -> str:
    spans: list[list[int]] = []
    for code in codes:
        if spans and code == spans[-1][1] + 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return ", ".join(f"U+{a:X}" if a == b else f"U+{a:X}-{b:X}" for a, b in spans)
