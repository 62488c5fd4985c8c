"""The paper's fidelity table: 40 strategies × 12 languages, by the paper's metric and by ours.

With the paper's model, Llama 3.2 1B, it is a claim that holds or does not; with any other model it
is a comparison with the paper's figures. Layers are matched by place: the paper's 0, 1, 15 and 16
of 16 blocks are 0, 1, n − 1 and n, the last one after the final norm unless asked otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from tokengraft.core.errors import UsageError
from tokengraft.core.files import sha256
from tokengraft.core.lock import hold
from tokengraft.core.options import options_from
from tokengraft.core.progress import OnProgress
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.deriving.derive import Derived, derive_rows
from tokengraft.deriving.distil.recipe import Recipe
from tokengraft.deriving.known_methods import named
from tokengraft.deriving.methods import Rows
from tokengraft.deriving.task import Deriving
from tokengraft.evaluating.lines import assert_disjoint
from tokengraft.paper.claim import Claim, ClaimVerdict, judge, read_claim
from tokengraft.paper.grid import PAPER, Grid, Settings
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Planning, with_plan

CLAIM = "fidelity"
LAST_LAYERS = ("norm", "block")
_PAPER_LAYERS = (0, 1, 15, 16)
MODE = "merges"
METHODS = ("mean", "distil")


@dataclass(frozen=True)
class Fidelity:
    """The grid as measured, and the paper's table, which the claim holds.

    `grid` has one row per cell and metric; `missing` cells were not measured in the time given.
    """

    model: str
    claim: Claim
    grid: pl.DataFrame
    sizes: pl.DataFrame
    missing: int
    verdict: ClaimVerdict | None  # None for any model but the paper's own, and for a part of lines

    def cells(self, metric: str, mode: str = PAPER) -> pl.DataFrame:
        """The rows of the grid of one metric and mode."""
        return self.grid.filter((pl.col("metric") == metric) & (pl.col("mode") == mode))

    def table(self, metric: str, mode: str = PAPER) -> pl.DataFrame:
        """One row per method, one column per language, and their mean if none is missing."""
        wide: pl.DataFrame = self.cells(metric, mode).pivot(
            "language", index="method", values="value", maintain_order=True
        )
        codes = [name for name in wide.columns if name != "method"]
        if not codes:  # only the other mode has this figure
            return wide.with_columns(pl.lit(None, pl.Float64).alias("mean"))
        every = pl.all_horizontal(pl.col(codes).is_not_null())
        mean = pl.when(every).then(pl.mean_horizontal(codes))
        return wide.with_columns(mean.alias("mean")).select("method", "mean", *codes)

    def best(self, metric: str = "kl", lowest: bool = True) -> pl.DataFrame:
        """The best of the paper's strategies for each language, by `metric`."""
        return (
            self.cells(metric)
            .sort("value", descending=not lowest)
            .group_by("language", maintain_order=True)
            .first()
            .select("language", "method", "value", "floor", "ceiling")
            .sort("language")
        )


def read_with(split: str, last_layer: str = "norm") -> str:
    """A note on what to know when a grid is compared with the paper's."""
    last = {
        "norm": "after the final norm, as the paper's layer 16 is: what the head multiplies",
        "block": "the last block's own output, before the final norm; the paper's layer 16 is what "
        "the output table multiplies, after it (--last-layer norm)",
    }[last_layer]
    return (
        f"Judged on FLORES {split}. Layer n is {last}. The authors of tokengraft have never run "
        "Llama 3.2 1B itself: its figures are the paper's."
    )


