"""The HTML document: markup, style, code, fonts and data in one file under a strict policy.

Fonts are WOFF in data URIs, only for the scripts (Tamil, Shan …) that a page shows. The data hold
no paths of this machine, no NaN and no more digits than are shown.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import html
import io
import json
import logging
import math
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokengraft.core.files import ASSETS
from tokengraft.core.wording import ranges
from tokengraft.languages.codes import SAME_LETTERS
from tokengraft.render.colours import colour_css

CARD = "card.png"
CARD_SIZE = (1200, 630)  # pixels that previews of links are made for
_STYLES = ("base.css", "parts.css", "charts.css", "print.css")
# Joined in this order into one script: each may use what comes before it.
_SCRIPTS = (
    "dom.js", "format.js", "state.js", "tip.js", "charts.js", "hero.js", "premiums.js",
    "scatter.js", "scripts.js", "language.js", "tokens.js", "vocabularies.js", "cost.js",
    "counted.js", "compare.js", "frontier.js", "plan.js", "graft.js", "provenance.js", "bpe.js",
    "share.js", "live.js", "main.js",
)  # fmt: skip
_MARK = re.compile(r"\{\{(\w+)\}\}")


def document(title: str, data: dict[str, Any], scripts: Iterable[str], place: str | None) -> str:
    """The page as text. It holds the data as JSON, which reach the document only as text nodes.

    `place` is the page's future address, which link previews need. Only a site, whose playground
    runs in the browser, has a picture for such previews beside it.
    """
    image = CARD if (data["live"] or {}).get("tokenizers") else None
    style = "\n".join([font_css(scripts), colour_css(), *map(_static, _STYLES)])
    script = '(() => {\n"use strict";\n' + "\n".join(map(_static, _SCRIPTS)) + "\n})();"
    parts = {
        "title": html.escape(title),
        "preview": preview(title, place, image),
        "policy": html.escape(policy(style, script, data["live"] is not None), quote=True),
        "style": style,
        "script": script,
        "data": safe_json(data),
    }
    return _MARK.sub(lambda match: parts[match[1]], _static("page.html"))


def preview(title: str, place: str | None, image: str | None) -> str:
    """Open Graph tags: how a link to the page at `place` is previewed."""
    tags = {"og:type": "website", "og:site_name": "tokengraft", "og:title": title}
    tags |= {"og:description": title} | ({} if place is None else {"og:url": place})
    if image is not None:
        whole = image if place is None else f"{place}{image}"
        width, height = map(str, CARD_SIZE)
        tags |= {"og:image": whole, "og:image:width": width, "og:image:height": height}
    words = [
        f'<meta property="{name}" content="{html.escape(value, quote=True)}">'
        for name, value in tags.items()
    ]
    words.append('<meta name="twitter:card" content="summary_large_image">')
    words.append(f'<meta name="description" content="{html.escape(title, quote=True)}">')
    return "".join(words)


def policy(style: str, script: str, live: bool) -> str:
    """A content security policy: nothing runs or loads but what is in the file."""
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src '{hashed(script)}'; style-src '{hashed(style)}'; "
        f"font-src data:; img-src data:; connect-src {connect}; base-uri 'none'; "
        "form-action 'none'"
    )


def hashed(text: str) -> str:
    """The hash by which a content security policy allows a style or script with this text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _static(name: str) -> str:
    return (Path(__file__).parent / "static" / name).read_text(encoding="utf-8")


# These four share code points for Han characters, so text must choose its font by script.
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
    names = sorted(font.name for font in (ASSETS / "fonts").glob("*.ttf"))
    return {name.removesuffix(".ttf").rpartition("-")[2]: name for name in names}


def alphabets() -> list[str]:
    """Scripts that have a font, without those for Han: they are cut down to the bundled text."""
    return [script for script in _files() if script not in _HAN]


@functools.cache
def _face(script: str) -> str:
    from fontTools.ttLib import TTFont

    logging.getLogger("fontTools").setLevel(logging.ERROR)
    data = (ASSETS / "fonts" / _files()[script]).read_bytes()
    font: Any = TTFont(io.BytesIO(data), recalcTimestamp=False)
    covered = ranges(point for point in font.getBestCmap() if _own(point))
    font.flavor = "woff"
    packed = io.BytesIO()
    font.save(packed, reorderTables=None)
    encoded = base64.b64encode(packed.getvalue()).decode()
    points = ", ".join(f"U+{a:X}" if a == b else f"U+{a:X}-{b:X}" for a, b in covered)
    return (
        f'@font-face {{ font-family: "tg-{script}"; font-display: block; '
        f'src: url("data:font/woff;base64,{encoded}") format("woff"); '
        f"unicode-range: {points}; }}"
    )


def _own(code: int) -> bool:
    """Whether a script's font is used for a character; not for Latin and common punctuation."""
    if code == _DOTTED_CIRCLE:
        return True  # it carries a mark that stands alone, and both must come from one font
    if code < 0x250 or 0x2000 <= code < 0x2C00:
        return False
    return unicodedata.category(chr(code))[0] in "LMN" or code >= 0x590


#: Where an absolute path begins: not inside a word (`tokens/byte`) nor an address (`https://`).
_START = re.compile(
    r"""(?<![\w/.)\]}<-])
    (?: file:/+ | ~\w*/ | [A-Za-z]:[/\\] | \\\\(?=\w) | \.\./ | /(?=[\w.~]) )""",
    re.VERBOSE,
)
#: Where it ends, though not inside a folder's name (`O'Brien`, `copy (2)/x`).
_END = re.compile(r"""[\n;"<>|] | (?<!\w)' | '(?!\w) | \)(?![/\\])""", re.VERBOSE)
_SURROGATE = re.compile("[\ud800-\udfff]")
# Escaped in JSON strings they mean the same, and markup cannot be written without them.
_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def digits(value: Any, count: int = 6) -> float | None:
    """`value` to so many significant digits; None if it is not a finite number.

    More than are shown: what is rounded twice may end as another figure than elsewhere.
    """
    number = isinstance(value, int | float) and math.isfinite(value)
    return float(f"{value:.{count}g}") if number else None


def without_paths(value: Any) -> Any:
    """The same value with every absolute path cut to its last name.

    If in doubt, it cuts too much: a folder's name may contain spaces and commas.
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
        # Of a list of paths, each keeps its last name; so `/Doe, John/x` becomes `Doe, x`.
        names = [last_name(part) for part in text[path_start.start() : end].split(", ")]
        shown += text[: path_start.start()] + ", ".join(names)
        text = text[end:]
    return shown + text


def last_name(path: str) -> str:
    """The last part of a path, ignoring separators at its end."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def safe_json(value: Any) -> str:
    """JSON that is safe inside a `<script>` element: nothing in it can open or close one."""
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
    """Gzip in base64, without a date; the page unpacks it with the browser's own decompressor."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
