"""The result of one shard, and sums of them: integers only, so any order gives the same."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

from tokengraft.corpus.batches import Seen

# Nested mappings whose leaves are lists of integers (or single integers); addition goes by key.
Payload = dict[str, Any]


@dataclass
class Outcome:
    """What a shard gave. `payload` is empty where `broken` says why nothing can be counted."""

    payload: Payload = field(default_factory=dict)
    lines: int = 0
    blank: int = 0
    bad: int = 0
    listed: list[tuple[int, str]] = field(default_factory=list)  # line in the shard, reason
    broken: str | None = None
    figures: tuple[int, int, int] = (0, 0, 0)  # rows, bytes of text, tokens of all tokenizers

    @classmethod
    def of(
        cls, payload: Payload, seen: Seen, figures: tuple[int, int, int], broken: str | None = None
    ) -> Outcome:
        """An outcome from what the reader saw."""
        listed = list(seen.listed)
        return cls(payload, seen.lines, seen.blank, seen.bad, listed, broken, figures)

    @property
    def sound(self) -> bool:
        """Whether every row was counted."""
        return not self.bad and self.broken is None

    def pack(self) -> bytes:
        """Compact bytes, equal for equal outcomes; read back by `unpack`."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return zlib.compress(text.encode(), level=1)

    @classmethod
    def unpack(cls, data: bytes) -> Outcome:
        """Inverse of `pack`."""
        value = json.loads(zlib.decompress(data))
        value["listed"] = [(line, reason) for line, reason in value["listed"]]
        value["figures"] = tuple(value["figures"])
        return cls(**value)


def add(into: Payload, more: Payload) -> None:
    """Add `more` to `into`, in place; exact, commutative and associative."""
    for key, value in more.items():
        if key not in into:
            into[key] = _copy(value)
        elif isinstance(value, dict):
            add(into[key], value)
        elif isinstance(value, list):
            into[key] = [a + b for a, b in zip(into[key], value, strict=True)]
        else:
            into[key] += value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, list) else value
