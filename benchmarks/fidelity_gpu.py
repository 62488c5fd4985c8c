r"""The paper's grid and the default mode on one GPU: several languages at once, in limited time.

    python benchmarks/fidelity_gpu.py MODEL FLORES TEXT --work WORK --jobs 8 --minutes 9
    python benchmarks/fidelity_gpu.py MODEL FLORES TEXT --work WORK --tables OUT

MODEL is a folder with safetensors and tokenizer.json, FLORES a FLORES-200 folder or archive, TEXT
a folder of xxx_Ssss.txt, checked to hold no line of FLORES. A job is one stage for one language:

- `paper`: the 40 strategies in the paper's mode,
- `strategies`: the 40 in the default mode (merges),
- `free`: training-free rows in the default mode (`--methods`),
- `distil`: distilled rows in the default mode, at most `--max-minutes` each (and the methods of
  `--beside`, so that the base model reads only once),
- `scan`: short distillations with each recipe of `--scan`, judged on held-out text alone.

`--jobs` processes share the GPU, each with the model loaded once, and take jobs in order until none
is left or the time is up. WORK keeps plans, cells, rows and curves, so that the same call resumes
where it stopped. The second form needs no GPU: it writes tables of what WORK holds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import time
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

STAGES = ("paper", "strategies", "free", "distil")
# Long ones first, so that no process is left alone with one at the end.
LANGUAGES = (
    "zho_Hant", "shn_Mymr", "tam_Taml", "tel_Telu", "hin_Deva", "ben_Beng",
    "urd_Arab", "hye_Armn", "amh_Ethi", "heb_Hebr", "ydd_Hebr", "vie_Latn",
)  # fmt: skip


def main() -> None:
    """Run jobs, or write the tables of finished ones."""
    options = parse()
    if options.tables:
        write_tables(options)
        return
    begun = time.monotonic()
    options.until = begun + 60 * options.minutes
    (options.work / "jobs").mkdir(parents=True, exist_ok=True)
    jobs = [
        (stage, code)
        for stage in options.stages
        for code in options.languages
        if not _file(options, stage, code).is_file()
    ]
    context = multiprocessing.get_context("spawn")
    if {"paper", "strategies"} & {stage for stage, _ in jobs}:
        # States of the whole vocabulary are made once, before anyone needs them.
        first = context.Process(target=work, args=(options, None))
        first.start()
        first.join()
    queue = context.Queue()
    for job in jobs:
        queue.put(job)
    running = [context.Process(target=work, args=(options, queue)) for _ in range(options.jobs)]
    for process in running:
        process.start()
    while any(p.is_alive() for p in running) and time.monotonic() < options.until + options.grace:
        time.sleep(0.5)
    for process in running:
        if process.is_alive():
            process.terminate()
    left = [job for job in jobs if not _file(options, *job).is_file()]
    spent = time.monotonic() - begun
    print(f"{spent:.1f} s, {len(jobs) - len(left)} of {len(jobs)} jobs; left: {left}", flush=True)


def work(options: argparse.Namespace, queue: Any) -> None:
    """One process: load the model, then take jobs until none is left or the time is up."""
    import torch

    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    begun = time.monotonic()
    bench = Bench(options)
    bench.say(f"model open after {time.monotonic() - begun:.1f} s")
    if queue is None:
        bench.states()
        return
    while time.monotonic() < options.until:
        try:
            stage, code = queue.get(timeout=2)
        except Exception:  # empty
            return
        try:
            bench.run(stage, code)
        except Exception:  # one job must not take the others with it
            bench.say(f"{stage} {code} FAILED\n{traceback.format_exc()}")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class Bench:
    """The model, and what its jobs share."""

    def __init__(self, options: argparse.Namespace) -> None:
        from tokengraft.corpus import load
        from tokengraft.model import divergence
        from tokengraft.model.frozen import FrozenModel, Reading
        from tokengraft.paper.grid import Cells, Grid, Settings

        self.options, self.begun = options, options.until - 60 * options.minutes
        # Several processes share the memory: smaller blocks of (positions, vocabulary).
        divergence.MEASURING["cuda"] = 1 << 27
        self.whole = load(options.flores)
        judged = load(options.flores, split="devtest")
        model = FrozenModel.load(options.model, Reading(options.device))
        model.window = min(model.window, options.window)
        codes = [code for code in options.languages if code in judged.texts]
        self.grid = Grid(
            model, judged.select(codes),
            Settings(options.lines, options.positions, 200, 0, options.batch_tokens, 4 << 30),
            Cells(options.work / "cells"), options.work / "states", options.until,
        )  # fmt: skip

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begun:6.1f} s, {os.getpid()}] {text}", flush=True)

    def states(self) -> None:
        """Fill the cache with the vocabulary's states at the paper's layers."""
        from tokengraft.paper.grid import paper_layers
        from tokengraft.paper.states import vocabulary_states

        model = self.grid.model
        layers = list(paper_layers(model.layers, self.grid.normed))
        count = len(model.tokenizer.vocabulary)
        vocabulary_states(model, layers, count, cache=self.grid.work, key=self.grid.hash)
        self.say(f"states of {count} tokens at layers {layers}")

    def run(self, stage: str, code: str) -> None:
        """Run one job; its file is written once all of its cells are measured."""
        grid, begun = self.grid, time.monotonic()
        grid.rows.clear()
        grid.sizes.clear()
        grid.missing = 0
        facts: dict[str, Any] = {"stage": stage, "language": code}
        if stage == "scan":
            facts["scan"] = self.scan(code)
        elif stage == "paper":
            grid.paper([code], self.whole)
        else:
            distil = [*self.options.beside, "distil"]
            methods = {"strategies": ["paper"], "free": self.options.methods, "distil": distil}
            self.default(code, methods[stage], facts)
        facts["seconds"] = time.monotonic() - begun
        values = {r["method"]: r["value"] for r in grid.rows if r["metric"] == "kl"}
        best = min(values.items(), key=lambda one: one[1], default=("", float("nan")))
        self.say(
            f"{stage} {code}: {len(values)} cells in {facts['seconds']:.1f} s, {grid.missing} "
            f"missing; lowest KL {best[1]:.3f} ({best[0]})"
        )
        if grid.missing:
            return
        file = _file(self.options, stage, code)
        part = file.with_suffix(".part")
        part.write_text(json.dumps({**facts, "rows": grid.rows, "sizes": grid.sizes}))
        part.rename(file)

    def default(self, code: str, methods: list[str], facts: dict[str, Any]) -> None:
        """Run the default mode; rows and curves of distillations are kept."""
        import torch
        from safetensors.torch import save_file

        from tokengraft.paper.fidelity import DefaultMode, run_default

        def keep(code: str, name: str, made: Any) -> None:
            if made.held_out is None:
                return
            facts[name] = {
                "params": made.params, "seconds": made.seconds, "notes": made.notes,
                "held_out": asdict(made.held_out), "start": asdict(made.start),
                "curve": [[c.step, c.seconds, c.score.kl, c.score.agreement] for c in made.curve],
            }  # fmt: skip
            rows = torch.from_numpy(made.rows).bfloat16()
            save_file({code: rows}, self.options.work / f"rows-{code}.safetensors")
            last = made.curve[-1] if made.curve else None
            self.say(f"{name} {code}: held-out KL {made.start.kl:.3f} to {made.held_out.kl:.3f}, "
                     f"{last and last.step} steps, {made.seconds:.0f} s; {made.notes}")  # fmt: skip

        options = self.options
        mode = DefaultMode(
            methods, options.budget, options.steps, options.max_minutes,
            recipe(options.recipe) if "distil" in methods else None, options.continuation,
        )  # fmt: skip
        run_default(
            self.grid, [code], {code: self.text(code)}, mode, whole=self.whole,
            plans={code: self.plan(code)}, on_rows=keep,
        )  # fmt: skip

    def scan(self, code: str) -> list[list[Any]]:
        """Held-out KL after short distillations with several recipes."""
        from tokengraft.core.options import options_from
        from tokengraft.deriving.derive import derive_rows
        from tokengraft.deriving.task import Deriving
        from tokengraft.planning.plan import with_plan

        options, grid, plan = self.options, self.grid, self.plan(code)
        found = []
        for changes in options.scan:
            made = derive_rows(
                grid.model, [token.parts for token in plan.tokens], "distil",
                text=self.text(code), tokenizer=grid.tokenizer(with_plan(grid.spec, plan)),
                options=options_from(
                    Deriving,
                    {**vars(recipe(changes)), "steps": options.steps,
                     "max_minutes": options.max_minutes},
                ),
            )  # fmt: skip
            assert made.held_out is not None and made.start is not None
            curve = [[c.step, round(c.score.kl, 4)] for c in made.curve]
            found.append([changes, made.start.kl, made.held_out.kl, curve])
            self.say(f"scan {code} {changes!r}: {made.start.kl:.3f} to {made.held_out.kl:.3f}; "
                     f"{curve}, {made.seconds:.0f} s")  # fmt: skip
        return found

    def text(self, code: str) -> list[str]:
        """The language's lines."""
        path = self.options.text / f"{code}.txt"
        return [one for one in path.read_text(encoding="utf-8").split("\n") if one.strip()]

    def plan(self, code: str) -> Any:
        """The language's plan, made once."""
        from tokengraft.core.files import write_json
        from tokengraft.planning.choose import plan_tokens
        from tokengraft.planning.plan import Plan, Planning

        path = self.options.work / "plans" / f"{code}.json"
        if path.is_file():
            return Plan.from_json(json.loads(path.read_text(encoding="utf-8")))
        plan = plan_tokens(
            self.grid.spec, {code: self.text(code)}, Planning(budget=self.options.budget)
        )
        write_json(path, plan.to_json())
        return plan


