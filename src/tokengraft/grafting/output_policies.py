"""Output policies by name: what `generate` may do with the new tokens.

A row of the table carries all that is said and decided about a policy: `--help`, the model's card,
what is barred from generation and the contract suite (`tests/contract/test_output_policies.py`) are
made from it. How rows, bias and barred ids follow is `policy`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokengraft.core.errors import look_up


@dataclass(frozen=True)
class OutputPolicy:
    """One policy.

    `help` is a line for the command line, `card` what a model's card says. `writes`: new tokens may
    come out of plain `generate`; `removes`: old pieces that no text needs any more are barred;
    `pools`: it needs the logits processor, and takes a bias; `trains`: it needs output rows that
    were trained, hence text.
    """

    name: str
    help: str
    card: str
    writes: bool = True
    removes: bool = False
    pools: bool = False
    trains: bool = False


POLICIES: dict[str, OutputPolicy] = {
    policy.name: policy
    for policy in (
        OutputPolicy(
            "input-only",
            "prompts are read in new tokens, answers are written in old ones as before",
            "`input-only`: the new tokens compress what goes in; `generate` writes with the old "
            "ones (`suppress_tokens` in `generation_config.json`), so its output for text without "
            "new tokens is the base model's.",
            writes=False,
        ),
        OutputPolicy(
            "write",
            "answers are in new tokens too: needs text to train on; a tied model a second table",
            "`write`: `generate` reads and writes the new tokens. Their output rows were trained "
            "so that, each counted with its first old part, the model says what its base said. "
            "Sample as usual; for greedy decoding switch on the choice by text with "
            "`model.generate(..., logits_processor=tokengraft.logits_processor(folder))`.",
            trains=True,
        ),
        OutputPolicy(
            "shared",
            "new tokens may be written by rows untrained for it: twice the base's bits and more",
            "`shared`: `generate` may emit the new tokens as well as the old ones. No row was "
            "trained to be written: what comes out in new tokens is worse than the base's text.",
        ),
        OutputPolicy(
            "remove",
            "as shared, and pieces of characters no text needs now are barred, single bytes never",
            "`remove`: `generate` may emit the new tokens; old pieces inside characters that no "
            "text of the check needs any more are barred (`suppress_tokens` in "
            "`generation_config.json`).",
            removes=True,
        ),
        OutputPolicy(
            "winner-takes-all",
            "as shared, with a logits processor that pools a new token with its first old part",
            "`winner-takes-all`: a new token and its first old part pool their probability and the "
            "larger takes it. Switch it on with "
            "`model.generate(..., logits_processor=tokengraft.logits_processor(folder))`; "
            "without it the model behaves as under `shared`.",
            pools=True,
        ),
    )
}
DEFAULT = "input-only"


def named(name: str) -> OutputPolicy:
    """The policy of that name; UsageError with the known names otherwise."""
    return look_up("output policy", name, POLICIES)
