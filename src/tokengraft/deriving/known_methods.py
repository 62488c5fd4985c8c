"""Every method by name: what it is, where it comes from, what it needs.

`--help`, the docs and the contract suite (`tests/contract/test_derive_methods.py`) are made from
this table. Most methods are array methods (`Deriver`) with a way to pool the parts (`FromStates`);
those that need bytes or text are functions of a `Task`. A new method is a module in `methods/` and
a row here; modules are imported only when a method is used, so that `--help` stays fast.

KL in nats (top-1 agreement) at aligned positions: rootstock, 2,000 merges for each language, 150
lines of FLORES devtest. The weight of later parts, 1.2, was chosen on dev
(`benchmarks/mean_late.py`):

           mean         mean-late              mean         mean-late
    amh  2.34 (.437)  1.90 (.465)       tam  2.19 (.369)  2.10 (.356)
    ben  2.28 (.259)  2.16 (.265)       tel  2.83 (.406)  2.12 (.501)
    heb  1.38 (.303)  1.31 (.308)       urd  1.96 (.273)  1.86 (.275)
    hin  1.89 (.290)  1.75 (.298)       vie  1.27 (.385)  1.13 (.391)
    hye  1.87 (.539)  1.56 (.562)       ydd  1.65 (.254)  1.54 (.265)
    shn  0.65 (.856)  0.64 (.845)       zho  1.04 (.508)  1.00 (.507)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np

from tokengraft.core.errors import no_such
from tokengraft.core.options import Later

if TYPE_CHECKING:
    from tokengraft.deriving.methods import Deriver, Rows
    from tokengraft.deriving.states import Layer
    from tokengraft.deriving.task import Task

Needs: TypeAlias = Literal["rows", "states", "pieces", "bytes", "text"]


@dataclass(frozen=True)
class Method:
    """One way to derive rows.

    `needs`: the embedding rows alone; hidden states at a layer; the tokens' bytes; a token for
    every byte; or text with both tokenizers. `uses` are the options that affect it.
    """

    name: str
    summary: str
    reference: str
    needs: Needs
    derive: Callable[[Task], Rows]
    uses: tuple[str, ...] = ()


@dataclass(frozen=True)
class FromStates:
    """An array method, made by `make(k, device)`, on the pooled states of the parts.

    Without `layered` it always gets the rows themselves (layer 0).
    """

    make: Callable[[int, str], Deriver]
    pool: str = "mean"
    layered: bool = False

    def __call__(self, task: Task) -> Rows:
        """Fit on the old vocabulary and synthetic anchors; derive rows for the task's parts."""
        from tokengraft.deriving.states import mixed_states, part_states, vocabulary_states
        from tokengraft.model.folder import model_hash

        model, options = task.model, task.options
        layer: Layer = options.layer if self.layered else 0
        lengths = [len(piece) for piece in task.old.vocabulary.pieces]
        hidden = part_states(model, task.parts, [layer], self.pool, lengths)[layer]
        known = vocabulary_states(
            model,
            list(dict.fromkeys((0, layer))),
            task.first_new,
            cache=options.cache,
            key=model_hash(model.folder) if options.cache is not None else "",
            progress=task.tell("states"),
        )
        if self.layered:
            task.params = {"layer": layer, "k": options.k, "synthetic": options.synthetic}
        anchors, rows = known[layer], known[0]
        if self.layered and options.synthetic:
            mixed = mixed_states(model, task.parts, layer, options.synthetic, options.recipe.seed)
            anchors, rows = (
                np.concatenate(pair) for pair in zip((anchors, rows), mixed, strict=True)
            )
        deriver = self.make(options.k, str(model.device))
        return deriver.fit(anchors, rows).derive(hidden)


def _rows(name: str, summary: str, pool: str = "mean", calibrated: bool = False) -> Method:
    def make(k: int, device: str) -> Deriver:
        mean = Later("tokengraft.deriving.methods.mean:Mean")()
        scaled = Later("tokengraft.deriving.methods.mean:Calibrated")
        return cast("Deriver", scaled(mean) if calibrated else mean)

    return Method(name, summary, _NORM_URL, "rows", FromStates(make, pool))


def _states(
    name: str, summary: str, reference: str, make: Callable[[int, str], Deriver], *uses: str
) -> Method:
    derive = FromStates(make, layered=True)
    return Method(name, summary, reference, "states", derive, ("layer", "synthetic", *uses))


_KNN_URL = (
    "https://scikit-learn.org/stable/modules/generated/sklearn.neighbors.KNeighborsRegressor.html"
)
_RIDGE_URL = "https://doi.org/10.1080/00401706.1970.10488634"
_NORM_URL = "https://nlp.stanford.edu/~johnhew/vocab-expansion.html"
_LINEAR = Later("tokengraft.deriving.methods.linear:Linear")
_LOCAL_LINEAR = Later("tokengraft.deriving.methods.neighbours:LocalLinear")

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _rows("mean", "mean of the parts' rows"),
        _rows("mean-bytes", "mean of the parts' rows, by their bytes", pool="bytes"),
        _rows("mean-late", "mean of the parts' rows, later ones weigh more", pool="late"),
        _rows("last-part", "the last part's row", pool="last"),
        _rows("mean-calibrated", "mean, rescaled to the norm of old rows", calibrated=True),
        _states("knn", "k nearest anchors, weight 1/d (the paper's)", _KNN_URL,
                lambda k, d: Later("tokengraft.deriving.methods.neighbours:KNN")(k, device=d), "k"),
        _states("linear", "affine least squares (the paper's)", _RIDGE_URL,
                lambda k, d: _LINEAR(device=d)),
        _states("local-linear", "least squares on k nearest anchors, weight exp(−d) (the paper's)",
                "https://doi.org/10.1080/01621459.1988.10478639",
                lambda k, d: _LOCAL_LINEAR(k, device=d), "k"),
        _states("ridge", "affine least squares with shrinkage", _RIDGE_URL,
                lambda k, d: _LINEAR(ridge=0.1, device=d)),
        _states("procrustes", "rotation and scale", "https://doi.org/10.1007/BF02289451",
                lambda k, d: Later("tokengraft.deriving.methods.linear:Procrustes")()),
        Method("superstrings", "mean-late, blended with rows of tokens that contain the new one",
               "https://aclanthology.org/Q17-1010/", "pieces",
               Later("tokengraft.deriving.methods.superstrings:derive")),
        Method("split-anchor", "regression on tokens the model knows whole, forced through bytes",
               "https://aclanthology.org/D17-1010/", "bytes",
               Later("tokengraft.deriving.methods.split_anchor:derive")),
        Method("context", "states averaged over text, mapped by ridge regression",
               "https://aclanthology.org/2020.acl-main.431/", "text",
               Later("tokengraft.deriving.methods.context:derive"), ("layer",)),
        Method("distil", "rows trained so that the frozen model reads new tokens as old ones",
               "https://arxiv.org/abs/2505.20133", "text",
               Later("tokengraft.deriving.distil.as_method:distil"),
               ("minutes", "steps", "own", "by-text", "start", "checkpoint-dir")),
    )
}  # fmt: skip


def named(name: str) -> Method:
    """The method with that name, or UsageError with the nearest names."""
    if name not in METHODS:
        raise no_such("method", name, ("auto", *METHODS))
    return METHODS[name]
