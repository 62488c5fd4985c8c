"""One plan for all languages of FLORES-200: what each objective gains, and what planning costs.

    python benchmarks/plan_world.py --flores flores200_dataset --out world \
        -t llama-3 --objective minimax:2.0 --objective parity --budget 64000 --processes 16
    python benchmarks/plan_world.py --flores flores200_dataset --out world \
        --objective parity --languages 50 --cost   # what planning for 50 languages takes
    python benchmarks/plan_world.py --out world   # tables and figures of what is there
    RAYON_NUM_THREADS=1 python benchmarks/plan_world.py --flores flores200_dataset --out world \
        --timed world/llama-3-parity-dev-203.plan.json.gz   # loading and encoding with the plan

Tokens are chosen on FLORES dev (parity and minimax go by premiums on dev too) and, with `--seed`,
also on the bundled UDHR and NLLB-Seed, since 997 lines per language do not suffice for large plans.
Tested on devtest with plain `tokenizers` at 8, 16, 32 and 64 thousand tokens and at sizes between:
the first n tokens of a plan are the plan of n. Runs that are in the results already are skipped.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import time
from dataclasses import asdict
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from plan_flores import first_tokens
from tokengraft.corpus import load
from tokengraft.languages.codes import language
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.curve import Spread, spread
from tokengraft.planning.plan import Plan, Planning, with_plan
from tokengraft.planning.protect import measure_elsewhere, protected_text, unprotected_code
from tokengraft.tokenizer.catalog import as_json, find

SIZES = (8000, 16000, 32000, 64000, 44000, 4000, 24000, 2000)  # those asked for first
PIVOT = "eng_Latn"
_BEGIN, _END = "<!-- summary -->\n", "<!-- /summary -->\n"  # around the README's table
SEED = 2000  # lines of NLLB-Seed a language


def lengths(tokenizer: Tokenizer, lines: list[str]) -> np.ndarray:
    """Tokens of each line."""
    encoded = tokenizer.encode_batch_fast(lines, add_special_tokens=False)
    return np.array([len(one.ids) for one in encoded])


def changed(base: Tokenizer, new: Tokenizer, lines: list[str]) -> int:
    """Lines whose ids are not the same under both."""
    both = (one.encode_batch_fast(lines, add_special_tokens=False) for one in (base, new))
    return sum(old.ids != now.ids for old, now in zip(*both, strict=True))


def read(flores: Path, split: str) -> dict[str, list[str]]:
    """Every language's lines."""
    files = sorted((flores / split).glob(f"*.{split}"))
    return {file.stem: file.read_text("utf-8").splitlines() for file in files}


def texts_of(
    dev: dict[str, list[str]], codes: list[str], seed: Path | None
) -> dict[str, list[str]]:
    """The text that tokens are chosen on."""
    texts = {code: list(dev[code]) for code in codes}
    if seed is not None:
        udhr = load("udhr")
        for code in codes:
            texts[code] += udhr.lines(code) if code in udhr.texts else []
            more = seed / f"{code}.txt"
            texts[code] += more.read_text("utf-8").splitlines()[:SEED] if more.exists() else []
    return texts


def speakers(codes: list[str]) -> dict[str, float]:
    """All speakers, first-language or not; if no number is known, the smallest that is known."""
    known = {c: language(c).speakers_total for c in codes}
    fewest = min(number for number in known.values() if number)
    return {code: float(number or fewest) for code, number in known.items()}


