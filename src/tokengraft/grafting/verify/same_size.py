"""A graft of its base's size against the same graft when it had grown, which was verified."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokengraft.grafting.verify import loading
from tokengraft.grafting.verify.tokens import Encoded
from tokengraft.model.checkpoint import read_checkpoint, read_json
from tokengraft.model.embedding_tables import Layout
from tokengraft.model.tokenizer_files import TOKENIZER
from tokengraft.planning.words import encode, load


def same_size(
    folder: Path,
    base: Path,
    layout: Layout,
    places: Mapping[str, Any],
    grown: Encoded,
    first: int,
) -> tuple[bool, str]:
    """Whether `folder` reads as it did when it had `grown`, and writes English as the base does.

    In `grown` the new tokens have the ids from `first` on. A line with a token that went has others
    now; nothing was promised of it.
    """
    at, names, lines = places["ids"], places["replaced"], grown.lines
    ids = [one for batch in encode(load(read_json(folder / TOKENIZER)), lines) for one in batch]
    gone, holding = set(map(int, names)), 0
    for line, now, was in zip(lines, ids, grown.new, strict=True):
        if not gone.isdisjoint(was):
            holding += 1
        elif now != [at[i - first] if i >= first else i for i in was]:
            return False, f"{line[:40]!r} has other tokens than when the vocabulary had grown"
    if holding == len(lines):
        return False, f"none of {len(lines)} lines is without a token that went"
    tokenizer = loading.load_tokenizer(folder)
    if wrong := loading.same_ids(tokenizer, lines, ids):
        return False, wrong
    whole = loading.fits_memory(read_checkpoint(folder).size)
    if wrong := loading.examine(folder, layout, layout.rows, [at[0], at[-1], 0], whole):
        return False, wrong
    told = (
        f"{layout.rows} rows as the base has; {len(names)} ids changed their meaning (first "
        f"{next(iter(names), None)}, which was {next(iter(names.values()), None)!r}): text with "
        f"those old tokens gets longer, as do {holding} of {len(lines)} lines here"
    )
    if not whole:
        return True, told
    before, after = (loading.greedy(one, tokenizer, at) for one in (base, folder))
    if before != after:
        return False, f"greedy English gives ids {after[:12]}, the base {before[:12]}"
    return True, f"{told}; greedy English is the base's"
