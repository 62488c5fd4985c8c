"""One self-contained HTML page from a run, and a local playground around it.

from tokengraft.page import build_page
build_page(["audit/", "plan.json", "grafted/"], "site/")   # site/index.html, site/README.md
"""

from __future__ import annotations

from tokengraft.page.build import LIMIT, Page, build_page, make_page
from tokengraft.page.playground import Playground, make_server, serve

__all__ = ["LIMIT", "Page", "Playground", "build_page", "make_page", "make_server", "serve"]
