"""How much more should later parts weigh? KL of `mean-late` on rootstock, by weight and language.

    python benchmarks/mean_late.py TEXT FLORES --split dev --lines 40 --weights 1 1.15 1.3 1.5 2

TEXT is a folder of xxx_Ssss.txt to plan on (2,000 tokens per language), FLORES a FLORES-200 folder.
The weight is chosen on dev and reported on devtest (results/fidelity-rootstock/mean-late.md).
"""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from tokengraft.corpus.lines_of import lines_of
from tokengraft.deriving.distil.matching import judge
from tokengraft.deriving.distil.passages import shorten
from tokengraft.deriving.distil.teacher import Teacher
from tokengraft.model.frozen import FrozenModel, Reading
from tokengraft.model.reading import Reader
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning, with_plan
from tokengraft.tokenizer.align import Aligner
from tokengraft.tokenizer.catalog import load
from tokengraft.tokenizer.huggingface import HuggingFace

WINDOW = 448  # old tokens of a line that are read


def main() -> None:
    """Print one row per language: KL and top-1 agreement for each weight."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("flores", type=Path)
    parser.add_argument("--split", default="dev", choices=["dev", "devtest"])
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--weights", type=float, nargs="+", default=[1, 1.15, 1.3, 1.5, 2])
    options = parser.parse_args()
    folder = Path(str(files("tokengraft") / "assets" / "rootstock"))
    source = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model, old = FrozenModel.load(folder, Reading("cpu")), load(folder)
    reader = Reader(model, len(old.vocabulary), model.prefix)
    print("| language | " + " | ".join(f"{w:g}" for w in options.weights) + " | positions |")
    found = []
    for path in sorted(options.text.glob("*_*.txt")):
        code = path.stem
        if code == "eng_Latn":
            continue
        plan = plan_tokens(source, {code: lines_of(path)}, Planning(budget=2000))
        data = json.dumps(with_plan(source, plan)).encode()
        aligner = Aligner(old, HuggingFace.from_json(code, "", data))
        judged = options.flores / options.split / f"{code}.{options.split}"
        lines = list(lines_of(judged))[: options.lines]
        passages = [one for one in (shorten(a, WINDOW) for a in aligner(lines)) if len(one)]
        teacher = Teacher(reader, passages)
        scores = []
        for weight in options.weights:
            rows = [
                np.average(
                    model.weight[list(token.parts)].numpy(),
                    axis=0,
                    weights=weight ** np.arange(len(token.parts)),
                )
                for token in plan.tokens
            ]
            scores.append(judge(reader, teacher, torch.tensor(np.array(rows, np.float32))))
        cells = [f"{one.kl:.3f} ({one.agreement:.3f})" for one in scores]
        print(f"| {code} | {' | '.join(cells)} | {scores[0].positions:,} |", flush=True)
        found.append([one.kl for one in scores])
    means = np.mean(found, axis=0)
    better = [sum(row[n] < row[0] for row in found) for n in range(len(options.weights))]
    print(f"| mean | {' | '.join(f'{one:.3f}' for one in means)} | |")
    print(f"| better than the first | {' | '.join(map(str, better))} | |")


if __name__ == "__main__":
    main()