@dataclass(frozen=True)
class DefaultMode:
    """What is judged: `methods` for `budget` tokens per language.

    Distillation follows `recipe`, at most `steps` or `max_minutes`. The method "paper" stands for
    the paper's 40 strategies on these tokens. `continuation` asks for the bits of continuations,
    which are never measured for "paper".
    """

    methods: Sequence[str] = METHODS
    budget: int = 2000
    steps: int | None = None
    max_minutes: float | None = None
    recipe: Recipe | None = None
    continuation: bool = True

    def name(self, method: str) -> str:
        """The method's name in tables; a distillation's lists all that is not the default."""
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

    A language in `plans` is not planned again; `on_rows` is called with a language, a method's name
    and the result of `derive_rows`.

    Raises CorpusError if the text holds a line of the evaluation corpus (of `whole`, if only a part
    of it is used for judging). Languages without text are left out.
    """
    given = {"steps": mode.steps, "max_minutes": mode.max_minutes, "seed": grid.settings.seed}
    settings = {**vars(mode.recipe or Recipe()), **given}
    options = options_from(Deriving, settings)
    for code in languages:
        lines = [line for line in text.get(code, ()) if line.strip()]
        if not lines:
            continue
        assert_disjoint(lines, (whole or grid.corpus).lines(code))
        plan = (plans or {}).get(code)
        plan = plan or plan_tokens(grid.spec, {code: lines}, Planning(mode.budget))
        tokenizer = grid.tokenizer(with_plan(grid.spec, plan))
        parts = [token.parts for token in plan.tokens]

        def rows_of(
            name: str,
            code: str = code,
            lines: Sequence[str] = lines,
            parts: Sequence[Sequence[int]] = parts,
            tokenizer: Any = tokenizer,
        ) -> tuple[dict[str, Any], Rows]:
            method = name.partition(" ")[0]
            row = named(method)
            more = {"cache": grid.work} if "cache" in row.takes and grid.work else {}
            made = derive_rows(
                grid.model,
                parts,
                method,
                tokenizer=tokenizer,
                options=replace(options, more=more),
                text=lines if row.needs == "text" else None,
            )
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


@dataclass(frozen=True)
class Running:
    """How the grid is run: where, and for how long.

    `work` is a folder of finished cells, so that the same call resumes where it stopped. After
    `seconds` no further cell is begun. `last_layer` is "norm" (after the final norm, as the paper's
    layer n) or "block" (the last block's output before it).
    """

    work: Path | None = None
    device: str = "auto"
    seconds: float | None = None
    progress: OnProgress | None = None
    last_layer: str = "norm"


def run(
    model: str | Path,
    corpus: ParallelCorpus,
    languages: Sequence[str] | None = None,
    *,
    judged: ParallelCorpus | None = None,
    text: Mapping[str, Sequence[str]] | None = None,
    mode: DefaultMode = DefaultMode(),  # noqa: B008 - frozen
    settings: Settings = Settings(),  # noqa: B008 - frozen
    running: Running = Running(),  # noqa: B008 - frozen
) -> Fidelity:
    """Measure the paper's grid, then the default `mode` on rows for `text`.

    `corpus` gives the characters to add (in the paper, FLORES dev + devtest); cells are judged on
    lines of `judged`, by default the corpus itself. The default mode needs `text`, which must hold
    no line of the corpus.
    """
    from tokengraft.model.frozen import FrozenModel, Reading
    from tokengraft.paper.grid import Cells

    if running.last_layer not in LAST_LAYERS:
        raise UsageError(f"no last layer {running.last_layer!r}; known: {', '.join(LAST_LAYERS)}")
    deadline = None if running.seconds is None else time.monotonic() + running.seconds
    work = running.work
    claim = read_claim(CLAIM)
    codes = _codes(claim, languages, corpus)
    loaded = FrozenModel.load(model, Reading(running.device))
    if loaded.kind != "causal":
        raise UsageError(f"{loaded.name} is not a causal model, which the paper's table needs")
    lock = None if work is None else hold(work)
    grid = Grid(
        loaded,
        (judged or corpus).select(codes),
        settings,
        Cells(None if work is None else work / "cells"),
        None if work is None else work / "states",
        deadline,
        running.progress,
        running.last_layer == "norm",
    )
    texts = [code for code in codes if (text or {}).get(code)]
    strategies = len(grid.strategy_names())
    each = [strategies if method == PAPER else 1 for method in mode.methods]
    grid.total = strategies * len(codes) + sum(each) * len(texts)
    grid.paper(codes, corpus)
    if text is not None:
        run_default(grid, codes, text, mode, whole=corpus)
    del lock
    if not grid.rows:
        raise UsageError("no cell was measured: give more time, or text for the default mode")
    table = pl.DataFrame(grid.rows, infer_schema_length=None)
    fidelity = Fidelity(loaded.name, claim, table, pl.DataFrame(grid.sizes), grid.missing, None)
    # A local copy of the model may have its name without its owner's.
    same = loaded.name.rpartition("/")[2] == claim.model.rpartition("/")[2]
    return _judged(fidelity, codes) if same and settings.lines is None else fidelity


def paper_row(method: str, layers: Sequence[int]) -> str:
    """The paper's row for a strategy at one of the model's `layers`, matched by place."""
    name, _, layer = method.rpartition(" layer ")
    place = len(layers) - 1 if layer == "norm" else sorted(layers).index(int(layer))
    return f"{name} layer {_PAPER_LAYERS[place]}"


def model_layers(fidelity: Fidelity) -> list[int]:
    """The layers of the model that the grid was measured at."""
    layers = fidelity.grid.filter(pl.col("mode") == PAPER)["layer"].drop_nulls().unique()
    return sorted(int(layer) for layer in layers)


def _judged(fidelity: Fidelity, codes: Sequence[str]) -> Fidelity:
    """The claim judged for these languages; the paper's mean only if they are the paper's."""
    layers = model_layers(fidelity)
    bare = {full: code for code, full in fidelity.claim.languages.items()}
    values = {
        (paper_row(row["method"], layers), bare.get(code, code)): value
        for row in fidelity.table("pooled_cosine").to_dicts()
        for code, value in row.items()
        if code != "method" and value is not None
    }
    asked = {bare[code] for code in codes if code in bare}
    if not asked:
        return fidelity
    columns = asked | ({"mean"} if set(bare) == set(codes) else set())
    return replace(fidelity, verdict=judge(fidelity.claim, values, columns=columns))


def _codes(claim: Claim, languages: Sequence[str] | None, corpus: ParallelCorpus) -> list[str]:
    if languages is None:
        return [code for code in claim.languages.values() if code in corpus.texts]
    return list(corpus.select([claim.languages.get(code, code) for code in languages]).texts)
