r"""Grafts that write, trained and judged on one GPU, several languages at once.

    python benchmarks/write_gpu.py MODEL PLANS TEXT FLORES OUT --jobs 12 --steps 2000 -l shn_Mymr …

MODEL is a folder with safetensors and tokenizer.json, PLANS holds a plan a language
(`xxx_Ssss.json`), TEXT `xxx_Ssss.txt` and `eng_Latn.txt` (protected), FLORES the folder
with `devtest/`. Each language is trained twice, for `write` and for `input-only`; both are judged
on FLORES devtest by the functions that `tokengraft evaluate` calls. OUT gets a JSON file a run,
with its curve, and the rows as bfloat16.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import sys
import time
import traceback
import types
from dataclasses import asdict
from pathlib import Path
from typing import Any

WAYS = ("write", "input-only")


def main() -> None:
    """Share the runs out to processes."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    for way in options.ways:
        for code in options.language:
            queue.put((way, code))
    running = [context.Process(target=work, args=(options, queue)) for _ in range(options.jobs)]
    for process in running:
        process.start()
    for process in running:
        process.join()


def work(options: argparse.Namespace, queue: Any) -> None:
    """A process: runs until none is left."""
    import torch

    _without_polars()
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    while True:
        try:
            way, code = queue.get(timeout=2)
        except Exception:  # empty
            return
        try:
            run(options, way, code)
        except Exception:  # one run must not take the others with it
            print(way, code, traceback.format_exc(), flush=True)


