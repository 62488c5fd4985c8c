"""What a head with new rows says, pooled by first parts, against the base; with its gradients.

    z = [W; O] h,   q = softmax(z) over old and new tokens,   o = q over the old ones alone
    G(q)(f) = q(f) + Σ q(t) over the new tokens t whose spelling begins with the old token f

    reading  KL(p ‖ o)                                 ∂/∂z_j = o_j − p_j               (old j)
    pooled   KL(p ‖ G(q))                              ∂/∂z_j = q_j (1 − p_f / G(q)_f)
    split    −log q(next) / G(q)(first part of next)   ∂/∂z_j = q_j / G(q)_f − [j = next]
             (of the same pool only)
    stray    −log (1 − Σ q(t))                         ∂/∂z_t = q_t                     (new t)
    kept     KL(p ‖ q) in text without new tokens      ∂/∂z_j = q_j − p_j               (p_t = 0)

p is the base's next-token distribution after the old reading, f the first part of j (j itself for
an old token). Pooled by first part the graft has to say what the base said; the split shares each
pool out by the text; stray is KL(p ‖ q) where a text holds no new token and h is the base's own.
As in `divergence`, gradients are formed block by block in the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from tokengraft.model.divergence import TRAINING, Head, vocabulary_blocks


@dataclass(frozen=True)
class Added:
    """New output rows: their bias where the head has one, and the first old part of each."""

    rows: torch.Tensor  # (new tokens, dimensions), float32
    first: torch.Tensor  # (new tokens,), old ids
    bias: torch.Tensor | None = None

    def grown(self, head: Head) -> Head:
        """The old head with the new rows after it, in its type."""
        bias = head.bias
        if bias is not None:
            more = self.bias if self.bias is not None else bias.new_zeros(len(self.rows))
            bias = torch.cat([bias, more])
        return replace(head, weight=torch.cat([head.weight, self.rows.to(head.weight)]), bias=bias)

    def alone(self, head: Head) -> Head:
        """The new rows alone, with what the head does to its logits."""
        bias = None if head.bias is None else self.bias
        return replace(head, weight=self.rows.to(head.weight), bias=bias)


@dataclass(frozen=True)
class Weights:
    """What each term counts; a term of weight 0 is still reported."""

    reading: float = 1.0
    pooled: float = 1.0
    split: float = 1.0


@dataclass(frozen=True)
class Terms:
    """Position by position, in nats; `split` is 0 where no next token is given."""

    reading: torch.Tensor
    pooled: torch.Tensor
    split: torch.Tensor
    same: torch.Tensor  # whether base and graft find the same old token likeliest


@dataclass(frozen=True)
class Twigs:
    """Groups of new tokens, each to be likelier (weight above 0) or less likely at a position.

    A group is `order[low:high]`; it adds −weight · log Σ q of its tokens to the split. At each
    position weights sum to 0. Positions ascend.
    """

    order: torch.Tensor  # (new tokens,)
    position: torch.Tensor  # (groups,), as all that follow
    low: torch.Tensor
    high: torch.Tensor
    weight: torch.Tensor

    def within(self, here: slice, count: int) -> Twigs:
        """The groups at the positions `here` of `count`."""
        if here.start <= 0 and here.stop >= count:
            return self
        edges = torch.tensor([here.start, here.stop], device=self.position.device)
        first, last = torch.searchsorted(self.position, edges).tolist()
        cut = (one[first:last] for one in (self.position, self.low, self.high, self.weight))
        kept = Twigs(self.order, *cut)
        return replace(kept, position=kept.position - here.start)

    def slope(self, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What they add at each position, and its gradient at the new logits, from q of these."""
        ordered = q[:, self.order].double()  # sums of a range are differences of running sums
        sums = torch.nn.functional.pad(ordered.cumsum(1), (1, 0))
        wide = sums.shape[1]
        mass = sums[self.position, self.high] - sums[self.position, self.low]
        mass = mass.clamp_(min=1e-12)
        weight = self.weight.double()
        added = sums.new_zeros(len(q)).index_add_(0, self.position, -weight * mass.log())
        steps, share = sums.new_zeros(len(q) * wide), weight / mass
        steps.index_add_(0, self.position * wide + self.low, -share)
        steps.index_add_(0, self.position * wide + self.high, share)
        slope = torch.empty_like(q)
        slope[:, self.order] = (steps.view(len(q), wide).cumsum(1)[:, :-1] * ordered).to(q.dtype)
        return added.to(q.dtype), slope


