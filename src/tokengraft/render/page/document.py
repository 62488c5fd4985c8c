"""The HTML document: markup, style, script and data in one file under a strict policy."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from tokengraft.render.page.colours import colour_css
from tokengraft.render.page.fonts import font_css
from tokengraft.render.page.shown import safe_json

_STYLES = ("base.css", "parts.css", "charts.css", "print.css")
# In this order they make one script: each may use what stands before it.
_SCRIPTS = (
    "dom.js",
    "format.js",
    "state.js",
    "tip.js",
    "charts.js",
    "hero.js",
    "premiums.js",
    "scatter.js",
    "scripts.js",
    "language.js",
    "tokens.js",
    "vocabularies.js",
    "cost.js",
    "counted.js",
    "compare.js",
    "plan.js",
    "graft.js",
    "provenance.js",
    "live.js",
    "main.js",
)
_MARK = re.compile(r"\{\{(\w+)\}\}")


def document(title: str, data: dict[str, Any], scripts: Iterable[str], live: bool = False) -> str:
    """The page as text. The data stand in it as JSON and reach the document only as text nodes."""
    style = "\n".join([font_css(scripts), colour_css(), *map(_static, _STYLES)])
    script = '(() => {\n"use strict";\n' + "\n".join(map(_static, _SCRIPTS)) + "\n})();"
    parts = {
        "title": html.escape(title),
        "policy": html.escape(policy(style, script, live), quote=True),
        "style": style,
        "script": script,
        "data": safe_json(data),
    }
    return _MARK.sub(lambda match: parts[match[1]], _static("page.html"))


def policy(style: str, script: str, live: bool) -> str:
    """A content security policy: nothing runs or loads but what is in the file."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "font-src data:",
            "img-src data:",
            "connect-src 'self'" if live else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _static(name: str) -> str:
    path = resources.files("tokengraft.render.page") / "static" / name
    return path.read_text(encoding="utf-8")
