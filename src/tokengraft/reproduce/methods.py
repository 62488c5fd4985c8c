"""The default mode with its methods, as cells of a grid: merges, and rows by `derive_rows`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokengraft.core.files import sha256
from tokengraft.core.options import options_from
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.deriving.derive import Derived, derive_rows
from tokengraft.deriving.distil.recipe import Recipe
from tokengraft.deriving.methods.protocol import Rows
from tokengraft.deriving.registry import named
from tokengraft.deriving.task import Deriving
from tokengraft.evaluating.lines import assert_disjoint
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Planning, insert
from tokengraft.reproduce.grid import PAPER, Grid

MODE = "merges"
METHODS = ("mean", "distil")


@dataclass(frozen=True)
class DefaultMode:
    """What is judged: `methods` on `budget` tokens a language, distilled by `recipe` and limits.

    The method "paper" stands for the paper's 40 strategies on these tokens, judged without
    continuations, as all are without `continuation`.
    """

    methods: Sequence[str] = METHODS
    budget: int = 2000
    steps: int | None = None
    max_minutes: float | None = None
    recipe: Recipe | None = None
    continuation: bool = True

    def name(self, method: str) -> str:
        """The method as tables call it: a distillation with all that is not the default."""
        if method != "distil":
            return method
        limits = [
            f"{self.steps} steps" if self.steps else "",
            f"{self.max_minutes:g} min" if self.max_minutes else "",
        ]
        if self.recipe is not None:
            plain = type(self.recipe)()
            limits += [
                f"{name}={value:g}"
                for name, value in vars(self.recipe).items()
                if value is not None and value != getattr(plain, name)
            ]
        return " ".join(["distil", *(limit for limit in limits if limit)])


def run_default(
    grid: Grid,
    languages: Sequence[str],
    text: Mapping[str, Sequence[str]],
    mode: DefaultMode = DefaultMode(),  # noqa: B008 - frozen
    *,
    whole: ParallelCorpus | None = None,
    plans: Mapping[str, Plan] | None = None,
    on_rows: Callable[[str, str, Derived], None] | None = None,
) -> None:
    """Choose tokens for each language on its `text`, derive their rows, judge them.

    `plans` that were made before are taken as they are; `on_rows` gets a language, a method's name
    and what `derive_rows` gave.

    Raises a CorpusError where the text holds a line of the evaluation corpus (all of `whole` where
    only a part of it is judged on); languages without text are left out.
    """
    given = {"steps": mode.steps, "max_minutes": mode.max_minutes, "seed": grid.settings.seed}
    settings = {"cache": grid.work, **vars(mode.recipe or Recipe()), **given}
    options = options_from(Deriving, settings)
    for code in languages:
        lines = [line for line in text.get(code, ()) if line.strip()]
        if not lines:
            continue
        assert_disjoint(lines, (whole or grid.corpus).lines(code))
        plan = (plans or {}).get(code)
        plan = plan or plan_tokens(grid.spec, {code: lines}, Planning(mode.budget))
        tokenizer = grid.tokenizer(insert(grid.spec, plan))
        parts = [token.parts for token in plan.tokens]

        def rows_of(
            name: str,
            code: str = code,
            lines: Sequence[str] = lines,
            parts: Sequence[Sequence[int]] = parts,
            tokenizer: Any = tokenizer,
        ) -> tuple[dict[str, Any], Rows]:
            method = name.partition(" ")[0]
            made = derive_rows(
                grid.model, parts, method, tokenizer=tokenizer, options=options,
                text=lines if named(method).needs == "text" else None,
            )  # fmt: skip
            if on_rows is not None:
                on_rows(code, name, made)
            return {"strategy": method, "seconds": made.seconds}, made.rows

        if PAPER in mode.methods:
            _paper(grid, code, tokenizer, parts)
        names = {mode.name(method): method for method in mode.methods if method != PAPER}
        digest = sha256("\n".join(lines).encode())
        learnt = {name: digest for name, m in names.items() if named(m).needs == "text"}
        if names:
            grid.run(
                MODE, code, tokenizer, list(names), rows_of, mode.continuation, learnt_from=learnt
            )


def _paper(grid: Grid, code: str, tokenizer: Any, parts: Sequence[Sequence[int]]) -> None:
    made: dict[str, tuple[dict[str, Any], Rows]] = {}

    def rows_of(name: str) -> tuple[dict[str, Any], Rows]:
        if not made:
            made.update(grid.strategies(parts))
        return made[name]

    grid.run(MODE, code, tokenizer, grid.strategy_names(), rows_of, continuation=False)
