"""What plans of 2,000 tokens gain on FLORES-200 devtest, and whether they do any harm.

    python benchmarks/plan_flores.py --flores flores200_dataset --text text --out results/plan \
        -t llama-3 -t qwen3 --tokenizers modern/
    python benchmarks/plan_flores.py --flores flores200_dataset --out results/plan-latin \
        --seven --english other.txt

One plan per language is tested at its first 500, its first 1,000 and all of its tokens: the premium
as the mean of per-sentence ratios and as a ratio of sums. The paper's twelve languages are planned
on `--text` (never on FLORES), the seven in Latin script (`--seven`) on FLORES dev. Then every
devtest line of all languages (or of every n-th) is encoded by both tokenizers: how many got longer,
how many changed ids in scripts that were not planned for, how many decode differently. If text is
protected, its lines that changed are counted (there may be none), and the words (pre-tokens) that
changed in other English and code. Languages that are in the results already are skipped.
"""

from __future__ import annotations

import argparse
import json
import time
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fontTools.unicodedata import script, script_name
from tokenizers import Tokenizer

from tokengraft.corpus import load
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import script_of
from tokengraft.planning.plan import Plan, Planning, with_plan
from tokengraft.planning.plan_files import plan
from tokengraft.planning.protect import measure_elsewhere, protected_text, unprotected_code
from tokengraft.tokenizer.catalog import as_json, find
from tokengraft.tokenizer.pre_tokenizer import SCRIPTS

TWELVE = (
    "amh_Ethi", "ben_Beng", "heb_Hebr", "hin_Deva", "hye_Armn", "shn_Mymr",
    "tam_Taml", "tel_Telu", "urd_Arab", "vie_Latn", "ydd_Hebr", "zho_Hant",
)  # fmt: skip
SEVEN = ("yor_Latn", "ewe_Latn", "kab_Latn", "zul_Latn", "quy_Latn", "hau_Latn", "swh_Latn")
BUDGET, SIZES = 2000, (500, 1000)
PIVOT = "eng_Latn"


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


def premiums(tokenizer: Tokenizer, corpus: ParallelCorpus, code: str) -> dict[str, float]:
    """Premiums by both definitions; the pivot is encoded by the same tokenizer."""
    tokens, unit = (
        np.array(list(map(len, ids(tokenizer, corpus.lines(c)))), float) for c in (code, PIVOT)
    )
    return {"mean": float((tokens / unit).mean()), "sums": float(tokens.sum() / unit.sum())}


def encoded(name: str, devtest: ParallelCorpus, options: argparse.Namespace) -> dict[str, Any]:
    """Devtest's lines by language as the base encodes them, in little memory."""
    base = Tokenizer.from_str(json.dumps(as_json(find(name, options.tokenizers))))
    codes = devtest.languages[:: options.every]
    return {code: [array("I", one) for one in ids(base, devtest.lines(code))] for code in codes}


