"""What a served graft is asked: English it must answer as its base, and text with new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokengraft.grafting.manifest import read_manifest
from tokengraft.grafting.verify.invariants import Check
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


def writing_checks(
    program: str,
    barred: set[int],
    graft_english: Sequence[list[int]],
    base_english: Sequence[list[int]],
    free: Sequence[list[int]],
) -> list[Check]:
    """Whether greedy English is the base's, and none of the `barred` ids was written anywhere."""
    same = list(graft_english) == list(base_english)
    said = "the base's own text" if same else "NOT what the base writes"
    english = f"{len(ENGLISH)} prompts, {STEPS} steps, greedy: {said}"
    written = {number for answer in (*graft_english, *free) for number in answer}
    slipped = sorted(barred & written)
    said = f"{len(barred)} ids barred, none written after {len(free)} prompts that hold them"
    if slipped:
        said = f"{len(slipped)} barred ids were written, first {slipped[0]}"
    return [
        Check(f"{program}: English", same, english),
        Check(f"{program}: barred ids", not slipped, said),
    ]
