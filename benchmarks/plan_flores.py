"""What plans buy on FLORES-200, and the proof that they harm nothing.

    python benchmarks/plan_flores.py --flores flores200_dataset --text text --out results/plan \
        -t llama-3 -t qwen3 --tokenizers modern/

For each tokenizer and each of the paper's twelve languages: tokens chosen on `--text` (never on
FLORES), premium before and after on devtest, then every devtest line of every language encoded by
both tokenizers: how many got longer, how many changed ids outside the planned script, how many
decode differently from the base's. Writes NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fontTools.unicodedata import script, script_name
from tokenizers import Tokenizer

from tokengraft.api.verbs import plan
from tokengraft.corpus import load
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.planning.boundaries import script_of
from tokengraft.planning.plan import Plan, insert
from tokengraft.tokenizer.boundaries import SCRIPTS
from tokengraft.tokenizer.catalog import as_json, find

TWELVE = (
    "amh_Ethi", "ben_Beng", "heb_Hebr", "hin_Deva", "hye_Armn", "shn_Mymr",
    "tam_Taml", "tel_Telu", "urd_Arab", "vie_Latn", "ydd_Hebr", "zho_Hant",
)  # fmt: skip


def holds_script(line: str, scripts: frozenset[str]) -> bool:
    """Whether a line has a letter or mark of one of these Unicode scripts (names as in regexes).

    FLORES's Ewe, for one, writes a Hebrew letter in 28 lines.
    """
    return any(script_name(script(c), "").replace(" ", "_") in scripts for c in set(line))


def ids(tokenizer: Tokenizer, lines: list[str]) -> list[list[int]]:
    """Ids without special tokens."""
    return [e.ids for e in tokenizer.encode_batch_fast(lines, add_special_tokens=False)]


def first_tokens(plan: Plan, size: int) -> Plan:
    """The plan's first `size` tokens with the merges up to the one that makes the next.

    Tokens are learned one by one, so this is what a smaller budget would have chosen.
    """
    later = {token.token for token in plan.tokens[size:]}
    merges = []
    for left, right in plan.merges:
        if left + right in later:
            break
        merges.append((left, right))
    return replace(plan, tokens=plan.tokens[:size], merges=tuple(merges))


def measure(
    name: str, code: str, corpus: ParallelCorpus, options: argparse.Namespace
) -> dict[str, Any]:
    """One language's plan and its check over the whole of devtest."""
    started = time.perf_counter()
    files = sorted(options.text.glob(f"{code}*.txt"))
    planned = plan(
        name,
        [code],
        {code: files},
        budget=options.budget,
        test=corpus,
        search=options.tokenizers,
        boundaries=options.boundaries,
    )
    seconds = time.perf_counter() - started
    base_json = as_json(find(name, options.tokenizers))
    base = Tokenizer.from_str(json.dumps(base_json))
    new = Tokenizer.from_str(json.dumps(insert(base_json, planned.plan)))
    scripts = frozenset(SCRIPTS.get(script_of(code), ("Latin",)))
    longer = changed = decoded = lines_seen = 0
    for other in corpus.languages:
        lines = corpus.lines(other)
        old_ids, new_ids = ids(base, lines), ids(new, lines)
        lines_seen += len(lines)
        pairs = list(zip(old_ids, new_ids, strict=True))
        longer += sum(len(b) > len(a) for a, b in pairs)
        differ = [n for n, (a, b) in enumerate(pairs) if a != b]
        changed += sum(not holds_script(lines[n], scripts) for n in differ)
        texts = (
            base.decode_batch([old_ids[n] for n in differ]),
            new.decode_batch([new_ids[n] for n in differ]),
        )
        decoded += sum(a != b for a, b in zip(*texts, strict=True))
    outcome = planned.plan.languages[code]
    return {
        "tokenizer": name,
        "language": code,
        "tokens": len(planned.plan.tokens),
        "relaxed": list(planned.plan.cut.scripts),
        "premium_before": outcome.premium_before,
        "premium_after": outcome.premium_after,
        "floor_before": outcome.floor_before,
        "floor_after": outcome.floor_after,
        "lines": lines_seen,
        "longer": longer,
        "changed_in_other_scripts": changed,
        "decoded_differently": decoded,
        "planning_seconds": round(seconds, 1),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| language | before | after | floor before | floor after | tokens | lines longer | "
        "ids changed in other scripts | decoded differently |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        floors = [row["floor_before"], row["floor_after"]]
        shown = ["" if f is None else f"{f:.2f}" for f in floors]
        lines.append(
            f"| {row['language']} | {row['premium_before']:.2f} | **{row['premium_after']:.2f}** | "
            f"{shown[0]} | {shown[1]} | {row['tokens']} | {row['longer']} of {row['lines']:,} | "
            f"{row['changed_in_other_scripts']} | {row['decoded_differently']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every tokenizer and language, in parallel processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", action="append", default=[])
    parser.add_argument("--tokenizers", type=Path, action="append", default=[])
    parser.add_argument("--language", action="append", default=[])
    parser.add_argument("--budget", type=int, default=2000)
    parser.add_argument("--boundaries", default="auto")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    corpus = load(options.flores, split="devtest")
    jobs = [
        (name, code, corpus, options)
        for name in options.tokenizer or ["llama-3"]
        for code in options.language or TWELVE
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        for row in pool.imap(_measure, jobs, chunksize=1):
            rows.append(row)
            print(json.dumps(row), flush=True)
            done = [r for r in rows if r["tokenizer"] == row["tokenizer"]]
            (options.out / f"{row['tokenizer']}.json").write_text(json.dumps(done, indent=1) + "\n")
            (options.out / f"{row['tokenizer']}.md").write_text(table(done))


def _measure(job: tuple[str, str, ParallelCorpus, argparse.Namespace]) -> dict[str, Any]:
    return measure(*job)


if __name__ == "__main__":
    main()