def write_tables(options: argparse.Namespace) -> None:
    """The finished jobs of WORK as the tables of `tokengraft reproduce fidelity`."""
    import polars as pl

    from tokengraft.paper.claim import read_claim
    from tokengraft.paper.fidelity import CLAIM, Fidelity

    jobs = [json.loads(f.read_text()) for f in sorted((options.work / "jobs").glob("*.json"))]
    claim = read_claim(CLAIM)
    order = {code: n for n, code in enumerate(claim.languages.values())}
    rank = {stage: n for n, stage in enumerate(STAGES)}
    jobs = [_plainly(job) for job in jobs if job["stage"] in rank]
    jobs.sort(key=lambda job: (rank[job["stage"]], order.get(job["language"], 99)))
    key = ("mode", "language", "method", "metric")
    rows = list({tuple(row[k] for k in key): row for job in jobs for row in job["rows"]}.values())
    sizes = list({(s["mode"], s["language"]): s for job in jobs for s in job["sizes"]}.values())
    found = Fidelity(
        options.model.name, claim, pl.DataFrame(rows, infer_schema_length=None),
        pl.DataFrame(sizes), 0, None,
    )  # fmt: skip
    from tokengraft.paper.claim_folder import save_fidelity

    written = save_fidelity(found, options.tables)
    curves = {
        job["language"]: {k: v for k, v in job.items() if k.startswith("distil")}
        for job in jobs
        if job["stage"] == "distil"
    }
    (options.tables / "curves.json").write_text(json.dumps(curves) + "\n", encoding="utf-8")
    (options.tables / "merges.md").write_text(summary(options, found, curves), encoding="utf-8")
    print(f"{len(jobs)} jobs, {len(written) + 2} files; Python {platform.python_version()}")


