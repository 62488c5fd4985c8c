"""Other ways to choose strings: premium by number of tokens added, on the same text.

    python benchmarks/plan_baselines.py --flores flores200_dataset --out results/plan-baselines

Tokens are chosen on FLORES dev with English and code protected, for each language alone, by every
mode of `planning` that makes merges, and tested on devtest with plain `tokenizers` (mean of
per-sentence ratios to English) at the first 250, 500, 1,000 and 2,000 tokens. Then `audit`'s
baseline: what a language would pay if it had its own vocabulary of as many equiprobable strings as
English has, and nothing else.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from plan_flores import first_tokens
from plan_world import PIVOT, lengths, read
from tokengraft.auditing.equiprobable import read_by_own
from tokengraft.planning import MODES
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning, insert
from tokengraft.planning.protect import protected_text
from tokengraft.tokenizer.catalog import as_json, find

LANGUAGES = ("shn_Mymr", "tam_Taml", "swh_Latn", "yor_Latn")
SIZES = (0, 250, 500, 1000, 2000)
OWN = "strings of its own, English too"


def by_mode(name: str, mode: Any, code: str, texts: tuple[Any, Any]) -> dict[int, float]:
    """Premiums of one language at each size of a plan."""
    dev, devtest = texts
    base = as_json(find(name))
    kept = protected_text([], bundled=True)
    options = Planning(budget=max(SIZES), mode=mode)
    plan = plan_tokens(base, {code: dev[code]}, options, protect=kept)
    premiums = {}
    for size in (size for size in SIZES if size <= len(plan.tokens)):
        made = insert(base, first_tokens(plan, size)) if size else base
        new = Tokenizer.from_str(json.dumps(made))
        ratios = lengths(new, devtest[code]) / lengths(new, devtest[PIVOT])
        premiums[size] = float(ratios.mean())
    return premiums


def own(code: str, texts: tuple[Any, Any]) -> dict[int, float]:
    """Premiums of one language if it and English have a vocabulary each."""
    dev, devtest = texts
    premiums = {}
    for size in SIZES[1:]:
        tokens = [np.array(read_by_own(dev[c], devtest[c], size)) for c in (code, PIVOT)]
        premiums[size] = float((tokens[0] / tokens[1]).mean())
    return premiums


def table(rows: list[dict[str, Any]]) -> str:
    """Premiums by language, mode and number of tokens."""
    lines = [
        f"| language | mode | {' | '.join(f'{size:,}' for size in SIZES)} |",
        f"|---|---|{'---:|' * len(SIZES)}",
    ]
    for row in rows:
        cells = {int(size): f"{premium:.2f}" for size, premium in row["premiums"].items()}
        shown = " | ".join(cells.get(size, "–") for size in SIZES)
        lines.append(f"| {row['language']} | {row['mode']} | {shown} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure everything that is not in the results yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", default="llama-3")
    parser.add_argument("--language", action="append", default=[])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    texts = read(options.flores, "dev"), read(options.flores, "devtest")
    path = options.out / f"{options.tokenizer}.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    modes = [*(mode for mode in MODES if mode not in ("paper", "characters")), OWN]
    for code in options.language or LANGUAGES:
        for mode in modes:
            if (code, mode) in {(row["language"], row["mode"]) for row in rows}:
                continue
            if mode == OWN:
                premiums = own(code, texts)
            else:
                premiums = by_mode(options.tokenizer, mode, code, texts)
            rows.append({"language": code, "mode": mode, "premiums": premiums})
            path.write_text(json.dumps(rows, indent=1) + "\n")
            path.with_suffix(".md").write_text(table(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
