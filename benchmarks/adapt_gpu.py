r"""Grafts whose body learns, on one GPU: settings compared on FLORES dev, the best on devtest.

    python benchmarks/adapt_gpu.py MODEL PLANS TEXT FLORES OUT -l shn_Mymr … --jobs 15

The folders are those of `write_gpu.py`. First each of `--settings` (changes to `Adapting`, by
name) is trained briefly for the languages `--chosen-on`; the one with the lowest mean of reading KL
and excess of writing on dev is then trained for every language and judged on devtest, English and
code by text that nothing was trained on. OUT gets a JSON file a run.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import os
import time
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from write_gpu import _grown, _lines, _without_polars

SETTINGS: dict[str, dict[str, Any]] = {
    "lower": {},
    "apart": {"depth": 1.0},
    "plain": {"depth": 1.0, "apart": False},
    "rank8": {"rank": 8},
}


def main() -> None:
    """Share the runs out to processes: first the settings, then the languages."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    jobs, answers = context.Queue(), context.Queue()
    running = [context.Process(target=work, args=(options, jobs, answers), daemon=True)
               for _ in range(options.jobs)]  # fmt: skip
    for process in running:
        process.start()
    best = options.best
    if best is None:
        trials = [(name, code) for name in options.settings for code in options.chosen_on]
        for name, code in trials:
            jobs.put(("dev", name, code))
        found: dict[str, list[float]] = {}
        until = time.monotonic() + 60 * options.minutes[0] + 60
        for _ in trials:
            try:
                _, name, value = answers.get(timeout=max(1.0, until - time.monotonic()))
            except Exception:  # one that takes too long must not hold up the others
                break
            found.setdefault(name, []).append(value)
        whole = {k: v for k, v in found.items() if len(v) == len(options.chosen_on)}
        best = min(whole, key=lambda k: sum(whole[k]), default=options.settings[0])
        print("chosen on dev:", best, found, flush=True)
    for code in options.language:
        jobs.put(("devtest", best, code))
    for one in options.also:
        jobs.put(("devtest", *one.split(":")))
    left = len(options.language) + len(options.also)
    while left:
        split, *told = answers.get()
        left -= split == "devtest"
        print(*told, flush=True)
    for _ in running:
        jobs.put(None)
    for process in running:
        process.join(20)


def work(options: argparse.Namespace, jobs: Any, answers: Any) -> None:
    """A process: runs until there are none."""
    import torch

    _without_polars()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    while (job := jobs.get()) is not None:
        value = float("inf")
        try:
            value = run(options, *job)
        except Exception:  # one run must not take the others with it
            print(job, traceback.format_exc(), flush=True)
        answers.put((job[0], job[1] if job[0] == "dev" else job[2], value))


