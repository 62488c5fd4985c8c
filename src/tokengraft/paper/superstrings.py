"""Sub- and superstrings: a row from the tokens inside a string and from those that contain it.

    row(s) = ½ mean-late(parts of s)  +  ½ Σ_t (|s| / |t|)² row(t) / Σ_t (|s| / |t|)²

t: every token of the vocabulary that contains s; |·| in bytes. Without such a token only the parts
count. No text is needed, so even a token too rare to be trained gets a row.

Reference: the paper's last section, after fastText's subword vectors, Bojanowski et al. 2017
(https://aclanthology.org/Q17-1010/). Changed: of the substrings only the tokenizer's own parts are
used; all substrings (like fastText's n-grams) were worse on FLORES dev: KL .55 to .65, against .48
for the parts alone and .34 for this method (`docs/paper.md`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokengraft.deriving.methods import Rows
from tokengraft.deriving.states import part_states
from tokengraft.deriving.task import Task

_SHARE = 0.5  # weight of the superstrings; .3 and .7 were worse on dev
_POWER = 2  # 1 and 4 were no better


def superstrings(pieces: Sequence[bytes], strings: Sequence[bytes]) -> list[list[int]]:
    """For each string, the ids of the longer pieces that contain it."""
    longer: list[list[int]] = [[] for _ in strings]
    wanted: dict[bytes, list[int]] = {}
    for number, string in enumerate(strings):
        wanted.setdefault(string, []).append(number)
    sizes = sorted({len(string) for string in strings if string})
    for id_, piece in enumerate(pieces):
        inside = {
            piece[at : at + size]
            for size in sizes
            if size < len(piece)
            for at in range(len(piece) - size + 1)
        }
        for string in inside & wanted.keys():
            for number in wanted[string]:
                longer[number].append(id_)
    return longer


def derive(task: Task) -> Rows:
    """Rows of the task's tokens; how many have a superstring goes into its parameters."""
    model = task.model
    pieces = task.old.vocabulary.pieces[: len(model.weight)]
    strings = [b"".join(pieces[part] for part in parts) for parts in task.parts]
    rows = part_states(model, task.parts, [0], "late")[0]
    longer = superstrings(pieces, strings)
    for number, (string, ids) in enumerate(zip(strings, longer, strict=True)):
        if ids:
            near = np.array([len(string) / len(pieces[id_]) for id_ in ids]) ** _POWER
            table = model.weight[ids].float().cpu().numpy()
            blend = near @ table / near.sum()
            rows[number] = (1 - _SHARE) * rows[number] + _SHARE * blend
    task.params = {"with_superstrings": sum(map(bool, longer))}
    return rows
