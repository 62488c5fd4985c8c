"""The HTML document: markup, style, script and data in one file under a strict policy."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from tokengraft.render.colours import colour_css
from tokengraft.render.page.fonts import font_css
from tokengraft.render.page.shown import safe_json

CARD = "card.png"
CARD_SIZE = (1200, 630)  # pixels that previews of links are made for
_STYLES = ("base.css", "parts.css", "charts.css", "print.css")
# In this order they make one script: each may use what stands before it.
_SCRIPTS = (
    "dom.js", "format.js", "state.js", "tip.js", "charts.js", "hero.js", "premiums.js",
    "scatter.js", "scripts.js", "language.js", "tokens.js", "vocabularies.js", "cost.js",
    "counted.js", "compare.js", "frontier.js", "plan.js", "graft.js", "provenance.js", "bpe.js",
    "share.js", "live.js", "main.js",
)  # fmt: skip
_MARK = re.compile(r"\{\{(\w+)\}\}")


def document(
    title: str,
    data: dict[str, Any],
    scripts: Iterable[str],
    live: bool = False,
    place: str | None = None,
) -> str:
    """The page as text. The data stand in it as JSON and reach the document only as text nodes.

    `place` is the address at which it will lie, which previews of links to it need. Only a site,
    whose box cuts text in the browser, has a picture for them beside it.
    """
    image = CARD if (data["live"] or {}).get("tokenizers") else None
    style = "\n".join([font_css(scripts), colour_css(), *map(_static, _STYLES)])
    script = '(() => {\n"use strict";\n' + "\n".join(map(_static, _SCRIPTS)) + "\n})();"
    parts = {
        "title": html.escape(title),
        "preview": preview(title, title, place, image),
        "policy": html.escape(policy(style, script, live), quote=True),
        "style": style,
        "script": script,
        "data": safe_json(data),
    }
    return _MARK.sub(lambda match: parts[match[1]], _static("page.html"))


def preview(title: str, description: str, place: str | None, image: str | None = CARD) -> str:
    """Open Graph tags: what is shown of a link to the page that lies at `place`."""
    tags = {"og:type": "website", "og:site_name": "tokengraft", "og:title": title}
    tags |= {"og:description": description} | ({} if place is None else {"og:url": place})
    if image is not None:
        whole = image if place is None else f"{place}{image}"
        width, height = map(str, CARD_SIZE)
        tags |= {"og:image": whole, "og:image:width": width, "og:image:height": height}
    words = [
        f'<meta property="{name}" content="{html.escape(value, quote=True)}">'
        for name, value in tags.items()
    ]
    words.append('<meta name="twitter:card" content="summary_large_image">')
    words.append(f'<meta name="description" content="{html.escape(description, quote=True)}">')
    return "".join(words)


def policy(style: str, script: str, live: bool) -> str:
    """A content security policy: nothing runs or loads but what is in the file."""
    connect = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        f"font-src data:; img-src data:; connect-src {connect}; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _static(name: str) -> str:
    path = resources.files("tokengraft.render.page") / "static" / name
    return path.read_text(encoding="utf-8")
