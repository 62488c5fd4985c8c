r"""Rows without training: superstrings, synthetic anchors and others, on rootstock.

    python benchmarks/untrained_rows.py PLANS ROWS FLORES OUT.json --split dev -l tam_Taml …

PLANS holds one plan per language (`xxx_Ssss.json`), ROWS distilled rows (as `write_gpu.py` writes
them: `write-xxx_Ssss.safetensors`), FLORES is the folder with `dev/` and `devtest/`. Two questions:
how good are untrained rows for all tokens of a plan, and how good are they for a fifth of them
while all others have distilled rows, so that there are trained new tokens around them and within
them? KL in nats and top-1 agreement at common positions.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from tokengraft.corpus.lines_of import lines_of
from tokengraft.deriving.derive import derive_rows
from tokengraft.deriving.distil.matching import judge
from tokengraft.deriving.distil.passages import shorten
from tokengraft.deriving.distil.teacher import Teacher
from tokengraft.deriving.states import part_states
from tokengraft.deriving.task import Deriving
from tokengraft.model.frozen import FrozenModel, Reading
from tokengraft.model.reading import Reader
from tokengraft.paper.superstrings import derive as by_superstrings
from tokengraft.planning.plan import Plan, with_plan
from tokengraft.tokenizer.align import Aligner
from tokengraft.tokenizer.huggingface import HuggingFace
from tokengraft.tokenizer.vocabulary import Vocabulary

LEFT_OUT = 0.2
STATES = [("knn", 1), ("knn", 4), ("linear", 1), ("local-linear", 1)]


def main() -> None:
    """Write one JSON file: language, question, way, score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("plans", "rows", "flores", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--language", "-l", nargs="+", required=True)
    parser.add_argument("--split", default="dev", choices=("dev", "devtest"))
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--synthetic", type=int, nargs="+", default=[0, 8])
    options = parser.parse_args()
    folder = Path(str(files("tokengraft") / "assets" / "rootstock"))
    source = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    model = FrozenModel.load(folder, Reading("cpu"))
    reader = Reader(model, len(model.tokenizer.vocabulary), model.prefix)
    table = []
    for code in options.language:
        plan = Plan.from_json(json.loads((options.plans / f"{code}.json").read_text("utf-8")))
        distilled = load_file(options.rows / f"write-{code}.safetensors")["rows"].float().numpy()
        new = HuggingFace.from_parsed(code, with_plan(source, plan))
        judged = options.flores / options.split / f"{code}.{options.split}"
        lines = list(lines_of(judged))[: options.lines]
        aligned = [shorten(one, 448) for one in Aligner(model.tokenizer, new)(lines)]
        teacher = Teacher(reader, [one for one in aligned if len(one)])

        def say(question: str, way: str, rows: Any, code: str = code, on: Any = teacher) -> None:
            score = judge(reader, on, torch.from_numpy(np.asarray(rows, np.float32)))
            cell = {"language": code, "question": question, "way": way}
            table.append(cell | {"kl": score.kl, "top1": score.agreement})
            print(code, question, way, f"{score.kl:.3f} {score.agreement:.3f}", flush=True)
            options.out.write_text(json.dumps(table, indent=1), encoding="utf-8")

        whole_plan(options, model, new, [t.parts for t in plan.tokens], say, distilled)
        some_left_out(model, [t.parts for t in plan.tokens], say, distilled)


def whole_plan(
    options: Any, model: FrozenModel, new: Any, parts: Any, say: Callable[..., None], distilled: Any
) -> None:
    """No new token is trained."""
    mean = model.weight.float().mean(0).numpy()
    say("whole plan", "one row", np.repeat(mean[None], len(parts), 0))
    for way in ("mean", "mean-late", "paper.superstrings"):
        say("whole plan", way, derive_rows(model, parts, way, tokenizer=new).rows)
    for way, layer in STATES:
        for count in options.synthetic:
            more: dict[str, Any] = {"layer": layer, **({"synthetic": count} if count else {})}
            given = Deriving(more=more)
            rows = derive_rows(model, parts, f"paper.{way}", tokenizer=new, options=given).rows
            say("whole plan", f"{way}, layer {layer}, {count} synthetic", rows)
    say("whole plan", "distilled", distilled)


def some_left_out(model: FrozenModel, parts: Any, say: Callable[..., None], distilled: Any) -> None:
    """A fifth of the tokens is untrained; the others have their distilled rows."""
    old = model.tokenizer.vocabulary.pieces
    strings = [b"".join(old[part] for part in one) for one in parts]
    out = np.random.default_rng(0).random(len(parts)) < LEFT_OUT
    left, kept = np.flatnonzero(out), np.flatnonzero(~out)
    pieces = (*old, *(strings[n] for n in kept))
    grown = copy.copy(model)
    weight = torch.cat([model.weight.float(), torch.from_numpy(distilled[kept])])
    grown.model = SimpleNamespace(
        get_input_embeddings=lambda: SimpleNamespace(weight=weight), config=model.model.config
    )
    by_piece = {piece: number for number, piece in enumerate(pieces) if piece}
    covers = [cover(strings[n], by_piece) for n in left]
    task: Any = SimpleNamespace(
        model=grown, parts=covers, old=SimpleNamespace(vocabulary=Vocabulary(pieces)), params={}
    )
    mean = model.weight.float().mean(0).numpy()
    ways = {
        "one row": np.repeat(mean[None], len(left), 0),
        "mean of the old parts": part_states(model, [parts[n] for n in left], [0])[0],
        "mean-late of the old parts": part_states(model, [parts[n] for n in left], [0], "late")[0],
        "mean-late, new parts too": part_states(grown, covers, [0], "late")[0],
        "superstrings": by_superstrings(task),
        "distilled": distilled[left],
    }
    for way, rows in ways.items():
        whole = distilled.copy()
        whole[left] = rows
        say("a fifth left out", way, whole)


def cover(string: bytes, by_piece: dict[bytes, int]) -> list[int]:
    """The string cut into the longest pieces, from the left."""
    ids, at = [], 0
    while at < len(string):
        end = next(e for e in range(len(string), at, -1) if string[at:e] in by_piece)
        ids.append(by_piece[string[at:end]])
        at = end
    return ids


if __name__ == "__main__":
    main()
