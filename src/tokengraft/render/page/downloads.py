"""A run's own table files, packed so that the page can hand them out byte for byte."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

FORMS = ("csv", "tex")


def pack(data: bytes) -> str:
    """Gzip in base64, without a date; the page unpacks it with the browser's own gunzip."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def downloads(folder: Path) -> list[dict[str, Any]]:
    """Name, form, size and packed content of every CSV and LaTeX table of a run."""
    tables = folder / "tables"
    paths = sorted(p for p in tables.iterdir() if p.suffix.removeprefix(".") in FORMS)
    found = []
    for path in paths:
        data = path.read_bytes()
        found.append({"file": path.name, "size": len(data), "data": pack(data)})
    return found
