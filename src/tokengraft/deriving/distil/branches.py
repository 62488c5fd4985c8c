"""Branches: where new tokens with a common beginning part ways, and which way the base would go.

New tokens form a tree of old parts. If the text continues with the new token t of parts s1 … sk,
the path down to t passes forks, at which several parts c lead on:

    p̂(c) = p(c | text, s1 … sd) among the parts that lead on,   S(c) = Σ q of new tokens beyond c
    −log S(s_{d+1}) / Σ S(c)   becomes   (1 − λ) of itself  +  λ times its mean over c under p̂

The text shows only one way; the base gives a whole distribution, which is not fitted to that text.
Whether a token ends at a fork is left to the text: only the new tokenizer knows.

Reference: likelihoods of chunks matched across tokenizers, Minixhofer et al. 2025
(https://arxiv.org/abs/2503.20083). Changed: every way at every fork is matched, not only the
text's own. The base has read the text in old tokens anyway, so this costs no further pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from tokengraft.deriving.distil.passages import following
from tokengraft.model.head_losses import Twigs
from tokengraft.model.reading import Reader
from tokengraft.tokenizer.align import Alignment, Ints

Halves: TypeAlias = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Forks:
    """The forks that one passage passes: after which of its common positions, and where."""

    position: Ints  # number of the common position
    old_at: Ints  # old position of the part before the fork
    step: Ints  # number of the tree's step


class Branches:
    """The tree over the `parts` of all new tokens, whose first id is `first_new`."""

    def __init__(self, parts: Sequence[Sequence[int]], first_new: int) -> None:
        self.first_new = first_new
        self._moved: dict[torch.device, dict[str, torch.Tensor]] = {}
        ways = [tuple(map(int, one)) for one in parts]
        self.order: Ints = np.array(sorted(range(len(ways)), key=ways.__getitem__), np.int64)
        spans: dict[tuple[int, ...], list[int]] = {}  # a beginning → where its tokens lie in order
        for place, token in enumerate(self.order.tolist()):
            for size in range(1, len(ways[token]) + 1):
                spans.setdefault(ways[token][:size], [place, place])[1] = place + 1
        leads: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for way in spans:
            leads.setdefault(way[:-1], []).append(way)
        forks = {way: n for n, way in enumerate(w for w in leads if w and len(leads[w]) > 1)}
        twigs = [twig for way in forks for twig in leads[way]]
        self._start = _starts([len(leads[way]) for way in forks])  # of each fork's twigs
        self._low, self._high = (np.array([spans[t][n] for t in twigs], np.int64) for n in (0, 1))
        self.asked, self._column = np.unique(
            np.array([t[-1] for t in twigs], np.int64), return_inverse=True
        )
        number = {twig: n for n, twig in enumerate(twigs)}
        steps = [
            [(size, forks[way[:size]], number[way[: size + 1]])
             for size in range(1, len(way)) if way[:size] in forks]
            for way in ways
        ]  # fmt: skip
        self._steps = _starts([len(one) for one in steps])  # of each token
        flat = np.array([step for one in steps for step in one], np.int64).reshape(-1, 3)
        self._depth, self._fork, self._taken = flat.T
        self._parts = np.array([part for way in ways for part in way], np.int64)
        self._parts_at = _starts([len(way) for way in ways])

    def forks(self, one: Alignment) -> Forks:
        """The forks of a passage, for those new tokens whose parts are the old ids there."""
        after = following(one)
        position = np.flatnonzero(after >= self.first_new)
        token = after[position] - self.first_new
        sizes = np.diff(self._parts_at)[token]
        whole = one.old_at[position] + sizes < len(one.old)
        position, token, sizes = position[whole], token[whole], sizes[whole]
        each, within = _ragged(sizes)
        same = (
            one.old[one.old_at[position][each] + 1 + within]
            == (self._parts[self._parts_at[token][each] + within])
        )
        spelled = np.bincount(each, ~same, len(token)) == 0
        position, token = position[spelled], token[spelled]
        each, within = _ragged(np.diff(self._steps)[token])
        step = self._steps[token][each] + within
        return Forks(position[each], one.old_at[position][each] + self._depth[step], step)

    def sizes(self, forks: Forks) -> Ints:
        """How many ways lead on from each fork."""
        sizes: Ints = np.diff(self._start)[self._fork[forks.step]]
        return sizes

    def likelihoods(self, reader: Reader, states: torch.Tensor, forks: Sequence[Forks]) -> Halves:
        """p̂ of the ways at each fork, fork after fork, from the base's `states` there."""
        head, device = reader.head, states.device
        each, twigs = self._twigs(forks, device)
        asked = self._on(device)["asked"]
        bias = None if head.bias is None else head.bias[asked]
        scores = replace(head, weight=head.weight[asked], bias=bias).logits(states)
        ways = scores[each, self._on(device)["column"][twigs]].double()
        most = torch.full((len(states),), -torch.inf, dtype=ways.dtype, device=device)
        ways = (ways - most.scatter_reduce(0, each, ways, "amax")[each]).exp_()
        shares: Halves = (ways / _sums(each, ways, len(states))[each]).half().cpu().numpy()
        return shares

    def pulls(
        self, forks: Sequence[Forks], counts: Ints, said: Halves, device: torch.device
    ) -> Twigs:
        """p̂ − [the text's own way] at the forks of passages with `counts` common positions.

        `said` are their likelihoods, passage after passage.
        """
        starts = np.cumsum(counts) - counts
        where = np.concatenate([n + one.position for n, one in zip(starts, forks, strict=True)])
        position = torch.from_numpy(where).to(device)
        each, twigs = self._twigs(forks, device)
        mine = self._on(device)
        share = torch.from_numpy(said).to(device).float()
        share = share / _sums(each, share, len(position)).clamp_(min=1e-6)[each]  # as rounded
        step = torch.from_numpy(np.concatenate([one.step for one in forks])).to(device)
        pull = share - (twigs == mine["taken"][step][each]).float()
        return Twigs(mine["order"], position[each], mine["low"][twigs], mine["high"][twigs], pull)

    def _twigs(
        self, forks: Sequence[Forks], device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Every way at every fork: the fork's number among these, and the way's number."""
        step = np.concatenate([one.step for one in forks])
        fork, mine = torch.from_numpy(self._fork[step]).to(device), self._on(device)
        sizes = mine["size"][fork]
        each = torch.repeat_interleave(torch.arange(len(fork), device=device), sizes)
        within = torch.arange(len(each), device=device) - (sizes.cumsum(0) - sizes)[each]
        return each, mine["start"][fork][each] + within

    def _on(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The tree on a device."""
        if device not in self._moved:
            self._moved[device] = {
                name: torch.from_numpy(one).to(device)
                for name, one in {
                    "order": self.order, "asked": self.asked, "column": self._column,
                    "start": self._start[:-1], "size": np.diff(self._start),
                    "low": self._low, "high": self._high, "taken": self._taken.copy(),
                }.items()
            }  # fmt: skip
        return self._moved[device]


def _sums(each: torch.Tensor, values: torch.Tensor, count: int) -> torch.Tensor:
    return values.new_zeros(count).index_add_(0, each, values)


def _starts(sizes: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))]).astype(np.int64)


def _ragged(sizes: Ints) -> tuple[Ints, Ints]:
    """For groups of these sizes: each member's group, and its place in the group."""
    each = np.repeat(np.arange(len(sizes)), sizes)
    return each, np.arange(len(each)) - (np.cumsum(sizes) - sizes)[each]
