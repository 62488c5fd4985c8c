"""A mkdocs hook: makes README and CONTRIBUTING pages, and points links out of docs/ to the host.

So each text exists once, and its links work on disk, on a code host and on the site.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Pages that are files of the repository's root.
TAKEN = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md"}
_LINK = re.compile(
    r"\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]"
    r"\((?!https?:|#|mailto:)(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page's text, with links as the site needs them."""
    name = page.file.src_uri
    folder = PurePosixPath("docs", name).parent
    if name in TAKEN:
        markdown, folder = (ROOT / TAKEN[name]).read_text(encoding="utf-8"), PurePosixPath(".")
    pages = {taken: name for name, taken in TAKEN.items()}

    def place(match: re.Match[str]) -> str:
        target = os.path.normpath(folder / match["path"])
        if target in pages:
            to = pages[target]
        elif target.startswith("docs/"):
            to = os.path.relpath(target, PurePosixPath("docs", name).parent)
        elif config["repo_url"]:
            to = f"{config['repo_url'].rstrip('/')}/tree/main/{target}"
        else:  # nobody said where the repository is to be found
            return match["text"]
        return f"[{match['text']}]({to}{match['anchor'] or ''})"

    return _LINK.sub(place, markdown)
