"""Many ways to derive rows, each judged by every figure in every language.

The base model reads each language once per tokenizer; a strategy then costs one pass over the text
in new tokens. Rows of the paper's 40 strategies are made once for the characters of all languages.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.core.files import sha256, write_json
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.core.untrusted import parse_json
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.deriving.methods import Rows
from tokengraft.deriving.states import Layer, part_states
from tokengraft.evaluating.continuation import Continuation
from tokengraft.evaluating.fidelity import BaseReading, scores
from tokengraft.evaluating.lines import Case, prepare
from tokengraft.evaluating.score import Bootstrap, Score
from tokengraft.model.folder import model_hash
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.libraries import require_torch
from tokengraft.model.reading import BATCH_TOKENS
from tokengraft.model.tokenizer_files import base_tokenizer
from tokengraft.paper.linear import Linear
from tokengraft.paper.literals import plan_literals
from tokengraft.paper.neighbours import blend, nearest, regress
from tokengraft.paper.states import vocabulary_states
from tokengraft.planning.plan import with_plan
from tokengraft.tokenizer.huggingface import HuggingFace

PAPER = "paper"
VERSION = 2  # of a cell's contents; if it changes, every cell is measured again
KNN_K = (1, 2, 3, 5, 10)
LOCAL_K = (2, 3, 5, 10)


@dataclass(frozen=True)
class Strategy:
    """One of the paper's strategies; k is None for linear regression. Tables name it by `str`."""

    layer: Layer
    method: str
    k: int | None

    def __str__(self) -> str:
        return f"{self.method}{'' if self.k is None else f' k={self.k}'} layer {self.layer}"


def paper_layers(layers: int, normed: bool = True) -> tuple[Layer, ...]:
    """{0, 1, n−1, n}, each once; the last one after the final norm if `normed`, else before it.

    The paper's layer n is what the output table multiplies, that is, after the norm.
    """
    return tuple(dict.fromkeys((0, 1, layers - 1, "norm" if normed else layers)))


def paper_rows(
    model: FrozenModel,
    parts: Sequence[Sequence[int]],
    layers: Sequence[Layer] | None = None,
    anchors: int | None = None,
    cache: Path | str | None = None,
    key: str = "",
    device: str = "cpu",
) -> Iterator[tuple[Strategy, Rows]]:
    """Rows of every strategy, one at a time; `anchors` limits the old ids used (all by default).

        4 layers {0, 1, n−1, n} × [knn k = 1, 2, 3, 5, 10; linear; local-linear k = 2, 3, 5, 10]

    Reference: the paper's table of document cosine similarities. The k nearest of a larger k are
    the nearest of a smaller one, so one search for k = 10 serves all nine neighbour methods of a
    layer.
    """
    chosen: Sequence[Layer] = paper_layers(model.layers) if layers is None else layers
    wanted: list[Layer] = list(dict.fromkeys((0, *chosen)))
    known = vocabulary_states(model, wanted, anchors, cache=cache, key=key)
    hidden = part_states(model, parts, chosen)
    for layer in chosen:
        states, here = known[layer], hidden[layer]
        most = min(max(*KNN_K, *LOCAL_K), len(states))
        distances, index = nearest(here, states, most, device=device)
        for k in KNN_K:
            if k <= most:
                yield Strategy(layer, "knn", k), blend(distances[:, :k], known[0], index[:, :k])
        yield (
            Strategy(layer, "linear", None),
            Linear().fit(states, known[0]).derive(here),
        )
        for k in LOCAL_K:
            if k <= most:
                near = distances[:, :k], states, known[0], index[:, :k]
                yield Strategy(layer, "local-linear", k), regress(here, *near)


@dataclass(frozen=True)
class Key:
    """Everything that a cell's values depend on."""

    model: str  # hash of config and weights
    tokenizer: str  # hash of the new tokenizer
    method: str  # name and parameters
    language: str
    text: str  # digest of the lines it was measured on
    settings: str  # positions, window, seed, resamples, continuation or not
    learnt_from: str = ""  # digest of the text that the rows were trained on, if any

    def digest(self) -> str:
        """A hash of it all, for a file name."""
        return sha256(json.dumps([VERSION, *asdict(self).values()]).encode())[:32]