class Run:
    """One plan, measured; `row` is written whenever something has been added to it."""

    def __init__(self, job: tuple[str, str], options: argparse.Namespace) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self.name, self.objective = job
        self.options = options
        self.dev, self.devtest = (read(options.flores, split) for split in ("dev", "devtest"))
        every = [code for code in self.dev if code != PIVOT]
        wanted = options.languages or len(every)
        self.codes = every[:: max(1, len(every) // wanted)][:wanted]
        text = "dev" if options.seed is None else "more"
        text += "-names" if options.keep_names else ""
        text += "-protected" if options.protect else ""
        objective = self.objective.replace(":", "-")
        end = f"{len(self.codes)}-cost" if options.cost else f"{len(self.codes)}"
        self.path = options.out / f"{self.name}-{objective}-{text}-{end}.json"
        kept = protected_text(options.protect, bundled=True, keep_names=options.keep_names)
        assert kept is not None
        self.protected = kept
        self.row: dict[str, Any] = {
            "tokenizer": self.name, "objective": self.objective, "text": text,
            "languages": len(self.codes), "budget": options.budget,
        }  # fmt: skip

    def plan(self, base_json: dict[str, Any]) -> Plan:
        """The plan, with what it cost."""
        base = Tokenizer.from_str(json.dumps(base_json))
        unit = lengths(base, self.dev[PIVOT])
        before = {c: float((lengths(base, self.dev[c]) / unit).mean()) for c in self.codes}
        texts = texts_of(self.dev, self.codes, self.options.seed)
        wall, cpu = time.perf_counter(), time.process_time()
        options = Planning(
            budget=self.options.budget, objective=self.objective, premiums=before,
            speakers=speakers(self.codes),
        )  # fmt: skip
        plan = plan_tokens(base_json, texts, options, protect=self.protected)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        effects = plan.languages.items()
        self.row |= {
            "characters": sum(len(line) for lines in texts.values() for line in lines),
            "tokens": len(plan.tokens),
            "planning_seconds": round(time.perf_counter() - wall),
            "planning_cpu_seconds": round(time.process_time() - cpu),
            "peak_gb": round(peak, 2),
            "first_token": {code: effect.first_token for code, effect in effects},
            "planning": {c: [e.planning_before, e.planning_after] for c, e in effects},
        }
        with gzip.open(self.path.with_suffix(".plan.json.gz"), "wt", encoding="utf-8") as file:
            json.dump(plan.to_json(), file, ensure_ascii=False)
        return plan

    def measure(self) -> None:
        """Plan, and unless only the cost counts, encode all of devtest both ways at every size."""
        base_json = as_json(find(self.name, self.options.tokenizers))
        plan = self.plan(base_json)
        if self.options.cost:
            self._write()
            return
        base = Tokenizer.from_str(json.dumps(base_json))
        old = {code: lengths(base, lines) for code, lines in self.devtest.items()}
        self.row |= {"lines": sum(map(len, old.values())), "longer": {}}
        self.row |= {"english_lines_changed": {}, "frontier": {}, "premiums": {}}
        self._note(0, old, old)
        sizes = [size for size in self.options.size or SIZES if size < len(plan.tokens)]
        for size in (len(plan.tokens), *sizes):
            extended = with_plan(base_json, first_tokens(plan, size))
            new = Tokenizer.from_str(json.dumps(extended))
            english = self.devtest[PIVOT]
            self.row["english_lines_changed"][str(size)] = changed(base, new, english)
            if size == len(plan.tokens):
                other = {"English": english, "code": unprotected_code()}
                measured = measure_elsewhere(base_json, extended, other.items())
                lines = list(self.protected.lines)
                self.row |= {
                    "changed_elsewhere": {one.text: [one.changed, one.words] for one in measured},
                    "protected_lines": len(lines),
                    "protected_lines_changed": changed(base, new, lines),
                }
            self._note(size, old, {c: lengths(new, lines) for c, lines in self.devtest.items()})

    def _note(self, size: int, old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> None:
        premiums = {code: float((new[code] / new[PIVOT]).mean()) for code in self.codes}
        self.row["longer"][str(size)] = int(sum((new[code] > old[code]).sum() for code in old))
        self.row["premiums"][str(size)] = {code: round(p, 4) for code, p in premiums.items()}
        self.row["frontier"][str(size)] = asdict(spread(premiums))
        self._write()

    def _write(self) -> None:
        self.path.write_text(json.dumps(self.row) + "\n")


def run(job: tuple[str, str], options: argparse.Namespace) -> str:
    """Measure one plan unless its results exist."""
    made = Run(job, options)
    if not made.path.exists():
        made.measure()
    return str(made.path.name)


def write_up(out: Path) -> None:
    """Tables of gains and costs, and one figure per tokenizer, from the runs."""
    from tokengraft.render.figures.curves import draw_frontier
    from tokengraft.render.figures.style import save_figure, styled

    every = [json.loads(path.read_text()) for path in sorted(out.glob("*-*-*-*.json"))]
    every = [row for row in every if "planning_cpu_seconds" in row]
    whole = max(row["languages"] for row in every)
    rows = [row for row in every if row["languages"] == whole and "frontier" in row]
    (out / "frontier.md").write_text(frontier_table(rows))
    readme = out / "README.md"
    if readme.exists():
        before, _, rest = readme.read_text("utf-8").partition(_BEGIN)
        readme.write_text(before + _BEGIN + summary_table(rows) + _END + rest.partition(_END)[2])
    (out / "cost.md").write_text(cost_table(every))
    for name in sorted({row["tokenizer"] for row in rows}):
        plans = {
            row["objective"]: {size: Spread(**figures) for size, figures in by_size(row)}
            for row in rows
            if (row["tokenizer"], row["text"]) == (name, "dev")
        }
        with styled():
            drawn = draw_frontier(plans, whole, name, "FLORES-200 devtest")
        save_figure(drawn, out / f"frontier-{name}")
    for row in rows:
        if (row["objective"], row["text"]) == ("parity", "dev"):
            (out / f"who-gains-{row['tokenizer']}.md").write_text(who_gains(row))


def by_size(row: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The spreads of a run, fewest tokens first."""
    return sorted((int(size), figures) for size, figures in row["frontier"].items())


def summary_table(rows: list[dict[str, Any]]) -> str:
    """A line a plan: highest premium, median and languages above 2 at the sizes asked for."""
    sizes = sorted(SIZES[:4])
    heads = " | ".join(f"{size:,}" for size in sizes)
    lines = [
        f"| tokenizer | objective | {heads} | its own end |",
        f"|---|---|{'---:|' * (len(sizes) + 1)}",
    ]
    for row in rows:
        names = ", `--keep-names`" if "names" in row["text"] else ""
        spreads = dict(by_size(row))
        cells = ["–" if (one := spreads.get(size)) is None else _short(one) for size in sizes]
        last = max(spreads)
        cells.append("" if last in sizes else f"{last:,}: {_short(spreads[last])}")
        lines.append(f"| {row['tokenizer']} | {row['objective']}{names} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _short(one: dict[str, Any]) -> str:
    return f"{one['highest']:.2f} · {one['median']:.2f} · {one['above']}"


def frontier_table(rows: list[dict[str, Any]]) -> str:
    """One line per plan and size."""
    lines = [
        "| tokenizer | text | objective | tokens | highest | whose | median | Gini | above 2 "
        "| lines longer | devtest English lines changed |",
        f"|---|---|---|---:|---:|---|{'---:|' * 5}",
    ]
    for row in rows:
        for size, spread_ in by_size(row):
            lines.append(
                f"| {row['tokenizer']} | {row['text']} | {row['objective']} | {size:,} | "
                f"{spread_['highest']:.3f} | {spread_['whose']} | {spread_['median']:.3f} | "
                f"{spread_['gini']:.3f} | {spread_['above']} | {row['longer'][str(size)]} | "
                f"{row['english_lines_changed'].get(str(size), '–')} |"
            )
    return "\n".join(lines) + "\n"


def cost_table(rows: list[dict[str, Any]]) -> str:
    """What each plan took in time and memory."""
    lines = [
        "| tokenizer | text | objective | languages | characters | tokens | CPU s | GB |",
        f"|---|---|---|{'---:|' * 5}",
    ]
    for row in sorted(rows, key=lambda one: (one["tokenizer"], one["languages"])):
        lines.append(
            f"| {row['tokenizer']} | {row['text']} | {row['objective']} | {row['languages']} | "
            f"{row['characters']:,} | {row['tokens']:,} | {row['planning_cpu_seconds']} | "
            f"{row['peak_gb']} |"
        )
    return "\n".join(lines) + "\n"


def timed(path: Path, flores: Path, name: str, runs: int = 11) -> dict[str, Any]:
    """Time to load and to encode with a plan over the base's: medians of `runs` in turns.

    Processor time; the base is read from its own file, the plan as `insert` writes it.
    """
    base = as_json(find(name))
    plan = Plan.from_json(json.loads(gzip.decompress(path.read_bytes())))
    files = {"base": base, "plan": with_plan(base, plan)}
    written = {key: json.dumps(value, ensure_ascii=False) for key, value in files.items()}
    devtest = read(flores, "devtest")
    texts = {
        "English": devtest[PIVOT] * 4,
        "code": list(unprotected_code()),
        "twelve languages": [line for c in list(devtest)[::18] for line in devtest[c][:200]],
    }
    taken: dict[tuple[str, str], list[float]] = {}
    for turn in range(runs + 1):
        for key in sorted(written, reverse=bool(turn % 2)):
            clock = time.process_time()
            tokenizer = Tokenizer.from_str(written[key])
            times = {"loading": time.process_time() - clock}
            for text, lines in texts.items():
                clock = time.process_time()
                tokenizer.encode_batch_fast(lines, add_special_tokens=False)
                times[text] = time.process_time() - clock
            if turn:  # the first is for warming up
                for what, seconds in times.items():
                    taken.setdefault((what, key), []).append(seconds)
    medians = {what: float(np.median(seconds)) for what, seconds in taken.items()}
    ratios = {what: medians[what, "plan"] / medians[what, "base"] for what, _ in medians}
    return {"tokens": len(plan.tokens), "runs": runs, "seconds": medians, "ratios": ratios}


def who_gains(row: dict[str, Any]) -> str:
    """One line per language: premium before and after, and the first token that helps it."""
    last = max(row["premiums"], key=int)
    lines = [
        f"{row['tokenizer']}, {row['objective']}, {int(last):,} tokens; premiums on devtest.",
        "",
        "| language | before | after | helped from token | tokens of its planning text | after |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    before, after = row["premiums"]["0"], row["premiums"][last]
    for code in sorted(before, key=lambda c: -before[c]):
        first, (old, new) = row["first_token"][code], row["planning"][code]
        lines.append(
            f"| {code} {language(code).name} | {before[code]:.2f} | {after[code]:.2f} | "
            f"{'never' if first is None else f'{first:,}'} | {old:,} | {new:,} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Make the runs that are missing, then the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path)
    parser.add_argument("--seed", type=Path, help="NLLB-Seed's folder: choose on more than dev.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", action="append", default=[])
    parser.add_argument("--tokenizers", type=Path, action="append", default=[])
    parser.add_argument("--budget", type=int, default=32000)
    parser.add_argument("--objective", action="append", default=[])
    parser.add_argument("--size", type=int, action="append", help="Measure at these sizes only.")
    parser.add_argument("--protect", action="append", default=[], help="Text besides the bundled.")
    parser.add_argument("--keep-names", action="store_true", help="Words with a capital too.")
    parser.add_argument("--languages", type=int, help="So many, evenly taken, for timing.")
    parser.add_argument("--cost", action="store_true", help="Only plan, and say what that costs.")
    parser.add_argument("--timed", type=Path, help="Time the tokenizer with this plan instead.")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.timed is not None:
        print(timed(options.timed, options.flores, (options.tokenizer or ["llama-3"])[0]))
    elif options.flores is not None:
        jobs = list(product(options.tokenizer or ["llama-3"], options.objective or ["total"]))
        with get_context("spawn").Pool(options.processes, maxtasksperchild=1) as pool:
            for done in pool.imap_unordered(partial(run, options=options), jobs):
                print(done, flush=True)
    else:
        write_up(options.out)


if __name__ == "__main__":
    main()
