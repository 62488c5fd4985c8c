"""Context-averaged states: a token's state as real text shows it, not alone.

    h_l(s) = mean over occurrences of s in text of the state at its last old part, at layer l
    anchors: old tokens that stay tokens in the same text, averaged likewise, with their true rows

Reference: averaging contextual states into one static vector, Bommasani et al. 2020
(https://aclanthology.org/2020.acl-main.431/). Changed: the averages are not used as rows but
mapped to rows by any method here, whose anchors were averaged over the same text; states are taken
where the tokenizations end at the same byte, so both kinds are known whole there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokengraft.deriving.methods.linear import Linear
from tokengraft.deriving.methods.protocol import Rows
from tokengraft.deriving.states import Layer, layer_states, part_states
from tokengraft.deriving.task import Task
from tokengraft.model.reading import Reader, batches
from tokengraft.tokenizer.align import Alignment, Ints


@dataclass(frozen=True)
class Averages:
    """Mean states by layer (ids, dimensions) of the ids that the text holds, and their counts."""

    ids: Ints
    counts: Ints
    states: dict[Layer, Rows]


def context_states(
    reader: Reader,
    passages: Sequence[Alignment],
    layers: Sequence[Layer],
    most_tokens: int = 200_000,
    batch_tokens: int = 8192,
) -> Averages:
    """Read at most `most_tokens` old tokens of the passages and average by new-tokenizer id.

    Ids below `reader.first_new` are anchors, the others new tokens.
    """
    sizes = np.fromiter((len(one.old) for one in passages), np.int64, len(passages))
    inside = int(np.searchsorted(np.cumsum(sizes), most_tokens, side="right")) or 1
    chosen = passages[:inside]
    ids = np.unique(np.concatenate([one.new[one.new_at] for one in chosen]))
    width = reader.model.dimensions
    sums = {layer: np.zeros((len(ids), width)) for layer in layers}
    counts = np.zeros(len(ids), np.int64)
    for numbers in batches(sizes[:inside], batch_tokens):
        batch = [chosen[n] for n in numbers]
        where = np.searchsorted(ids, np.concatenate([one.new[one.new_at] for one in batch]))
        np.add.at(counts, where, 1)
        at = reader.positions([one.old_at for one in batch])
        for layer, states in layer_states(reader.model, reader.pad_old(batch), layers).items():
            np.add.at(sums[layer], where, states[at].float().cpu().numpy())
    means = {layer: (total / counts[:, None]).astype(np.float32) for layer, total in sums.items()}
    return Averages(ids, counts, means)


def derive(task: Task) -> Rows:
    """Rows by ridge regression on the averages; the mean of its parts for a token not in the text.

    The layer is the middle one unless another is asked for.
    """
    reader, lots = task.passages()
    model, first_new = task.model, task.first_new
    layer: Layer = task.options.layer or max(1, model.layers // 2)
    averages = context_states(reader, lots.train, [layer])
    states, is_new = averages.states[layer], averages.ids >= first_new
    anchors = averages.ids[~is_new]
    true = model.weight[anchors.tolist()].float().cpu().numpy()
    fitted = Linear(ridge=0.1).fit(states[~is_new], true)
    rows = part_states(model, task.parts, [0])[0]
    seen = averages.ids[is_new] - first_new
    rows[seen] = fitted.derive(states[is_new])
    if len(seen) < len(rows):
        task.notes.append(f"{len(rows) - len(seen)} tokens not in the text: the mean of their rows")
    task.params = {"layer": layer, "anchors": len(anchors)}
    return rows