class Cells:
    """Measured cells, kept in a folder, or in memory if there is none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._held: dict[str, dict[str, Any]] = {}

    def get(self, key: Key) -> dict[str, Any] | None:
        """The cell, or None if it is missing or cannot be read."""
        name = key.digest()
        if name not in self._held and self._folder is not None:
            path = self._folder / f"{name}.json"
            try:
                self._held[name] = parse_json(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                return None
        return self._held.get(name)

    def put(self, key: Key, value: Mapping[str, Any]) -> None:
        """Keep a cell."""
        name = key.digest()
        self._held[name] = dict(value)
        if self._folder is not None:
            write_json(self._folder / f"{name}.json", self._held[name])


@dataclass(frozen=True)
class Settings:
    """How cells are measured."""

    lines: int | None = None
    positions: int = 4096
    resamples: int = 200
    seed: int = 0
    batch_tokens: int = BATCH_TOKENS
    keep_bytes: int = 1 << 30

    def key(self, window: int) -> str:
        """The settings that values depend on, as text."""
        return json.dumps([self.lines, self.positions, self.resamples, self.seed, window])


@dataclass
class Grid:
    """Cells of one model on one corpus; results go into `rows`, one per cell and metric."""

    model: FrozenModel
    corpus: ParallelCorpus
    settings: Settings
    cells: Cells
    work: Path | None = None
    deadline: float | None = None  # by time.monotonic; no cell is begun after it
    progress: OnProgress | None = None
    normed: bool = True  # the paper's last layer is taken after the final norm
    rows: list[dict[str, Any]] = field(default_factory=list)
    sizes: list[dict[str, Any]] = field(default_factory=list)
    missing: int = 0
    total: int | None = None  # cells to be judged in all, for progress
    _done: int = 0

    def __post_init__(self) -> None:
        self.spec: dict[str, Any] = base_tokenizer(self.model.folder)
        self.hash = model_hash(self.model.folder)

    def paper(self, languages: Sequence[str], whole: ParallelCorpus) -> None:
        """Judge the paper's 40 strategies on the paper's tokens, the characters of `whole`."""
        plans = {
            code: plan_literals(self.spec, {code: whole.lines(code)}, {}, code)
            for code in languages
        }
        parts = {t.text: t.parts for plan in plans.values() for t in plan.tokens}
        place = {text: n for n, text in enumerate(parts)}
        strategies: dict[str, tuple[dict[str, Any], Rows]] = {}
        names = self.strategy_names()
        for code, plan in plans.items():
            tokenizer = self.tokenizer(with_plan(self.spec, plan))
            wanted = [place[token.text] for token in plan.tokens]

            def rows_of(name: str, wanted: list[int] = wanted) -> tuple[dict[str, Any], Rows]:
                if not strategies:
                    strategies.update(self.strategies(list(parts.values())))
                labels, rows = strategies[name]
                return labels, rows[wanted]

            self.run(PAPER, code, tokenizer, names, rows_of, continuation=False)

    def run(
        self,
        mode: str,
        code: str,
        tokenizer: HuggingFace,
        names: Sequence[str],
        rows_of: Callable[[str], tuple[dict[str, Any], Rows]],
        continuation: bool,
        learnt_from: Mapping[str, str] | None = None,
    ) -> None:
        """Judge the named methods for one language; known cells are not measured again.

        `rows_of(name)` returns labels for the tables and the rows themselves; `learnt_from[name]`
        is a digest of the text that the rows were trained on, if any.
        """
        lines = self.corpus.lines(code)[: self.settings.lines]
        case = prepare(code, lines, self.model, tokenizer)
        sizes = {"mode": mode, **case.sizes(len(self.model.prefix))}
        if sizes not in self.sizes:
            self.sizes.append(sizes)
        texts = learnt_from or {}
        keys = {
            name: self._key(mode, code, tokenizer, name, lines, continuation, texts.get(name, ""))
            for name in names
        }
        side = self._key(mode, code, tokenizer, "floors and ceiling", lines)
        base: _Base | None = None
        for name, key in keys.items():
            cell = self.cells.get(key)
            if cell is None:
                if self.deadline is not None and time.monotonic() > self.deadline:
                    self.missing += 1
                    continue
                base = base or _Base(self, case, side, continuation)
                labels, rows = rows_of(name)
                cell = {"labels": labels, "scores": base.judge(rows)}
                self.cells.put(key, cell)
            self._done += 1
            if self.progress is not None:
                stage = f"{mode} · {code} · {name}"
                self.progress(Progress(stage, self._done, self.total, unit="cells"))
            for metric, values in cell["scores"].items():
                self.rows.append(
                    {
                        "mode": mode,
                        "language": code,
                        "method": name,
                        "layer": None,
                        "strategy": None,
                        "k": None,
                        **cell["labels"],
                        "metric": metric,
                        **values,
                    }
                )

    def _key(
        self,
        mode: str,
        code: str,
        tokenizer: HuggingFace,
        method: str,
        lines: Sequence[str],
        continuation: bool = False,
        learnt_from: str = "",
    ) -> Key:
        text = sha256("\n".join(lines).encode())
        kind = str(self.model.weight.dtype)
        settings = self.settings.key(self.model.window) + kind + str(continuation)
        name = f"{mode}: {method}"
        return Key(self.hash, tokenizer.fingerprint, name, code, text, settings, learnt_from)

    def strategy_names(self) -> list[str]:
        """The paper's 40 by name, layer by layer."""
        layers = paper_layers(self.model.layers, self.normed)
        ways: list[tuple[str, Sequence[int | None]]] = [
            ("knn", KNN_K),
            ("linear", (None,)),
            ("local-linear", LOCAL_K),
        ]
        return [str(Strategy(layer, way, k)) for layer in layers for way, ks in ways for k in ks]

    def strategies(self, parts: Sequence[Sequence[int]]) -> dict[str, tuple[dict[str, Any], Rows]]:
        """Labels and rows of the paper's 40 for new tokens with these parts."""
        # An added token may have no row in the table.
        count = min(len(self.model.tokenizer.vocabulary), len(self.model.weight))
        device = str(self.model.device)
        rows_by_name = {}
        layers = paper_layers(self.model.layers, self.normed)
        for cell, rows in paper_rows(
            self.model, parts, layers, anchors=count, cache=self.work, key=self.hash, device=device
        ):
            place = self.model.layers if cell.layer == "norm" else cell.layer
            labels = {"layer": place, "strategy": cell.method, "k": cell.k}
            rows_by_name[str(cell)] = labels, rows
        return rows_by_name

    @staticmethod
    def tokenizer(spec: dict[str, Any]) -> HuggingFace:
        return HuggingFace.from_parsed("grafted", spec)


