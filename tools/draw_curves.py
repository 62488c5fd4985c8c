"""Draw the distillation curves behind a fidelity table, one small panel per language.

    python tools/draw_curves.py results/fidelity-rootstock/merges.json [--out STEM]
    python tools/draw_curves.py results/fidelity-qwen2.5-coder-1.5b --goal 4

Held-out KL against steps, for every run; the dashed line is the KL of the best of the paper's 40
on FLORES devtest, divided by the goal, and the dots are what the runs reached there. Instead of a
table, a folder written by `benchmarks/fidelity_gpu.py` will do.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tokengraft.languages.codes import language_name
from tokengraft.render.figures.style import FAINT, INK, LINE, QUIET, bare, save_figure, styled

COLOURS = ("#1d5f80", "#c42f2f", "#3f93a0", "#ef7a4d")


def draw(rows: list[dict[str, Any]], model: str, goal: float) -> Figure:
    """Draw the panels, all of the same size and scale."""
    across = 4
    down = -(-len(rows) // across)
    figure = Figure(figsize=(11, 2.1 * down + 1.1), layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(rows) :]:
        axes.set_axis_off()
    for axes, row in zip(panels.flat, rows, strict=False):
        runs = {run["variant"]: run for run in row["distillations"]}
        for colour, (variant, run) in zip(COLOURS, runs.items(), strict=False):
            steps, held_out = zip(*((point[0], point[2]) for point in run["curve"]), strict=True)
            axes.plot(steps, held_out, color=colour, linewidth=1.4, label=variant)
            axes.plot(steps[-1], run["devtest"]["kl"], "o", color=colour, markersize=5)
        axes.axhline(row["best_of_40"]["kl"] / goal, color=FAINT, linestyle="--", linewidth=1)
        axes.set_yscale("log")
        axes.set_yticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
        axes.minorticks_off()
        axes.grid(axis="y", color=LINE, linewidth=0.6)
        passages = max(run["passages"] for run in row["distillations"])
        title = f"{language_name(row['language'])}  ·  {passages:,} passages"
        axes.set_title(title, loc="left", fontsize=9, color=INK)
        bare(axes)
    for axes in panels[-1]:
        axes.set_xlabel("steps")
    for axes in panels[:, 0]:
        axes.set_ylabel("KL, nats")
    again = any(len(row["distillations"]) > 1 for row in rows)
    second = "; red: a second run, with text of the model's own" if again else ""
    figure.suptitle(
        f"{model}: held-out KL while the rows are trained (line), FLORES devtest (dot),\n"
        f"the best of the paper's 40 over {goal:g} (dashed){second}",
        x=0.01, ha="left", fontsize=10, color=QUIET,
    )  # fmt: skip
    return figure


def from_folder(folder: Path) -> dict[str, Any]:
    """The table of a folder with curves.json and grid.csv."""
    curves = json.loads((folder / "curves.json").read_text(encoding="utf-8"))
    kl: dict[str, dict[str, float]] = {}
    with (folder / "grid.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if (row["mode"], row["metric"]) == ("merges", "kl"):
                kl.setdefault(row["language"], {})[row["method"]] = float(row["value"])
    rows = []
    for code, runs in sorted(curves.items()):
        of_40 = min(value for method, value in kl[code].items() if " layer " in method)
        distillations = [
            {
                "variant": name,
                "curve": run["curve"],
                "devtest": {"kl": kl[code][name]},
                "passages": run["params"]["training_passages"],
            }
            for name, run in runs.items()
        ]
        rows.append({"language": code, "best_of_40": {"kl": of_40}, "distillations": distillations})
    return {"model": folder.name.removeprefix("fidelity-"), "languages": rows}


def main() -> None:
    """Read the table, draw, write SVG and PNG."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--goal", type=float, default=3.0)
    parser.add_argument("--out", type=Path, help="default: curves beside the table")
    given = parser.parse_args()
    folder = given.table if given.table.is_dir() else given.table.parent
    if given.table.is_dir():
        data = from_folder(folder)
    else:
        data = json.loads(given.table.read_text(encoding="utf-8"))
    with styled():
        drawn = draw(data["languages"], data["model"], given.goal)
        for path in save_figure(drawn, given.out or folder / "curves"):
            print(path.name)


if __name__ == "__main__":
    main()
