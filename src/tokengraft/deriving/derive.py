"""`derive_rows`: from a model folder and the parts of new tokens to their rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokengraft.core.errors import UsageError
from tokengraft.deriving.distil.recipe import Recipe
from tokengraft.deriving.methods.linear import Linear
from tokengraft.deriving.methods.protocol import Rows
from tokengraft.deriving.registry import TRAINING_FREE, Method, named
from tokengraft.deriving.states import Layer, part_states, vocabulary_states
from tokengraft.model.folder import model_hash
from tokengraft.model.frozen import FrozenModel, Reading
from tokengraft.model.libraries import require_torch
from tokengraft.model.tokenizer_files import prefix_ids
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.align import Aligner
from tokengraft.tokenizer.catalog import load

if TYPE_CHECKING:
    from tokengraft.deriving.distil.judging import HeldOut
    from tokengraft.deriving.distil.passages import Lots
    from tokengraft.deriving.distil.recipe import Check, Outcome
    from tokengraft.model.reading import Reader

AnyTokenizer: TypeAlias = Tokenizer | Mapping[str, Any] | Path | str  # a parsed tokenizer.json too


@dataclass(frozen=True, repr=False)
class Derived:
    """Rows for new tokens and how they came about.

    `held_out` and `start` are scores on held-out text of these rows and of the rows that training
    started from; None for methods that read no text.
    """

    rows: Rows  # (new tokens, dimensions), float32
    method: str
    params: Mapping[str, Any]
    seconds: float
    notes: tuple[str, ...] = ()
    held_out: HeldOut | None = None
    start: HeldOut | None = None
    curve: tuple[Check, ...] = ()

    def __repr__(self) -> str:
        judged = "" if self.held_out is None else f", held-out KL {self.held_out.kl:.3f}"
        count, width = self.rows.shape
        return f"Derived({count} rows of {width} by {self.method}{judged})"


@dataclass
class _Case:
    """What the methods work on; the parts that cost time are made when first asked for."""

    model: FrozenModel
    parts: Sequence[Sequence[int]]
    old: Tokenizer
    new: Tokenizer | None
    text: Sequence[str] | None
    layer: Layer
    k: int
    cache: Path | None
    work: Path | None
    recipe: Recipe
    characters: int
    progress: Callable[[str, float, float], None] | None
    notes: list[str] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def first_new(self) -> int:
        return len(self.old.vocabulary)

    @property
    def device(self) -> str:
        return str(self.model.device)

    def tell(self, stage: str) -> Callable[[int, int], None]:
        def report(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(stage, done, total)

        return report

    def reading(self) -> tuple[Reader, Lots]:
        from tokengraft.deriving.distil.passages import read_lots
        from tokengraft.model.reading import Reader

        assert self.new is not None and self.text is not None
        aligner = Aligner(self.old, self.new)
        prefix = prefix_ids(self.old)
        tokens = min(512, self.model.window - len(prefix))
        rows = len(self.model.weight)
        lots = read_lots(self.text, aligner, self.first_new, self.characters, tokens, rows=rows)
        return Reader(self.model, self.first_new, prefix), lots


def derive_rows(
    model: str | Path | FrozenModel,
    parts: Sequence[Sequence[int]],
    method: str = "auto",
    *,
    text: Iterable[str] | None = None,
    tokenizer_old: AnyTokenizer | None = None,
    tokenizer: AnyTokenizer | None = None,
    layer: Layer = 0,
    k: int = 5,
    start: str | Rows = TRAINING_FREE,
    recipe: Recipe | None = None,
    steps: int | None = None,
    max_minutes: float | None = None,
    seed: int | None = None,
    characters: int = 160,
    device: str = "auto",
    dtype: str = "auto",
    cache: Path | str | None = None,
    work: Path | str | None = None,
    progress: Callable[[str, float, float], None] | None = None,
) -> Derived:
    """Rows for new tokens, given each one's old ids (`parts`), in the order of their new ids.

    `auto` takes distil where `text` and the extended `tokenizer` are given, else the best
    training-free method, and says so in `notes`. New token i has id `len(old vocabulary) + i` in
    `tokenizer`. `steps`, `max_minutes` and `seed` take precedence over those of `recipe`.
    `cache` keeps V_l between calls, `work` the teacher's states and the checkpoint of a
    distillation, which a second call with the same arguments goes on from.
    `progress(stage, done, total)` is called now and then.
    """
    begun = time.monotonic()
    notes: list[str] = []
    if method == "auto":
        ready = text is not None and tokenizer is not None
        method = "distil" if ready else TRAINING_FREE
        why = (
            "text is given, so rows can be trained to be read as their parts were"
            if ready
            else "no text is given; it is the best method that needs none"
        )
        notes.append(f"method {method}: {why}")
    chosen = named(method)
    if chosen.needs == "text" and (text is None or tokenizer is None):
        raise UsageError(
            f"method {chosen.name} learns from text: give some with --text FILE (in Python: `text` "
            "and the extended `tokenizer`), or take --method auto"
        )
    given = {"steps": steps, "max_minutes": max_minutes, "seed": seed}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    recipe = replace(recipe or Recipe(), **changes)
    loaded = FrozenModel.load(model, Reading(device, dtype), kind="causal")
    _check(parts, loaded)
    case = _Case(
        loaded, parts, loaded.tokenizer if tokenizer_old is None else _tokenizer(tokenizer_old),
        None if tokenizer is None else _tokenizer(tokenizer),
        None if text is None else list(text),
        layer, k, _path(cache), _path(work), recipe, characters, progress, notes,
    )  # fmt: skip
    if chosen.name == "distil":
        rows = _distil(case, start)
    elif chosen.name == "context":
        rows = _context(case)
    elif chosen.name == "split-anchor":
        rows = _split_anchor(case)
    else:
        rows = _array_method(case, chosen)
    if not np.isfinite(rows).all():
        raise UsageError(f"method {chosen.name} gave rows that are not finite: take another one")
    params = {"layer": layer, "k": k} if chosen.needs == "states" else {}
    params.update(case.result.pop("params", {}))
    seconds = time.monotonic() - begun
    return Derived(rows, chosen.name, params, seconds, tuple(notes), **case.result)


def _path(given: Path | str | None) -> Path | None:
    return None if given is None else Path(given)


def _tokenizer(given: AnyTokenizer) -> Tokenizer:
    if isinstance(given, Tokenizer):
        return given
    if isinstance(given, Mapping):
        from tokengraft.tokenizer.huggingface import HuggingFace

        return HuggingFace.from_parsed("tokenizer", given)
    return load(given)


def _check(parts: Sequence[Sequence[int]], model: FrozenModel) -> None:
    count = len(model.weight)
    for number, one in enumerate(parts):
        if not one or not all(0 <= part < count for part in one):
            raise UsageError(f"new token {number} has parts {list(one)}; ids are 0 to {count - 1}")


def _lengths(case: _Case) -> list[int]:
    return [len(piece) for piece in case.old.vocabulary.pieces]


def _array_method(case: _Case, chosen: Method) -> Rows:
    assert chosen.make is not None
    layer: Layer = case.layer if chosen.needs == "states" else 0
    lengths = _lengths(case) if chosen.pool == "bytes" else None
    hidden = part_states(case.model, case.parts, [layer], chosen.pool, lengths)[layer]
    deriver = chosen.make(case.k, case.device)
    known = vocabulary_states(
        case.model,
        list(dict.fromkeys((0, layer))),
        case.first_new,
        cache=case.cache,
        key=model_hash(case.model.folder) if case.cache is not None else "",
        progress=case.tell("states"),
    )
    return deriver.fit(known[layer], known[0]).derive(hidden)


def _split_anchor(case: _Case) -> Rows:
    from tokengraft.deriving.methods import split_anchor

    pieces = case.old.vocabulary.pieces[: len(case.model.weight)]
    fit = split_anchor.fit(case.model, pieces, tell=case.tell("split anchors"))
    worst = max(fit.errors.items(), key=lambda item: item[1][0], default=None)
    case.result["params"] = {
        "ridge": fit.ridge,
        "layer": fit.layer,
        "left_out_script_error": {name: error for name, (error, _) in fit.errors.items()},
    }
    if worst is not None:
        case.notes.append(
            f"unexplained variance of a script left out: worst {worst[1][0]:.2f} ({worst[0]})"
        )
    return fit.derive(case.model, case.parts)


def _context(case: _Case) -> Rows:
    from tokengraft.deriving.context_states import context_states, torch_rows

    reader, lots = case.reading()
    layer: Layer = case.layer or max(1, case.model.layers // 2)
    found = context_states(reader, lots.train, [layer])
    is_new = found.ids >= case.first_new
    anchors = found.ids[~is_new]
    fitted = Linear(ridge=0.1).fit(found.states[layer][~is_new], torch_rows(reader, anchors))
    rows = part_states(case.model, case.parts, [0])[0]
    seen = found.ids[is_new] - case.first_new
    rows[seen] = fitted.derive(found.states[layer][is_new])
    if len(seen) < len(rows):
        case.notes.append(f"{len(rows) - len(seen)} tokens not in the text: the mean of their rows")
    case.result["params"] = {"layer": layer, "anchors": len(anchors)}
    return rows


def _distil(case: _Case, start: str | Rows) -> Rows:
    require_torch()
    from tokengraft.deriving.distil.distiller import Distiller

    if isinstance(start, str):
        chosen = named(start)
        if chosen.needs == "text":
            raise UsageError(f"distil cannot start from {start!r}: give a training-free method")
        first = _split_anchor(case) if start == "split-anchor" else _array_method(case, chosen)
    else:
        first = np.array(start, np.float32)
    recipe = case.recipe
    reader, lots = case.reading()
    run = Distiller(reader, lots, first, recipe, case.parts, case.work)

    def report(out: Outcome) -> None:
        if case.progress is not None:
            score = out.curve[-1].score if out.curve else out.start
            case.progress(f"distil: held-out KL {score.kl:.3f}", out.steps, recipe.steps)

    out = run.run(teaching=case.tell("teacher"), stepping=report)
    if out.stopped != "steps":
        case.notes.append(f"stopped after {out.steps} of {recipe.steps} steps: {out.stopped}")
    if out.unseen:
        case.notes.append(
            f"{out.unseen} tokens are in no passage that was trained on: only the shared map "
            "moved their rows"
        )
    case.result.update(
        params={**asdict(recipe), "start": start if isinstance(start, str) else "given rows",
                "passages": out.passages, "steps_done": out.steps,
                "training_passages": len(lots.train)},
        held_out=out.score, start=out.start, curve=tuple(out.curve),
    )  # fmt: skip
    return out.rows
