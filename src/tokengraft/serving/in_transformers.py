"""A graft in the transformers at hand: ids as loaded, and after save_pretrained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokengraft.core.errors import MissingExtra
from tokengraft.grafting.verify import loading
from tokengraft.grafting.verify.invariants import Check
from tokengraft.serving.split_patterns import folder_ids


def run(folder: Path, base: Path, lines: Sequence[str]) -> list[Check]:
    """Load the tokenizer, save it, load it again; the model itself is `verify`'s own check."""
    del base
    try:
        import transformers
    except ImportError:
        raise MissingExtra("Running transformers", "model") from None
    ids = folder_ids(folder, lines)
    tokenizer = loading.load_tokenizer(folder)
    said = f"{len(lines)} lines as the folder's; transformers {transformers.__version__}"
    checks = []
    for name, wrong in (
        ("ids", loading.same_ids(tokenizer, lines, ids)),
        ("saved", loading.same_ids(loading.reloaded(tokenizer, folder), lines, ids)),
    ):
        checks.append(Check(f"transformers: {name}", wrong is None, wrong or said))
    return checks
