"""Does a plan make any line longer? Counted with plain `tokenizers`, apart from the planner.

    python benchmarks/never_longer.py --flores flores200_dataset --out results/never-longer

For each language of FLORES-200: a plan of 500 tokens chosen on its dev lines, then the devtest
lines of all languages, encoded by the base and by the extended tokenizer. tokengraft is called
for three things, the base's `tokenizer.json`, the plan and the extended `tokenizer.json`;
scripts, lines and lengths are this file's own work. Encoded are all lines that hold a character
of the planned script, and `--others` drawn at random from the rest: their ids cannot change,
since the pattern asks for a letter of that script and every new token holds one of its
characters; of these it is counted how many changed at all (`others_changed`). A language whose
plan is refused for want of a token is listed with none. Rows are appended to NAME.jsonl, and a
run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any
from unicodedata import category

from fontTools.unicodedata import script
from tokenizers import Tokenizer

import tokengraft as tg
from tokengraft.core.errors import TokengraftError
from tokengraft.planning.plan import insert
from tokengraft.tokenizer.catalog import as_json, find

WRITTEN = {
    "Hans": {"Hani"}, "Hant": {"Hani"}, "Jpan": {"Hani", "Hira", "Kana"}, "Kore": {"Hang", "Hani"},
}  # fmt: skip


def encoded(tokenizer: Tokenizer, lines: list[str]) -> list[list[int]]:
    """Ids without special tokens."""
    return [e.ids for e in tokenizer.encode_batch_fast(lines, add_special_tokens=False)]


def measure(
    code: str, options: argparse.Namespace, base: Tokenizer, lines: list[str], old: list[int],
    scripts: list[frozenset[str]],
) -> dict[str, Any]:  # fmt: skip
    """One language's plan, and the lines it made longer."""
    row: dict[str, Any] = {"language": code, "lines": len(lines)}
    try:
        text = options.flores / "dev" / f"{code}.dev"
        plan = tg.plan(options.tokenizer, code, text, budget=options.budget).plan
    except TokengraftError as error:
        return {**row, "tokens": 0, "longer": 0, "why": str(error)}
    new = Tokenizer.from_str(json.dumps(insert(as_json(find(options.tokenizer)), plan)))
    wanted = WRITTEN.get(code[4:8], {code[4:8]})
    inside = [n for n, found in enumerate(scripts) if found & wanted]
    chosen = set(inside)
    outside = [n for n in range(len(lines)) if n not in chosen]
    outside = random.Random(code).sample(outside, min(options.others, len(outside)))
    after = encoded(new, [lines[n] for n in inside])
    longer = [n for n, ids in zip(inside, after, strict=True) if len(ids) > old[n]]
    shorter = sum(len(ids) < old[n] for n, ids in zip(inside, after, strict=True))
    others = [lines[n] for n in outside]
    changed = sum(a != b for a, b in zip(encoded(base, others), encoded(new, others), strict=True))
    return {
        **row, "tokens": len(plan.tokens), "relaxed": list(plan.cut.scripts),
        "encoded": len(inside), "longer": len(longer), "shorter": shorter,
        "others": len(others), "others_changed": changed,
        "examples": [lines[n] for n in longer[:3]],
    }  # fmt: skip


def table(rows: list[dict[str, Any]], languages: int, options: argparse.Namespace) -> str:
    """The rows as Markdown, with what was done and how far it came."""
    bare = [row for row in rows if not row["tokens"]]
    head = (
        f"`benchmarks/never_longer.py`: {options.tokenizer}, {options.budget} tokens chosen on "
        f"FLORES-200 dev; {len(rows)} of {languages} languages done. Longer devtest lines in all "
        f"plans together: **{sum(row['longer'] for row in rows)}**. Of {rows[0]['lines']:,} lines "
        "those with a character of the planned script were encoded; of the rest a random sample, "
        "in which no id may change. "
        f"For {len(bare)} languages no token could be planned (ASCII letters only).\n\n"
        "| language | tokens | relaxed | lines encoded | longer | shorter | other lines sampled | "
        "changed |\n|---|---:|---|---:|---:|---:|---:|---:|\n"
    )
    return head + "".join(
        f"| {r['language']} | {r['tokens']} | {', '.join(r.get('relaxed', []))} | "
        f"{r.get('encoded', 0):,} | {r['longer']} | {r.get('shorter', 0):,} | "
        f"{r.get('others', 0):,} | {r.get('others_changed', 0)} |\n"
        for r in sorted(rows, key=lambda row: row["language"])
    )


def main() -> None:
    """Every language not yet in the file, those with the most marks first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", default="llama-3")
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--others", type=int, default=1000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    files = sorted((options.flores / "devtest").glob("*.devtest"))
    lines = [line for f in files for line in f.read_text(encoding="utf-8").splitlines()]
    known = {character: script(character) for character in set("".join(lines))}
    scripts = [frozenset(known[c] for c in line if c > "\x7f") for line in lines]
    base = Tokenizer.from_str(json.dumps(as_json(find(options.tokenizer))))
    old = [len(ids) for ids in encoded(base, lines)]
    kept = options.out / f"{options.tokenizer}.jsonl"
    earlier = kept.read_text("utf-8").splitlines() if kept.exists() else []
    rows = [json.loads(row) for row in earlier]
    done = {row["language"] for row in rows}
    marks = {f.stem: sum(category(c)[0] == "M" for c in f.read_text("utf-8")) for f in files}
    codes = sorted(marks, key=lambda code: (-marks[code], code))
    for code in codes:
        if code not in done:
            rows.append(measure(code, options, base, lines, old, scripts))
            with kept.open("a", encoding="utf-8") as out:
                out.write(json.dumps(rows[-1], ensure_ascii=False) + "\n")
            written = table(rows, len(codes), options)
            (options.out / f"{options.tokenizer}.md").write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
