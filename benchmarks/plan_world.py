"""One plan for every language of FLORES-200: what each objective buys, and what it costs to plan.

    python benchmarks/plan_world.py --flores flores200_dataset --out results/world \
        --budget 32000 --objective total --objective parity

Tokens are chosen on FLORES dev alone (the premiums that parity and minimax go by are those of dev
too) and tested on devtest with the real tokenizer, at 8, 16, 32 and 64 thousand tokens as far as
the budget goes: the first n tokens of a plan are the plan of n. A run that is in the results
already is not made again.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from plan_flores import first_tokens, ids
from tokengraft.corpus import load
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import language
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Planning, insert
from tokengraft.planning.protect import measure_elsewhere, protected_text, unprotected_code
from tokengraft.tokenizer.catalog import as_json, find

SIZES = (8000, 16000, 32000, 64000)
PIVOT = "eng_Latn"


def sums(tokenizer: Tokenizer, corpus: ParallelCorpus) -> dict[str, list[int]]:
    """Tokens of each line in each language."""
    return {code: list(map(len, ids(tokenizer, corpus.lines(code)))) for code in corpus.languages}


def premiums(lengths: dict[str, list[int]]) -> dict[str, float]:
    """The mean of per-sentence ratios to the pivot."""
    unit = np.array(lengths[PIVOT], float)
    return {code: float((np.array(found) / unit).mean()) for code, found in lengths.items()}


def gini(values: list[float]) -> float:
    """How unequal the premiums are: 0 where all are the same."""
    ranked = np.sort(np.array(values))
    count = len(ranked)
    return float((2 * np.arange(1, count + 1) - count - 1) @ ranked / (count * ranked.sum()))


def summary(found: dict[str, float]) -> dict[str, Any]:
    """Highest, median and Gini over all languages but the pivot, and those above 2."""
    rest = {code: value for code, value in found.items() if code != PIVOT}
    worst = max(rest, key=lambda code: rest[code])
    return {
        "highest": round(rest[worst], 3),
        "whose": worst,
        "median": round(float(np.median(list(rest.values()))), 3),
        "gini": round(gini(list(rest.values())), 4),
        "above_2": sum(value > 2 for value in rest.values()),
    }


def speakers(codes: list[str]) -> dict[str, float]:
    """First-language speakers where known, all speakers where not, else as the fewest known."""
    known = {c: language(c).speakers_first or language(c).speakers_total for c in codes}
    fewest = min(number for number in known.values() if number)
    return {code: float(number or fewest) for code, number in known.items()}


def world(
    base_json: dict[str, Any], objective: str, dev: ParallelCorpus, codes: list[str], budget: int
) -> tuple[Plan, float, float]:
    """The plan, the processor seconds it took and the most memory held (GB)."""
    base = Tokenizer.from_str(json.dumps(base_json))
    before = premiums(sums(base, dev.select([PIVOT, *codes])))
    started = time.process_time()
    plan = plan_tokens(
        base_json,
        {code: dev.lines(code) for code in codes},
        Planning(budget=budget, objective=objective, premiums=before, speakers=speakers(codes)),
        protect=protected_text([], bundled=True),
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return plan, time.process_time() - started, peak


def main() -> None:
    """Make what is not made yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", default="llama-3")
    parser.add_argument("--tokenizers", type=Path, action="append", default=[])
    parser.add_argument("--budget", type=int, default=32000)
    parser.add_argument("--objective", action="append", default=[])
    parser.add_argument("--languages", type=int, help="Only the first so many, for timing.")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    dev, devtest = (load(options.flores, split=split) for split in ("dev", "devtest"))
    codes = [code for code in dev.languages if code != PIVOT][: options.languages]
    base_json = as_json(find(options.tokenizer, options.tokenizers))
    base = Tokenizer.from_str(json.dumps(base_json))
    old = sums(base, devtest)
    for objective in options.objective or ["total"]:
        name = f"{options.tokenizer}-{objective.replace(':', '-')}-{len(codes)}"
        path = options.out / f"{name}.json"
        if path.exists():
            continue
        plan, seconds, peak = world(base_json, objective, dev, codes, options.budget)
        plan.write(options.out.parent / f"{name}.plan.json")
        rows = [{"tokens": 0, **summary(premiums(old))}]
        by_size = {0: premiums(old)}
        sizes = [size for size in SIZES if size < len(plan.tokens)] + [len(plan.tokens)]
        longer = 0
        for size in sizes:
            new = Tokenizer.from_str(json.dumps(insert(base_json, first_tokens(plan, size))))
            lengths = sums(new, devtest)
            longer += sum(b > a for c in old for a, b in zip(old[c], lengths[c], strict=True))
            by_size[size] = premiums(lengths)
            rows.append({"tokens": size, **summary(by_size[size])})
        other = {"English": devtest.lines(PIVOT), "code": unprotected_code()}
        measured = measure_elsewhere(base_json, base, new, other.items())
        result = {
            "tokenizer": options.tokenizer, "objective": objective, "languages": len(codes),
            "budget": options.budget, "tokens": len(plan.tokens),
            "planning_cpu_seconds": round(seconds), "peak_gb": round(peak, 1),
            "lines": sum(map(len, old.values())), "longer_at_any_size": longer,
            "changed_elsewhere": {m.text: [m.changed, m.words] for m in measured},
            "frontier": rows,
            "premiums": {
                str(size): {code: round(value, 3) for code, value in found.items()}
                for size, found in by_size.items()
            },
        }  # fmt: skip
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps({k: v for k, v in result.items() if k != "premiums"}), flush=True)


if __name__ == "__main__":
    main()
