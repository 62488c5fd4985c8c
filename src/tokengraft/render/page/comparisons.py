"""A saved comparison as the page shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokengraft.core.errors import TokengraftError
from tokengraft.core.files import read_json
from tokengraft.render.comparison_folder import FILE, findings, names, of_pair
from tokengraft.render.page.shown import digits, without_paths
from tokengraft.render.tables import read_data


def comparison_data(folder: Path) -> dict[str, Any]:
    """Both sides of every pair, language by language, and what the figures say."""
    facts = without_paths(read_json(folder / FILE))
    readers = [read_data(folder, name) for name in ("languages", "summary")]
    cells, summary = (reader() if reader else None for reader in readers)
    if cells is None or summary is None:
        raise TokengraftError(f"{folder}: this comparison lacks its tables")
    pairs = []
    for pair in summary.to_dicts():
        own = of_pair(cells, pair)
        a, b = names(facts, pair)
        rows = [_row(row) for row in own.to_dicts()]
        pairs.append({"a": a, "b": b, "words": findings(facts, pair, own), "rows": rows})
    return {"corpus": facts["corpus"]["source"], "pairs": pairs}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "code": row["language"],
        "name": row["name"],
        "tokens": [row["tokens_a"], row["tokens_b"]],
        "change": row["change"] if row["change"] is None else round(row["change"], 5),
        "premiums": [digits(row["premium_a"]), digits(row["premium_b"])],
        "bad": [row["meaningless_a"], row["meaningless_b"]],
        "covered": [digits(row["covered_a"]), digits(row["covered_b"])],
        "speakers": row["speakers_total"],
        "outcome": row["outcome"],
    }
