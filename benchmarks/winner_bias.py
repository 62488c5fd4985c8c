r"""Winner-takes-all's bias: its curve, and what pooling adds on top of trained output rows.

    python benchmarks/winner_bias.py PLANS ROWS FLORES OUT -l tam_Taml hin_Deva …

PLANS and ROWS are as in `untrained_rows.py`: rows trained to be read and written on rootstock.
There are three grafts per language: all new tokens have the same row (the floor), the mean of their
parts (what the policy has without training), or trained input and output rows. The bias is chosen
on FLORES dev and judged on devtest, by correct bytes per token; OUT gets a JSON file and the curves
as a figure.
"""

from __future__ import annotations

import argparse
import copy
import json
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tokengraft.corpus.lines_of import lines_of
from tokengraft.deriving.states import part_states
from tokengraft.languages.codes import language_name
from tokengraft.model.frozen import FrozenModel, Reading
from tokengraft.paper.winner_takes_all import best_bias, bias_curve
from tokengraft.planning.plan import Plan, with_plan
from tokengraft.render.figures.style import LINE, bare, sheet, write
from tokengraft.tokenizer.huggingface import HuggingFace

LOOKS = {"one row": ("#e69f00", ":"), "mean": ("#d55e00", "--"), "trained": ("#0072b2", "-")}


def main() -> None:
    """Measure curves on dev and devtest for every language and kind of rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("plans", "rows", "flores", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--language", "-l", nargs="+", required=True)
    parser.add_argument("--lines", type=int, default=40)
    options = parser.parse_args()
    folder = Path(str(files("tokengraft") / "assets" / "rootstock"))
    source = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    base = FrozenModel.load(folder, Reading("cpu"))
    options.out.mkdir(parents=True, exist_ok=True)
    table: list[dict[str, Any]] = []
    for code in options.language:
        plan = Plan.from_json(json.loads((options.plans / f"{code}.json").read_text("utf-8")))
        parts = [token.parts for token in plan.tokens]
        tokenizer = HuggingFace.from_parsed(code, with_plan(source, plan))
        trained = load_file(options.rows / f"write-{code}.safetensors")
        mean = torch.from_numpy(part_states(base, parts, [0])[0])
        one = base.weight.float().mean(0).expand_as(mean)
        both = {"one row": (one, one), "mean": (mean, mean)}
        both["trained"] = (trained["rows"].float(), trained["head"].float())
        first = len(base.tokenizer.vocabulary)
        new, parts_first = range(first, first + len(parts)), [one[0] for one in parts]
        for way, (rows, head) in both.items():
            graft = grown(base, rows, head, tokenizer)
            curves = {
                split: bias_curve(
                    graft, new, parts_first,
                    list(lines_of(options.flores / split / f"{code}.{split}"))[: options.lines],
                )
                for split in ("dev", "devtest")
            }  # fmt: skip
            bias = best_bias(curves["dev"])
            row = {"language": code, "rows": way, "bias": bias}
            table.append(row | {s: [asdict(one) for one in c] for s, c in curves.items()})
            right = {one.bias: one.right for one in curves["devtest"]}
            print(
                code, way, bias, f"{right[None]:.3f} {right[0.0]:.3f} {right[bias]:.3f}", flush=True
            )
            (options.out / "bias.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
    draw(table, options.out)


def grown(base: FrozenModel, rows: Any, head: Any, tokenizer: Any) -> FrozenModel:
    """The base with these rows in its input and output tables."""
    model = copy.deepcopy(base.model)
    for end, more in ((model.get_input_embeddings(), rows), (model.get_output_embeddings(), head)):
        whole = torch.cat([base.weight.float(), more])
        end.weight = torch.nn.Parameter(whole, requires_grad=False)
    return FrozenModel(model, folder=base.folder, tokenizer=tokenizer)


def draw(table: list[dict[str, Any]], out: Path) -> None:
    """Plot correct bytes per sampled token against the bias by language; dots mark dev's choice."""
    codes = list(dict.fromkeys(row["language"] for row in table))
    page = sheet(
        3.3 * len(codes), 2.9, "Winner-takes-all: right bytes a token against its bias",
        "Bytes of FLORES devtest that a sampled token writes before its first wrong one; the dot "
        "is the bias chosen on dev, the thin line no pooling.",
        "rootstock, 2,000 new tokens a language.",
    )  # fmt: skip
    for place, code in enumerate(codes):
        axes = page.axes(0.5 + 3.3 * place, 0.5, 2.4, 1.9)
        bare(axes)
        axes.grid(axis="y", color=LINE, linewidth=0.7)
        axes.set_title(language_name(code), loc="left", fontsize=10, weight="bold")
        axes.set_xlabel("bias (nats)", fontsize=9)
        for row in (one for one in table if one["language"] == code):
            colour, dash = LOOKS[row["rows"]]
            none, *curve = row["devtest"]
            values = {point["bias"]: point["right"] for point in curve}
            axes.plot(list(values), list(values.values()), color=colour, linestyle=dash)
            axes.plot([row["bias"]], [values[row["bias"]]], "o", color=colour, markersize=5)
            axes.axhline(none["right"], color=colour, linestyle=dash, linewidth=0.6)
            end = list(values.values())[-1]
            write(axes, row["rows"], (max(values), end), (4, -3), "data", color=colour, fontsize=8)
        axes.set_ylim(bottom=0)
    page.figure.savefig(out / "bias.svg")
    page.figure.savefig(out / "bias.png", dpi=110)


if __name__ == "__main__":
    main()