def pool(q: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """G(q) (positions, old vocabulary) of probabilities over old and new tokens."""
    old = q.shape[1] - len(first)
    return q[:, :old].index_add(1, first, q[:, old:])


@torch.no_grad()
def terms(
    new: torch.Tensor, old: torch.Tensor, head: Head, added: Added, following: torch.Tensor
) -> Terms:
    """The three terms at states `new`, held against the base's states `old`.

    `following` are next tokens: an old id, or the head's rows + the number of the new one; -1
    where there is none.
    """
    return _walk(new, old, head, added, following, None)[0]


def writing_loss(
    new: torch.Tensor, old: torch.Tensor, head: Head, added: Added, following: torch.Tensor,
    weights: Weights, twigs: Twigs | None = None,
) -> torch.Tensor:  # fmt: skip
    """The weighted terms summed over positions, differentiable in `new` and `added.rows`.

    `twigs` add to the split.
    """
    with torch.no_grad():
        losses, slope, pull = _walk(new, old, head, added, following, weights, twigs)
        total = weights.reading * losses.reading.sum() + weights.pooled * losses.pooled.sum()
        total = total + weights.split * losses.split.sum()
    # The other terms are 0, their gradients are the slopes.
    total = total + ((new - new.detach()) * slope).sum()
    return total + ((added.rows - added.rows.detach()) * pull).sum()


@torch.no_grad()
def stray(
    states: torch.Tensor, base: torch.Tensor, head: Head, added: Added
) -> tuple[torch.Tensor, torch.Tensor]:
    """−log (1 − mass of the new tokens) of each position, and its summed gradient at the new rows.

    `base` is log Σ exp of the old logits at the same states.
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
    """KL(p ‖ q) of each position of a text without new tokens, and whether the likeliest agrees.

    Then the gradients of the KLs' sum: at the states `new`, and at the rows of `added` where new
    tokens can be written; p is the base's at `old`, q over all that can be written.
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
        z = q.mul_(bend).to(grown.weight.dtype)
        slope.append((z @ grown.weight).float())
        if pull is not None:
            pull += (z[:, count:].T @ new[here].to(z.dtype)).float()
    return torch.cat(losses), torch.cat(same), torch.cat(slope), pull


def _walk(
    new: torch.Tensor, old: torch.Tensor, head: Head, added: Added, following: torch.Tensor,
    weights: Weights | None, twigs: Twigs | None = None,
) -> tuple[Terms, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The terms; with `weights` the gradient of their weighted sum at states and new rows too."""
    grown, count = added.grown(head), len(head.weight)
    own = torch.cat([torch.arange(count, device=added.first.device), added.first])  # first of each
    losses: list[list[torch.Tensor]] = [[new.new_zeros(0)] for _ in range(3)]
    same = [torch.zeros(0, dtype=torch.bool, device=new.device)]
    slope, pull = [new.new_zeros(0, new.shape[1])], torch.zeros_like(added.rows)
    for here in vocabulary_blocks(grown, len(new), TRAINING):
        logits = grown.logits(new[here])
        bend = grown.slope(logits) if weights is not None else 1.0
        p = head.log_probabilities(old[here])
        total = logits.logsumexp(-1, keepdim=True)
        old_total = logits[:, :count].logsumexp(-1, keepdim=True)
        same.append(p.argmax(-1) == logits[:, :count].argmax(-1))
        gap = p - logits[:, :count]
        likely = p.exp()
        losses[0].append(gap.mul_(likely).sum(-1) + old_total[:, 0])
        del gap
        after = following[here]
        known = after >= 0
        after = after.clamp(min=0)
        score = logits.gather(1, after[:, None])[:, 0] - total[:, 0]
        q = logits.sub_(total).exp_()
        del logits
        pools = pool(q, added.first).clamp_(min=1e-30)
        chosen = pools.gather(1, own[after][:, None])[:, 0]
        losses[1].append((p.sub_(pools.log()).mul_(likely)).sum(-1))
        losses[2].append(torch.where(known, chosen.log() - score, torch.zeros_like(score)))
        del p
        if weights is None:
            continue
        ratio = likely / pools
        z = q * ratio.index_select(1, own).neg_().add_(1).mul_(weights.pooled)
        o = q[:, :count] * (total - old_total).exp_()
        z[:, :count] += o.sub_(likely).mul_(weights.reading)
        del o, ratio, likely, pools
        first, each = own[after], torch.arange(len(after), device=after.device)
        share = torch.where(known, weights.split / chosen, torch.zeros_like(chosen))
        z[:, count:] += q[:, count:] * (added.first == first[:, None]) * share[:, None]
        z[each, first] += q[each, first] * share
        z[each, after] -= weights.split * known
        if twigs is not None:
            more, bent = twigs.within(here, len(new)).slope(q[:, count:])
            losses[2][-1] += more
            z[:, count:] += bent.mul_(weights.split)
        z = (z * bend).to(grown.weight.dtype)
        slope.append((z @ grown.weight).float())
        pull += (z[:, count:].T @ new[here].to(z.dtype)).float()
    reading, pooled, split = (torch.cat(one) for one in losses)
    joined = Terms(reading, pooled, split, torch.cat(same))
    return joined, torch.cat(slope), pull
