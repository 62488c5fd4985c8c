"""Losses that hold a head with new rows to the base's predictions, and their gradients.

    z = [W; O] h,   q = softmax(z) over old and new tokens,   o = q over the old ones alone
    G(q)(f) = q(f) + Σ q(t) over the new tokens t whose spelling begins with the old token f

    reading  KL(p ‖ o)                                 ∂/∂z_j = o_j − p_j               (old j)
    pooled   KL(p ‖ G(q))                              ∂/∂z_j = q_j (1 − p_f / G(q)_f)
    split    −log q(next) / G(q)(first part of next)   ∂/∂z_j = q_j / G(q)_f − [j = next]
             (j in the pool of next only)
    stray    −log (1 − Σ q(t))                         ∂/∂z_t = q_t                     (new t)
    kept     KL(p ‖ q) in text without new tokens      ∂/∂z_j = q_j − p_j               (p_t = 0)

p is the base's next-token distribution after reading the same text in old tokens, f the first old
part of j (j itself for an old token), G(q)(f) the pool of f. `pooled` makes the graft's pools match
the base; `split` divides each pool among its tokens as the text does; `stray` is KL(p ‖ q) in text
without new tokens if h is the base's own state. As in `divergence`, gradients are computed block by
block in the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from tokengraft.model.divergence import TRAINING, Head, vocabulary_blocks


@dataclass(frozen=True)
class Added:
    """New output rows, the first old part of each, and their bias if the head has one."""

    rows: torch.Tensor  # (new tokens, dimensions), float32
    first: torch.Tensor  # (new tokens,), old ids
    bias: torch.Tensor | None = None

    def grown(self, head: Head) -> Head:
        """The old head with the new rows appended, in the head's type."""
        bias = head.bias
        if bias is not None:
            more = self.bias if self.bias is not None else bias.new_zeros(len(self.rows))
            bias = torch.cat([bias, more])
        return replace(head, weight=torch.cat([head.weight, self.rows.to(head.weight)]), bias=bias)

    def alone(self, head: Head) -> Head:
        """A head of the new rows alone, with the old one's factor and cap."""
        bias = None if head.bias is None else self.bias
        return replace(head, weight=self.rows.to(head.weight), bias=bias)


@dataclass(frozen=True)
class LossWeights:
    """The weight of each term; a term of weight 0 is still reported."""

    reading: float = 1.0
    pooled: float = 1.0
    split: float = 1.0


@dataclass(frozen=True)
class Terms:
    """The terms at each position, in nats; `split` is 0 where no next token is given."""

    reading: torch.Tensor
    pooled: torch.Tensor
    split: torch.Tensor
    same: torch.Tensor  # whether base and graft find the same old token likeliest


@dataclass(frozen=True)
class Twigs:
    """Groups of new tokens, each to become likelier (weight above 0) or less likely at a position.

    A group is `order[low:high]` and adds −weight · log Σ q of its tokens to the split. The weights
    at a position sum to 0, so the softmax's normaliser drops out of the gradient. Positions ascend.
    """

    order: torch.Tensor  # (new tokens,)
    position: torch.Tensor  # (groups,), as all that follow
    low: torch.Tensor
    high: torch.Tensor
    weight: torch.Tensor

    def within(self, here: slice, count: int) -> Twigs:
        """The groups at positions `here` (of `count`), numbered from the start of `here`."""
        if here.start <= 0 and here.stop >= count:
            return self
        edges = torch.tensor([here.start, here.stop], device=self.position.device)
        first, last = torch.searchsorted(self.position, edges).tolist()
        cut = (one[first:last] for one in (self.position, self.low, self.high, self.weight))
        kept = Twigs(self.order, *cut)
        return replace(kept, position=kept.position - here.start)

    def slope(self, q: torch.Tensor) -> torch.Tensor:
        """The gradient of the groups' terms at the new tokens' logits; `q` is these tokens' q."""
        ordered = q[:, self.order].double()  # sums of a range are differences of running sums
        sums = torch.nn.functional.pad(ordered.cumsum(1), (1, 0))
        wide = sums.shape[1]
        mass = sums[self.position, self.high] - sums[self.position, self.low]
        mass = mass.clamp_(min=1e-12)
        steps, share = sums.new_zeros(len(q) * wide), self.weight.double() / mass
        steps.index_add_(0, self.position * wide + self.low, -share)
        steps.index_add_(0, self.position * wide + self.high, share)
        slope = torch.empty_like(q)
        slope[:, self.order] = (steps.view(len(q), wide).cumsum(1)[:, :-1] * ordered).to(q.dtype)
        return slope


