"""The paper's methods for rows, and every other training-free one that lost to `mean-late`.

Array methods (`Deriver`) fit on anchors, old tokens with their states and true rows, and derive
rows for the pooled states of new tokens' parts (`FromStates`); the others are functions of a task.
Their options, in `Deriving.more` and as `--option NAME=VALUE`:

    layer      0 (the rows) to n (the last block's own output), or norm (after the final norm)
    k          neighbours, 5 by default
    synthetic  this many mixtures of each new token's parts as further anchors, by default none
    cache      a folder that keeps states of the vocabulary between calls
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tokengraft.core.options import Later
from tokengraft.deriving.known_methods import METHODS, Method, Needs
from tokengraft.deriving.methods import Rows
from tokengraft.deriving.methods.mean import mean
from tokengraft.deriving.states import Pool, part_states, shares
from tokengraft.deriving.task import Task
from tokengraft.paper.deriver import Deriver, count_of, layer_of


@dataclass(frozen=True)
class FromStates:
    """An array method, made by `make(k, device)`, on the states of the parts at a layer."""

    make: Callable[[int, str], Deriver]

    def __call__(self, task: Task) -> Rows:
        """Fit on the old vocabulary and synthetic anchors; derive rows for the task's parts."""
        from tokengraft.model.folder import model_hash
        from tokengraft.paper.states import mixed_states, vocabulary_states

        model, more = task.model, task.options.more
        layer, k = layer_of(more), count_of(more, "k", 5)
        synthetic, cache = count_of(more, "synthetic", 0), more.get("cache")
        hidden = part_states(model, task.parts, [layer])[layer]
        known = vocabulary_states(
            model,
            list(dict.fromkeys((0, layer))),
            task.first_new,
            cache=cache,
            key="" if cache is None else model_hash(model.folder),
            progress=task.tell("states"),
        )
        task.params = {"layer": layer, "k": k, "synthetic": synthetic}
        anchors, rows = known[layer], known[0]
        if synthetic:
            mixed = mixed_states(model, task.parts, layer, synthetic, task.options.recipe.seed)
            anchors, rows = (
                np.concatenate(pair) for pair in zip((anchors, rows), mixed, strict=True)
            )
        return self.make(k, str(model.device)).fit(anchors, rows).derive(hidden)


def by_bytes(task: Task) -> Rows:
    """The mean of the parts' rows, each weighing as many as it has bytes."""
    lengths = [max(1, len(piece)) for piece in task.old.vocabulary.pieces]
    weigh: Pool = lambda parts: shares(np.array([lengths[part] for part in parts], float))  # noqa: E731
    return mean(task, weigh)


def last_part(task: Task) -> Rows:
    """The last part's row."""
    return mean(task, "last")


def calibrated(task: Task) -> Rows:
    """The mean of the parts' rows, as long as rows usually are.

    A mean of unrelated rows is shorter than any of them. On rootstock, longer ones make KL worse
    (Shan .69 → 1.16): to the model a short row means uncertainty, rightly so here.
    """
    table = task.model.weight[: task.first_new].float().cpu().numpy()
    return rescaled(mean(task), float(np.linalg.norm(table, axis=1).mean()))


def rescaled(rows: Rows, length: float) -> Rows:
    """The rows with that length; a row of zeros stays one."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    factor = np.divide(length, norms, out=np.ones_like(norms), where=norms > 0)
    return (rows * factor).astype(np.float32)  # type: ignore[no-any-return]


_KNN_URL = (
    "https://scikit-learn.org/stable/modules/generated/sklearn.neighbors.KNeighborsRegressor.html"
)
_LOCAL_URL = "https://doi.org/10.1080/01621459.1988.10478639"
_RIDGE_URL = "https://doi.org/10.1080/00401706.1970.10488634"
_MEAN_URL = "https://nlp.stanford.edu/~johnhew/vocab-expansion.html"
_LINEAR = Later("tokengraft.paper.linear:Linear")
_PROCRUSTES = Later("tokengraft.paper.linear:Procrustes")
_KNN = Later("tokengraft.paper.neighbours:KNN")
_LOCAL = Later("tokengraft.paper.neighbours:LocalLinear")
_STATES = ("layer", "synthetic", "cache")
_NEAR = (*_STATES, "k")


def _row(
    name: str,
    summary: str,
    reference: str,
    needs: Needs,
    derive: Callable[[Task], Rows],
    takes: Sequence[str] = (),
) -> None:
    name = f"paper.{name}"
    METHODS[name] = Method(name, summary, reference, needs, derive, (), tuple(takes))


def register() -> None:
    """Add the methods to the registry."""
    _row("mean-bytes", "mean of the parts' rows, by their bytes", _MEAN_URL, "rows", by_bytes)
    _row("last-part", "the last part's row", _MEAN_URL, "rows", last_part)
    _row("mean-calibrated", "mean, rescaled to the norm of old rows", _MEAN_URL, "rows", calibrated)
    _row(
        "knn",
        "k nearest anchors, weight 1/d (the paper's)",
        _KNN_URL,
        "states",
        FromStates(lambda k, device: _KNN(k, device=device)),
        _NEAR,
    )
    _row(
        "linear",
        "affine least squares (the paper's)",
        _RIDGE_URL,
        "states",
        FromStates(lambda k, device: _LINEAR()),
        _STATES,
    )
    _row(
        "local-linear",
        "least squares on k nearest anchors, weight exp(−d) (the paper's)",
        _LOCAL_URL,
        "states",
        FromStates(lambda k, device: _LOCAL(k, device=device)),
        _NEAR,
    )
    _row(
        "ridge",
        "affine least squares with shrinkage",
        _RIDGE_URL,
        "states",
        FromStates(lambda k, device: _LINEAR(ridge=0.1)),
        _STATES,
    )
    _row(
        "procrustes",
        "rotation and scale",
        "https://doi.org/10.1007/BF02289451",
        "states",
        FromStates(lambda k, device: _PROCRUSTES()),
        _STATES,
    )
    _row(
        "superstrings",
        "mean-late, blended with rows of tokens that contain the new one",
        "https://aclanthology.org/Q17-1010/",
        "pieces",
        Later("tokengraft.paper.superstrings:derive"),
    )
    _row(
        "split-anchor",
        "regression on tokens the model knows whole, forced through bytes",
        "https://aclanthology.org/D17-1010/",
        "bytes",
        Later("tokengraft.paper.split_anchor:derive"),
    )
    _row(
        "context",
        "states averaged over text, mapped by ridge regression",
        "https://aclanthology.org/2020.acl-main.431/",
        "text",
        Later("tokengraft.paper.context:derive"),
        ("layer",),
    )
