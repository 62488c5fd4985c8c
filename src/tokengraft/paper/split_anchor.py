"""Split-anchor regression: learn from whole tokens what row a split token should have.

    anchors: old tokens t of several bytes, read as their byte tokens b₁ … b_m instead
    fit      row(t) ≈ ȳ + (x(t) − x̄) B,     x(t) = features of the states of b₁ … b_m
    apply    row(s) = ȳ + (x(s) − x̄) B,     for new tokens s, also read as bytes

The paper fits on tokens read as themselves, so its methods never see a token that was read in
parts, nor the right row for one. Here every anchor has both: the states of its parts and its true
row. So the error can be measured: `leave_one_script_out` fits without a script and predicts that
script's rows.

Reference: predicting a whole's vector from its parts' states by regression, Lazaridou et al. 2013
(https://aclanthology.org/P13-1149/) and mimicking, Pinter et al. 2017
(https://aclanthology.org/D17-1010/). Changed: the parts are read by the frozen model itself.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokengraft.core.errors import UsageError
from tokengraft.deriving.methods import Floats, Rows
from tokengraft.deriving.states import part_states
from tokengraft.deriving.task import Task
from tokengraft.model.frozen import FrozenModel
from tokengraft.paper.deriver import Fitted
from tokengraft.paper.linear import Linear

_MOST_BYTES = 24  # of an anchor
_LEAST = 20  # anchors that a script needs to be judged by
_RIDGES = (0.001, 0.01, 0.1, 1.0)


@dataclass(frozen=True)
class Anchors:
    """Old tokens that can be split: their ids, their byte tokens, the script of their text."""

    ids: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]
    scripts: tuple[str, ...]


def byte_ids(pieces: Sequence[bytes]) -> dict[int, int]:
    """Byte value to the id of the token that is that byte alone."""
    ids: dict[int, int] = {}
    for number, piece in enumerate(pieces):
        if len(piece) == 1:
            ids.setdefault(piece[0], number)
    return ids


def split_anchors(pieces: Sequence[bytes]) -> Anchors:
    """Anchors of a vocabulary with bytes: whole words and characters of non-Latin scripts.

    Text with one byte a character is left out: there a byte is a letter, not a fragment.
    """
    known = byte_ids(pieces)
    rows: list[tuple[int, tuple[int, ...], str]] = []
    for number, piece in enumerate(pieces):
        if not 2 <= len(piece) <= _MOST_BYTES:
            continue
        try:
            text = piece.decode("utf-8").removeprefix(" ")
        except UnicodeDecodeError:
            continue
        if not text or text.isascii():
            continue
        if all(byte in known for byte in piece):
            rows.append((number, tuple(known[byte] for byte in piece), script(text)))
    if not rows:
        raise UsageError("no token of this vocabulary can be split into byte tokens")
    ids, parts, scripts = zip(*rows, strict=True)
    return Anchors(ids, parts, scripts)


def script(text: str) -> str:
    """The script of the first letter, by the first word of its Unicode name."""
    for char in text:
        if unicodedata.category(char)[0] in "LM":
            return unicodedata.name(char, "OTHER").split(" ")[0].split("-")[0]
    return "OTHER"


def spell(pieces: Sequence[bytes], parts: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """New tokens' parts as byte tokens."""
    known = byte_ids(pieces)
    spelled = []
    for one in parts:
        data = b"".join(pieces[part] for part in one)
        missing = [byte for byte in data if byte not in known]
        if missing:
            raise UsageError(f"this vocabulary has no token for the byte {missing[0]:#04x}")
        spelled.append(tuple(known[byte] for byte in data))
    return spelled


def leave_one_script_out(
    features: Floats, rows: Floats, scripts: Sequence[str], ridge: float
) -> Mapping[str, tuple[float, int]]:
    """Each script's unexplained share of variance when predicted from the others, and its n.

    0: rows predicted exactly; 1: no better than the script's own mean row.
    """
    unexplained: dict[str, tuple[float, int]] = {}
    labels = np.asarray(scripts)
    for name in sorted(set(scripts)):
        inside = labels == name
        if inside.sum() < _LEAST or (~inside).sum() < _LEAST:
            continue
        fitted = Linear(ridge=ridge).fit(features[~inside], rows[~inside])
        miss = fitted.derive(features[inside]) - rows[inside]
        spread = rows[inside] - rows[inside].mean(axis=0)
        unexplained[name] = (float((miss**2).sum() / (spread**2).sum()), int(inside.sum()))
    return unexplained


@dataclass(frozen=True)
class SplitFit:
    """The map learned from split anchors, its parameters, and its error on left-out scripts."""

    fitted: Fitted
    pieces: Sequence[bytes]
    layer: int
    ridge: float
    scales: Floats
    errors: Mapping[str, tuple[float, int]]

    def derive(self, model: FrozenModel, parts: Sequence[Sequence[int]]) -> Rows:
        """Rows of new tokens, which are read as bytes like the anchors."""
        seen = features(model, spell(self.pieces, parts), self.layer)
        return self.fitted.derive(seen / self.scales)


def features(
    model: FrozenModel,
    parts: Sequence[Sequence[int]],
    layer: int,
    tell: Callable[[int, int], None] | None = None,
) -> Floats:
    """Mean row, mean state and last state at `layer` of each token's byte parts, side by side."""
    mean = part_states(model, parts, [0, layer], progress=tell)
    last = part_states(model, parts, [layer], "last")
    return np.concatenate([mean[0], mean[layer], last[layer]], axis=1)


def fit(
    model: FrozenModel,
    pieces: Sequence[bytes],
    tell: Callable[[int, int], None] | None = None,
) -> SplitFit:
    """Fit on all split anchors; the shrinkage with the least error on left-out scripts is taken."""
    anchors = split_anchors(pieces)
    layer = max(1, model.layers // 2)
    seen = features(model, anchors.parts, layer, tell)
    # Rows are far smaller than states: one shrinkage for both needs them at one scale.
    size = np.sqrt((seen**2).reshape(len(seen), 3, -1).mean(axis=(0, 2)))
    scales = np.repeat(size, model.dimensions)
    seen = seen / scales
    rows = model.weight[list(anchors.ids)].float().cpu().numpy()
    tried = {ridge: leave_one_script_out(seen, rows, anchors.scripts, ridge) for ridge in _RIDGES}
    best = min(tried, key=lambda ridge: _mean_error(tried[ridge]))
    fitted = Linear(ridge=best).fit(seen, rows)
    return SplitFit(fitted, pieces, layer, best, scales, tried[best])


def derive(task: Task) -> Rows:
    """Rows of the task's new tokens; the error on left-out scripts goes into its parameters."""
    pieces = task.old.vocabulary.pieces[: len(task.model.weight)]
    fitted = fit(task.model, pieces, tell=task.tell("split anchors"))
    worst = max(fitted.errors.items(), key=lambda item: item[1][0], default=None)
    task.params = {
        "ridge": fitted.ridge,
        "layer": fitted.layer,
        "left_out_script_error": {name: error for name, (error, _) in fitted.errors.items()},
    }
    if worst is not None:
        task.notes.append(
            f"unexplained variance of a script left out: worst {worst[1][0]:.2f} ({worst[0]})"
        )
    return fitted.derive(task.model, task.parts)


def _mean_error(errors: Mapping[str, tuple[float, int]]) -> float:
    return float(np.mean([error for error, _ in errors.values()])) if errors else 0.0
