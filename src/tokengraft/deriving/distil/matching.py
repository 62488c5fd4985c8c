"""The loss of distillation (`distil`) and its gradient at the rows, spread over all devices."""

from __future__ import annotations

import torch

from tokengraft.deriving.distil.recipe import Recipe
from tokengraft.deriving.distil.teacher import Teacher
from tokengraft.model.devices import spread
from tokengraft.model.divergence import divergence
from tokengraft.model.reading import Reader
from tokengraft.tokenizer.align import Ints


def gradient(
    reader: Reader, teacher: Teacher, numbers: Ints, rows: torch.Tensor, recipe: Recipe
) -> torch.Tensor:
    """The gradient (new tokens, dimensions) of the loss over the teacher's passages `numbers`."""
    rows = rows.detach()
    whole = teacher.states(numbers)
    # A share's loss is its part of the whole batch's means, so gradients of shares add up.
    positions, power = len(whole), float(whole.square().sum())

    def slope(member: Reader, share: Ints) -> torch.Tensor:
        device = member.model.device
        # One device alone has them all already.
        old = whole if len(share) == len(numbers) else teacher.states(share, device)
        with torch.enable_grad():
            mine = rows.to(device).requires_grad_()
            new = member.new([teacher.passages[n] for n in share], mine).float()
            loss = new.new_zeros(())
            if recipe.mse:
                loss = loss + recipe.mse * (new - old).square().sum() / power
            if recipe.cosine:
                near = torch.cosine_similarity(new, old, dim=-1)
                loss = loss + recipe.cosine * (1 - near).sum() / positions
            if recipe.kl:
                far = divergence(new, old, member.head).sum()
                loss = loss + recipe.kl * far / positions
            (grad,) = torch.autograd.grad(loss, mine)
        return grad.to(rows.device)

    grads = spread(reader.team, numbers, slope)
    return grads[0] if len(grads) == 1 else torch.stack(grads).sum(dim=0)
