"""Winner takes all: a new token and its first old part share one vote.

For each first part f with new tokens T(f), at one position, p the model's probabilities:

    f keeps   if p(f) >= exp(bias) * p(t) for every t in T(f):  p(f) += sum of p(t), every p(t) = 0
    t* wins   otherwise, t* the most probable of T(f):          p(t*) += p(f), p(f) = 0

f is a prefix of every t, so after f each of them can still be spelled: it may take all their
mass. The other t are other texts than t*, so they keep their own. A positive bias favours the new
tokens (the frozen model favours the parts it was trained on). Source: the paper's Limitations,
third option for vote-splitting, which leaves open what happens when several tokens share a part.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import LogitsProcessor


class WinnerTakesAll(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Pools each new token's probability with that of its first old part."""

    def __init__(self, new: Sequence[int], first: Sequence[int], bias: float = 0.0) -> None:
        self.bias = bias
        self._new = torch.tensor(list(new), dtype=torch.long)  # (n,)
        parts, groups = torch.unique(
            torch.tensor(list(first), dtype=torch.long), return_inverse=True
        )
        self._parts = parts  # (g,)
        self._groups = groups  # (n,)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores as log-probabilities, pooled; the sum of probabilities stays one."""
        device = scores.device
        new, parts = self._new.to(device), self._parts.to(device)
        groups = self._groups.to(device).expand(scores.shape[0], -1)  # (batch, n)
        logs = torch.log_softmax(scores.float(), dim=-1)
        news, olds = logs[:, new], logs[:, parts]  # (batch, n), (batch, g)
        empty = torch.full_like(olds, -torch.inf)
        best = empty.scatter_reduce(1, groups, news, "amax")
        keeps = olds >= best + self.bias
        mass = torch.zeros_like(olds).scatter_add(1, groups, news.exp())
        kept = torch.logaddexp(olds, mass.log())

        # Of equally probable new tokens only the first may take the part's mass.
        order = torch.arange(len(new), device=device).expand_as(news)
        leads = (news == best.gather(1, groups)) & (news > -torch.inf)
        late = torch.full_like(olds, len(new), dtype=torch.long)
        leader = late.scatter_reduce(1, groups, torch.where(leads, order, len(new)), "amin")
        wins = order == leader.gather(1, groups)
        won = torch.where(wins, torch.logaddexp(news, olds.gather(1, groups)), news)

        result = logs.clone()
        result[:, parts] = torch.where(keeps, kept, empty)
        result[:, new] = torch.where(keeps.gather(1, groups), -torch.inf, won)
        return result.to(scores.dtype)