def _plainly(job: dict[str, Any]) -> dict[str, Any]:
    """The job with plain names for distillations, whose recipes are in curves.json."""
    rows = [
        {**row, "method": "distil"} if row["method"].startswith("distil ") else row
        for row in job["rows"]
    ]
    named = {("distil" if name.startswith("distil ") else name): v for name, v in job.items()}
    return {**named, "rows": rows}


def summary(options: argparse.Namespace, found: Any, curves: dict[str, Any]) -> str:
    """The default mode as one table: the mean of rows, the 40, `mean-late`, distilled rows."""
    import polars as pl

    cells = found.grid.filter(pl.col("mode") == "merges").to_dicts()
    value = {(r["language"], r["metric"], r["method"]): r for r in cells}
    sizes = {r["language"]: r for r in found.sizes.filter(pl.col("mode") == "merges").to_dicts()}
    lines, columns = [], []
    for code, kept in sorted(curves.items()):
        ((name, run),) = kept.items()
        kl = {m: r["value"] for (c, k, m), r in value.items() if (c, k) == (code, "kl")}
        of_40 = {m: v for m, v in kl.items() if " layer " in m}
        best = min(of_40, key=lambda m: of_40[m])
        ours = value[code, "kl", name]
        top = value[code, "top1", name]["value"]
        plan = json.loads((options.work / "plans" / f"{code}.json").read_text(encoding="utf-8"))
        size = sizes[code]
        figures = [kl["linear layer 0"], of_40[best], kl["mean-late"], ours["value"], top]
        columns.append(figures)
        lines.append(
            f"| {code} | {len(plan['tokens']):,} | {size['tokens_before']:,} → "
            f"{size['tokens_after']:,} | {figures[0]:.3f} | {figures[1]:.3f} ({best}) | "
            f"{figures[2]:.3f} | {ours['value']:.3f} ({ours['low']:.3f} to {ours['high']:.3f}) | "
            f"{top:.3f} | {figures[1] / figures[3]:.2f} | {run['curve'][-1][0]} | "
            f"{run['held_out']['kl']:.3f} |"
        )
    means = [sum(column) / len(columns) for column in zip(*columns, strict=True)]
    head = (
        "language", "tokens added", "tokens old → new", "KL mean of rows", "KL best of the 40",
        "KL mean-late", "KL distilled (95%)", "top-1", "best of 40 / distilled", "steps",
        "held-out KL",
    )  # fmt: skip
    last = (
        f"| **mean** | | | {means[0]:.3f} | {means[1]:.3f} | {means[2]:.3f} | **{means[3]:.3f}** | "
        f"**{means[4]:.3f}** | **{means[1] / means[3]:.2f}** | | |"
    )
    table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines, last]
    return "\n".join(table) + "\n"


