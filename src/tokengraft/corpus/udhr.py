"""The Universal Declaration of Human Rights, the parallel corpus that comes with the package."""

from __future__ import annotations

import functools
import json
import lzma
import re
from collections.abc import Iterable

from tokengraft.core.files import ASSETS
from tokengraft.corpus.parallel import ParallelCorpus, choose

NAME = "udhr"
TITLE = "Universal Declaration of Human Rights"
_CODE = re.compile(rb'\{"code": ?"([^"]+)"')


def load(languages: Iterable[str] | None = None) -> ParallelCorpus:
    """The chosen translations (None: all), aligned to the English units; some lack a few."""
    lines = _lines()
    chosen = choose(languages, lines, NAME)
    units = tuple(_units(lines["eng_Latn"]))
    texts = {}
    for code in chosen:
        translation = _units(lines[code])
        texts[code] = tuple(translation.get(unit, "").strip() or None for unit in units)
    return ParallelCorpus(NAME, f"{TITLE}, bundled with tokengraft", units, texts)


def size() -> tuple[int, int]:
    """The number of translations and of units."""
    lines = _lines()
    return len(lines), len(_units(lines["eng_Latn"]))


@functools.cache
def _lines() -> dict[str, bytes]:
    lines = {}
    for line in lzma.decompress((ASSETS / "udhr.jsonl.xz").read_bytes()).split(b"\n"):
        match = _CODE.match(line)
        if match:
            lines[match[1].decode()] = line
    return lines


def _units(line: bytes) -> dict[str, str]:
    units: dict[str, str] = json.loads(line)["units"]
    return units
