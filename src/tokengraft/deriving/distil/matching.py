"""The loss of distillation (`distil`) and its gradient, spread over all devices."""

from __future__ import annotations

import torch

from tokengraft.deriving.distil.recipe import Recipe
from tokengraft.deriving.distil.teacher import Teacher
from tokengraft.deriving.distil.writer import Writer
from tokengraft.model.devices import spread
from tokengraft.model.divergence import divergence
from tokengraft.model.pooling import Weights, writing_loss
from tokengraft.model.reading import Reader
from tokengraft.tokenizer.align import Ints


def gradient(
    reader: Reader,
    teacher: Teacher,
    numbers: Ints,
    rows: torch.Tensor,
    recipe: Recipe,
    writer: Writer | None = None,
    head: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
    """Gradients of the loss over the teacher's passages `numbers`, as `reader` reads them.

    At the input rows (new tokens, dimensions); where a `writer` has output rows `head`, at those;
    and at the weights that the reader's model is learning. What becomes of text that holds no new
    token is not in it (`Writer.stray_gradient`, `Replay`).
    """
    rows = rows.detach()
    whole = teacher.states(numbers)
    # A share's loss is its part of the whole batch's means, so gradients of shares add up.
    positions, power = len(whole), float(whole.square().sum())
    times = 1.0 if writer is None else recipe.reading_weight
    weights = Weights(times * recipe.kl, recipe.pooled, recipe.split)

    def slope(member: Reader, share: Ints) -> tuple[torch.Tensor, ...]:
        device = member.model.device
        # One device alone has them all already.
        old = whole if len(share) == len(numbers) else teacher.states(share, device)
        passages = [teacher.passages[n] for n in share]
        with torch.enable_grad():
            mine = [rows.to(device).requires_grad_()]
            new = member.new(passages, mine[0]).float()
            loss = new.new_zeros(())
            if recipe.mse:
                loss = loss + times * recipe.mse * (new - old).square().sum() / power
            if recipe.cosine:
                near = torch.cosine_similarity(new, old, dim=-1)
                loss = loss + times * recipe.cosine * (1 - near).sum() / positions
            if writer is not None and head is not None:
                added = writer.added(head.detach().to(device).requires_grad_(), device)
                mine.append(added.rows)
                after = writer.next_ids(passages, device)
                twigs = teacher.twigs(share, recipe.by_base, device)
                far = writing_loss(new, old, member.head, added, after, weights, twigs)
                loss = loss + far / positions
            elif recipe.kl:
                far = divergence(new, old, member.head).sum()
                loss = loss + recipe.kl * far / positions
            grads = torch.autograd.grad(loss, [*mine, *member.model.learning.values()])
        return tuple(grad.to(rows.device) for grad in grads)

    shares = spread(reader.team, numbers, slope)
    tables = zip(*shares, strict=True)
    sums = [torch.stack(one).sum(dim=0) if len(one) > 1 else one[0] for one in tables]
    if writer is None or head is None:
        return sums[0], None, sums[1:]
    return sums[0], sums[1], sums[2:]