def measure(
    name: str,
    code: str,
    devtest: ParallelCorpus,
    before: dict[str, Any],
    options: argparse.Namespace,
) -> Any:
    """One language's plan and what it does to devtest, which the base encodes as `before`."""
    started = time.process_time()
    dev = load(options.flores, split="dev") if options.seven else None
    text = dev.lines(code) if dev else sorted(options.text.glob(f"{code}*.txt"))
    planned = plan(
        name, [code], {code: text}, Planning(budget=BUDGET), test=devtest, search=options.tokenizers
    ).plan
    effect = planned.languages[code]
    base_json = as_json(find(name, options.tokenizers))
    base = Tokenizer.from_str(json.dumps(base_json))
    extended = with_plan(base_json, planned)
    new = Tokenizer.from_str(json.dumps(extended))
    row: dict[str, Any] = {
        "tokenizer": name, "language": code, "tokens": len(planned.tokens),
        "planning_cpu_seconds": round(time.process_time() - started, 1),
        "relaxed": list(planned.cut.scripts),
        "floor_before": effect.floor_before, "floor_after": effect.floor_after,
        "before": premiums(base, devtest, code), "after": premiums(new, devtest, code),
        "lines": 0, "longer": 0, "changed_in_other_scripts": 0, "decoded_differently": 0,
    }  # fmt: skip
    for size in SIZES:
        part = Tokenizer.from_str(json.dumps(with_plan(base_json, first_tokens(planned, size))))
        row[f"after_{size}"] = premiums(part, devtest, code)
    scripts = frozenset(SCRIPTS.get(script_of(code), ("Latin",)))
    for each, olds in before.items():
        lines = devtest.lines(each)
        pairs = zip(lines, olds, (array("I", one) for one in ids(new, lines)), strict=True)
        differ = [(line, list(old), list(now)) for line, old, now in pairs if old != now]
        row["lines"] += len(lines)
        row["longer"] += sum(len(now) > len(old) for _, old, now in differ)
        row["changed_in_other_scripts"] += sum(not holds_script(o[0], scripts) for o in differ)
        texts = (
            base.decode_batch([o for _, o, _ in differ]),
            new.decode_batch([n for *_, n in differ]),
        )
        row["decoded_differently"] += sum(a != b for a, b in zip(*texts, strict=True))
    if planned.protected:
        kept = protected_text([], bundled=True)
        assert kept is not None and kept.hash == planned.protected.sha256
        both = zip(ids(base, list(kept.lines)), ids(new, list(kept.lines)), strict=True)
        row["protected"] = {"lines": len(kept.lines), "changed": sum(a != b for a, b in both)}
        more = [line for path in options.english for line in path.read_text().split("\n") if line]
        other = {
            "devtest": devtest.lines(PIVOT),
            "English": [*devtest.lines(PIVOT), *more],
            "code": unprotected_code(),
        }
        for found in measure_elsewhere(base_json, extended, other.items()):
            row[found.text] = {"words": found.words, "changed": found.changed}
    return row


def table(rows: list[dict[str, Any]], definition: str) -> str:
    """The rows as Markdown; premiums by one definition."""
    titles = ["language", "before", "500 tokens", "1,000", "2,000", "tokens", "lines longer",
              "ids changed in other scripts", "decoded differently", "protected lines changed",
              "words of other English changed", "of other code"]  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", f"|---|{'---:|' * (len(titles) - 1)}"]
    for row in rows:
        shown = [row[key][definition] for key in ("before", *(f"after_{n}" for n in SIZES))]
        kept = row.get("protected")
        cells = [
            row["language"], *(f"{value:.3f}" for value in shown),
            f"**{row['after'][definition]:.3f}**", f"{row['tokens']:,}",
            f"{row['longer']} of {row['lines']:,}", f"{row['changed_in_other_scripts']}",
            f"{row['decoded_differently']}",
            f"{kept['changed']} of {kept['lines']:,}" if kept else "–",
            *(_share(row.get(name)) for name in ("English", "code")),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _share(found: dict[str, int] | None) -> str:
    if found is None:
        return "–"
    return f"{found['changed']} of {found['words']:,} ({found['changed'] / found['words']:.4%})"


def main() -> None:
    """Measure everything that is not in the results yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="A folder with a file a language.")
    parser.add_argument("--seven", action="store_true", help="Latin script, chosen on FLORES dev.")
    parser.add_argument("--english", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", action="append", default=[])
    parser.add_argument("--tokenizers", type=Path, action="append", default=[])
    parser.add_argument("--language", action="append", default=[])
    parser.add_argument("--every", type=int, default=1, help="Check every n-th language's lines.")
    options = parser.parse_args()
    if not (options.text or options.seven):
        parser.error("say what to choose on: --text FOLDER, or --seven")
    options.out.mkdir(parents=True, exist_ok=True)
    devtest = load(options.flores, split="devtest")
    for name in options.tokenizer or ["llama-3"]:
        path = options.out / f"{name}.json"
        rows = json.loads(path.read_text()) if path.exists() else []
        done = {row["language"] for row in rows}
        codes = options.language or (SEVEN if options.seven else TWELVE)
        missing = [code for code in codes if code not in done]
        before = encoded(name, devtest, options) if missing else {}
        for code in missing:
            rows.append(measure(name, code, devtest, before, options))
            print(json.dumps(rows[-1]), flush=True)
            path.write_text(json.dumps(rows, indent=1) + "\n")
            written = table(rows, "sums" if options.seven else "mean")
            path.with_suffix(".md").write_text(written)


if __name__ == "__main__":
    main()