class _Base:
    """The base's reading of one language, with floors and ceiling."""

    def __init__(self, grid: Grid, case: Case, side: Key, continuation: bool) -> None:
        settings = grid.settings
        self.grid, self.case = grid, case
        self.reading = BaseReading(
            grid.model,
            case,
            most_positions=settings.positions,
            seed=settings.seed,
            keep_bytes=settings.keep_bytes,
            tokens=settings.batch_tokens,
        )
        known = grid.cells.get(side)
        if known is None:
            known = {
                "unrelated": self.reading.unrelated(),
                "mean_row": self.reading.mean_row(),
                "ceiling": self.reading.ceiling(),
            }
            grid.cells.put(side, known)
        self.against = known
        self.continuation = (
            Continuation(grid.model, case, settings.seed, settings.batch_tokens)
            if continuation
            else None
        )

    def judge(self, rows: Rows) -> dict[str, dict[str, Any]]:
        torch = require_torch()
        model, settings = self.grid.model, self.grid.settings
        drawn = Bootstrap(settings.resamples, settings.seed)
        given = torch.from_numpy(np.ascontiguousarray(rows, np.float32)).to(model.device)
        new = NewRows(self.case.first_new, given)
        figures: dict[str, Score] = scores(
            self.reading.compare(self.reading.read_new(new=new)),
            self.against["unrelated"],
            self.against["mean_row"],
            self.against["ceiling"],
            drawn,
        )
        if self.continuation is not None and len(self.continuation.base):
            bits = self.continuation.measure(new=new)
            figures |= self.continuation.scores(bits, drawn, floors=False)
        short = {name: asdict(score) for name, score in figures.items()}
        for values in short.values():
            del values["definition"]
        return short
