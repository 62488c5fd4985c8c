"""The same counts on corpora and clusters larger than one machine.

One function counts a shard (`shard.count_shard`); engines only map it over shards, and sums of
integers do the rest, so every engine gives the same result in any order. Nothing here is imported
until it is used, and neither Ray, pyarrow, zstandard nor fsspec is needed for plain or gzip text.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft.scaling.layout import Layout
    from tokengraft.scaling.run import Survey, survey
    from tokengraft.scaling.words import Words, count_words

_WHERE = {"Layout": "layout", "Survey": "run", "Words": "words", "count_words": "words",
          "survey": "run"}  # fmt: skip

__all__ = ["Layout", "Survey", "Words", "count_words", "survey"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
