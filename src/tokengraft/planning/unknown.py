"""Text lost to UNK: a premium over such text measures what was thrown away.

The measure is characters, not tokens: one UNK may stand for a whole clause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from tokengraft.auditing.frames import UNK_LIMIT
from tokengraft.planning.plan import Effect
from tokengraft.tokenizer.insert import family

_BATCH = 1 << 12
CAPTION = (
    f"† No honest premium: more than {UNK_LIMIT:.0%} of the characters of the test text are UNK, "
    "so lost."
)


def unknown_of(tokenizer: dict[str, Any]) -> int:
    """The id of UNK; -1 where nothing can become UNK (the families with bytes)."""
    model = tokenizer["model"]
    kind = family(tokenizer)
    if kind == "unigram" and model.get("unk_id") is not None:
        return int(model["unk_id"])
    return int(model["vocab"].get(model["unk_token"], -1)) if kind == "wordpiece" else -1


def lost_characters(pipeline: Tokenizer, unknown: int, lines: Sequence[str]) -> int:
    """Characters of the lines, without spaces, that are UNK."""
    if unknown < 0:
        return 0
    count = 0
    for start in range(0, len(lines), _BATCH):
        batch = list(lines[start : start + _BATCH])
        encoded = pipeline.encode_batch(batch, add_special_tokens=False)
        for line, one in zip(batch, encoded, strict=True):
            if unknown in one.ids:
                spans = zip(one.ids, one.offsets, strict=True)
                lost = {at for number, span in spans if number == unknown for at in range(*span)}
                count += sum(not line[at].isspace() for at in lost)
    return count


def unknown_share(pipeline: Tokenizer, unknown: int, lines: Sequence[str]) -> float:
    """The share of the lines' characters, without spaces, that are UNK."""
    every = sum(not c.isspace() for line in lines for c in line)
    return lost_characters(pipeline, unknown, lines) / max(1, every)


def spoilt(share: float | None) -> bool:
    """Whether so much text is UNK that a premium over it means nothing."""
    return share is not None and share > UNK_LIMIT


def warnings(code: str, effect: Effect) -> list[str]:
    """What must be said where a premium of the effect is not honest."""
    before, after = effect.unk_share_before or 0.0, effect.unk_share_after or 0.0
    if not (spoilt(before) or spoilt(after)):
        return []
    which = "the premium before is" if spoilt(before) else "the premium after is"
    if spoilt(before) and spoilt(after):
        which = "the premiums before and after are"
    return [
        f"{code}: {which} not honest, since text was lost: of the characters of the test text "
        f"{before:.1%} are UNK before, {after:.1%} after"
    ]
