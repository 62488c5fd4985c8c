"""Decoding with new tokens: by the likeliest text, or winner takes all.

Greedy text: of what may come next the likeliest text, not the likeliest single token.

New tokens that begin alike share what their beginning is worth, and each alone may be less likely
than the old part with which they all begin. Taking the likeliest token then spells the old way a
text for which the model prefers the new one. Here new tokens stand together, and the choice goes
down the tree of their texts (q the model's probabilities):

    first       the likeliest old token, unless the new tokens t of one first part f are
                likelier together:  Σ q(t) > q(any old token)
    then        the token ends here, if it is likelier than all that go on;
                else go on with the byte beyond which the tokens are likeliest together

f itself is not counted with them: in English, where new tokens are unlikely but many, they would
win wherever the model hesitates between f (a space) and something else.
Tamil on rootstock: 4.1 characters a step, where the likeliest token gives .65 and the base .36; and
the base finds that text likelier than its own greedy text (.5 bits per byte against .7).
For greedy decoding only: sampling draws from q itself and needs none of this.

Winner takes all: a new token and its first old part share one vote.

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
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from transformers import LogitsProcessor

Span = tuple[int, int]  # of tokens in the order of their bytes


@dataclass(frozen=True)
class Node:
    """A text: the token that ends with it (None: no token does), and the ways that go on."""

    token: int | None
    spans: tuple[Span, ...] = ()
    ways: tuple[Node, ...] = ()


class GreedyText(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Puts the token to be taken above all others; the other scores stay as they are."""

    def __init__(self, new: Sequence[int], first: Sequence[int], pieces: Sequence[bytes]) -> None:
        order = sorted(range(len(new)), key=lambda n: (first[n], pieces[n]))
        self._new = torch.tensor([new[n] for n in order], dtype=torch.long)
        self._first = torch.tensor([first[n] for n in order], dtype=torch.long)
        spelled = [(pieces[n], place) for place, n in enumerate(order)]
        self._pools: dict[int, Node] = {}
        for part, group in groupby(range(len(order)), key=lambda place: first[order[place]]):
            self._pools[part] = _node(spelled, list(group), 0, None)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores (batch, vocabulary) of which the chosen token has the highest."""
        q = torch.softmax(scores.float(), dim=-1)
        new, first = self._new.to(q.device), self._first.to(q.device)
        news = q[:, new]
        together, part = torch.zeros_like(q).index_add_(1, first, news).max(-1)
        alone, chosen = q.index_fill(1, new, 0).max(-1)
        for row in (together > alone).nonzero()[:, 0].tolist():
            masses = news[row].double().cpu().numpy()
            chosen[row] = self._new[_descend(self._pools[int(part[row])], masses)]
        best = scores.max(-1, keepdim=True).values
        return scores.scatter(-1, chosen[:, None], best + 1)


def _descend(node: Node, masses: np.ndarray) -> int:
    """The place of the token to take."""
    sums, taken, ends = np.concatenate([[0.0], np.cumsum(masses)]), 0, -1.0
    while node.ways:
        beyond = [sums[last] - sums[first] for first, last in node.spans]
        if ends >= sum(beyond):
            return taken
        node = node.ways[int(np.argmax(beyond))]
        # Where no token ends, the way goes on.
        ends = -1.0
        if node.token is not None:
            taken, ends = node.token, float(masses[node.token])
    return taken


def _node(
    spelled: list[tuple[bytes, int]], places: list[int], depth: int, token: int | None
) -> Node:
    """The tree over tokens that have their first `depth` bytes in common, one byte at a time."""
    spans, ways = [], []
    for _, group in groupby(places, key=lambda place: spelled[place][0][depth]):
        among = list(group)
        deeper = depth + 1
        while all(len(spelled[n][0]) > deeper for n in among) and (
            len({spelled[n][0][deeper] for n in among}) == 1
        ):
            deeper += 1  # nothing parts them yet
        ending = [n for n in among if len(spelled[n][0]) == deeper]
        rest = [n for n in among if len(spelled[n][0]) > deeper]
        spans.append((among[0], among[-1] + 1))
        ways.append(_node(spelled, rest, deeper, ending[-1] if ending else None))
    return Node(token, tuple(spans), tuple(ways))


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
