"""Bits per byte of whole texts for a graft that may write new tokens, counting both spellings.

    P(stretch) = P(new spelling | context) + P(old spelling | context)

A stretch is the text between two common positions of the tokenizations; if they spell it alike,
there is only one term. The context is the text so far in new tokens. The two spellings differ in
their first token, so they exclude each other and their probabilities add up: splitting the vote
between them costs a graft nothing here, and `vote_split` shows it. Both are read in one pass: old
spellings hang off the sequence as branches, each of which sees only its context and itself. (A sum
over all segmentations is out of reach, since every choice changes the context of all later ones.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tokengraft.evaluating.fidelity import cosines, mean_rows
from tokengraft.evaluating.lines import Case
from tokengraft.evaluating.score import Bootstrap, Metric, Score, Sums, score
from tokengraft.model.divergence import Head, likelihoods
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.libraries import require_torch
from tokengraft.model.reading import OnRead, read
from tokengraft.tokenizer.align import Alignment, Floats, Ints

_FULL, _SLIDING = "full_attention", "sliding_attention"  # transformers' names for kinds of layers
_ALIKE = 0.99  # cosine; half precision rounds differently in batches of another shape
BPB = Metric(
    "shared_bpb",
    "bits per byte of whole lines by the graft, both spellings of every stretch summed",
    higher=False,
)
NEW_ONLY = Metric(
    "new_spelling_bpb", "as shared_bpb, the new tokenizer's own spelling only", higher=False
)
RATIO = Metric(
    "writing_ratio",
    "bits of whole lines in the new tokenizer's own spelling over the base's bits for the same "
    "bytes",
    higher=False,
)
BASE = Metric("base_bpb", "bits per byte of the same bytes by the base model", higher=False)
SPLIT = Metric(
    "vote_split",
    "share of a stretch's probability that goes to its old spelling, mean over stretches that the "
    "tokenizations spell differently",
    higher=False,
)


@dataclass(frozen=True)
class Stretch:
    """Text between two common positions: its ids in both spellings, and where it starts."""

    start: int  # index of its first id in the new sequence
    new: Ints
    old: Ints

    @property
    def differs(self) -> bool:
        """Whether the spellings differ."""
        return not np.array_equal(self.new, self.old)


@dataclass(frozen=True)
class Tree:
    """A trunk of new ids with old spellings as branches, flattened to be read in one pass.

    `parents[i]` is the index of the id before id i in its text (-1 for the first), `depth[i]` its
    position there. `new_at` and `old_at` are, for every stretch, the indices whose states predict
    its ids in the new and the old spelling.
    """

    ids: Ints
    parents: Ints
    depth: Ints
    new_at: tuple[Ints, ...]
    old_at: tuple[Ints, ...]

    def sees(self, window: int | None = None) -> Any:
        """Boolean (length, length): which ids each id attends to, at most `window` back."""
        length = len(self.ids)
        seen = np.zeros((length, length), bool)
        for place in range(length):
            if self.parents[place] >= 0:
                seen[place] = seen[self.parents[place]]
            seen[place, place] = True
        if window is not None:
            seen &= self.depth[:, None] - self.depth[None] < window
        return seen


def fitting(pair: Alignment, room: int) -> Alignment:
    """The line, cut where an old spelling no longer fits into `room` after its new context."""
    starts = np.concatenate(([0], pair.new_at[:-1] + 1))
    sizes = np.diff(pair.old_at, prepend=-1)
    inside = int(np.argmin(np.append(starts + sizes <= room, False)))
    if inside == len(pair):
        return pair
    old_at, new_at = pair.old_at[:inside], pair.new_at[:inside]
    old, new = (int(at.max(initial=-1)) + 1 for at in (old_at, new_at))
    return Alignment(pair.old[:old], pair.new[:new], old_at, new_at)


def stretches(pair: Alignment, predicted_first: bool) -> list[Stretch]:
    """The stretches of a line; the first is left out unless a prefix (BOS) predicts it."""
    parts = []
    old, new = 0, 0
    for old_at, new_at in zip(pair.old_at.tolist(), pair.new_at.tolist(), strict=True):
        if new or predicted_first:
            parts.append(Stretch(new, pair.new[new : new_at + 1], pair.old[old : old_at + 1]))
        old, new = old_at + 1, new_at + 1
    return parts


def grow(prefix: Sequence[int], ids: Ints, parts: Sequence[Stretch]) -> Tree:
    """The tree of a line; the last id of a branch is predicted but not read."""
    trunk = [*prefix, *ids.tolist()]
    start = len(prefix)
    nodes, parents = list(trunk), list(range(-1, len(trunk) - 1))
    depth = list(range(len(trunk)))
    new_at, old_at = [], []
    for part in parts:
        first = start + part.start - 1  # the place that predicts the stretch
        new_at.append(np.arange(first, first + len(part.new)))
        places = [first]
        if part.differs:
            for token in part.old[:-1].tolist():
                nodes.append(token)
                parents.append(places[-1])
                depth.append(depth[places[-1]] + 1)
                places.append(len(nodes) - 1)
        old_at.append(np.asarray(places))
    return Tree(
        np.asarray(nodes), np.asarray(parents), np.asarray(depth), tuple(new_at), tuple(old_at)
    )


def read_tree(model: FrozenModel, tree: Tree, new: NewRows | None = None) -> Any:
    """Last hidden states (length, dimensions) of a tree, with `new` rows if given."""
    torch = require_torch()
    with torch.inference_mode():
        ids = torch.from_numpy(tree.ids)[None].to(model.device)
        states = model.states(
            ids, new=new, attention_mask=_masks(model, tree),
            position_ids=torch.from_numpy(tree.depth)[None].to(model.device),
        )  # fmt: skip
    return states[0].float()


def readable(model: FrozenModel, pair: Alignment) -> bool:
    """Whether the trunk of a line's tree gets the states that the line gets when read alone.

    It does not if a layer depends on the order of the sequence whatever mask and position ids say,
    or if transformers does not accept such masks (below 4.53 for Gemma 3 and GPT-2).
    """
    torch = require_torch()
    prefix = model.prefix
    tree = grow(prefix, pair.new, stretches(pair, bool(prefix)))
    alone = read(model, [pair.new], [np.arange(-len(prefix), len(pair.new))]).states
    try:
        states = read_tree(model, tree)[: len(alone)]
    except torch.cuda.OutOfMemoryError:
        raise
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return False
    return bool(cosines(states, alone).min() > _ALIKE)


def _masks(model: FrozenModel, tree: Tree) -> Any:
    """The additive attention mask, or a dict of them by kind of layer if the kinds differ."""
    torch = require_torch()
    config = getattr(model.model.config, "text_config", model.model.config)
    window = getattr(config, "sliding_window", None)
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    # Models that do not list their kinds of layers slide in all of them or in none.
    kinds = set(getattr(config, "layer_types", None) or (_SLIDING,))
    if window is None or int(tree.depth.max()) < window:
        kinds = {_FULL}
    masks = {}
    for kind in kinds:
        sees = torch.from_numpy(tree.sees(window if kind == _SLIDING else None))
        shape = {"dtype": model.weight.dtype, "device": model.device}
        mask = torch.zeros((1, 1, *sees.shape), **shape)
        mask.masked_fill_(~sees.to(model.device), torch.finfo(mask.dtype).min)
        masks[kind] = mask
    return masks if len(masks) > 1 else next(iter(masks.values()))


def shared_scores(
    base: FrozenModel,
    graft: FrozenModel,
    case: Case,
    drawn: Bootstrap,
    *,
    most_lines: int = 64,
    progress: OnRead | None = None,
) -> dict[str, Score]:
    """The figures over the first `most_lines` lines; none if the model is not `readable`."""
    short = [fitting(pair, case.room) for pair in case.pairs]
    pairs = [pair for pair in short if len(pair) > 1][:most_lines]
    if not pairs or not readable(graft, max(pairs, key=lambda pair: len(pair.new))):
        return {}
    measured = _lines(graft, graft.head().exact(), pairs, None, progress)
    new = mean_rows(base, case)
    nothing = _lines(base, _mean_head(base, case, len(new.rows)), pairs, new, None)
    base_bits, size = _base(base, case, pairs)
    ceiling = float(base_bits.sum() / size.sum())
    sums_by_metric = {
        BPB: Sums(measured[:, 0], size),
        NEW_ONLY: Sums(measured[:, 1], size),
        BASE: Sums(base_bits, size),
    }
    scores = {
        metric.name: score(
            metric, sums, drawn, ceiling=None if metric is BASE else ceiling,
            mean_row=float(nothing[:, place].sum() / size.sum()) if place < 2 else None,
        )
        for place, (metric, sums) in enumerate(sums_by_metric.items())
    }  # fmt: skip
    scores[RATIO.name] = score(
        RATIO, Sums(measured[:, 1], base_bits), drawn, ceiling=1.0, n=len(pairs),
        mean_row=float(nothing[:, 1].sum() / base_bits.sum()),
    )  # fmt: skip
    if measured[:, 3].sum():
        scores[SPLIT.name] = score(SPLIT, Sums(measured[:, 2], measured[:, 3]), drawn)
    return scores


def _lines(
    model: FrozenModel,
    head: Head,
    pairs: Sequence[Alignment],
    new: NewRows | None,
    progress: OnRead | None,
) -> Floats:
    """By line: bits of both spellings, bits of the new one, sum of `vote_split`, its count."""
    rows = []
    for pair in pairs:
        rows.append(_line(model, head, pair, stretches(pair, bool(model.prefix)), new))
        if progress is not None:
            progress(1)
    return np.array(rows, np.float64)


def _mean_head(base: FrozenModel, case: Case, count: int) -> Head:
    """The base's head, extended by the mean of its rows for every new token."""
    torch = require_torch()
    head = base.head(case.rows).exact()
    count += case.first_new - case.rows  # old ids beyond the base's table get the mean row too
    rows = head.weight.mean(0, keepdim=True).expand(count, -1)
    bias = head.bias
    if bias is not None:
        bias = torch.cat([bias, bias.mean().expand(count)])
    return replace(head, weight=torch.cat([head.weight, rows]), bias=bias)


