r"""How good rows are, by how their tokens were chosen: floor, mean of the parts, distilled.

    python benchmarks/plan_rows.py MODEL PLANS TEXT FLORES OUT --plan --jobs 1 -l shn_Mymr …
    python benchmarks/plan_rows.py MODEL PLANS TEXT FLORES OUT --jobs 6 -l shn_Mymr …

The first call chooses `--budget` tokens per language by each mode of planning that makes merges, on
TEXT (`xxx_Ssss.txt`) with English and code protected, and writes PLANS (`mode-xxx_Ssss.json`). The
second derives rows for them in four ways and judges each on FLORES devtest with the functions that
`tokengraft evaluate` calls: KL, top-1 agreement, and the bits of the second half of each line in
old tokens after its first half in new ones. Tokens of different modes end at different bytes, so
KL is measured at different positions; the bits are of the same text but for where lines are halved.
OUT gets one JSON file per run; runs whose file exists are skipped.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from gpu_jobs import arguments, lines_in, share_out

MODES = ("merges", "paper.likelihood", "paper.unigram", "paper.prefix-free")
PIVOT = "eng_Latn"


def choose(options: argparse.Namespace, mode: Any, code: str) -> None:
    """Choose the tokens of one plan."""
    from tokengraft.planning.choose import plan_tokens
    from tokengraft.planning.plan import Planning
    from tokengraft.planning.protect import protected_text

    path = options.plans / f"{mode}-{code}.json"
    if path.is_file():
        return
    begun = time.monotonic()
    spec = json.loads((options.model / "tokenizer.json").read_text("utf-8"))
    text = lines_in(options.text / f"{code}.txt")[: options.most]
    settings = Planning(budget=options.budget, mode=mode)
    plan = plan_tokens(spec, {code: text}, settings, protect=protected_text([], bundled=True))
    path.write_text(json.dumps(plan.to_json()), encoding="utf-8")
    print(code, mode, len(plan.tokens), f"{time.monotonic() - begun:.0f} s", flush=True)


def train(options: argparse.Namespace, mode: str, code: str) -> None:
    """Derive rows in every way and judge them, cheapest first."""
    import torch

    from tokengraft.core.options import options_from
    from tokengraft.deriving.derive import derive_rows
    from tokengraft.deriving.task import Deriving
    from tokengraft.evaluating.continuation import Continuation
    from tokengraft.evaluating.fidelity import BaseReading, mean_rows, scores
    from tokengraft.evaluating.lines import assert_disjoint, prepare
    from tokengraft.evaluating.score import Bootstrap
    from tokengraft.model.frozen import FrozenModel, NewRows, Reading
    from tokengraft.planning.plan import Plan, with_plan
    from tokengraft.tokenizer.huggingface import HuggingFace

    path = options.out / f"{mode}-{code}.json"
    if path.is_file() and "distil" in json.loads(path.read_text("utf-8"))["scores"]:
        return
    begun = time.monotonic()
    plan = Plan.from_json(json.loads((options.plans / f"{mode}-{code}.json").read_text("utf-8")))
    spec = with_plan(json.loads((options.model / "tokenizer.json").read_text("utf-8")), plan)
    new = HuggingFace.from_parsed("new", spec)
    text = lines_in(options.text / f"{code}.txt")[: options.most]
    devtest, english = (
        lines_in(options.flores / "devtest" / f"{one}.devtest")[: options.lines]
        for one in (code, PIVOT)
    )
    assert_disjoint(text, devtest)
    base = FrozenModel.load(options.model, Reading(dtype="float32"))
    case = prepare(code, devtest, base, new)
    reading = BaseReading(base, case, most_positions=options.positions, keep_bytes=1 << 30)
    continuation = Continuation(base, case)
    facts: dict[str, Any] = {
        "mode": mode, "language": code, "tokens": len(plan.tokens), "steps": options.steps,
        "premium_before": _premium(base.tokenizer, devtest, english),
        "premium": _premium(new, devtest, english), **case.sizes(), "scores": {},
    }  # fmt: skip
    given = {"steps": options.steps, "patience": 0, "check_every": max(1, options.steps // 5)}
    for way in ("one row", "mean", "mean-late", "distil"):
        torch.backends.cuda.matmul.allow_tf32 = way == "distil"
        if way == "one row":
            rows = mean_rows(base, case)
        else:
            made = derive_rows(
                base, [token.parts for token in plan.tokens], way, tokenizer=new,
                text=text if way == "distil" else None, options=options_from(Deriving, given),
            )  # fmt: skip
            rows = NewRows(case.first_new, torch.from_numpy(made.rows).to(base.device))
            if made.held_out is not None:
                facts["held_out"] = made.held_out.kl
                facts["curve"] = [[one.step, one.score.kl] for one in made.curve]
                facts["notes"] = made.notes
        torch.backends.cuda.matmul.allow_tf32 = False
        figures = scores(reading.compare(reading.read_new(new=rows)), {}, {}, {}, Bootstrap(200))
        figures |= continuation.scores(continuation.measure(new=rows), Bootstrap(200), False)
        facts["scores"][way] = {
            name: {"value": one.value, "low": one.low, "high": one.high, "n": one.n}
            for name, one in figures.items()
        }
        facts["seconds"] = time.monotonic() - begun
        path.write_text(json.dumps(facts), encoding="utf-8")
    shown = {way: round(one["kl"]["value"], 3) for way, one in facts["scores"].items()}
    print(code, mode, len(plan.tokens), shown, f"{facts['seconds']:.0f} s", flush=True)


def _premium(tokenizer: Any, lines: list[str], english: list[str]) -> float:
    """The mean of per-sentence ratios to English."""
    tokens = [[len(ids) for ids in tokenizer.encode(text)] for text in (lines, english)]
    return float(np.mean([a / b for a, b in zip(*tokens, strict=True)]))


def table(options: argparse.Namespace) -> str:
    """Premium, KL (top-1), and excess bits by language, mode and rows, of what OUT holds."""
    lines = [
        "| language | mode | tokens | premium | rows | KL | top-1 | bits a byte | excess |",
        "|---|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for code, mode in ((code, mode) for code in options.language for mode in MODES):
        path = options.out / f"{mode}-{code}.json"
        run = json.loads(path.read_text("utf-8")) if path.is_file() else {"scores": {}}
        for way, figures in run["scores"].items():
            values = {name: one["value"] for name, one in figures.items()}
            lines.append(
                f"| {code} | {mode} | {run['tokens']:,} | {run['premium_before']:.2f} → "
                f"{run['premium']:.2f} | {way} | {values['kl']:.3f} | {values['top1']:.3f} | "
                f"{values['continuation_bpb']:.3f} | {values['continuation_excess']:+.1%} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Distribute the runs over processes."""
    parser = arguments(__doc__)
    parser.add_argument("--plan", action="store_true", help="choose tokens, train nothing")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--budget", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--most", type=int, default=20_000, help="lines of text")
    parser.add_argument("--lines", type=int, default=300, help="of devtest")
    parser.add_argument("--positions", type=int, default=0, help="at which KL is asked (0: all)")
    options = parser.parse_args()
    options.plans.mkdir(parents=True, exist_ok=True)
    jobs = [(mode, code) for mode in options.modes for code in options.language]
    share_out(choose if options.plan else train, options, jobs)
    (options.out / "table.md").write_text(table(options), encoding="utf-8")


if __name__ == "__main__":
    main()
