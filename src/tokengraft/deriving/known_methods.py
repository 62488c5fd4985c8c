"""Every method by name: what it is, where it comes from, what it needs.

`--help`, the docs and the contract suite (`tests/contract/test_derive_methods.py`) are made from
this table. A method is a function of a `Task`; a new one is a module in `methods/` and a row here.
Modules are imported only when a method is used, so that `--help` stays fast. `tokengraft.paper`
adds rows of its own.

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
from typing import TYPE_CHECKING, Literal, TypeAlias

from tokengraft.core.options import Later, find_row

if TYPE_CHECKING:
    from tokengraft.deriving.methods import Rows
    from tokengraft.deriving.task import Task

Needs: TypeAlias = Literal["rows", "states", "pieces", "bytes", "text"]


@dataclass(frozen=True)
class Method:
    """One way to derive rows.

    `needs`: the embedding rows alone; hidden states at a layer; the tokens' bytes; a token for
    every byte; or text with both tokenizers. `uses` are the options of `graft` that affect it,
    `takes` the names that it reads from `Deriving.more`.
    """

    name: str
    summary: str
    reference: str
    needs: Needs
    derive: Callable[[Task], Rows]
    uses: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


_MEAN_URL = "https://nlp.stanford.edu/~johnhew/vocab-expansion.html"

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "mean",
            "mean of the parts' rows",
            _MEAN_URL,
            "rows",
            Later("tokengraft.deriving.methods.mean:mean"),
        ),
        Method(
            "mean-late",
            "mean of the parts' rows, later ones weigh more",
            _MEAN_URL,
            "rows",
            Later("tokengraft.deriving.methods.mean:mean_late"),
        ),
        Method(
            "distil",
            "rows trained so that the frozen model reads new tokens as old ones",
            "https://arxiv.org/abs/2505.20133",
            "text",
            Later("tokengraft.deriving.distil.as_method:distil"),
            ("minutes", "steps", "own", "by-text", "start", "checkpoint-dir"),
        ),
    )
}


def named(name: str) -> Method:
    """The method with that name, or UsageError with the nearest names."""
    return find_row("method", name, METHODS, ("auto",))
