"""Winner takes all: a new token and its first old part share one vote.

For each first part f with new tokens T(f), at one position, where p are the model's probabilities:

    f keeps   if p(f) >= exp(bias) * p(t) for every t in T(f):  p(f) += sum of p(t), every p(t) = 0
    t* wins   otherwise, t* the most probable of T(f):          p(t*) += p(f), p(f) = 0

f is a prefix of every t, so each of them can still be spelled after f: it may take all their
mass. The other t are other texts than t*, so they keep their own. A positive bias favours the new
tokens (the frozen model favours the parts it was trained on). Source: the paper's Limitations,
third option for vote-splitting, which leaves open what happens when several tokens share a part.

Its bias is chosen on text that no row was trained on:

    right(b) = mean over positions of  Σ_t p_b(t) · (bytes in the common prefix of t and the text)

p_b is the distribution after pooling with bias b; the text is read in new tokens. With a low bias
old parts always win: they are hardly ever wrong, but short. With a high one a new token wins
wherever there is one, and may go wrong after a few letters. Somewhere between, a token carries the
most text before its first wrong byte; that bias is chosen. `greedy` counts the likeliest token
alone. (Counting whole tokens only would favour old parts everywhere: a byte of a letter is easily
right.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import LogitsProcessor

from tokengraft.core.errors import UsageError
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.reading import read
from tokengraft.tokenizer.align import Floats, Ints


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
        """Pooled scores, as log-probabilities; probabilities still sum to one."""
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


BIASES = (-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)
_LINES, _POSITIONS, _CHUNK = 200, 2000, 256
_LONGEST = 64  # bytes of the text to come that tokens are compared with


@dataclass(frozen=True)
class Tried:
    """What one bias (None: no pooling) achieves: right bytes per token, sampled and greedy."""

    bias: float | None
    right: float
    greedy: float


def bias_curve(
    graft: FrozenModel,
    new: Sequence[int],
    first_parts: Sequence[int],
    lines: Sequence[str],
) -> list[Tried]:
    """No pooling, then every bias, tried on the first lines; UsageError if all are too short."""
    encoded = [ids[: graft.window - 2] for ids in graft.tokenizer.encode(list(lines)[:_LINES])]
    sequences = [np.asarray(ids, np.int64) for ids in encoded if len(ids) > 1]
    if not sequences:
        raise UsageError("a bias is chosen on held-out lines of text: give more with --text FILE")
    pieces = graft.tokenizer.vocabulary.pieces
    after = [text for sequence in sequences for text in _texts_after(sequence, pieces)]
    step = -(-len(after) // _POSITIONS)
    at = [np.arange(len(one) - 1) for one in sequences]
    states = read(graft, sequences, at).states[::step]
    head, after, prefixes = graft.head().exact(), after[::step], _prefixes(pieces)
    ways: list[float | None] = [None, *BIASES]
    sums = np.zeros((len(ways), 2))
    for start in range(0, len(after), _CHUNK):
        logits = head.logits(states[start : start + _CHUNK]).cpu()
        some = [_right(text, prefixes, logits.shape[1]) for text in after[start : start + _CHUNK]]
        fits = torch.from_numpy(np.stack(some).astype(np.float32))
        for number, bias in enumerate(ways):
            pooled = logits.log_softmax(-1)
            if bias is not None:
                pooled = WinnerTakesAll(new, first_parts, bias)(None, logits)  # type: ignore[arg-type]
            best = fits.gather(1, pooled.argmax(1, keepdim=True))
            sums[number] += float((pooled.exp() * fits).sum()), float(best.sum())
    means = sums / len(after)
    return [Tried(bias, *values) for bias, values in zip(ways, means.tolist(), strict=True)]


def best_bias(curve: Sequence[Tried]) -> float:
    """The bias under which a sampled token has the most right bytes."""
    best = max((one for one in curve if one.bias is not None), key=lambda one: one.right)
    assert best.bias is not None
    return best.bias


def _prefixes(pieces: Sequence[bytes]) -> dict[bytes, Ints]:
    """Token ids by every prefix of their bytes."""
    numbers: dict[bytes, list[int]] = {}
    for number, piece in enumerate(pieces):
        for size in range(1, len(piece) + 1):
            numbers.setdefault(piece[:size], []).append(number)
    return {beginning: np.array(ids) for beginning, ids in numbers.items()}


def _texts_after(ids: Ints, pieces: Sequence[bytes]) -> list[bytes]:
    """The text that follows each position but the last."""
    text = b"".join(pieces[number] for number in ids)
    ends = np.cumsum([len(pieces[number]) for number in ids])[:-1].tolist()
    return [text[end : end + _LONGEST] for end in ends]


def _right(after: bytes, prefixes: Mapping[bytes, Ints], count: int) -> Floats:
    """For each of `count` tokens, the bytes in its common prefix with the text `after`."""
    sizes = np.zeros(count)
    for size in range(1, len(after) + 1):
        numbers = prefixes.get(after[:size])
        if numbers is None:
            break
        sizes[numbers] = size
    return sizes
