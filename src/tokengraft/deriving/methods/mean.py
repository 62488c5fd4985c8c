"""Means of the parts' rows.

    row = Σ w_i row(part_i) / Σ w_i        mean: w_i = 1    late: w_i = 1.2^i

References: the plain mean is the paper's best ("LinReg layer 0") and the customary start for new
tokens (Hewitt 2021, https://nlp.stanford.edu/~johnhew/vocab-expansion.html). `late` follows the
observation that in a causal model the last part is where the whole token is first known.
"""

from __future__ import annotations

from tokengraft.deriving.methods import Rows
from tokengraft.deriving.states import Pool, part_states
from tokengraft.deriving.task import Task


def mean(task: Task, pool: str | Pool = "mean") -> Rows:
    """The mean of the rows of each new token's parts."""
    return part_states(task.model, task.parts, [0], pool)[0]


def mean_late(task: Task) -> Rows:
    """The same, each part weighing 1.2 times the one before."""
    return mean(task, "late")
