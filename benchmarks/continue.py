r"""Continued training from five starts at equal compute: how much compute does each start save?

    python benchmarks/continue.py MODEL PLANS TEXT FLORES OUT -l shn_Mymr amh_Ethi --jobs 10

The folders are those of `write_gpu.py`. Every start is trained by transformers' `Trainer` on the
language's text: all weights, untied tables, the same number of tokens in every step, one learning
rate. `old` is the base with its old tokens; the others read and write new ones, whose rows are
random, the `mean` of their parts, derived without training (`mean-late`), or first distilled for
reading and writing. OUT gets one JSON file per run: bits per byte of FLORES devtest and of English
against tokens, FLOPs (6 per weight and token, including those of distillation), seconds and bytes
of text seen.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from gpu_jobs import arguments, lines_in, share_out
from write_gpu import _grown

STARTS = ("old", "random", "mean", "training-free", "distilled")


def main() -> None:
    """Distribute the runs over processes, the longest first."""
    options = parse()
    jobs = [(start, code) for start in reversed(options.starts) for code in options.language]
    share_out(run, options, jobs)


def run(options: argparse.Namespace, start: str, code: str) -> None:
    """Train from one start, and write its curve."""
    import torch
    import transformers

    from tokengraft.model.frozen import FrozenModel, Reading
    from tokengraft.planning.plan import Plan, with_plan
    from tokengraft.tokenizer.huggingface import HuggingFace

    begun = time.monotonic()
    plan = Plan.from_json(json.loads((options.plans / f"{code}.json").read_text("utf-8")))
    spec = with_plan(json.loads((options.model / "tokenizer.json").read_text("utf-8")), plan)
    base = FrozenModel.load(options.model, Reading(dtype="float32"))
    text = lines_in(options.text / f"{code}.txt")
    new = start != "old"
    tokenizer = HuggingFace.from_parsed("new", spec) if new else base.tokenizer
    rows, spent = _rows(start, code, base, plan, spec, text, options)
    model = _grown(base.model, rows, len(base.tokenizer.vocabulary)).float()
    model.config.tie_word_embeddings = False
    model.requires_grad_(True).train()
    weights = sum(held.numel() for held in model.parameters())
    weights -= model.get_input_embeddings().weight.numel()  # looked up, not multiplied
    stream, sizes = _stream(text, tokenizer, options.block)
    judges = {
        name: _judged(lines_in(options.flores / "devtest" / f"{one}.devtest")[: options.lines],
                      tokenizer)
        for name, one in (("language", code), ("english", "eng_Latn"))
    }  # fmt: skip
    curve: list[dict[str, float]] = []
    prepared = time.monotonic()

    def measure(step: int) -> None:
        tokens = step * options.batch * options.block
        curve.append({
            "step": step, "tokens": tokens, "flops": spent["flops"] + 6.0 * weights * tokens,
            "seconds": spent["seconds"] + time.monotonic() - prepared,
            "bytes": float(sizes.mean() * step * options.batch),
            **{f"{name}_bpb": _bits(model, *judge) for name, judge in judges.items()},
        })  # fmt: skip

    class Measuring(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % options.every == 0:
                measure(state.global_step)

    measure(0)
    settings = transformers.TrainingArguments(
        output_dir=str(options.out / f"work-{start}-{code}"), max_steps=options.steps,
        per_device_train_batch_size=options.batch, learning_rate=options.rate,
        lr_scheduler_type="cosine", warmup_steps=10, weight_decay=0.01, save_strategy="no",
        logging_strategy="no", report_to=[], disable_tqdm=True, seed=0, max_grad_norm=1.0,
        adam_beta2=0.98,
    )  # fmt: skip
    data = [{"input_ids": torch.from_numpy(one), "labels": torch.from_numpy(one)} for one in stream]
    trainer = transformers.Trainer(model, settings, train_dataset=data, callbacks=[Measuring()])
    trainer.train()
    facts = {
        "start": start, "language": code, "weights": weights, "spent_before": spent,
        "blocks": len(stream), "seconds": time.monotonic() - begun, "curve": curve,
        "settings": {"batch": options.batch, "block": options.block, "rate": options.rate},
    }  # fmt: skip
    (options.out / f"{start}-{code}.json").write_text(json.dumps(facts), encoding="utf-8")
    shown = [round(one["language_bpb"], 4) for one in curve]
    print(start, code, round(facts["seconds"]), shown, flush=True)


def _rows(
    start: str, code: str, base: Any, plan: Any, spec: Any, text: list[str], options: Any
) -> tuple[dict[str, Any], dict[str, float]]:
    """Input and output rows of the new tokens, and what it cost to make them."""
    import torch

    from tokengraft.deriving.derive import derive_rows
    from tokengraft.deriving.distil.recipe import Recipe, Writing
    from tokengraft.deriving.task import Deriving
    from tokengraft.model.frozen import FrozenModel, Reading
    from tokengraft.tokenizer.huggingface import HuggingFace

    parts = [token.parts for token in plan.tokens]
    nothing = {"flops": 0.0, "seconds": 0.0}
    width = base.weight.shape[1]
    if start == "old":
        empty = torch.zeros(0, width)
        return {"rows": empty, "head": empty}, nothing
    if start == "random":
        torch.manual_seed(0)
        size = float(base.weight.std())
        return {name: size * torch.randn(len(parts), width) for name in ("rows", "head")}, nothing
    mean = torch.stack([base.weight[list(one)].float().mean(0).cpu() for one in parts])
    if start == "mean":
        return {"rows": mean, "head": mean.clone()}, nothing
    if start == "training-free":
        rows = derive_rows(base, parts, "mean-late").rows
        return {"rows": torch.from_numpy(rows), "head": mean}, nothing
    begun = time.monotonic()
    recipe = Recipe(steps=options.distil, learning_rate=0.03, check_every=options.distil // 4 or 1)
    if options.grafts is None:
        made = derive_rows(
            base, parts, "distil", text=text, tokenizer=spec,
            options=Deriving(recipe=recipe, writing=Writing()),
        )  # fmt: skip
        assert made.head is not None
        tables = {"rows": torch.from_numpy(made.rows), "head": torch.from_numpy(made.head)}
    else:
        graft = FrozenModel.load(options.grafts / code, Reading(dtype="float32", device="cpu"))
        first = len(base.tokenizer.vocabulary)
        tables = {"rows": graft.weight[first:], "head": graft.head().weight[first:]}
    # A student's pass there and back without gradients of weights; a teacher's pass a passage.
    weights = sum(held.numel() for held in base.model.parameters())
    passages = sum(len(line) for line in text) / 150  # of 160 characters, cut at spaces
    old, new = (
        sum(map(len, tokenizer.encode(text))) / passages
        for tokenizer in (base.tokenizer, HuggingFace.from_parsed("new", spec))
    )
    read = options.distil * recipe.passages
    flops = 4 * read * (new * 2 / 3 + (old + new) / 6) + 2 * min(read, 1.5 * passages) * old
    spent = {"flops": float(weights * flops), "seconds": time.monotonic() - begun}
    return tables, spent


def _stream(text: list[str], tokenizer: Any, block: int) -> tuple[list[Any], Any]:
    """Lines joined by id 0 (BOS) and cut into blocks; and the bytes of each block."""
    ids: list[int] = []
    sizes: list[int] = []
    pieces = [len(piece) for piece in tokenizer.vocabulary.pieces]
    for line in tokenizer.encode(text):
        ids += [0, *line]
        sizes += [0, *(pieces[one] for one in line)]
    count = len(ids) // block
    whole = np.array(ids[: count * block], np.int64).reshape(count, block)
    length = np.array(sizes[: count * block]).reshape(count, block).sum(1)
    return list(np.random.default_rng(0).permutation(whole)), length


def _judged(lines: list[str], tokenizer: Any) -> tuple[list[list[int]], int]:
    ids = [[0, *line][:512] for line in tokenizer.encode(lines)]
    pieces = tokenizer.vocabulary.pieces
    return ids, sum(len(pieces[one]) for line in ids for one in line[1:])


def _bits(model: Any, ids: list[list[int]], size: int) -> float:
    """Bits per byte of these lines, each after id 0."""
    import torch

    device = next(model.parameters()).device
    total = 0.0
    training = model.training
    model.eval()
    order = sorted(ids, key=len)
    with torch.no_grad():
        for first in range(0, len(order), 16):
            some = order[first : first + 16]
            batch = torch.zeros(len(some), len(some[-1]), dtype=torch.long)
            seen = torch.zeros(batch.shape, dtype=torch.bool)
            for row, line in enumerate(some):
                batch[row, : len(line)] = torch.tensor(line)
                seen[row, 1 : len(line)] = True
            batch, seen = batch.to(device), seen.to(device)
            logits = model(batch).logits[:, :-1].float()
            losses = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1), reduction="none"
            )
            total += float((losses * seen[:, 1:].reshape(-1)).sum())
    model.train(training)
    return float(total / np.log(2) / size)


def parse() -> argparse.Namespace:
    """Command line."""
    parser = arguments(__doc__)
    parser.add_argument("--starts", nargs="+", default=list(STARTS), choices=STARTS)
    parser.add_argument("--jobs", type=int, default=15)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--every", type=int, default=32)
    parser.add_argument("--distil", type=int, default=400, help="steps of distilling before")
    parser.add_argument("--grafts", type=Path, help="grafts that write, by language, as distilled")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--lines", type=int, default=200)
    return parser.parse_args()


if __name__ == "__main__":
    main()