def recipe(changes: str) -> Any:
    """The default recipe with changes like "learning_rate=0.03,kl=4"."""
    from tokengraft.deriving.distil.recipe import Recipe

    pairs = [one.split("=") for one in changes.split(",") if one]
    plain: Any = Recipe()
    kinds = {k: float if v is None else type(v) for k, v in vars(plain).items()}
    return replace(plain, **{k: kinds[k](v) for k, v in pairs})


def _file(options: argparse.Namespace, stage: str, code: str) -> Path:
    found: Path = options.work / "jobs" / f"{stage}.{code}.json"
    return found


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("flores", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tables", type=Path, metavar="OUT", help="write tables and stop")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=[*STAGES, "scan"])
    parser.add_argument("--languages", nargs="*", default=list(LANGUAGES))
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2, help="of one process")
    parser.add_argument("--minutes", type=float, default=9.0, help="no cell is begun after these")
    parser.add_argument("--grace", type=float, default=60.0, help="seconds until a job is stopped")
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--positions", type=int, default=4096)
    parser.add_argument("--window", type=int, default=2048, help="most tokens of a line")
    parser.add_argument("--methods", nargs="+", default=["mean", "mean-late"])
    parser.add_argument("--beside", nargs="*", default=[], help="judged with distil")
    parser.add_argument("--no-continuation", dest="continuation", action="store_false")
    parser.add_argument("--budget", type=int, default=2000)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--max-minutes", type=float, help="of one distillation")
    parser.add_argument("--recipe", default="", help="changes to it: learning_rate=0.03,kl=4")
    parser.add_argument("--scan", nargs="+", default=["", "learning_rate=0.1"])
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


if __name__ == "__main__":
    main()
