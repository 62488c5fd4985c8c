"""Finished cells of a grid as files, so that a long run goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengraft.core.files import sha256, write_json
from tokengraft.core.limits import parse_json

VERSION = 2  # of what a cell holds; a change makes every old cell unknown


@dataclass(frozen=True)
class Key:
    """What a cell's values depend on."""

    model: str  # hash of config and weights
    tokenizer: str  # hash of the new tokenizer
    method: str  # name and parameters
    language: str
    text: str  # digest of the lines it was measured on
    settings: str  # positions, window, seed, resamples, continuation or not
    learnt_from: str = ""  # digest of the text that the rows were trained on, if any

    def digest(self) -> str:
        """A file name's worth of hash."""
        value = [VERSION, *(getattr(self, name) for name in self.__dataclass_fields__)]
        return sha256(json.dumps(value).encode())[:32]


class Cells:
    """A folder of cells; without a folder they live in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._held: dict[str, dict[str, Any]] = {}

    def get(self, key: Key) -> dict[str, Any] | None:
        """The cell, or None where it is not there or cannot be read."""
        name = key.digest()
        if name not in self._held and self._folder is not None:
            path = self._folder / f"{name}.json"
            try:
                self._held[name] = parse_json(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                return None
        return self._held.get(name)

    def put(self, key: Key, value: Mapping[str, Any]) -> None:
        """Keep a cell."""
        name = key.digest()
        self._held[name] = dict(value)
        if self._folder is not None:
            write_json(self._folder / f"{name}.json", self._held[name])
