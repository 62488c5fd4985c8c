"""Every method by name: what it is, where it comes from, what it needs.

A row of the table is an array method (`Deriver`) together with how the parts are pooled and which
layer is read; `split-anchor`, `context` and `distil` have their own modules, since they need more
than states.

KL in nats (top-1 agreement) at aligned positions, rootstock, 2,000 merges a language, 150 lines of
FLORES devtest; the weight of later parts, 1.2, was chosen on dev (`benchmarks/mean_late.py`):

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
from typing import Literal, TypeAlias

from tokengraft.core.errors import UsageError, did_you_mean
from tokengraft.deriving.methods.calibrate import Calibrated
from tokengraft.deriving.methods.knn import KNN
from tokengraft.deriving.methods.linear import Linear
from tokengraft.deriving.methods.local_linear import LocalLinear
from tokengraft.deriving.methods.mean import Mean
from tokengraft.deriving.methods.procrustes import Procrustes
from tokengraft.deriving.methods.protocol import Deriver

Needs: TypeAlias = Literal["rows", "states", "bytes", "text"]


@dataclass(frozen=True)
class Method:
    """One way to derive rows.

    `needs`: the embedding rows alone; hidden states at a layer; byte tokens in the vocabulary; or
    text with both tokenizers. `make(k, device)` gives the array method, where there is one.
    """

    name: str
    summary: str
    reference: str
    needs: Needs
    pool: str = "mean"
    make: Callable[[int, str], Deriver] | None = None


_KNN_URL = (
    "https://scikit-learn.org/stable/modules/generated/sklearn.neighbors.KNeighborsRegressor.html"
)
_NORM_URL = "https://nlp.stanford.edu/~johnhew/vocab-expansion.html"

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("mean", "mean of the parts' rows", _NORM_URL, "rows", make=lambda k, d: Mean()),
        Method("mean-bytes", "mean of the parts' rows, by their bytes", _NORM_URL, "rows",
               "bytes", lambda k, d: Mean()),
        Method("mean-late", "mean of the parts' rows, later ones weigh more", _NORM_URL, "rows",
               "late", lambda k, d: Mean()),
        Method("last-part", "the last part's row", _NORM_URL, "rows", "last",
               lambda k, d: Mean()),
        Method("mean-calibrated", "mean, rescaled to the norm of old rows", _NORM_URL, "rows",
               make=lambda k, d: Calibrated(Mean())),
        Method("knn", "k nearest anchors, weight 1/d (the paper's)", _KNN_URL, "states",
               make=lambda k, d: KNN(k, device=d)),
        Method("linear", "affine least squares (the paper's)",
               "https://doi.org/10.1080/00401706.1970.10488634", "states",
               make=lambda k, d: Linear(device=d)),
        Method("local-linear", "least squares on k nearest anchors, weight exp(−d) (the paper's)",
               "https://doi.org/10.1080/01621459.1988.10478639", "states",
               make=lambda k, d: LocalLinear(k, device=d)),
        Method("ridge", "affine least squares with shrinkage",
               "https://doi.org/10.1080/00401706.1970.10488634", "states",
               make=lambda k, d: Linear(ridge=0.1, device=d)),
        Method("procrustes", "rotation and scale", "https://doi.org/10.1007/BF02289451", "states",
               make=lambda k, d: Procrustes()),
        Method("split-anchor", "regression on tokens the model knows whole, forced through bytes",
               "https://aclanthology.org/D17-1010/", "bytes"),
        Method("context", "states averaged over text, mapped by ridge regression",
               "https://aclanthology.org/2020.acl-main.431/", "text"),
        Method("distil", "rows trained so that the frozen model reads new tokens as old ones",
               "https://arxiv.org/abs/2505.20133", "text"),
    )
}  # fmt: skip

TRAINING_FREE = "mean-late"  # lower KL than the mean in all 12 languages: see above


def named(name: str) -> Method:
    """The method of that name, or UsageError with the nearest ones."""
    if name not in METHODS:
        raise UsageError(
            f"no method {name!r}; known: auto, {', '.join(METHODS)}.{did_you_mean(name, METHODS)}"
        )
    return METHODS[name]
