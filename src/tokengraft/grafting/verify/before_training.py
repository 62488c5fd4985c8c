"""What can be checked of a graft before its rows are learned: all that needs no weights."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokengraft.core.errors import GraftError
from tokengraft.grafting import small_files
from tokengraft.grafting.verify import tokens
from tokengraft.grafting.verify.invariants import Report, Verification, check_lines, checked
from tokengraft.model.checkpoint import read_checkpoint, read_json
from tokengraft.model.embedding_tables import find_layout
from tokengraft.model.folder import CONFIG
from tokengraft.model.tokenizer_files import base_tokenizer
from tokengraft.tokenizer.insert import first_free_id


def refuse_unreadable(
    base: Path, tokenizer: dict[str, Any], languages: Iterable[str], first_parts: Sequence[int]
) -> None:
    """GraftError if a graft of `base` with this tokenizer would not be read as planned.

    What `verify` would find in this transformers after training, this finds in seconds.
    """
    old, rows = (
        base_tokenizer(base),
        find_layout(read_json(base / CONFIG), read_checkpoint(base)).rows,
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder, after = Path(scratch), max(rows, first_free_id(tokenizer))
        small_files.write(base, folder, old, tokenizer, (rows, after), ())
        seen = Verification(folder, base, check_lines(languages))
        checks = (
            checked("round trip", lambda: tokens.round_trip(seen.pair, seen.encoded)),
            checked("untouched text", seen.untouched),
            checked("preserved", lambda: _none(seen.tokenizer_difference())),
            checked(
                "output policy",
                lambda: _none(
                    tokens.wrong_first_part(old, seen.pair.new, seen.new, rows, first_parts)
                ),
            ),
            checked("loads", lambda: _none(seen.read_otherwise()[0])),
        )
    refuse_failed(Report(checks), "nothing was trained")


def refuse_failed(report: Report, outcome: str) -> None:
    """GraftError that lists the failed checks, if there are any."""
    if not report.passed:
        failed = [f"  {check.name}: {check.detail}" for check in report.checks if not check.passed]
        raise GraftError("\n".join((f"the graft failed its verification, {outcome}:", *failed)))


def _none(wrong: str | None) -> tuple[bool, str]:
    return wrong is None, wrong or ""