def _line(
    graft: FrozenModel,
    head: Head,
    pair: Alignment,
    parts: Sequence[Stretch],
    new_rows: NewRows | None,
) -> tuple[float, float, float, float]:
    tree = grow(graft.prefix, pair.new, parts)
    states = read_tree(graft, tree, new_rows)
    torch = require_torch()
    # For stretches spelled alike `old_at` holds one index only: their old sum is not used.
    wanted = [*tree.new_at, *tree.old_at]
    old_ids = [p.old[: len(at)] for p, at in zip(parts, tree.old_at, strict=True)]
    targets = np.concatenate([*(part.new for part in parts), *old_ids])
    places = torch.from_numpy(np.concatenate(wanted)).to(states.device)
    logs = likelihoods(states[places], targets, head)
    sums = [part.sum() for part in np.split(logs, np.cumsum([len(a) for a in wanted])[:-1])]
    new, old = np.array(sums[: len(parts)]), np.array(sums[len(parts) :])
    differ = np.array([part.differs for part in parts])
    both = np.where(differ, np.logaddexp(new, old), new)
    share = np.where(differ, np.exp(old - both), 0.0)
    bits = -np.log(2)
    return (
        float(both.sum() / bits), float(new.sum() / bits), float(share.sum()), float(differ.sum())
    )  # fmt: skip


def _base(base: FrozenModel, case: Case, pairs: Sequence[Alignment]) -> tuple[Floats, Floats]:
    """The base model's bits for the same text, and the text's bytes, line by line."""
    first = [0 if base.prefix else int(pair.old_at[0]) + 1 for pair in pairs]
    old = [pair.old[: int(pair.old_at[-1]) + 1] for pair in pairs]
    at = [np.arange(f - 1, len(ids) - 1) for f, ids in zip(first, old, strict=True)]
    targets = [ids[f:] for f, ids in zip(first, old, strict=True)]
    reading = read(base, old, at)
    logs = likelihoods(reading.states, np.concatenate(targets), base.head().exact())
    edges = np.cumsum(reading.counts)[:-1]
    bits = np.array([-part.sum() / np.log(2) for part in np.split(logs, edges)])
    return bits, np.array([case.lengths[ids].sum() for ids in targets], np.float64)
