"""What plans with protected text buy languages in Latin script, and what they change in English.

    python benchmarks/plan_latin.py --flores flores200_dataset --english other.txt \
        --out results/plan-latin

Tokens are chosen on FLORES dev alone and tested on devtest: the premium as a ratio of sums, with
the first 500, 1,000 and 2,000 tokens of one plan (each token is chosen greedily, so that the first
n are the plan of n). English that was not protected: devtest and `--english`, by words
(pre-tokens) whose ids differ, and bundled lines of code. Every devtest line of all languages (or
of every n-th) is encoded both ways. A language that is in the results already is left as it is.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from plan_flores import first_tokens, ids
from tokengraft.corpus import load
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning, insert
from tokengraft.planning.protect import measure_elsewhere, protected_text, unprotected_code
from tokengraft.tokenizer.catalog import as_json, find

SEVEN = ("yor_Latn", "ewe_Latn", "kab_Latn", "zul_Latn", "quy_Latn", "hau_Latn", "swh_Latn")
SIZES = (500, 1000, 2000)
PIVOT = "eng_Latn"


def measure(
    base_json: dict[str, Any],
    code: str,
    dev: ParallelCorpus,
    devtest: ParallelCorpus,
    english: list[str],
    every: int,
) -> dict[str, Any]:
    """One language's plan and what it does to every other text."""
    started = time.process_time()
    protected = protected_text([], bundled=True)
    assert protected is not None
    plan = plan_tokens(
        base_json,
        {code: dev.lines(code)},
        Planning(budget=max(SIZES)),
        test={c: devtest.lines(c) for c in (PIVOT, code)},
        protect=protected,
    )
    seconds = time.process_time() - started
    base = Tokenizer.from_str(json.dumps(base_json))
    unit = sum(map(len, ids(base, devtest.lines(PIVOT))))
    row: dict[str, Any] = {
        "language": code,
        "tokens": len(plan.tokens),
        "planning_cpu_seconds": round(seconds, 1),
        "before": sum(map(len, ids(base, devtest.lines(code)))) / unit,
        "protected_lines": len(protected.lines),
        "protected_sha256": protected.hash,
    }
    for size in SIZES:
        new = Tokenizer.from_str(json.dumps(insert(base_json, first_tokens(plan, size))))
        row[f"after_{size}"] = sum(map(len, ids(new, devtest.lines(code)))) / unit
    kept = list(protected.lines)
    row["protected_lines_changed"] = sum(
        a != b for a, b in zip(ids(base, kept), ids(new, kept), strict=True)
    )
    other = {"English": [*devtest.lines(PIVOT), *english], "code": unprotected_code()}
    for found in measure_elsewhere(base_json, base, new, other.items()):
        row[found.text] = {"words": found.words, "changed": found.changed}
    row["lines"] = row["longer"] = row["decoded_differently"] = 0
    for lines in map(devtest.lines, devtest.languages[::every]):
        before, after = ids(base, lines), ids(new, lines)
        differ = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        row["lines"] += len(lines)
        row["longer"] += sum(len(b) > len(a) for a, b in differ)
        old_texts = base.decode_batch([a for a, _ in differ])
        new_texts = new.decode_batch([b for _, b in differ])
        row["decoded_differently"] += sum(a != b for a, b in zip(old_texts, new_texts, strict=True))
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| language | before | 500 tokens | 1,000 | 2,000 | other English changed | other code "
        "changed | protected lines changed | devtest lines longer | decoded differently |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        after = " | ".join(f"{row[f'after_{size}']:.3f}" for size in SIZES)
        shares = " | ".join(
            f"{part['changed']} of {part['words']:,} ({part['changed'] / part['words']:.4%})"
            for part in (row["English"], row["code"])
        )
        lines.append(
            f"| {row['language']} | {row['before']:.3f} | {after} | {shares} | "
            f"{row['protected_lines_changed']} of {row['protected_lines']:,} | "
            f"{row['longer']} of {row['lines']:,} | {row['decoded_differently']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is not measured yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--english", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", default="llama-3")
    parser.add_argument("--language", action="append", default=[])
    parser.add_argument("--every", type=int, default=1, help="Check every n-th language's lines.")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    dev, devtest = (load(options.flores, split=split) for split in ("dev", "devtest"))
    english = [line for path in options.english for line in path.read_text().split("\n") if line]
    base_json = as_json(find(options.tokenizer))
    path = options.out / f"{options.tokenizer}.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    for code in options.language or SEVEN:
        if code not in {row["language"] for row in rows}:
            rows.append(measure(base_json, code, dev, devtest, english, options.every))
            print(json.dumps(rows[-1]), flush=True)
            path.write_text(json.dumps(rows, indent=1) + "\n")
            path.with_suffix(".md").write_text(table(rows))


if __name__ == "__main__":
    main()