def run(options: argparse.Namespace, way: str, code: str) -> None:
    """Train one graft, judge it, write what came of it."""
    import torch
    from safetensors.torch import save_file

    from tokengraft.core.options import options_from
    from tokengraft.deriving.derive import derive_rows
    from tokengraft.deriving.distil.recipe import Writing
    from tokengraft.deriving.task import Deriving
    from tokengraft.model.frozen import FrozenModel, Reading
    from tokengraft.planning.plan import Plan, insert
    from tokengraft.tokenizer.huggingface import HuggingFace

    begun = time.monotonic()
    plan = Plan.from_json(json.loads((options.plans / f"{code}.json").read_text("utf-8")))
    spec = insert(json.loads((options.model / "tokenizer.json").read_text("utf-8")), plan)
    base = FrozenModel.load(options.model, Reading(dtype=options.dtype))
    english = _lines(options.text / "eng_Latn.txt")[: options.protect]
    given: dict[str, Any] = {"steps": options.steps, "check_every": max(1, options.steps // 15)}
    given |= json.loads(options.recipe)
    if way == "write":
        given["writing"] = Writing(tuple(english))
    made = derive_rows(
        base, [token.parts for token in plan.tokens], "distil",
        text=_lines(options.text / f"{code}.txt"), tokenizer=spec,
        options=options_from(Deriving, given),
    )  # fmt: skip
    trained = time.monotonic() - begun
    assert made.held_out is not None and made.start is not None
    tables = {"rows": torch.from_numpy(made.rows).bfloat16()}
    if made.head is not None:
        tables["head"] = torch.from_numpy(made.head).bfloat16()
    save_file(tables, options.out / f"{way}-{code}.safetensors")
    torch.backends.cuda.matmul.allow_tf32 = False
    new = HuggingFace.from_parsed("new", spec)
    graft = FrozenModel(
        _grown(base.model, tables, len(base.tokenizer.vocabulary)),
        name=f"{way}-{code}", folder=base.folder, tokenizer=new,
    )  # fmt: skip
    scores = judge(base, graft, code, options, way)
    torch.backends.cuda.matmul.allow_tf32 = True
    facts = {
        "policy": way, "language": code, "train_seconds": trained,
        "seconds": time.monotonic() - begun, "params": made.params, "notes": made.notes,
        "held_out": asdict(made.held_out), "start": asdict(made.start),
        "curve": [{"step": c.step, "seconds": c.seconds, **asdict(c.score)} for c in made.curve],
        **scores,
    }  # fmt: skip
    text = json.dumps(facts, default=lambda one: one.item(), ensure_ascii=False)
    (options.out / f"{way}-{code}.json").write_text(text, encoding="utf-8")
    shown = {name: round(one["value"], 4) for name, one in facts["scores"].items()}
    print(way, code, round(trained), round(facts["seconds"]), json.dumps(shown), flush=True)


def judge(base: Any, graft: Any, code: str, options: Any, way: str) -> dict[str, Any]:
    """Figures on FLORES devtest, by the functions that `evaluate` calls."""
    from tokengraft.evaluating.both_spellings import shared_scores
    from tokengraft.evaluating.continuation import Continuation
    from tokengraft.evaluating.fidelity import BaseReading, scores
    from tokengraft.evaluating.generation import measure_generation, write_samples
    from tokengraft.evaluating.lines import prepare
    from tokengraft.evaluating.writing import english_scores, written_scores

    split = options.split
    lines = _lines(options.flores / split / f"{code}.{split}")[: options.lines]
    room = min(512, base.window) - 2
    case = prepare(code, lines, base, graft.tokenizer, room)
    reading = BaseReading(base, case, most_positions=0, keep_bytes=0)
    view = reading.read_new(graft)
    none: dict[str, float] = {}
    found = scores(reading.compare(view, graft.head(case.rows).exact()), none, none, none, 200, 0)
    following = Continuation(base, case)
    bits = following.measure(graft, head=graft.head(case.rows).exact())
    found |= following.scores(bits, True, 200)
    more: dict[str, Any] = {"sizes": case.sizes()}
    if way == "write":
        found |= shared_scores(base, graft, case, most_lines=options.lines, resamples=200)
        found |= written_scores(base, graft, case, resamples=200)
        english = _lines(options.flores / "devtest" / "eng_Latn.devtest")
        found |= english_scores(base, graft, english, most=1012, resamples=200)
        more["generation"] = measure_generation(base, graft, code, lines[:8])
        more["samples"] = write_samples(base, graft, code, [x[: len(x) // 2] for x in lines[:3]])
    return {"scores": {name: asdict(one) for name, one in found.items()}, **more}


def _grown(model: Any, tables: Any, first: int) -> Any:
    """The model with the rows in its tables, the head untied where it has rows of its own."""
    import torch

    grown = copy.deepcopy(model)
    kind = model.get_input_embeddings().weight
    rows = [tables["rows"], tables.get("head", tables["rows"])]
    for table, added in zip(
        (grown.get_input_embeddings(), grown.get_output_embeddings()), rows, strict=True
    ):
        old = (model.get_input_embeddings() if table is grown.get_input_embeddings()
               else model.get_output_embeddings()).weight[:first]  # fmt: skip
        table.weight = torch.nn.Parameter(torch.cat([old, added.to(kind)]), requires_grad=False)
    grown.get_input_embeddings().num_embeddings = first + len(rows[0])
    grown.get_output_embeddings().out_features = first + len(rows[0])
    grown.config.vocab_size = first + len(rows[0])
    if "head" not in tables:  # not written
        news = list(range(first, first + len(rows[0])))
        grown.generation_config.suppress_tokens = news
    return grown


def _without_polars() -> None:
    """A GPU machine without polars: the measures need none, only the tables they end up in."""
    try:
        import polars  # noqa: F401
    except ImportError:
        stub = types.ModuleType("polars")
        stub.__getattr__ = _anything  # type: ignore[method-assign]
        sys.modules["polars"] = stub


def _anything(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


def _lines(path: Path) -> list[str]:
    return [one for one in path.read_text(encoding="utf-8").split("\n") if one.strip()]


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("model", "plans", "text", "flores", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--language", "-l", nargs="+", required=True)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--recipe", default="{}", help='changes to it as JSON: {"stray": 100}')
    parser.add_argument("--protect", type=int, default=8000, help="lines of protected English")
    parser.add_argument("--lines", type=int, default=1012)
    parser.add_argument("--split", default="devtest", choices=("dev", "devtest"))
    parser.add_argument("--dtype", default="float32")
    return parser.parse_args()


if __name__ == "__main__":
    main()
