"""A plan on disk: `plan.json`, what it buys as a table, and the what-if curve as a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tokengraft.core.files import write_json, write_text
from tokengraft.core.wording import in_markdown
from tokengraft.languages.codes import language
from tokengraft.planning.curve import Spread, frontier
from tokengraft.planning.plan import CAPTION, spoilt
from tokengraft.render.tables import write_data

if TYPE_CHECKING:
    from tokengraft.planning.plan import Effect, Plan
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
        {"language": code, **asdict(point)}
        for code, outcome in plan.languages.items()
        for point in outcome.curve
    ]
    schema = {
        "language": pl.String, "tokens": pl.Int64, "premium": pl.Float64,
        "planning_tokens": pl.Int64, "unk_share": pl.Float64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema)


def spreads(frontiers: Mapping[str, Mapping[int, Spread]]) -> pl.DataFrame:
    """Highest and median premium, Gini and languages above 2, by objective and tokens added."""
    rows = [
        {"objective": name, "tokens": tokens, **asdict(spread)}
        for name, points in frontiers.items()
        for tokens, spread in points.items()
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
    languages also gets a frontier: how equal their premiums are by number of tokens.
    """
    plan = planned.plan
    texts = {"chosen_on": planned.chosen_on, "tested_on": planned.tested_on}
    paths = [plan.write(folder / "plan.json"), write_json(folder / PROVENANCE, texts)]
    paths += write_data(outcomes(plan), folder / "tables" / "outcomes")
    paths += write_data(curves(plan), folder / "tables" / "curve")
    every = others or {plan.objective: planned}
    frontiers = {name: frontier(one.plan) for name, one in every.items()}
    reached = {name: points for name, points in frontiers.items() if len(points) > 1}
    if several := len(plan.languages) > 1 and bool(reached):
        paths += write_data(spreads(frontiers), folder / "tables" / "frontier")
    paths.append(write_text(folder / "README.md", write_up(planned)))
    if not figures:
        return paths
    from tokengraft.render.figures.curves import draw_curves, draw_frontier
    from tokengraft.render.figures.style import save_figure

    for name, plans in (("curve", {plan.objective: planned}), ("objectives", others)):
        if plans and (drawn := draw_curves(plans)) is not None:
            paths += save_figure(drawn, folder / "figures" / name)
    if several:
        label = plan.label or "a tokenizer"
        drawn = draw_frontier(reached, len(plan.languages), label, planned.tested_on)
        paths += save_figure(drawn, folder / "figures" / "frontier")
    return paths


def write_up(planned: TestedPlan) -> str:
    """The plan's README: what is added, for whom, chosen on which text, with which guarantees."""
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
        premiums, lost = outcome_cells(outcome)
        texts = (f"{outcome.planning_before:,}", f"{outcome.planning_after:,}")
        cells = [f"{code} {language(code).name}", *premiums, *texts, *lost]
        if several:
            cells.append("never" if outcome.first_token is None else f"{outcome.first_token:,}")
        lines.append(f"| {' | '.join(cells)} |")
        shares += [outcome.unk_share_before, outcome.unk_share_after]
    if any(map(spoilt, shares)):
        lines += ["", CAPTION]
    if scripts := plan.cut.scripts:
        kept = ["marks stay with their letters"] if set(scripts) != {"Latin"} else []
        kept += ["digits that stand for letters stay in Latin words"] if "Latin" in scripts else []
        relaxed = f"Word boundaries are relaxed for {', '.join(scripts)}: {', '.join(kept)}."
        lines += ["", f"{relaxed} Other scripts are cut as before."]
    said = plan.checked
    if not plan.literal:
        said = f"Checked with the real encoder: {said[0].lower()}{said[1:]}"
    return "\n".join([*lines, "", said, *(f"\n{in_markdown(note)}" for note in plan.notes), ""])


def outcome_cells(outcome: Effect) -> tuple[list[str], list[str]]:
    """Premiums and floors before and after, and the shares lost to UNK, as they are printed."""
    lost = outcome.unk_share_before, outcome.unk_share_after
    numbers = (
        (outcome.premium_before, lost[0]), (outcome.premium_after, lost[1]),
        (outcome.floor_before, None), (outcome.floor_after, None),
    )  # fmt: skip
    marked = [f"{n:.2f}{'†' if spoilt(bad) else ''}" if n is not None else "" for n, bad in numbers]
    return marked, ["" if share is None else f"{share:.1%}" for share in lost]
