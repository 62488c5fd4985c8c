"""Context-averaged states: a token's mean state in real text, instead of its state alone.

    h_l(s) = mean over occurrences of s in text of the state at its last old part, at layer l
    anchors: old tokens that stay tokens in the same text, averaged likewise, with their true rows

Reference: averaging contextual states into one static vector, Bommasani et al. 2020
(https://aclanthology.org/2020.acl-main.431/). Changed: the averages are not used as rows but
mapped to rows by ridge regression, whose anchors were averaged over the same text; states are taken
where both tokenizations end at the same byte, so that each token has been read whole there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokengraft.deriving.methods import Rows
from tokengraft.deriving.states import Layer, layer_states, part_states
from tokengraft.deriving.task import Task
from tokengraft.model.reading import Reader, batches
from tokengraft.paper.deriver import layer_of
from tokengraft.paper.linear import Linear
from tokengraft.tokenizer.align import Alignment, Ints

_MOST_TOKENS = 200_000  # old tokens of text to read


def context_states(
    reader: Reader, passages: Sequence[Alignment], layer: Layer
) -> tuple[Ints, Rows]:
    """The new tokenizer's ids that occur in the passages, and each one's mean state at `layer`.

    At most `_MOST_TOKENS` old tokens are read. Ids below `reader.first_new` are anchors, the others
    new tokens.
    """
    sizes = np.fromiter((len(one.old) for one in passages), np.int64, len(passages))
    inside = int(np.searchsorted(np.cumsum(sizes), _MOST_TOKENS, side="right")) or 1
    chosen = passages[:inside]
    ids = np.unique(np.concatenate([one.new[one.new_at] for one in chosen]))
    sums, counts = np.zeros((len(ids), reader.model.dimensions)), np.zeros(len(ids), np.int64)
    for numbers in batches(sizes[:inside]):
        batch = [chosen[n] for n in numbers]
        where = np.searchsorted(ids, np.concatenate([one.new[one.new_at] for one in batch]))
        np.add.at(counts, where, 1)
        states = layer_states(reader.model, reader.pad_old(batch), [layer])[layer]
        at = reader.positions([one.old_at for one in batch])
        np.add.at(sums, where, states[at].float().cpu().numpy())
    return ids, (sums / counts[:, None]).astype(np.float32)


def derive(task: Task) -> Rows:
    """Rows by ridge regression on the averages; for a token not in the text, its parts' mean.

    The layer is the middle one by default.
    """
    reader, lots = task.passages()
    model, first_new = task.model, task.first_new
    middle = max(1, model.layers // 2)
    layer: Layer = layer_of(task.options.more, middle) or middle
    ids, states = context_states(reader, lots.train, layer)
    is_new = ids >= first_new
    anchors = ids[~is_new]
    true = model.weight[anchors.tolist()].float().cpu().numpy()
    fitted = Linear(ridge=0.1).fit(states[~is_new], true)
    rows = part_states(model, task.parts, [0])[0]
    seen = ids[is_new] - first_new
    rows[seen] = fitted.derive(states[is_new])
    if len(seen) < len(rows):
        lacking = len(rows) - len(seen)
        task.notes.append(f"{lacking} tokens are not in the text: the mean of their parts' rows")
    task.params = {"layer": layer, "anchors": len(anchors)}
    return rows
