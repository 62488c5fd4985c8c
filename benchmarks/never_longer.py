"""Does a plan make any line longer? Counted independently of the planner.

    python benchmarks/never_longer.py --flores flores200_dataset --out results/never-longer

For each language of FLORES-200, 500 tokens are chosen on its dev lines; then every devtest line of
all languages is encoded by the base and by the extended tokenizer. tokengraft is called only for
the base's `tokenizer.json`, the plan and the extended `tokenizer.json`, whose hash is in the row;
the planner sees no text but the dev lines and what it protects, so that its own check cannot help
it. Reading lines is done here; they are encoded by `tokenizers`, or by a faster library that agrees
with it (`tokengraft.tokenizer.fast`) unless `--reference` is given. Lines with UNK, which may
become text, are left out. Languages run in `--processes`; rows are appended to NAME.jsonl, and a
run that was stopped can be resumed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tokengraft.core.errors import TokengraftError
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.permitted import shares_letters
from tokengraft.planning.plan import Planning, with_plan
from tokengraft.planning.protect import protected_text
from tokengraft.tokenizer.catalog import as_json, find
from tokengraft.tokenizer.huggingface import HuggingFace

BATCH = 50_000


def lengths(written: str, lines: list[str], reference: bool) -> list[int]:
    """Tokens of each line, without special ones."""
    tokenizer = HuggingFace.from_json("tokenizer", hashlib.sha256(written.encode()).hexdigest(),
                                      written.encode())  # fmt: skip
    if not reference:
        tokenizer.hasten(sum(map(len, lines)))
    batches = (lines[start : start + BATCH] for start in range(0, len(lines), BATCH))
    return [size for batch in batches for size in tokenizer.encode_texts(batch).sizes.tolist()]


def without_unknown(tokenizer: Tokenizer, lines: list[str]) -> list[str]:
    """The lines without the model's UNK."""
    model = json.loads(tokenizer.to_str())["model"]
    unknown = model.get("unk_token") and tokenizer.token_to_id(model["unk_token"])
    if unknown is None:
        unknown = model.get("unk_id")
    return [line for line in lines if unknown is None or unknown not in tokenizer.encode(line).ids]


class Count:
    """The devtest lines with their lengths by the base; made once, before processes fork."""

    def __init__(self, flores: Path, tokenizer: str, budget: int, reference: bool) -> None:
        self.flores, self.budget, self.reference = flores, budget, reference
        self.parsed = as_json(find(tokenizer))
        files = sorted((flores / "devtest").glob("*.devtest"))
        self.codes = [file.stem for file in files]
        lines = [line for f in files for line in f.read_text("utf-8").splitlines()]
        base = Tokenizer.from_str(json.dumps(self.parsed))
        self.lines = without_unknown(base, lines)
        self.old = lengths(json.dumps(self.parsed), self.lines, reference)

    def __call__(self, code: str) -> dict[str, Any]:
        """One language's plan, and the lines it made longer."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        row: dict[str, Any] = {"language": code, "lines": len(self.lines)}
        text = (self.flores / "dev" / f"{code}.dev").read_text("utf-8").splitlines()
        protect = protected_text([], shares_letters([code]))
        try:
            plan = plan_tokens(
                self.parsed, {code: text}, Planning(budget=self.budget), protect=protect
            )
        except TokengraftError as error:
            return {**row, "tokens": 0, "longer": 0, "why": str(error)}
        written = json.dumps(with_plan(self.parsed, plan))
        new = lengths(written, self.lines, self.reference)
        pairs = list(zip(self.lines, self.old, new, strict=True))
        longer = [line for line, before, after in pairs if after > before]
        return {
            **row, "tokens": len(plan.tokens), "relaxed": list(plan.cut.scripts),
            "longer": len(longer), "shorter": sum(after < before for _, before, after in pairs),
            "examples": longer[:3], "sha256": hashlib.sha256(written.encode()).hexdigest(),
        }  # fmt: skip


def table(rows: list[dict[str, Any]], languages: int, options: argparse.Namespace) -> str:
    """The rows as Markdown, with what was done and how much of it is finished."""
    head = (
        f"`benchmarks/never_longer.py`: {options.tokenizer}, {options.budget} tokens chosen on "
        f"FLORES-200 dev; {len(rows)} of {languages} languages done. {rows[0]['lines']:,} devtest "
        f"lines were encoded with each plan, {sum(r['lines'] for r in rows if r['tokens']):,} in "
        f"all. Longer in all plans together: **{sum(row['longer'] for row in rows)}**.\n\n"
        "| language | tokens | relaxed | longer | shorter |\n"
        "|---|---:|---|---:|---:|\n"
    )
    return head + "".join(
        f"| {r['language']} | {r['tokens']} | {', '.join(r.get('relaxed', []))} | "
        f"{r['longer']} | {r.get('shorter', 0):,} |\n"
        for r in sorted(rows, key=lambda row: row["language"])
    )


def main() -> None:
    """Count every language that is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", default="llama-3")
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("-l", "--language", action="append", help="only these; repeat for more")
    parser.add_argument("--reference", action="store_true", help="use no faster library")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    count = Count(options.flores, options.tokenizer, options.budget, options.reference)
    kept = options.out / f"{options.tokenizer}.jsonl"
    earlier = kept.read_text("utf-8").splitlines() if kept.exists() else []
    rows = [json.loads(row) for row in earlier]
    done = {row["language"] for row in rows}
    left = [code for code in options.language or count.codes if code not in done]
    pool = get_context("fork").Pool(options.processes)
    with pool, kept.open("a", encoding="utf-8") as out:
        for row in pool.imap_unordered(count, left):
            rows.append(row)
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            out.flush()
    written = table(rows, len(count.codes), options)
    (options.out / f"{options.tokenizer}.md").write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