def pool(q: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """G(q) (positions, old vocabulary) of probabilities over old and new tokens."""
    old = q.shape[1] - len(first)
    return q[:, :old].index_add(1, first, q[:, old:])


@torch.no_grad()
def terms(
    new: torch.Tensor, old: torch.Tensor, head: Head, added: Added, following: torch.Tensor
) -> Terms:
    """The three terms at states `new`, compared with the base at its states `old`.

    `following` holds the next token of each position: an old id, or len(head.weight) + i for new
    token i; -1 for none.
    """
    grown, count = added.grown(head), len(head.weight)
    own = torch.cat([torch.arange(count, device=added.first.device), added.first])  # first parts
    losses: list[list[torch.Tensor]] = [[new.new_zeros(0)] for _ in range(3)]
    same = [torch.zeros(0, dtype=torch.bool, device=new.device)]
    for here in vocabulary_blocks(grown, len(new), TRAINING):
        logs, p = grown.log_probabilities(new[here]), head.log_probabilities(old[here])
        likely = p.exp()
        same.append(p.argmax(-1) == logs[:, :count].argmax(-1))
        rest = logs[:, :count].logsumexp(-1)
        losses[0].append(((p - logs[:, :count]).mul_(likely)).sum(-1) + rest)
        after = following[here].clamp(min=0)[:, None]
        pools = pool(logs.exp(), added.first).clamp_(min=1e-30).log_()
        losses[1].append((p.sub_(pools).mul_(likely)).sum(-1))
        split = (pools.gather(1, own[after]) - logs.gather(1, after))[:, 0]
        losses[2].append(split.mul_(following[here] >= 0))
    reading, pooled, split = (torch.cat(one) for one in losses)
    return Terms(reading, pooled, split, torch.cat(same))


@torch.no_grad()
def writing_slopes(
    new: torch.Tensor, old: torch.Tensor, head: Head, added: Added, following: torch.Tensor,
    weights: LossWeights, twigs: Twigs | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Gradients of the weighted terms' sum over positions, at `new` and at `added.rows`.

    `twigs` add to the split. Most of a step's time goes into arrays as wide as the vocabulary; but
    outside the pools G(q) is q, so that all other columns take one product and one difference.
    """
    grown, count = added.grown(head), len(head.weight)
    # The first parts that have a pool, and the pool of each new token.
    firsts, place = torch.unique(added.first, return_inverse=True)
    number = added.first.new_full((count + len(place),), -1)  # the pool of each token, -1 for none
    number[firsts] = torch.arange(len(firsts), device=firsts.device)
    number[count:] = place
    slope, pull = [new.new_zeros(0, new.shape[1])], torch.zeros_like(added.rows)
    for here in vocabulary_blocks(grown, len(new), TRAINING):
        logits = grown.logits(new[here])
        bend = grown.slope(logits)
        z = logits.softmax(-1)  # q; becomes the gradient at the logits
        del logits
        p = head.logits(old[here]).softmax(-1)
        single, mine = z[:, firsts], z[:, count:].clone()
        pools = single.index_add(1, place, mine).clamp_(min=1e-30)
        known = p[:, firsts]
        odds = 1 - known / pools
        some = weights.pooled + weights.reading / z[:, :count].sum(-1, keepdim=True)
        z[:, :count].mul_(some).sub_(p, alpha=weights.pooled + weights.reading)
        del p
        # In the pools' columns q − p becomes q (1 − p / G).
        z[:, firsts] += weights.pooled * (single * odds - single + known)
        z[:, count:] = weights.pooled * mine * odds[:, place]
        after = following[here].clamp(min=0)
        own = number[after].masked_fill_(following[here] < 0, -1)
        inside, own = own >= 0, own.clamp(min=0)
        each = torch.arange(len(after), device=after.device)
        share = weights.split * inside / pools[each, own]
        z[:, count:] += mine * (place == own[:, None]) * share[:, None]
        z[each, firsts[own]] += single[each, own] * share
        z[each, after] -= weights.split * inside
        if twigs is not None:
            z[:, count:] += twigs.within(here, len(new)).slope(mine).mul_(weights.split)
        z = z if isinstance(bend, float) and bend == 1 else z.mul_(bend)
        slope.append(grown.at_states(z).float())
        pull += _at_rows(z[:, count:], new[here], grown)
    return torch.cat(slope), pull


def _at_rows(slope: torch.Tensor, states: torch.Tensor, head: Head) -> torch.Tensor:
    """What gradients at logits are at the rows that made them."""
    dtype = head.weight.dtype
    return (slope.to(dtype).T @ states.to(dtype)).float()


@torch.no_grad()
def stray(
    states: torch.Tensor, base: torch.Tensor, head: Head, added: Added
) -> tuple[torch.Tensor, torch.Tensor]:
    """−log (1 − Σ q(t)) at each position, and the gradient of their sum at `added.rows`.

    `base` is log Σ exp of the old tokens' logits at each position.
    """
    own = added.alone(head)
    losses, pull = [states.new_zeros(0)], torch.zeros_like(added.rows)
    for here in vocabulary_blocks(own, len(states), TRAINING):
        logits = own.logits(states[here])
        bend = own.slope(logits)
        losses.append(torch.nn.functional.softplus(logits.logsumexp(-1) - base[here]))
        q = (logits - torch.logaddexp(logits.logsumexp(-1), base[here])[:, None]).exp_()
        pull += (q * bend).T @ states[here]
    return torch.cat(losses), pull


@torch.no_grad()
def kept(
    new: torch.Tensor, old: torch.Tensor, head: Head, added: Added | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """KL(p ‖ q) at each position of a text without new tokens; whether the likeliest token agrees.

    Then the gradients of the sum of KLs at the states `new` and, if new tokens can be written, at
    `added.rows`. p is the base's distribution at `old`; q is over every token that can be written.
    """
    grown, count = head if added is None else added.grown(head), len(head.weight)
    losses, same = [new.new_zeros(0)], [torch.zeros(0, dtype=torch.bool, device=new.device)]
    slope = [new.new_zeros(0, new.shape[1])]
    pull = None if added is None else torch.zeros_like(added.rows)
    for here in vocabulary_blocks(grown, len(new), TRAINING):
        logits = grown.logits(new[here])
        bend = grown.slope(logits)
        q = logits.log_softmax(-1)
        del logits
        p = head.log_probabilities(old[here])
        same.append(p.argmax(-1) == q.argmax(-1))
        gap = p - q[:, :count]
        losses.append(gap.mul_(p.exp_()).sum(-1))
        del gap
        q = q.exp_()
        q[:, :count] -= p
        z = q.mul_(bend)
        slope.append(grown.at_states(z).float())
        if pull is not None:
            pull += _at_rows(z[:, count:], new[here], grown)
    return torch.cat(losses), torch.cat(same), torch.cat(slope), pull
