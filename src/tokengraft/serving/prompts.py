"""What a served graft is asked: English it must answer as its base, and text with new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokengraft.grafting.manifest import read_manifest
from tokengraft.serving.split_patterns import folder_ids

ENGLISH = (
    "The history of the world is",
    "Water boils at a temperature of",
    "Once upon a time there was a",
    "The most important rule of",
)
STEPS = 16
_PROMPTS = 50
_LONGEST = 48  # tokens of a prompt


def planned_prompts(folder: Path, lines: Sequence[str]) -> list[list[int]]:
    """The ids of up to fifty lines that hold new tokens, each cut short."""
    manifest = read_manifest(folder)
    if manifest is None:
        return []
    new = set(range(*manifest["output"]["new"]))
    every = (ids[:_LONGEST] for ids in folder_ids(folder, lines))
    return [ids for ids in every if new & set(ids)][:_PROMPTS]
