"""Tokens added against how even languages are: a line an objective in each of four panels."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tokengraft.planning.frontier import LIMIT, Spread
from tokengraft.render.figures.style import LINE, QUIET, bare, dots, sheet, write

# Okabe and Ito's palette, and a dash besides: no line is told by its colour alone.
_LOOKS = (
    ("#0072b2", "-"), ("#d55e00", "-"), ("#009e73", "--"), ("#cc79a7", "-."), ("#1c2126", ":"),
    ("#e69f00", "--"),
)  # fmt: skip
_PANELS = {
    "highest": "Highest premium",
    "median": "Median premium",
    "gini": "Gini coefficient of premiums",
    "above": f"Languages above {LIMIT:g} times the pivot",
}
_WIDE, _TALL, _ROW, _COLUMN = 3.15, 2.1, 2.95, 5.05


def draw_frontier(
    plans: Mapping[str, Mapping[int, Spread]], languages: int, tokenizer: str, tested_on: str
) -> Figure:
    """A figure of the spreads by objective and number of tokens added; each has at least two."""
    best = min(plans, key=lambda name: list(plans[name].values())[-1].highest)
    start, end = (list(plans[best].values())[place] for place in (0, -1))
    by = f"by {best} " if len(plans) > 1 else ""
    title = (
        f"{max(plans[best]):,} tokens for {languages} languages: {by}the highest premium falls "
        f"from {start.highest:.1f} to {end.highest:.1f}"
    )
    subtitle = (
        f"What languages pay on {tokenizer} against the number of new tokens. A premium is the "
        "mean over sentences of a language’s tokens to the pivot’s; a Gini coefficient of 0 means "
        "that all pay the same."
    )
    page = sheet(None, 2 * _COLUMN - 0.2, 2 * _ROW, title, subtitle, f"Test text: {tested_on}.")
    for place, (figure, name) in enumerate(_PANELS.items()):
        axes = page.axes(0.5 + place % 2 * _COLUMN, 0.5 + (1 - place // 2) * _ROW, _WIDE, _TALL)
        lines = {
            objective: {tokens: getattr(at, figure) for tokens, at in spreads.items()}
            for objective, spreads in plans.items()
        }
        _panel(axes, figure, lines)
        axes.set_title(name, loc="left", fontsize=10, weight="bold")
    return page.figure


def _panel(axes: Axes, figure: str, lines: Mapping[str, Mapping[int, float]]) -> None:
    bare(axes)
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.set_xlabel("new tokens", fontsize=9)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlim(0, max(max(line) for line in lines.values()))
    values = [value for line in lines.values() for value in line.values()]
    if figure in ("highest", "median"):
        # What happens near 2 matters, and the start is many times as high.
        axes.set_yscale("log")
        low, high = min(values) * 0.95, max(values) * 1.05
        axes.set_ylim(low, high)
        steps: tuple[float, ...] = (1, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 15, 20, 30)
        if high < 2 * low:
            steps = tuple(tenths / 10 for tenths in range(5, 60))
        ticks = [step for step in steps if low <= step <= high]
        axes.set_yticks(ticks, [f"{tick:g}×" for tick in ticks])
        axes.minorticks_off()
        if low <= LIMIT <= high:
            axes.axhline(LIMIT, color=QUIET, linewidth=0.9)
    else:
        axes.set_ylim(0, max(values) * 1.05 or 1)
    form = "{:.3f}" if figure == "gini" else "{:.0f}" if figure == "above" else "{:.2f}"
    ends = []
    for (name, line), (colour, dash) in zip(lines.items(), _LOOKS * 9, strict=False):
        axes.plot(list(line), list(line.values()), color=colour, linestyle=dash, linewidth=1.8)
        last = list(line.values())[-1]
        at = axes.transAxes.inverted().transform(axes.transData.transform((0, last)))[1]
        ends.append((float(at), f"{name} {form.format(last)}", colour))
    gap = 11 / 72 * dots(axes) / axes.get_window_extent().height
    for at, text, colour in _apart(sorted(ends), gap):
        write(axes, text, (1, at), (6, -3), "axes fraction", color=colour, fontsize=8.5)


def _apart(ends: list[tuple[float, str, str]], gap: float) -> list[tuple[float, str, str]]:
    """The labels, lowest first, moved so that no two are nearer than `gap`, the last inside."""
    heights = [at for at, *_ in ends]
    for below in range(len(heights) - 1):
        heights[below + 1] = max(heights[below + 1], heights[below] + gap)
    over = heights[-1] - 1
    if over > 0:
        heights[-1] = 1.0
        for above in range(len(heights) - 1, 0, -1):
            heights[above - 1] = min(heights[above - 1], heights[above] - gap)
    return [(height, text, colour) for height, (_, text, colour) in zip(heights, ends, strict=True)]
