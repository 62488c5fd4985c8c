r"""Grafts trained and judged on one GPU, several languages and settings at once.

    python benchmarks/write_gpu.py MODEL PLANS TEXT FLORES OUT --jobs 12 --steps 2000 -l shn_Mymr …

MODEL is a folder with safetensors and tokenizer.json, PLANS holds one plan per language
(`xxx_Ssss.json`), TEXT `xxx_Ssss.txt` and `eng_Latn.txt` (protected), FLORES is the folder
with `dev/` and `devtest/`. Each language is trained twice, for `write` and for `input-only`; both
are judged on FLORES by the functions that `tokengraft evaluate` calls. OUT gets one JSON file per
run, with its curve, and the rows as bfloat16. `--settings FILE` compares settings instead, each a
row `{"name": …, "way": "write", "recipe": {…}}` of a JSON list; with `"adapting": {…}` the body is
trained too (`Adapting`; `"fixed": true` keeps the weight of replay constant), `"start":
"…/write-{}.safetensors"` continues from the rows of an earlier run, and `"languages"`, `"split"`
and `"lines"` override the command line's. A plan for many languages is trained on as one, by any
name (`world.json`, `world.txt`), and judged in each of the languages of `"judged_in"`.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu_jobs import arguments, lines_in, share_out

WAYS = ("write", "input-only")
_OWN = ("split", "lines", "prompts", "greedy", "written")  # what a setting may have its own of


def main() -> None:
    """Distribute the runs over processes."""
    options = parse()
    settings = [{"name": way, "way": way, "recipe": {}} for way in options.ways]
    if options.settings is not None:
        settings = json.loads(options.settings.read_text("utf-8"))
    share_out(run, options, every(settings, options.language))


def every(
    settings: Iterable[dict[str, Any]], languages: Sequence[str]
) -> list[tuple[dict[str, Any], str]]:
    """Each setting with each of its languages, by default all."""
    return [(one, code) for one in settings for code in one.get("languages", languages)]


def run(options: argparse.Namespace, setting: dict[str, Any], code: str) -> None:
    """Train one graft, judge it and write the results."""
    import torch
    from safetensors.torch import load_file, save_file

    from tokengraft.core.options import options_from
    from tokengraft.deriving.derive import derive_rows
    from tokengraft.deriving.distil import as_method, replay
    from tokengraft.deriving.distil.recipe import Adapting, Writing
    from tokengraft.deriving.task import Deriving, Start
    from tokengraft.model.frozen import FrozenModel, Reading
    from tokengraft.planning.plan import Plan, with_plan
    from tokengraft.tokenizer.huggingface import HuggingFace

    begun = time.monotonic()
    options = argparse.Namespace(**vars(options) | {k: setting[k] for k in _OWN if k in setting})
    way, name = setting["way"], f"{setting['name']}-{code}"
    plan = Plan.from_json(json.loads((options.plans / f"{code}.json").read_text("utf-8")))
    spec = with_plan(json.loads((options.model / "tokenizer.json").read_text("utf-8")), plan)
    base = FrozenModel.load(options.model, Reading(dtype=options.dtype))
    english = tuple(lines_in(options.text / "eng_Latn.txt")[: options.protect])
    given = {"steps": options.steps} | json.loads(options.recipe) | setting["recipe"]
    given = {"check_every": max(1, given["steps"] // 15)} | given
    if way == "write":
        given["writing"] = Writing(english)
    if "start" in setting:
        known = load_file(setting["start"].format(code))
        given["start"] = Start(known["rows"].float().numpy())
    if options.work is not None:
        given["work"] = options.work / name
    if (adapting := setting.get("adapting")) is not None:
        given["adapting"] = Adapting(**{"protect": english, "protected": 8000} | adapting)
        if setting.get("fixed"):
            vars(replay)["Replay"].control = lambda *_: None
    if options.own is not None:
        vars(as_method)["_own"] = lambda _: lines_in(options.own / f"{code}.txt")
    made = derive_rows(
        base, [token.parts for token in plan.tokens], "distil",
        text=lines_in(options.text / f"{code}.txt"), tokenizer=spec,
        options=options_from(Deriving, given),
    )  # fmt: skip
    trained = time.monotonic() - begun
    assert made.held_out is not None and made.start is not None
    tables = {"rows": torch.from_numpy(made.rows).bfloat16()}
    if made.head is not None:
        tables["head"] = torch.from_numpy(made.head).bfloat16()
    if options.weights and made.student is not None:
        tables |= {key: held.detach().bfloat16() for key, held in made.student.learning.items()}
    save_file(tables, options.out / f"{name}.safetensors")
    torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = False
    facts = {
        "policy": way, "setting": setting, "language": code, "split": options.split,
        "train_seconds": trained, "params": made.params, "notes": made.notes,
        "held_out": asdict(made.held_out), "start": asdict(made.start),
        "curve": [{"step": c.step, "seconds": c.seconds, **asdict(c.score)} for c in made.curve],
    }  # fmt: skip
    _save(facts, options.out / f"{name}.json")
    new = HuggingFace.from_parsed("new", spec)
    graft = FrozenModel(
        grown(base, made.student, tables), name=name, folder=base.folder, tokenizer=new
    ).narrow(base.dimensions)
    graft.__dict__["manifest"] = {"output": {"policy": way}}
    if way == "write":
        _greedy_by_text(graft.name, new, plan)
    codes = setting.get("judged_in", [code])
    judged = {one: judge(base, graft, one, options, adapting is not None) for one in codes}
    facts |= judged.get(code, {"judged": judged})
    facts["seconds"] = time.monotonic() - begun
    _save(facts, options.out / f"{name}.json")
    for one, found in judged.items():
        shown = {key: round(score["value"], 4) for key, score in found["scores"].items()}
        print(name, one, round(trained), round(facts["seconds"]), json.dumps(shown), flush=True)
    if options.labelled is not None and options.split == "devtest":
        _states(base, graft, code, options)
    if way == "write" and options.prompts:
        _save(facts | written(base, graft, code, options), options.out / f"{name}.json")
    torch.backends.cuda.matmul.allow_tf32 = True


def grown(base: Any, student: Any, tables: Any) -> Any:
    """The graft as it would be saved and loaded again: all that was learned is in bfloat16."""
    from tokengraft.deriving.distil.lanes import Laned, new_lanes

    first = len(base.tokenizer.vocabulary)
    if not isinstance(student, Laned):
        return _grown(_learned(base.model, student), tables, first)
    return _grown(_wide(base.model, student), tables, first, new_lanes(student))


def _learned(model: Any, student: Any) -> Any:
    """The body with adapters merged."""
    import torch

    from tokengraft.deriving.distil import student as students

    if student is None:
        return model
    merged = copy.deepcopy(model)
    weights = dict(merged.named_parameters())
    for name, change in students.changes(student).items():
        values = torch.from_numpy(change(weights[name].detach().float().cpu().numpy()))
        weights[name].data.copy_(values.to(torch.bfloat16))
    return merged


def _wide(model: Any, student: Any) -> Any:
    """The wider body, its tables with lanes of 0."""
    import torch

    from tokengraft.deriving.distil.lanes import widened, wider_config

    config = type(model.config)(**wider_config(model.config.to_dict(), student))
    with torch.device(model.device):
        wide = type(model)(config).to(model.dtype)
    held, more = dict(model.named_parameters()), widened(student)
    for name, weight in wide.named_parameters():
        old = held[name].detach()
        if name in more:
            values = torch.from_numpy(more[name].values(old.float().cpu().numpy()))
            weight.data = values.to(torch.bfloat16).to(old)
        else:
            count = config.hidden_size - old.shape[1]
            weight.data = torch.nn.functional.pad(old, (0, count))
    wide.generation_config = copy.deepcopy(model.generation_config)
    return wide.eval().requires_grad_(False)


def _save(facts: dict[str, Any], file: Path) -> None:
    text = json.dumps(facts, default=lambda one: one.item(), ensure_ascii=False)
    file.write_text(text, encoding="utf-8")


def judge(base: Any, graft: Any, code: str, options: Any, adapted: bool) -> dict[str, Any]:
    """Figures on FLORES, by the functions that `evaluate` calls."""
    from tokengraft.deriving.distil.silent_text import untrained
    from tokengraft.evaluating.both_spellings import shared_scores
    from tokengraft.evaluating.continuation import Continuation
    from tokengraft.evaluating.fidelity import BaseReading, scores
    from tokengraft.evaluating.lines import prepare
    from tokengraft.evaluating.protected import protected_scores
    from tokengraft.evaluating.score import Bootstrap
    from tokengraft.evaluating.writing import english_greedy, written_scores

    split = options.split
    lines = lines_in(options.flores / split / f"{code}.{split}")[: options.lines]
    room = min(512, base.window) - 2
    case = prepare(code, lines, base, graft.tokenizer, room)
    reading = BaseReading(base, case, most_positions=0, keep_bytes=0)
    view = reading.read_new(graft)
    none: dict[str, float] = {}
    ceiling = reading.ceiling() if options.against else none
    found = scores(
        reading.compare(view, graft.head(case.rows).exact()), none, none, ceiling, Bootstrap(200)
    )
    following = Continuation(base, case)
    bits = following.measure(graft, head=graft.head(case.rows).exact())
    found |= following.scores(bits, Bootstrap(200))
    more: dict[str, Any] = {"sizes": case.sizes()}
    texts = {**untrained(), "English": lines_in(options.flores / split / f"eng_Latn.{split}")}
    if graft.policy == "write" or adapted:
        found |= protected_scores(base, graft, texts, Bootstrap(200), most=options.lines)
    if graft.policy == "write":
        found |= shared_scores(base, graft, case, Bootstrap(200), most_lines=options.written)
        found |= written_scores(base, graft, case, Bootstrap(200))
        found |= english_greedy(base, graft, texts["English"], Bootstrap(200), most=options.greedy)
    return {"scores": {name: asdict(one) for name, one in found.items()}, **more}


def written(base: Any, graft: Any, code: str, options: Any) -> dict[str, Any]:
    """What both models write after lines, timed in turns; and samples after half lines."""
    from tokengraft.evaluating.generation import measure_generation, write_samples
    from tokengraft.model.frozen import FrozenModel

    if options.decode_on_cpu:
        base, graft = (
            FrozenModel(one.model.cpu(), name=one.name, folder=one.folder, tokenizer=one.tokenizer)
            for one in (base, graft)
        )
    lines = lines_in(options.flores / options.split / f"{code}.{options.split}")
    prompts, halves = lines[: options.prompts], [x[: len(x) // 2] for x in lines[:4]]
    return {
        "generation": measure_generation(base, graft, code, prompts, steps=48),
        "samples": write_samples(base, graft, code, halves),
    }


def _states(base: Any, graft: Any, code: str, options: Any) -> None:
    """Save pooled states of the labelled lines by both models, for a probe to be run elsewhere."""
    import numpy as np

    from tokengraft.evaluating.probe import pooled_states

    lines = []
    for part, numbers in json.loads(options.labelled.read_text()).items():
        every = (options.flores / part / f"{code}.{part}").read_text("utf-8").split("\n")
        lines += [every[n - 1] for n in numbers]
    states, kept = pooled_states(base, graft, lines)
    for name, one in (("base", states["base"]), (graft.name.rpartition("-")[0], states["graft"])):
        file = options.out / f"states-{name}-{code}.npz"
        if not file.exists():
            np.savez_compressed(file, kept=kept, states=one.astype(np.float16))


def _grown(model: Any, tables: Any, first: int, lanes: Any = None) -> Any:
    """The model with the rows in its tables; the head is untied if it has rows of its own."""
    import torch

    grown = copy.deepcopy(model)
    rows, ends = tables["rows"], [grown.get_input_embeddings(), grown.get_output_embeddings()]
    head = tables.get("head", rows)
    for end, added in zip(ends, (rows, head), strict=True):
        old = end.weight[:first]
        wide = torch.zeros(len(added), old.shape[1]).to(old)
        wide[:, : added.shape[1]] = added.to(old)
        if end is ends[0] and lanes is not None:
            wide[:, added.shape[1] :] = torch.from_numpy(lanes).bfloat16().to(old)
        end.weight = torch.nn.Parameter(torch.cat([old, wide]), requires_grad=False)
    ends[0].num_embeddings = ends[1].out_features = first + len(rows)
    grown.config.vocab_size = first + len(rows)
    if "head" not in tables:  # not written
        news = list(range(first, first + len(rows)))
        grown.generation_config.suppress_tokens = news
    return grown


def _greedy_by_text(graft: str, tokenizer: Any, plan: Any) -> None:
    """Apply the output policy by hand: the graft is not a folder here and has no manifest."""
    from transformers import LogitsProcessorList

    from tokengraft.evaluating import generation
    from tokengraft.grafting.greedy_text import GreedyText

    pieces = tokenizer.vocabulary.pieces
    new = range(len(pieces) - len(plan.tokens), len(pieces))
    first = [token.parts[0] for token in plan.tokens]
    made = LogitsProcessorList([GreedyText(new, first, [pieces[n] for n in new])])

    def processors(model: Any, *, greedy: bool) -> Any:
        return made if greedy and model.name == graft else None

    vars(generation)["_processors"] = processors


def parse() -> argparse.Namespace:
    """Command line."""
    parser = arguments(__doc__)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--settings", type=Path, help="recipes to compare")
    parser.add_argument("--decode-on-cpu", action="store_true")
    parser.add_argument("--prompts", type=int, default=0, help="prompts to write after, timed")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1, help="of each job")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--recipe", default="{}", help='changes to it as JSON: {"stray": 100}')
    parser.add_argument("--own", type=Path, help="texts that the model wrote, to train on, too")
    parser.add_argument("--weights", action="store_true", help="keep what the body learned, too")
    parser.add_argument("--work", type=Path, help="for checkpoints: what is cut off goes on there")
    parser.add_argument("--protect", type=int, default=8000, help="lines of protected English")
    parser.add_argument("--lines", type=int, default=1012)
    parser.add_argument("--greedy", type=int, default=1012, help="English lines to go on from")
    parser.add_argument("--labelled", type=Path, help="line numbers by split (JSON): keep states")
    parser.add_argument("--against", action="store_true", help="measure ceilings, too")
    parser.add_argument("--written", type=int, default=1012, help="lines to find likely")
    parser.add_argument("--split", default="devtest", choices=("dev", "devtest"))
    parser.add_argument("--dtype", default="float32")
    return parser.parse_args()


if __name__ == "__main__":
    main()
