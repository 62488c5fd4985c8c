"""Which scripts to relax: those whose words the split pattern cuts at their marks."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengraft.core.errors import TokenizerError, UsageError
from tokengraft.languages.codes import script_of
from tokengraft.planning.plan import Boundaries, PlanCut
from tokengraft.tokenizer.pre_tokenizer import (
    DIGITS,
    LATIN,
    NO_PATTERN,
    SCRIPTS,
    floor,
    relax_pattern,
    relaxed_pattern,
    script_names,
    split_pattern,
    with_pattern,
)

HIGH_FLOOR = 1.2  # a premium no vocabulary can beat, above which `auto` relaxes
_BESIDE = re.compile(rf"(?<=[A-Za-z])[{DIGITS}](?!\d)|(?<!\d)[{DIGITS}](?=[A-Za-z])")
_ALL = re.compile(f"[{DIGITS}]")
_WORTH_IT = 0.95  # Vietnamese has a floor of 1.26, but no marks: relaxing would not lower it


@dataclass(frozen=True)
class Floors:
    """Mean per-sentence ratio of pre-tokens to the pivot's tokens, before and after relaxing.

    `open` is what it would be after relaxing if no cut had to stay (`kept_cuts`).
    """

    before: float
    after: float
    open: float

    def cost(self, code: str) -> list[str]:
        """A note if the cuts that stay cost more than one piece in a hundred."""
        if self.after <= 1.01 * self.open:
            return []
        return [
            f"{code}: cuts at marks stay where an old token reaches across, so that no text gets "
            f"longer; the floor is {self.after:.2f} instead of {self.open:.2f}"
        ]


def digits_as_letters(lines: Iterable[str]) -> bool:
    """Whether text writes letters as digits: most stand beside a letter, one word in 20 has one.

    In FLORES-200 that holds only of Arabic in Latin letters.
    """
    words = every = beside = 0
    for line in lines:
        words += len(line.split())
        every += len(_ALL.findall(line))
        beside += len(_BESIDE.findall(line))
    return beside > max(every / 2, words / 20)


def floors_of(
    tokenizer: dict[str, Any],
    samples: Mapping[str, Sequence[str]],
    pivot_tokens: Sequence[int] | None,
) -> dict[str, Floors]:
    """Each language's floor under the old and the relaxed pattern; none if words are not cut.

    Without the pivot's tokens the relaxed pattern's pre-tokens take their place, so that `before`
    is how many pieces a word falls into on average, and `after` is 1.
    """
    pattern = split_pattern(tokenizer)

    @functools.cache
    def relaxed(script: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The tokenizer as it may be relaxed, and as it would be if no cut had to stay."""
        if script == "Latn":
            try:
                latin = with_pattern(tokenizer, relaxed_pattern(tokenizer, [LATIN]))
            except TokenizerError:  # digits are not cut off, or not always
                return tokenizer, tokenizer
            return latin, latin
        names = script_names([script])
        patterns = relaxed_pattern(tokenizer, names), relax_pattern(pattern or "", names)
        return with_pattern(tokenizer, patterns[0]), with_pattern(tokenizer, patterns[1])

    floors = {}
    for code, lines in samples.items():
        before = np.array(floor(tokenizer, lines), float)
        if before.max(initial=0) <= 1:
            continue  # the vocabulary sees whole lines
        after = opened = before
        script = script_of(code)
        digits = script == "Latn" and digits_as_letters(lines)
        if pattern is not None and (script in SCRIPTS or digits):
            after, opened = (np.array(floor(t, lines), float) for t in relaxed(script))
        unit = np.maximum(1, after if pivot_tokens is None else np.array(pivot_tokens, float))
        floors[code] = Floors(
            *(float((pieces / unit).mean()) for pieces in (before, after, opened))
        )
    return floors


def decide(
    tokenizer: dict[str, Any], boundaries: Boundaries, floors: Mapping[str, Floors]
) -> tuple[PlanCut, list[str]]:
    """The scripts to relax for the planned languages, with notes on those that cannot be.

    `auto` relaxes a script if a language's floor is above `HIGH_FLOOR` and relaxing lowers it.
    `portable` relaxes only what every program can cut too. Today that is nothing: llama.cpp has its
    patterns in code, and none keeps marks with the letters of some scripts only (Qwen 3.5's does so
    in all scripts, which would change the ids of languages that nobody planned for).
    """
    pattern = split_pattern(tokenizer)
    if boundaries in ("keep", "portable") or (boundaries == "auto" and pattern is None):
        return PlanCut(old_pattern=pattern), []
    if pattern is None:
        raise TokenizerError(NO_PATTERN)
    notes = []
    codes = set()
    for code, own in floors.items():
        script = script_of(code)
        if script not in SCRIPTS and own.after == own.before:
            if boundaries == "relax":
                notes.append(f"{code}: boundaries stay as they are, {script} cannot be relaxed")
        elif boundaries == "relax" or (
            own.before > HIGH_FLOOR and own.after < _WORTH_IT * own.before
        ):
            codes.add(script)
            notes += own.cost(code)
        elif own.before > HIGH_FLOOR and own.open < _WORTH_IT * own.before:
            notes += own.cost(code)
    if not codes:
        if boundaries == "relax":
            which = ", ".join(floors)
            raise UsageError(f"no script of {which} can be relaxed: use boundaries keep")
        return PlanCut(old_pattern=pattern), notes
    latin = [LATIN] if "Latn" in codes else []
    names = (*latin, *script_names(codes - {"Latn"}))
    return PlanCut(names, pattern, relaxed_pattern(tokenizer, names)), notes


def relaxes(cut: PlanCut, code: str) -> bool:
    """Whether the language's script is among the relaxed ones."""
    return bool(cut.scripts) and set(SCRIPTS.get(script_of(code), (LATIN,))) <= set(cut.scripts)
