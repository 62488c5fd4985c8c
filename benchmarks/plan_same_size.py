"""What `plan --same-size` costs the text of others: FLORES-200 devtest before and after.

    python benchmarks/plan_same_size.py --flores flores200_dataset --out results/same-size \
        -t llama-3 -t mistral-v0.3 --budget 2000

One plan for four languages, chosen on FLORES dev, by three rules: the vocabulary grows; new tokens
take the ids that the planner chooses; or they take those of as many leaves that the planning text
does not use, the last learned first (pruning without a look at other text). Counted with plain
`tokenizers`: premiums of the four, and for all other languages the lines that got longer and the
tokens they take.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from plan_world import PIVOT, changed, lengths, read
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning, folded, with_plan
from tokengraft.planning.protect import protected_text
from tokengraft.tokenizer.catalog import as_json, find
from tokengraft.tokenizer.insert import first_free_id, fold, retirable

LANGUAGES = ("shn_Mymr", "tam_Taml", "swh_Latn", "yor_Latn")


def load(tokenizer: dict[str, Any]) -> Tokenizer:
    """The tokenizer as an object of `tokenizers`."""
    return Tokenizer.from_str(json.dumps(tokenizer))


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one tokenizer's plan by the three rules."""
    dev, devtest = (read(options.flores, split) for split in ("dev", "devtest"))
    base_json = as_json(find(name, options.tokenizers))
    texts = {code: dev[code] for code in LANGUAGES}
    how = Planning(budget=options.budget, same_size=True)
    plan = plan_tokens(base_json, texts, how, protect=protected_text([], bundled=True))
    assert plan.places is not None
    grown, base = with_plan(base_json, plan), load(base_json)
    lines = [line for text in texts.values() for line in text]
    used = {i for one in load(grown).encode_batch_fast(lines) for i in one.ids}
    used |= {i for one in base.encode_batch_fast(lines) for i in one.ids}
    first = first_free_id(base_json)
    leaves = [i for i in retirable(grown) if i < first and i not in used]
    made = {
        "grown": grown,
        "same size": folded(grown, plan),
        "same size, only the planning text asked": fold(grown, leaves[: len(plan.places)]),
    }
    others = [code for code in list(devtest)[:: options.every] if code not in LANGUAGES]
    old = {code: lengths(base, devtest[code]) for code in {*others, *LANGUAGES, PIVOT}}
    row: dict[str, Any] = {
        "tokenizer": name, "tokens": len(plan.tokens), "note": plan.notes[-1],
        "lines": sum(len(old[code]) for code in others), "rules": {},
        "before": {c: float((old[c] / old[PIVOT]).mean()) for c in LANGUAGES},
    }  # fmt: skip
    for rule, tokenizer in made.items():
        new = load(tokenizer)
        now = {code: lengths(new, devtest[code]) for code in old}
        row["rules"][rule] = {
            "vocabulary": first_free_id(tokenizer),
            "premiums": {c: float((now[c] / now[PIVOT]).mean()) for c in LANGUAGES},
            "longer_planned": int(sum((now[c] > old[c]).sum() for c in LANGUAGES)),
            "longer": int(sum((now[c] > old[c]).sum() for c in others)),
            "tokens_more": float(
                sum((now[c] - old[c]).clip(0).sum() for c in others)
                / sum(old[c].sum() for c in others)
            ),
            "english_changed": changed(base, new, devtest[PIVOT]),
        }
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """One line per tokenizer and rule."""
    titles = ["tokenizer", "rule", "vocabulary", *(code[:3] for code in LANGUAGES),
              "their lines longer", "others' lines longer", "tokens more in them",
              "English lines changed"]  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", f"|---|---|{'---:|' * (len(titles) - 2)}"]
    for row in rows:
        before = [f"{row['before'][code]:.2f}" for code in LANGUAGES]
        lines.append(f"| {row['tokenizer']} | before | | {' | '.join(before)} | | | | |")
        for rule, seen in row["rules"].items():
            cells = [
                row["tokenizer"], rule, f"{seen['vocabulary']:,}",
                *(f"{seen['premiums'][code]:.2f}" for code in LANGUAGES),
                str(seen["longer_planned"]), f"{seen['longer']:,} of {row['lines']:,}",
                f"{seen['tokens_more']:.4%}", f"{seen['english_changed']} of 1,012",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure everything that is not in the results yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", action="append", default=[])
    parser.add_argument("--tokenizers", type=Path, action="append", default=[])
    parser.add_argument("--budget", type=int, default=2000)
    parser.add_argument("--every", type=int, default=1, help="Count every n-th language's lines.")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "same-size.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    for name in options.tokenizer:
        if name not in {row["tokenizer"] for row in rows}:
            rows.append(measure(name, options))
            path.write_text(json.dumps(rows, indent=1) + "\n")
            (options.out / "same-size.md").write_text(table(rows))


if __name__ == "__main__":
    main()
