"""The loss of distillation (`distiller`): its gradient, and its value on held-out text.

Both are means over aligned positions, and spread over all devices. `continued` measures what users
of a model that writes old tokens get: how well it predicts the text after a prompt in new tokens.
"""

from __future__ import annotations

import numpy as np
import torch

from tokengraft.deriving.distil.passages import next_old, text_after
from tokengraft.deriving.distil.recipe import HeldOut, Recipe
from tokengraft.deriving.distil.replay import Replay
from tokengraft.deriving.distil.teacher import Teacher
from tokengraft.deriving.distil.writer import Writer
from tokengraft.model.divergence import TRAINING, Distributions, compare, likelihoods, slopes
from tokengraft.model.head_losses import LossWeights, terms, writing_slopes
from tokengraft.model.libraries import spread
from tokengraft.model.reading import BATCH_TOKENS, Reader, batches
from tokengraft.tokenizer.align import Alignment, Ints


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

    Three of them: at the input rows (new tokens, dimensions), at the output rows `head` where a
    `writer` has some, and at the weights that the reader's model is learning. Text without a new
    token has losses of its own (`Writer.stray_gradient`, `Replay.gradient`).
    """
    rows = rows.detach()
    whole = teacher.states(numbers)
    # A share's loss is its part of the whole batch's means, so gradients of shares add up.
    positions, power = len(whole), float(whole.square().sum())
    times = 1.0 if writer is None else recipe.reading_weight
    weights = LossWeights(times * recipe.kl, recipe.pooled, recipe.split)

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
                at_states, at_rows = writing_slopes(
                    new.detach(), old, member.head, added, after, weights, twigs
                )
                # Only the gradients of these products mean something, not their values.
                loss = loss + ((new * at_states).sum() + (added.rows * at_rows).sum()) / positions
            elif recipe.kl:
                after_text = np.concatenate([text_after(one) for one in passages])
                at_states = slopes(
                    new.detach(), old, member.head, after_text, recipe.by_text or 0.0
                )
                loss = loss + recipe.kl * (new * at_states).sum() / positions
            grads = torch.autograd.grad(loss, [*mine, *member.model.learning.values()])
        return tuple(grad.to(rows.device) for grad in grads)

    shares = spread(reader.team, numbers, slope)
    tables = zip(*shares, strict=True)
    sums = [torch.stack(one).sum(dim=0) if len(one) > 1 else one[0] for one in tables]
    if writer is None or head is None:
        return sums[0], None, sums[1:]
    return sums[0], sums[1], sums[2:]


def judge(
    reader: Reader,
    teacher: Teacher,
    rows: torch.Tensor,
    *,
    writer: Writer | None = None,
    head: torch.Tensor | None = None,
    mixed: Teacher | None = None,
    recipe: Recipe | None = None,
    replay: Replay | None = None,
) -> HeldOut:
    """Score rows on the teacher's passages, and on `mixed` ones where there are some.

    All figures are means over aligned positions. `HeldOut.loss` weighs them as training does by
    `recipe`: where that is `by_text`, so much of the KL after a change of spelling is replaced by
    how many more nats the text takes there than with the base.
    """
    kl, same, cosine, writes, count = _means(reader, teacher, rows, writer, head)
    recipe = recipe or Recipe()
    loss, other, stray = kl, None, None
    kept = () if replay is None else replay.judge(reader, head)
    if writer is not None and head is not None:
        stray = kept[0] if kept else writer.strays(head)  # all that moved, where the body learns
        loss = recipe.reading_weight * kl + writes + recipe.stray * stray
    excess: dict[str, float] = {}
    if mixed is not None and len(mixed.passages):
        other = _means(reader, mixed, rows, None, None)[0]
        apart, times = other, 1.0 if writer is None else recipe.reading_weight
        share = 0.0 if writer is not None else recipe.by_text or 0.0
        nats = _nats(reader, mixed, rows) if share else None
        if nats is not None:
            base, ours, positions = nats
            apart += share * ((ours - base) / positions - other)
            excess["excess"] = ours / base - 1
        loss += recipe.mixed * apart * times
    writing = None if writer is None else writes
    return HeldOut(kl, same, cosine, int(count), other, writing, stray, loss, *kept, **excess)


def unrelated(teacher: Teacher) -> tuple[float, float, float]:
    """KL, agreement and cosine of the base to itself half of all positions further on."""
    head, states = teacher.reader.head, teacher.states(np.arange(len(teacher.passages)))
    others = states.roll(len(states) // 2, 0)
    apart = compare(Distributions(states, head), others, head, 1, TRAINING)
    cosine = torch.cosine_similarity(states, others, dim=-1).mean()
    return float(apart.kl.mean()), float(apart.top1.mean()), float(cosine)


def continued(reader: Reader, teacher: Teacher, rows: torch.Tensor | None) -> float | None:
    """How many more bits the rest of a passage takes after a beginning in new tokens.

    The rest is in old tokens, the teacher's passages are mixtures, and the answer is relative to
    the bits after a beginning in old tokens. Without `rows` the beginning is that of another
    passage, in old tokens: what it costs to know nothing of it. None for fewer than two mixtures.
    """
    nats = _nats(reader, teacher, rows)
    return None if nats is None else nats[1] / nats[0] - 1


def _nats(
    reader: Reader, teacher: Teacher, rows: torch.Tensor | None
) -> tuple[float, float, int] | None:
    """Nats of the text after the base's beginnings and after ours, and at how many positions.

    As `continued`, which puts the two sums in relation.
    """
    first_new, numbers, passages = reader.first_new, [], []
    for number, one in enumerate(teacher.passages):
        last = np.flatnonzero(one.new >= first_new)[-1:]
        if len(last) and last[0] <= one.new_at[0]:  # the rest is in old tokens
            numbers.append(number)
            passages.append(one)
    if len(numbers) < 2:
        return None
    if rows is None:
        ends = [int(np.flatnonzero(p.new >= first_new)[-1] + 1 - p.new_at[0] + p.old_at[0])
                for p in passages]  # fmt: skip
        passages = [
            _after(one, end, passages[n - 1].old[: ends[n - 1]][-end:])
            for n, (one, end) in enumerate(zip(passages, ends, strict=True))
        ]
        rows = reader.model.weight[:1].float()  # none is read
    nats, positions = np.zeros(2), 0
    sizes = np.fromiter((len(one.new) for one in passages), np.int64)
    for batch in batches(sizes, BATCH_TOKENS):
        chosen = [passages[n] for n in batch]
        targets = np.concatenate([next_old(one) for one in chosen])
        there = targets >= 0
        with torch.no_grad():
            read = reader.new(chosen, rows.to(reader.model.device)).float()
        known = teacher.states(np.array([numbers[n] for n in batch]))
        for side, states in enumerate((known, read)):
            said = likelihoods(states, np.maximum(targets, 0), reader.head)
            nats[side] -= said[there].sum()
        positions += int(there.sum())
    return float(nats[0]), float(nats[1]), positions


def _after(one: Alignment, end: int, before: Ints) -> Alignment:
    """The passage with its first `end` old ids replaced, all of it in old tokens."""
    ids = np.concatenate([before, one.old[end:]])
    return Alignment(one.old, ids, one.old_at, one.old_at - end + len(before))


def _means(
    reader: Reader,
    teacher: Teacher,
    rows: torch.Tensor,
    writer: Writer | None,
    head: torch.Tensor | None,
) -> tuple[float, float, float, float, float]:
    """KL, agreement, cosine and writing as means over positions, and how many there are."""
    teacher.fill()
    totals = np.zeros(5)
    sizes = np.fromiter((len(one.new) for one in teacher.passages), np.int64)

    def score(member: Reader, numbers: Ints) -> tuple[float, ...]:
        device = member.model.device
        passages = [teacher.passages[n] for n in numbers]
        with torch.no_grad():
            new = member.new(passages, rows.to(device)).float()
        old = teacher.states(numbers, device)
        cosine = torch.cosine_similarity(new, old, dim=-1).sum().item()
        if writer is None or head is None:
            apart = compare(Distributions(old, member.head), new, member.head, 1, TRAINING)
            return apart.kl.sum().item(), apart.top1.sum().item(), cosine, 0.0, len(new)
        read = terms(new, old, member.head, writer.added(head, device), writer.next_ids(passages))
        writes = (read.pooled.sum() + read.split.sum()).item()
        return (
            read.reading.sum().item(), read.same.sum().item(), cosine, writes, len(read.same)
        )  # fmt: skip

    for numbers in batches(sizes, BATCH_TOKENS * len(reader.team)):
        for sums in spread(reader.team, numbers, score):
            totals += sums
    kl, same, cosine, writes = (totals[:4] / totals[4]).tolist()
    return kl, same, cosine, writes, float(totals[4])
