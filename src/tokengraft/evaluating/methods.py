"""The default mode with its methods, as cells of a grid: merges, and rows by `derive_rows`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.evaluating.disjoint import assert_disjoint
from tokengraft.evaluating.grid import Grid, Rows
from tokengraft.evaluating.upstream import deriving, planning

MODE = "merges"
METHODS = ("mean", "distil")


def run_default(
    grid: Grid,
    languages: Sequence[str],
    text: Mapping[str, Sequence[str]],
    *,
    whole: ParallelCorpus | None = None,
    methods: Sequence[str] = METHODS,
    budget: int = 2000,
    steps: int | None = None,
    max_minutes: float | None = None,
) -> None:
    """Choose `budget` tokens a language on its `text`, derive their rows, judge them.

    Raises a CorpusError where the text holds a line of the evaluation corpus (all of `whole` where
    only a part of it is judged on); languages without text are left out.
    """
    for code in languages:
        lines = [line for line in text.get(code, ()) if line.strip()]
        if not lines:
            continue
        assert_disjoint(lines, (whole or grid.corpus).lines(code))
        plan = planning().plan_tokens(grid.spec, {code: lines}, budget=budget)
        tokenizer = grid.tokenizer(planning("types").insert(grid.spec, plan))
        parts = [token.parts for token in plan.tokens]

        def rows_of(
            name: str,
            lines: Sequence[str] = lines,
            parts: Sequence[Sequence[int]] = parts,
            tokenizer: Any = tokenizer,
        ) -> tuple[dict[str, Any], Rows]:
            method = name.partition(" ")[0]
            made = deriving().derive_rows(
                grid.subject.folder, parts, method,
                **_options(grid, method, lines, tokenizer, steps, max_minutes),
            )  # fmt: skip
            return {"strategy": method, "seconds": made.seconds}, made.rows

        names = [_name(method, steps, max_minutes) for method in methods]
        grid.run(MODE, code, tokenizer, names, rows_of, continuation=True)


def _name(method: str, steps: int | None, max_minutes: float | None) -> str:
    if method != "distil":
        return method
    limits = [f"{steps} steps" if steps else "", f"{max_minutes:g} min" if max_minutes else ""]
    return " ".join(["distil", *(limit for limit in limits if limit)])


def _options(
    grid: Grid,
    method: str,
    lines: Sequence[str],
    tokenizer: Any,
    steps: int | None,
    max_minutes: float | None,
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "tokenizer_old": grid.subject.tokenizer,
        "tokenizer": tokenizer,
        "device": str(grid.subject.device),
        "cache": grid.work,
    }
    if deriving("registry").named(method).needs == "text":
        options["text"] = lines
    if method == "distil":
        options |= {"steps": steps, "max_minutes": max_minutes, "seed": grid.settings.seed}
    return options
