"""A plan on disk: `plan.json`, what it buys as a table, and the what-if curve as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tokengraft.core.files import write_json, write_text
from tokengraft.core.wording import in_markdown
from tokengraft.languages.codes import language
from tokengraft.planning.frontier import frontier
from tokengraft.planning.unknown import CAPTION, spoilt
from tokengraft.render.tables import write_data

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tokengraft.planning.plan import Plan
    from tokengraft.planning.plan_files import TestedPlan

PROVENANCE = "provenance.json"  # the texts that a plan was chosen and tested on


def outcomes(plan: Plan) -> pl.DataFrame:
    """One row per language: what the plan does to its premium and its tokens."""
    rows: list[dict[str, Any]] = [
        {
            "language": code,
            "name": language(code).name,
            "premium_before": outcome.premium_before,
            "premium_after": outcome.premium_after,
            "floor_before": outcome.floor_before,
            "floor_after": outcome.floor_after,
            "planning_tokens_before": outcome.planning_before,
            "planning_tokens_after": outcome.planning_after,
            "unk_before": outcome.unknown_before,
            "unk_after": outcome.unknown_after,
            "unk_share_before": outcome.unk_share_before,
            "unk_share_after": outcome.unk_share_after,
            "first_token": outcome.first_token,
        }
        for code, outcome in plan.languages.items()
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def curves(plan: Plan) -> pl.DataFrame:
    """The what-if curve: premium and planning tokens against the number of new tokens."""
    rows = [
        {
            "language": code,
            "tokens": point.tokens,
            "premium": point.premium,
            "planning_tokens": point.planning_tokens,
            "unk_share": point.unk_share,
        }
        for code, outcome in plan.languages.items()
        for point in outcome.curve
    ]
    schema = {
        "language": pl.String,
        "tokens": pl.Int64,
        "premium": pl.Float64,
        "planning_tokens": pl.Int64,
        "unk_share": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema)


def spreads(plans: Mapping[str, TestedPlan]) -> pl.DataFrame:
    """Highest and median premium, Gini and languages above 2, by objective and tokens added."""
    rows = [
        {"objective": name, "tokens": tokens, **asdict(spread)}
        for name, planned in plans.items()
        for tokens, spread in frontier(planned.plan).items()
    ]
    schema = {
        "objective": pl.String, "tokens": pl.Int64, "highest": pl.Float64, "whose": pl.String,
        "median": pl.Float64, "gini": pl.Float64, "above": pl.Int64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema)


def write_plan(
    planned: TestedPlan,
    folder: Path,
    figures: bool = True,
    others: Mapping[str, TestedPlan] | None = None,
) -> list[Path]:
    """Write the plan into `folder` and return every path written.

    `others` are plans by objective to draw side by side (figures/objectives). A plan for several
    languages has a frontier besides: how even they are with so many tokens.
    """
    plan = planned.plan
    every = others or {plan.objective: planned}
    paths = [plan.write(folder / "plan.json")]
    paths.append(
        write_json(
            folder / PROVENANCE, {"chosen_on": planned.chosen_on, "tested_on": planned.tested_on}
        )
    )
    paths += write_data(outcomes(plan), folder / "tables" / "outcomes")
    paths += write_data(curves(plan), folder / "tables" / "curve")
    reached = {name: frontier(one.plan) for name, one in every.items()}
    reached = {name: points for name, points in reached.items() if len(points) > 1}
    if len(plan.languages) > 1 and reached:
        paths += write_data(spreads(every), folder / "tables" / "frontier")
    paths.append(write_text(folder / "README.md", write_up(planned)))
    drawings: dict[str, Mapping[str, TestedPlan]] = {
        "curve": {plan.objective: planned},
        "objectives": others or {},
    }
    for name, plans in drawings.items():
        if figures and plans and (drawn := draw(plans)) is not None:
            from tokengraft.render.figures.style import save_figure

            paths += save_figure(drawn, folder / "figures" / name)
    if figures and len(plan.languages) > 1 and reached:
        from tokengraft.render.figures.frontier import draw_frontier
        from tokengraft.render.figures.style import save_figure, styled

        with styled():
            drawn = draw_frontier(
                reached, len(plan.languages), plan.label or "a tokenizer", planned.tested_on
            )
        paths += save_figure(drawn, folder / "figures" / "frontier")
    return paths


def write_up(planned: TestedPlan) -> str:
    """The plan in words: what, for whom, on which text, with which guarantees."""
    plan = planned.plan
    several = any(outcome.first_token for outcome in plan.languages.values())
    lines = [
        f"# {len(plan.tokens)} new tokens for {in_markdown(planned.plan.label or 'a tokenizer')}",
        "",
        f"Mode `{plan.mode}`, objective `{plan.objective}`, budget {plan.budget}. Chosen on "
        f"{in_markdown(planned.chosen_on)}; premiums (mean of per-sentence ratios over "
        f"{plan.pivot}) measured on {in_markdown(planned.tested_on)}.",
        "",
        "| language | premium before | after | floor before | after | tokens of its text | after | "
        f"lost to UNK before | after |{' helped from token |' if several else ''}",
        f"|---|{'---:|' * (9 if several else 8)}",
    ]
    shares = []
    for code, outcome in plan.languages.items():
        lines.append(
            f"| {code} {language(code).name} | "
            f"{_number(outcome.premium_before, outcome.unk_share_before)} | "
            f"{_number(outcome.premium_after, outcome.unk_share_after)} | "
            f"{_number(outcome.floor_before)} | "
            f"{_number(outcome.floor_after)} | {outcome.planning_before:,} | "
            f"{outcome.planning_after:,} | {_share(outcome.unk_share_before)} | "
            f"{_share(outcome.unk_share_after)} |"
            + (f" {_count(outcome.first_token)} |" if several else "")
        )
        shares += [outcome.unk_share_before, outcome.unk_share_after]
    if any(map(spoilt, shares)):
        lines += ["", CAPTION]
    if plan.cut.scripts:
        lines += [
            "",
            f"Word boundaries are relaxed for {', '.join(plan.cut.scripts)}: marks stay with their "
            "letters. Other scripts are cut as before.",
        ]
    said = plan.checked
    if plan.mode != "paper":
        said = f"Checked with the real encoder: {said[0].lower()}{said[1:]}"
    lines += [
        "",
        said,
        *(f"\n{in_markdown(note)}" for note in plan.notes),
        "",
    ]
    return "\n".join(lines)


def _number(value: float | None, lost: float | None = None) -> str:
    return "" if value is None else f"{value:.2f}{'†' if spoilt(lost) else ''}"


def _count(value: int | None) -> str:
    return "never" if value is None else f"{value:,}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def draw(plans: Mapping[str, TestedPlan]) -> Figure | None:
    """Premium against the number of new tokens, a panel per plan; None where none is known."""
    from tokengraft.render.figures.style import sheet, styled

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
    with styled():
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
        page = sheet(None, width, tall + 0.7, title, subtitle, f"Test text: {first.tested_on}.")
        top = max(premium for panel in known.values() for ps in panel.values() for _, premium in ps)
        for n, (name, panel) in enumerate(known.items()):
            axes = page.axes(0.45 + n * (wide + 1.4 + gap), 0.5, wide, tall)
            _panel(axes, panel, top * 1.05)
            if len(plans) > 1:
                axes.set_title(name, loc="left", fontsize=10, weight="bold")
        return page.figure


_COLOURS = (
    "#c8553d", "#1b6ca8", "#2f8f5b", "#8a4fa3", "#d08c1d", "#4d5a66",
    "#b3446c", "#1f9e9e", "#7a6a2b", "#5566cc", "#a0522d", "#2b4c3f",
)  # fmt: skip


_NAMED = 24  # languages with a name beside their line


def _panel(axes: Axes, panel: Mapping[str, Sequence[tuple[int, float]]], top: float) -> None:
    from tokengraft.render.figures.style import FAINT, LINE, QUIET, bare, write

    bare(axes)
    axes.set_yscale("log")
    lowest = min((premium for points in panel.values() for _, premium in points), default=1.0)
    axes.set_ylim(min(0.9, lowest * 0.9), top)
    ticks = [
        t for t in (0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20) if axes.get_ylim()[0] <= t <= top
    ]
    axes.set_yticks(ticks, [f"{t:g}×" for t in ticks])
    axes.minorticks_off()
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.axhline(1, color=QUIET, linewidth=0.9)
    ends = []
    drawn = {code: points for code, points in panel.items() if points}
    named = set(drawn)
    if len(drawn) > _NAMED:
        # Those that pay most at either end; the others are the crowd behind them.
        named = {
            code
            for place in (0, -1)
            for code in sorted(drawn, key=lambda c: -drawn[c][place][1])[: _NAMED // 4]
        }
    colours = dict(zip(filter(named.__contains__, drawn), cycle(_COLOURS), strict=False))
    for code in sorted(drawn, key=named.__contains__):
        colour = colours.get(code, FAINT)
        width = 1.8 if code in named else 0.5
        axes.plot(*zip(*drawn[code], strict=True), color=colour, linewidth=width)
        if code in named:
            ends.append((drawn[code][-1][1], drawn[code][-1][0], code, colour))
    right = max(points[-1][0] for points in drawn.values())
    axes.set_xlim(0, right)
    axes.set_xlabel("new tokens", fontsize=9)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    height = axes.get_window_extent().height
    below = -1e9
    for premium, _, code, colour in sorted(ends):
        y = axes.transAxes.inverted().transform(axes.transData.transform((0, premium)))[1]
        y = max(y, below + 13 / height * (axes.get_figure(root=True).dpi / 72))  # type: ignore[union-attr]
        below = y
        text = f"{language(code).name} {premium:.2f}"
        size = min(8.5, 8.5 * 17 / len(text))  # the longest names would run off the sheet
        write(axes, text, (1, y), (6, -3), "axes fraction", color=colour, fontsize=size)