def run(options: argparse.Namespace, split: str, setting: str, code: str) -> float:
    """Train one graft, judge it on `split`, write what came of it; KL + excess of writing."""
    import torch

    from tokengraft.core.options import options_from
    from tokengraft.deriving.derive import derive_rows
    from tokengraft.deriving.distil import student
    from tokengraft.deriving.distil.recipe import Adapting, Writing
    from tokengraft.deriving.task import Deriving
    from tokengraft.model.frozen import FrozenModel, Reading
    from tokengraft.planning.plan import Plan, insert
    from tokengraft.tokenizer.huggingface import HuggingFace

    begun = time.monotonic()
    torch.backends.cuda.matmul.allow_tf32 = True
    plan = Plan.from_json(json.loads((options.plans / f"{code}.json").read_text("utf-8")))
    spec = insert(json.loads((options.model / "tokenizer.json").read_text("utf-8")), plan)
    base = FrozenModel.load(options.model, Reading(dtype=options.dtype))
    english = tuple(_lines(options.text / "eng_Latn.txt")[: options.protect])
    adapting = replace(Adapting(protect=english, protected=8000), **SETTINGS[setting])
    adapting = replace(adapting, **json.loads(options.adapting))
    stage = split == "devtest"
    given: dict[str, Any] = {
        "steps": options.steps[stage], "learning_rate": 0.03, "patience": 0,
        "check_every": max(1, options.steps[stage] // 6), "max_minutes": options.minutes[stage],
        "writing": Writing(), "adapting": adapting, **json.loads(options.recipe),
    }  # fmt: skip
    made = derive_rows(
        base, [token.parts for token in plan.tokens], "distil",
        text=_lines(options.text / f"{code}.txt"), tokenizer=spec,
        options=options_from(Deriving, given),
    )  # fmt: skip
    trained = time.monotonic() - begun
    assert made.held_out is not None and made.student is not None and made.head is not None
    torch.backends.cuda.matmul.allow_tf32 = False
    # The body as it would be written and loaded: merged, rounded to the base's type.
    merged = copy.deepcopy(base.model)
    weights = dict(merged.named_parameters())
    for name, change in student.changes(made.student).items():
        values = torch.from_numpy(change(weights[name].detach().float().cpu().numpy()))
        weights[name].data.copy_(values.to(torch.bfloat16))
    tables = {"rows": torch.from_numpy(made.rows).bfloat16(),
              "head": torch.from_numpy(made.head).bfloat16()}  # fmt: skip
    graft = FrozenModel(
        _grown(merged, tables, len(base.tokenizer.vocabulary)), name=f"{setting}-{code}",
        folder=base.folder, tokenizer=HuggingFace.from_parsed("new", spec),
    )  # fmt: skip
    graft.__dict__["manifest"] = {"output": {"policy": "write"}}
    scores = judge(base, graft, code, options, split)
    if split == "devtest" and options.labelled is not None:
        try:
            _states(base, graft, code, options)
        except Exception:
            print(code, traceback.format_exc(), flush=True)
    facts: dict[str, Any] = {
        "setting": setting, "language": code, "split": split, "train_seconds": trained,
        "seconds": time.monotonic() - begun, "notes": made.notes,
        "params": {k: v for k, v in made.params.items() if k != "protect"},
        "adapting": {**asdict(adapting), "protect": len(english)},
        "held_out": asdict(made.held_out), "start": asdict(made.start or made.held_out),
        "curve": [{"step": c.step, "seconds": c.seconds, **asdict(c.score)} for c in made.curve],
        "scores": {name: asdict(one) for name, one in scores.items()},
    }  # fmt: skip
    text = json.dumps(facts, default=lambda one: one.item(), ensure_ascii=False)
    (options.out / f"{split}-{setting}-{code}.json").write_text(text, encoding="utf-8")
    shown = {name: round(one.value, 4) for name, one in scores.items()}
    print(split, setting, code, round(trained), round(facts["seconds"]), shown, flush=True)
    return float(scores["kl"].value + scores["writing_ratio"].value - 1)


def judge(base: Any, graft: Any, code: str, options: Any, split: str) -> dict[str, Any]:
    """Figures on FLORES, by the functions that `evaluate` calls."""
    from tokengraft.deriving.distil.silent_text import untrained
    from tokengraft.evaluating.both_spellings import shared_scores
    from tokengraft.evaluating.fidelity import BaseReading, scores
    from tokengraft.evaluating.lines import prepare
    from tokengraft.evaluating.protected import protected_scores

    limit = options.lines if split == "devtest" else options.lines // 5
    lines = _lines(options.flores / split / f"{code}.{split}")[:limit]
    case = prepare(code, lines, base, graft.tokenizer, min(512, base.window) - 2)
    reading = BaseReading(base, case, most_positions=0, keep_bytes=0)
    view = reading.read_new(graft)
    none: dict[str, float] = {}
    ceiling = reading.ceiling() if options.against else none
    found = scores(reading.compare(view, graft.head(case.rows).exact()), none, none, ceiling, 0, 0)
    found = {name: found[name] for name in ("kl", "top1", "aligned_cosine")}
    found |= shared_scores(base, graft, case, most_lines=min(limit, 200), resamples=0)
    texts = untrained()
    texts["English"] = _lines(options.flores / split / f"eng_Latn.{split}")
    found |= protected_scores(base, graft, texts, most=limit, resamples=0)
    return found


def _states(base: Any, graft: Any, code: str, options: Any) -> None:
    """Pooled states of the labelled lines by both models, for a probe elsewhere."""
    import numpy as np

    from tokengraft.evaluating.probe import pooled_states

    lines = []
    for part, numbers in json.loads(options.labelled.read_text()).items():
        every = (options.flores / part / f"{code}.{part}").read_text("utf-8").split("\n")
        lines += [every[n - 1] for n in numbers]
    states, kept = pooled_states(base, graft, lines)
    before, after = (states[name].astype(np.float16) for name in ("base", "graft"))
    file = options.out / f"states-{graft.name}.npz"
    np.savez_compressed(file, kept=kept, base=before, graft=after)


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("model", "plans", "text", "flores", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--language", "-l", nargs="+", required=True)
    parser.add_argument("--chosen-on", nargs="+", default=["shn_Mymr", "hin_Deva", "tam_Taml"])
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--best", help="a setting, with which no others are tried")
    parser.add_argument("--also", nargs="*", default=[], help="SETTING:LANGUAGE …")
    parser.add_argument("--jobs", type=int, default=15)
    parser.add_argument("--steps", type=int, nargs=2, default=[200, 700])
    parser.add_argument("--minutes", type=float, nargs=2, default=[1.2, 3.2])
    parser.add_argument("--recipe", default="{}", help='changes to it as JSON: {"split": 1}')
    parser.add_argument("--adapting", default="{}", help='changes as JSON: {"keep_kl": 0.01}')
    parser.add_argument("--protect", type=int, default=8000, help="lines of protected English")
    parser.add_argument("--lines", type=int, default=1012)
    parser.add_argument("--labelled", type=Path, help="line numbers by split (JSON): keep states")
    parser.add_argument("--against", action="store_true", help="measure ceilings, too")
    parser.add_argument("--dtype", default="float32")
    return parser.parse_args()


if __name__ == "__main__":
    main()
