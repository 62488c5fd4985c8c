"""What new tokens buy: premiums against their number, and how equal languages become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tokengraft.languages.codes import language
from tokengraft.planning.curve import LIMIT, Spread
from tokengraft.planning.plan import spoilt
from tokengraft.render.colours import LINES
from tokengraft.render.figures.style import FAINT, LINE, QUIET, bare, dots, sheet, styled, write

if TYPE_CHECKING:
    from tokengraft.planning.plan_files import TestedPlan

COLOURS = [day for day, _ in LINES]
_DASHES = ("-", "-", "--", "-.", ":", "--")  # so that lines differ by more than colour
_PANELS = {
    "highest": "Highest premium",
    "median": "Median premium",
    "gini": "Gini coefficient of premiums",
    "above": f"Languages above {LIMIT:g} times the pivot",
}
_WIDE, _TALL, _ROW, _COLUMN = 3.15, 2.1, 2.95, 5.05


@styled()
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
        f"What languages pay on {tokenizer} against the number of new tokens. A premium is how "
        "many times the pivot’s tokens a language takes for the same sentence, on average; a Gini "
        "coefficient of 0 means that all pay the same."
    )
    page = sheet(2 * _COLUMN - 0.2, 2 * _ROW, title, subtitle, f"Test text: {tested_on}.")
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
    _against_tokens(axes, max(max(line) for line in lines.values()))
    values = [value for line in lines.values() for value in line.values()]
    if figure in ("highest", "median"):
        # What happens near 2 matters, and the curve starts many times as high.
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
        axes.locator_params(axis="y", integer=figure == "above")
    form = "{:.3f}" if figure == "gini" else "{:.0f}" if figure == "above" else "{:.2f}"
    ends = []
    looks = zip(cycle(COLOURS), cycle(_DASHES), strict=False)
    for (name, line), (colour, dash) in zip(lines.items(), looks, strict=False):
        axes.plot(list(line), list(line.values()), color=colour, linestyle=dash, linewidth=1.8)
        last = list(line.values())[-1]
        ends.append((last, f"{name if len(lines) > 1 else ''} {form.format(last)}".strip(), colour))
    _name_ends(axes, ends, 11)


def _against_tokens(axes: Axes, most: int) -> None:
    """Set up axes with up to `most` new tokens along x."""
    bare(axes)
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.set_xlabel("new tokens", fontsize=9)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlim(0, most)


def _name_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], points: float) -> None:
    """Name lines at their ends (value, text, colour), names at least `points` apart."""
    across = axes.transData + axes.transAxes.inverted()
    ranked = sorted((float(across.transform((0, v))[1]), text, look) for v, text, look in ends)
    gap = points / 72 * dots(axes) / axes.get_window_extent().height
    heights = [at for at, *_ in ranked]
    for below in range(len(heights) - 1):
        heights[below + 1] = max(heights[below + 1], heights[below] + gap)
    over = heights[-1] - 1
    if over > 0:
        heights[-1] = 1.0
        for above in range(len(heights) - 1, 0, -1):
            heights[above - 1] = min(heights[above - 1], heights[above] - gap)
    for at, (_, text, colour) in zip(heights, ranked, strict=True):
        size = min(8.5, 8.5 * 17 / len(text))  # the longest names would run off the sheet
        write(axes, text, (1, at), (6, -3), "axes fraction", color=colour, fontsize=size)


@styled()
def draw_curves(plans: Mapping[str, TestedPlan]) -> Figure | None:
    """Premium against the number of new tokens, a panel per plan; None if no premium is known."""
    first = next(iter(plans.values()))
    known = {
        name: {
            code: [(p.tokens, p.premium) for p in outcome.curve if p.premium is not None]
            for code, outcome in planned.plan.languages.items()
        }
        for name, planned in plans.items()
    }
    if not any(points for panel in known.values() for points in panel.values()):
        return None
    worst = max(first.plan.languages.items(), key=lambda pair: pair[1].premium_before or 0)
    before, after = worst[1].premium_before or 0, worst[1].premium_after or 0
    title = (
        f"{len(first.plan.tokens):,} tokens take {language(worst[0]).name} from "
        f"{before:.1f} to {after:.1f} times {language(first.plan.pivot or '').name}"
    )
    lost = [o for o in first.plan.languages.values() if spoilt(o.unk_share_before)]
    if lost:
        title = (
            f"{len(first.plan.tokens):,} tokens bring back text that was lost to UNK; before "
            "them the premium is not honest"
        )
    subtitle = (
        f"Premium of {first.plan.label} (tokens ÷ tokens of the same sentence in "
        f"{language(first.plan.pivot or '').name}, mean over sentences) against the number of "
        f"tokens added. Chosen on {first.chosen_on}."
    )
    wide, gap, tall = (6.4, 0.0, 4.0) if len(plans) == 1 else (3.4, 0.15, 3.4)
    width = len(plans) * (wide + 1.4) + gap * (len(plans) - 1)
    page = sheet(width, tall + 0.7, title, subtitle, f"Test text: {first.tested_on}.")
    top = max(premium for panel in known.values() for ps in panel.values() for _, premium in ps)
    for n, (name, panel) in enumerate(known.items()):
        axes = page.axes(0.45 + n * (wide + 1.4 + gap), 0.5, wide, tall)
        _curves(axes, panel, top * 1.05)
        if len(plans) > 1:
            axes.set_title(name, loc="left", fontsize=10, weight="bold")
    return page.figure


_NAMED = 24  # languages with a name beside their line


def _curves(axes: Axes, panel: Mapping[str, Sequence[tuple[int, float]]], top: float) -> None:
    drawn = {code: points for code, points in panel.items() if points}
    _against_tokens(axes, max(points[-1][0] for points in drawn.values()))
    axes.set_yscale("log")
    lowest = min((premium for points in panel.values() for _, premium in points), default=1.0)
    axes.set_ylim(min(0.9, lowest * 0.9), top)
    ticks = [
        t for t in (0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20) if axes.get_ylim()[0] <= t <= top
    ]
    axes.set_yticks(ticks, [f"{t:g}×" for t in ticks])
    axes.minorticks_off()
    axes.axhline(1, color=QUIET, linewidth=0.9)
    ends = []
    named = set(drawn)
    if len(drawn) > _NAMED:
        # Those that pay most at the start or the end; the others are thin grey lines behind them.
        named = {
            code
            for place in (0, -1)
            for code in sorted(drawn, key=lambda c: -drawn[c][place][1])[: _NAMED // 4]
        }
    colours = dict(zip(filter(named.__contains__, drawn), cycle(COLOURS), strict=False))
    for code in sorted(drawn, key=named.__contains__):
        colour = colours.get(code, FAINT)
        width = 1.8 if code in named else 0.5
        axes.plot(*zip(*drawn[code], strict=True), color=colour, linewidth=width)
        if code in named:
            premium = drawn[code][-1][1]
            ends.append((premium, f"{language(code).name} {premium:.2f}", colour))
    _name_ends(axes, ends, 13)
