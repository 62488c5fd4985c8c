"""The demo's last lines: what the audit found, what the graft did, what it cost in behaviour."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from tokengraft.api.results import Evaluation
from tokengraft.evaluating.generation import fewer_steps
from tokengraft.languages.codes import language


def main(demo: Path) -> None:
    """Print a dozen lines from the demo's own files."""
    premiums = json.loads((demo / "audit/tables/premiums.json").read_text(encoding="utf-8"))
    plan = json.loads((demo / "plan/plan.json").read_text(encoding="utf-8"))
    evaluation = json.loads((demo / "evaluation/evaluation.json").read_text(encoding="utf-8"))
    scores, steps = evaluation["scores"], fewer_steps(evaluation.get("generation") or ())
    worst = max((r for r in premiums if not r["meaningless"]), key=lambda r: float(r["premium"]))
    languages = {row["language"] for row in premiums}
    print("\n" + "─" * 78)
    print(
        f"Audited {len(languages)} translations: worst is {worst['name']} on {worst['label']}, "
        f"{worst['premium']:.1f} times English."
    )
    for code, outcome in plan["languages"].items():
        found = {row["metric"]: row for row in scores if row["language"] == code}
        print(
            f"{language(code).name:8} on rootstock: {outcome['premium_before']:5.2f} → "
            f"{outcome['premium_after']:.2f} times English{_kept(found)}"
        )
        if "written_worth" in found and code in steps:
            print(f"{'':8} it also writes: in {steps[code]:.1f} times fewer steps{_likely(found)}")
    print(textwrap.fill(str(Evaluation.load(demo / "evaluation").verdict), 84))
    if not any(row["metric"] == "written_worth" for row in scores):
        print("It reads in new tokens and writes in old ones. One that writes in them too, in many")
        print("times fewer steps: POLICY=write make demo (two minutes more; docs/write.md).")
    tokens = len(plan["tokens"])
    print(f"{tokens} new tokens, chosen and trained on half of one short document, tested on the")
    print("other half; for figures on real text see docs/plan.md and docs/fidelity.md.")
    pieces = f"{plan['check']['pieces']:,} pieces checked"
    print(
        f"No text got longer ({pieces}); every old weight is kept, but for norms that lanes scale."
    )
    print("The grafted model: demo/grafted (AutoModelForCausalLM loads it). The page:")
    print(f"  {demo / 'page/index.html'}")


def _kept(found: dict[str, Any]) -> str:
    if "top1" not in found:
        return ""
    value, floor = found["top1"]["value"], found["top1"]["floor"]
    learned = "" if floor is None else f" ({floor:.0%} had it learned nothing)"
    return f"; next token kept: {value:.0%}{learned}"


def _likely(found: dict[str, Any]) -> str:
    ratio = found.get("writing_ratio")
    return "" if ratio is None else f", at {ratio['value']:.2f} times the base's bits"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
