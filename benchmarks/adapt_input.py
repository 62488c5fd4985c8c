r"""Does context in front of a frozen model help it to read new tokens? Rows, adapters, tags, LoRA.

    python benchmarks/adapt_input.py MODEL PLANS TEXT FLORES OUT --jobs 8 -l tam_Taml hin_Deva …

The paper proposes "pseudo-translation": a small map from sequences of a language's embeddings to
sequences of the model's. With e the rows of the new spelling and g_i = 1 from the first new token
on:

    e'_i = e_i + g_i A(e_1 … e_i)        A: a causal convolution, or a layer of causal attention

so that text without a new token is read as before. It also proposes tags that mark a language: a
row before the text (`tag-before`), or one added to every row of a text (`tag`). All are trained
together with the rows, with the loss of distillation, as `tokengraft adapt-input` does; `lora` has
as many weights inside the body instead, and `lanes` are those of `graft --train lanes`. MODEL,
PLANS, TEXT and FLORES are as in `write_gpu.py`. OUT gets one JSON file per run; runs whose file
exists are skipped.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import asdict
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from gpu_jobs import arguments, lines_in, share_out

WAYS = ("rows", "convolution", "attention", "lora", "lanes", "tag-before", "tag")


def with_tag_before(base: Any) -> Any:
    """The frozen model with a trainable row before every text in new tokens."""
    student = base.around(base.model)
    tag = base.weight.detach().float().mean(0).requires_grad_()
    student.learning = {"tag": tag}

    def states(ids: torch.Tensor, mask: Any = None, new: Any = None, **more: Any) -> torch.Tensor:
        if new is None:
            plain: torch.Tensor = type(base).states(base, ids, mask, new, **more)
            return plain
        rows = base.embed(ids, new)
        whole = torch.cat([tag.to(rows).expand(len(rows), 1, -1), rows], 1)
        read: torch.Tensor = base.body(inputs_embeds=whole, use_cache=False).last_hidden_state
        return read[:, 1:]

    student.states = states
    return student


def with_lora(base: Any, rank: int = 16) -> Any:
    """The model with W x + B A x in every linear layer of its lower half."""
    twin = copy.deepcopy(base.model)
    student = base.around(twin)
    learning: dict[str, torch.Tensor] = {}
    for number, block in enumerate(student.blocks[: len(student.blocks) // 2]):
        for name, layer in block.named_modules():
            if isinstance(layer, nn.Linear):
                first = torch.randn(rank, layer.in_features) / layer.in_features**0.5
                both = [first, torch.zeros(layer.out_features, rank)]
                a, b = (one.to(base.device).requires_grad_() for one in both)
                learning |= {f"{number}.{name}.a": a, f"{number}.{name}.b": b}
                layer.register_forward_hook(
                    lambda _m, given, out, a=a, b=b: out + (given[0] @ a.T.to(out)) @ b.T.to(out)
                )
    student.learning = learning
    return student


def student_of(base: Any, way: str, count: int) -> Any:
    """The model to train; the base itself if only rows are trained."""
    from tokengraft.deriving.distil.lanes import with_lanes
    from tokengraft.deriving.distil.recipe import Adapting
    from tokengraft.paper.adapting import behind

    torch.manual_seed(0)
    if way == "tag-before":
        return with_tag_before(base)
    if way == "lora":
        return with_lora(base)
    if way == "lanes":
        return with_lanes(base, Adapting(train="lanes"))
    return behind(base, way) if way != "rows" else None


def run(options: argparse.Namespace, code: str, ways: list[str]) -> None:
    """Train and judge one language in several ways; the teacher reads the text only once."""
    from tokengraft.core.options import options_from
    from tokengraft.deriving.distil.as_method import _mixed
    from tokengraft.deriving.distil.distiller import Distiller
    from tokengraft.deriving.distil.matching import judge
    from tokengraft.deriving.distil.passages import mix, shorten
    from tokengraft.deriving.distil.teacher import Teacher
    from tokengraft.deriving.known_methods import named
    from tokengraft.deriving.task import Deriving, Task
    from tokengraft.model.frozen import FrozenModel, Reading
    from tokengraft.paper.adapting import RATE
    from tokengraft.planning.plan import Plan, with_plan
    from tokengraft.tokenizer.align import Aligner
    from tokengraft.tokenizer.huggingface import HuggingFace

    ways = [way for way in ways if not (options.out / f"{way}-{code}.json").is_file()]
    if not ways:
        return
    plan = Plan.from_json(json.loads((options.plans / f"{code}.json").read_text("utf-8")))
    spec = with_plan(json.loads((options.model / "tokenizer.json").read_text("utf-8")), plan)
    base = FrozenModel.load(options.model, Reading(dtype="float32"))
    new = HuggingFace.from_parsed("new", spec)
    given = {"steps": options.steps, "patience": 0, "passages": options.passages}
    given |= {"check_every": max(1, options.steps // 10)}
    settings = options_from(Deriving, given)
    text = lines_in(options.text / f"{code}.txt")[: options.most]
    parts = [token.parts for token in plan.tokens]
    task = Task(base, parts, new, text, settings, lambda one: named("mean-late").derive(one))
    start = task.start(task)
    reader, lots = task.passages()
    lots = _mixed(task, lots, settings.recipe)
    flores = lines_in(options.flores / "devtest" / f"{code}.devtest")[: options.lines]
    english = lines_in(options.flores / "devtest" / "eng_Latn.devtest")[: options.lines]
    aligned = [shorten(one, 448) for one in Aligner(base.tokenizer, new)(flores)]
    kept = [n for n, one in enumerate(aligned) if len(one)]
    devtest = Teacher(reader, [aligned[n] for n in kept])
    mixed = Teacher(reader, mix(devtest.passages, reader.first_new, 1.0, 0))
    plain = [shorten(one, 448) for one in Aligner(base.tokenizer, new)(english)]
    teacher = None
    for way in ways:
        begun = time.monotonic()
        distiller = Distiller(reader, lots, start, settings.recipe, parts)
        distiller.teacher = teacher = teacher or distiller.teacher
        student = student_of(base, way, len(parts))
        if student is not None:
            distiller.teach(student, RATE)
        out = distiller.run()
        rows = torch.from_numpy(out.rows).to(base.device)
        scores = {
            "devtest": judge(distiller.student, devtest, rows),
            "devtest_mixed": judge(distiller.student, mixed, rows),
            "english": judge(distiller.student, Teacher(reader, plain), rows),
            "start": judge(reader, devtest, torch.from_numpy(start).to(base.device)),
            "held_out": out.score,
        }
        mean = base.weight[: reader.first_new].float().mean(0).expand(len(start), -1)
        scores["floor"] = judge(reader, devtest, mean)
        facts = {
            "language": code, "way": way, "steps": out.steps, "tokens": len(parts),
            "row_weights": int(rows.numel()),
            "more_weights": sum(one.numel() for one in student.learning.values()) if student else 0,
            "seconds": time.monotonic() - begun,
            "retrieval": retrieval(base, distiller.student, rows, devtest, plain, kept),
            "curve": [(c.step, c.score.kl, c.score.mixed) for c in out.curve],
            **{name: asdict(one) for name, one in scores.items()},
        }  # fmt: skip
        (options.out / f"{way}-{code}.json").write_text(json.dumps(facts), encoding="utf-8")
        kl, top1 = scores["devtest"].kl, scores["devtest"].agreement
        print(code, way, f"{kl:.3f} {top1:.3f} {facts['seconds']:.0f} s", flush=True)


@torch.no_grad()
def retrieval(
    base: Any, student: Any, rows: torch.Tensor, judged: Any, english: Any, kept: list[int]
) -> dict[str, float]:
    """How many sentences find their English translation first, by centred means of states."""

    def means(read: Any, passages: Any, ends: str) -> torch.Tensor:
        vectors = []
        for start in range(0, len(passages), 32):
            some = passages[start : start + 32]
            states = read(some).float().split([len(getattr(one, ends)) for one in some])
            vectors += [one.mean(0) for one in states]
        stacked = torch.stack(vectors)
        return functional.normalize(stacked - stacked.mean(0), dim=-1)

    reader = judged.reader
    theirs = means(reader.old, [english[n] for n in kept], "old_at")
    ways = {
        "base": means(reader.old, judged.passages, "old_at"),
        "graft": means(lambda some: student.new(some, rows), judged.passages, "new_at"),
    }
    right = torch.arange(len(theirs), device=theirs.device)
    return {
        name: float(((ours @ theirs.T).argmax(1) == right).float().mean())
        for name, ours in ways.items()
    }


def main() -> None:
    """Distribute languages and ways over processes."""
    parser = arguments(__doc__)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--each", type=int, default=3, help="ways that one process tries in turn")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--passages", type=int, default=48, help="of a step")
    parser.add_argument("--most", type=int, default=20_000, help="lines of text")
    parser.add_argument("--lines", type=int, default=500, help="of devtest")
    options = parser.parse_args()
    tries = range(0, len(options.ways), options.each)
    jobs = [(code, options.ways[n : n + options.each]) for n in tries for code in options.language]
    share_out(run, options, jobs)


if __name__ == "__main__":
    main()
