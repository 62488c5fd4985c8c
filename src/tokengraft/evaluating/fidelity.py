"""How alike two models' readings of one text are: at common positions, and by sentence.

The base model's reading of a language is computed once and compared with any number of grafts.

    cosine   x·y / √(x·x · y·y)                 exactly 1.0 for x = y, in float64
    rank     1 + number of other sentences that lie nearer

√(a·a) is exactly a in IEEE arithmetic; the usual x/|x| · y/|y| would not be exactly 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengraft.evaluating.lines import Case, Segmenter
from tokengraft.evaluating.score import Bootstrap, Metric, Score, Sums, score
from tokengraft.model.divergence import Distributions, Head, compare
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.libraries import require_torch
from tokengraft.model.reading import BATCH_TOKENS, LineStates, OnRead, read
from tokengraft.tokenizer.align import Floats, Ints

if TYPE_CHECKING:
    import torch

_TIE = 1e-9  # similarities closer than this count as equal: they differ by rounding only


def cosines(x: Any, y: Any) -> Floats:
    """Cosine of paired rows of arrays or tensors; NaN where a row is NaN or zero."""
    torch = require_torch()
    a, b = (torch.as_tensor(v).double() for v in (x, y))
    values: Floats = ((a * b).sum(-1) / torch.sqrt((a * a).sum(-1) * (b * b).sum(-1))).cpu().numpy()
    return values


@dataclass(frozen=True)
class Ranks:
    """Ranks by line; 1 is best.

    `mutual`, which the paper asks for, is the mean of two ranks: of the new vector among the old
    one's neighbours, and of the old vector among the new one's. `first` is 1 where a search by the
    new vector among all old sentences finds its own first, else 0.
    """

    mutual: Floats
    first: Floats


def ranks(old: Floats, new: Floats) -> Ranks:
    """Ranks among all old sentences, by cosine; lines with NaN get NaN."""
    there = ~(np.isnan(old).any(1) | np.isnan(new).any(1))
    mutual, first = np.full(len(old), np.nan), np.full(len(old), np.nan)
    a, b = _unit(old[there]), _unit(new[there])
    own = np.einsum("nd,nd->n", a, b)
    apart = ~np.eye(len(a), dtype=bool)
    nearer_old = ((a @ a.T > own[:, None] + _TIE) & apart).sum(1)
    nearer_new = ((b @ a.T > own[:, None] + _TIE) & apart).sum(1)
    mutual[there] = 1 + (nearer_old + nearer_new) / 2
    first[there] = nearer_new == 0
    return Ranks(mutual, first)


def centred(vectors: Floats) -> Floats:
    """Vectors less their mean over sentences; lines with NaN stay NaN.

    A few large directions are common to all states, so all sentences lie close together; a graft
    that shifts them all in the same way would then seem to have mixed them up.
    """
    there = ~np.isnan(vectors).any(1)
    mean = vectors[there].mean(0) if there.any() else 0.0
    return np.asarray(vectors - mean, np.float64)


def derangement(count: int, seed: int = 0) -> Ints:
    """A permutation in which nothing keeps its place (if `count` is at least 2)."""
    order = np.random.default_rng(seed).permutation(count)
    moved = np.empty(count, np.int64)
    moved[order] = np.roll(order, 1)
    return moved


def _unit(x: Floats) -> Floats:
    unit: Floats = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit


_COMMON = "at positions where both tokenizations end at the same byte"
METRICS = {
    metric.name: metric
    for metric in (
        Metric("aligned_cosine", f"cosine of last hidden states {_COMMON}, mean over positions"),
        Metric("kl", f"KL(base ‖ graft) of the next-token distribution over the old vocabulary "
               f"{_COMMON}, nats, mean over positions", higher=False),
        Metric("top1", f"share of positions with the same likeliest old token {_COMMON}"),
        Metric("top10", f"share of the base's ten likeliest old tokens among the graft's ten "
               f"{_COMMON}"),
        Metric("pooled_cosine", "the paper's: cosine of last hidden states averaged over all "
               "tokens of a sentence, each tokenization over its own; mean over sentences"),
        Metric("aligned_pooled_cosine", f"as pooled_cosine, averaged only {_COMMON}"),
        Metric("mutual_rank", "mean of a sentence's rank among its counterpart's neighbours, both "
               "ways, among all sentences of the language; vectors as in pooled_cosine; 1 is best",
               higher=False),
        Metric("retrieval", "share of sentences whose graft vector finds its own base vector "
               "first among all sentences; vectors as in pooled_cosine"),
        Metric("aligned_mutual_rank", "as mutual_rank, vectors as in aligned_pooled_cosine",
               higher=False),
        Metric("aligned_retrieval", "as retrieval, vectors as in aligned_pooled_cosine"),
        Metric("centred_mutual_rank", "as aligned_mutual_rank, each model's vectors less their "
               "mean over the language's sentences", higher=False),
        Metric("centred_retrieval", "as aligned_retrieval, centred as in centred_mutual_rank"),
    )
}  # fmt: skip


@dataclass(frozen=True)
class View:
    """The vectors of a reading that are compared."""

    states: torch.Tensor  # (positions, dimensions)
    pooled: Floats  # (lines, dimensions)
    means: Floats  # (lines, dimensions), over common positions

    @classmethod
    def of(cls, reading: LineStates) -> View:
        """The vectors to compare of a reading."""
        return cls(reading.states, reading.pooled, reading.means())


class BaseReading:
    """The base model's reading of one language.

    Distributions are compared at `most_positions` positions drawn by `seed` (0: at all of them);
    up to `keep_bytes` of memory the base's are kept for reuse.
    """

    def __init__(
        self,
        model: FrozenModel,
        case: Case,
        *,
        most_positions: int = 0,
        keep_bytes: int = 0,
        seed: int = 0,
        tokens: int = BATCH_TOKENS,
        progress: OnRead | None = None,
    ) -> None:
        self.model, self.case, self.seed, self.tokens = model, case, seed, tokens
        reading = read(
            model, case.old, [pair.old_at for pair in case.pairs], same=case.same,
            tokens=tokens, progress=progress,
        )  # fmt: skip
        self.counts = reading.counts
        self.view = View.of(reading)
        self.sample = _sample(len(reading.states), most_positions, seed)
        lines = np.repeat(np.arange(len(self.counts)), self.counts)
        self.sample_counts = np.bincount(lines[self.sample], minlength=len(self.counts))
        self.head: Head | None = None
        self.distributions: Distributions | None = None
        if model.kind == "causal":
            self.head = model.head(case.rows).exact()
            self.distributions = Distributions(self._sampled(self.view), self.head, keep_bytes)

    def read_new(
        self,
        model: FrozenModel | None = None,
        new: NewRows | None = None,
        progress: OnRead | None = None,
    ) -> View:
        """The new tokenization read by a grafted model, or by the base with `new` rows."""
        case = self.case
        return View.of(
            read(
                model or self.model, case.new, [pair.new_at for pair in case.pairs],
                same=case.same, new=new, tokens=self.tokens, progress=progress,
            )
        )  # fmt: skip

    def compare(self, view: View, head: Head | None = None) -> dict[str, Sums]:
        """Every figure of METRICS, line by line; `head` is the graft's, over old tokens."""
        old = self.view
        sums = {"aligned_cosine": Sums.over(cosines(old.states, view.states), self.counts)}
        if self.distributions is not None and self.head is not None:
            apart = compare(self.distributions, self._sampled(view), head or self.head)
            for name in ("kl", "top1", "top10"):
                values = getattr(apart, name).double().cpu().numpy()
                sums[name] = Sums.over(values, self.sample_counts)
        sums["pooled_cosine"] = Sums.of(cosines(old.pooled, view.pooled))
        sums["aligned_pooled_cosine"] = Sums.of(cosines(old.means, view.means))
        if len(old.pooled) > 1:
            for prefix, ours, theirs in (
                ("", old.pooled, view.pooled), ("aligned_", old.means, view.means),
                ("centred_", centred(old.means), centred(view.means)),
            ):  # fmt: skip
                both = ranks(ours, theirs)
                sums[f"{prefix}mutual_rank"] = Sums.of(both.mutual)
                sums[f"{prefix}retrieval"] = Sums.of(both.first)
        return sums

    def unrelated(self) -> dict[str, float]:
        """A floor: the base against itself at another position and in another sentence."""
        if len(self.case.pairs) < 2:
            return {}
        positions = derangement(len(self.view.states), self.seed)
        lines = derangement(len(self.case.pairs), self.seed)
        index = require_torch().from_numpy(positions)
        view = View(
            self.view.states[index.to(self.view.states.device)],
            self.view.pooled[lines],
            self.view.means[lines],
        )
        return {name: sums.value for name, sums in self.compare(view).items()}

    def mean_row(self, progress: OnRead | None = None) -> dict[str, float]:
        """Another floor: the base with the mean of all old rows for every new token."""
        view = self.read_new(new=mean_rows(self.model, self.case), progress=progress)
        return {name: sums.value for name, sums in self.compare(view).items()}

    def ceiling(self, progress: OnRead | None = None) -> dict[str, float]:
        """The base against itself in another segmentation; empty if too few tokens can be cut."""
        cut = Segmenter(self.model.tokenizer, seed=self.seed)
        others = [cut(pair.old, self.model.room - len(pair.old)) for pair in self.case.pairs]
        if not cut.enough([pair.old for pair in self.case.pairs], [ids for ids, _ in others]):
            return {}
        at = [ends[pair.old_at] for (_, ends), pair in zip(others, self.case.pairs, strict=True)]
        reading = read(
            self.model, [ids for ids, _ in others], at, tokens=self.tokens, progress=progress
        )
        return {name: sums.value for name, sums in self.compare(View.of(reading)).items()}

    def _sampled(self, view: View) -> Any:
        index = require_torch().from_numpy(self.sample).to(view.states.device)
        return view.states[index]


def mean_rows(model: FrozenModel, case: Case) -> NewRows:
    """The mean of all old rows, as the row of every new token that occurs."""
    highest = max((int(ids.max()) for ids in case.new if len(ids)), default=0)
    old = model.weight.detach()[: case.first_new]
    row = old.double().mean(0).to(old.dtype)
    return NewRows(case.first_new, row.expand(max(1, highest + 1 - case.first_new), -1))


def scores(
    sums: dict[str, Sums],
    unrelated: dict[str, float],
    mean_row: dict[str, float],
    ceiling: dict[str, float],
    drawn: Bootstrap,
) -> dict[str, Score]:
    """Figures with their floors and ceilings, in the order of METRICS."""
    return {
        name: score(
            metric, sums[name], drawn, unrelated=unrelated.get(name),
            mean_row=mean_row.get(name), ceiling=ceiling.get(name),
        )
        for name, metric in METRICS.items()
        if name in sums
    }  # fmt: skip


def _sample(count: int, most: int, seed: int) -> Ints:
    if not most or count <= most:
        return np.arange(count, dtype=np.int64)
    drawn = np.random.default_rng(seed).choice(count, most, replace=False)
    return np.sort(drawn).astype(np.int64)
