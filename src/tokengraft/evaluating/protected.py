"""What a graft does to text that it is not for: English and code.

    kl = mean KL(p ‖ q),   top1 = share of positions with the same likeliest token,
    bits = Σ −log q(next) / Σ −log p(next) − 1
    stray = mean Σ q(new tokens), if the graft may write them

p is the base's next-token distribution, q the graft's, over new tokens too if it may write them.
Only lines without a new token count, so that both models read the same ids. A graft that adds rows
only and writes in old tokens gives exactly 0, 1 and 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokengraft.evaluating.score import Bootstrap, Metric, Score, Sums, score
from tokengraft.grafting.output_policies import recorded
from tokengraft.model.divergence import MEASURING, Head, vocabulary_blocks
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.libraries import require_torch
from tokengraft.model.reading import batches, fill
from tokengraft.tokenizer.align import Floats

#: Measures of a kind of text: definition, and whether more is better.
_MEASURES = {
    "kl": ("KL(base ‖ graft) of the next-token distribution, nats, mean over positions", False),
    "top1": ("share of positions at which base and graft find one token likeliest", True),
    "bits": ("bits of the text by the graft over the base's, less 1", False),
    "stray": ("probability of all new tokens together, mean over positions", False),
}
METRICS = {
    f"{kind.lower()}_{name}": Metric(
        f"{kind.lower()}_{name}",
        f"{definition}, over lines of {kind} in which no new token occurs",
        higher,
    )
    for kind in ("English", "code")
    for name, (definition, higher) in _MEASURES.items()
}


def protected_scores(
    base: FrozenModel,
    graft: FrozenModel,
    texts: Mapping[str, Sequence[str]],
    drawn: Bootstrap,
    *,
    most: int = 200,
) -> dict[str, Score]:
    """Each measure of each kind of text, on its first `most` lines without a new token."""
    scores = {}
    for kind, lines in texts.items():
        sums = _sums(base, graft, lines, most)
        if not len(sums):
            continue
        kl, same, positions, before, after, stray = sums.T
        parts = {"kl": (kl, positions), "top1": (same, positions), "bits": (after - before, before)}
        if recorded(graft.policy).writes:
            parts["stray"] = stray, positions
        for name, (above, below) in parts.items():
            metric = METRICS[f"{kind.lower()}_{name}"]
            scores[metric.name] = score(
                metric, Sums(above, below), drawn, ceiling=float(metric.higher),
                n=int(positions.sum()),
            )  # fmt: skip
    return scores


def _sums(base: FrozenModel, graft: FrozenModel, lines: Sequence[str], most: int) -> Floats:
    """By line: sum of KL, agreements, positions, −log p and −log q of the text, stray mass."""
    torch = require_torch()
    room = min(base.room, graft.room)
    both = zip(*(model.tokenizer.encode(list(lines)) for model in (base, graft)), strict=True)
    ids = [np.asarray(old[:room], np.int64) for old, new in both if old == new and len(old) > 1]
    ids = ids[:most]
    count = min(len(base.weight), len(base.tokenizer.vocabulary))
    heads = (
        base.head(count).exact(),
        graft.head(None if recorded(graft.policy).writes else count).exact(),
    )
    sums = np.zeros((len(ids), 6))
    sizes = np.fromiter(map(len, ids), np.int64, len(ids))
    with torch.inference_mode():
        for numbers in batches(sizes):
            filled, _ = fill(base, [ids[n] for n in numbers], base.prefix, base.suffix)
            states = [model.states(filled).float() for model in (base, graft)]
            for row, n in enumerate(numbers):
                here = slice(len(base.prefix), len(base.prefix) + len(ids[n]))
                sums[n] = _line([one[row, here] for one in states], heads, ids[n])
    return sums


def _line(states: Sequence[Any], heads: tuple[Head, Head], ids: Any) -> tuple[float, ...]:
    torch = require_torch()
    following = torch.from_numpy(ids[1:]).to(states[0].device)
    sums = np.zeros(6)
    for block in vocabulary_blocks(heads[1], len(ids), MEASURING):
        p, q = (head.log_probabilities(one[block]) for head, one in zip(heads, states, strict=True))
        after = following[block][:, None]
        known = q[:, : p.shape[1]]
        sums[0] += float((p.exp() * (p - known)).sum())
        sums[1] += float((p.argmax(-1) == q.argmax(-1)).sum())
        sums[2] += len(p)
        for place, logs in ((3, p), (4, q)):
            sums[place] -= float(logs[: len(after)].gather(1, after).sum())
        sums[5] += float(q[:, p.shape[1] :].exp().sum())
    return tuple(sums)
