"""The bias of winner-takes-all, chosen on text that no row was trained on.

    right(b) = mean over positions of  Σ_t p_b(t) |t| [the text goes on with t]

p_b is the distribution that is pooled with bias b, |t| a token's bytes; the text is read in the new
spelling. With a low bias old parts always win: they are hardly ever wrong, and short. With a high
one a new token wins wherever there is one, right or not. Between them lies the most text written
rightly a token, which is what the bias is for. `greedy` counts the likeliest token alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tokengraft.core.errors import UsageError
from tokengraft.grafting.winner_takes_all import WinnerTakesAll
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.reading import read

BIASES = (-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)
_LINES, _POSITIONS, _CHUNK = 200, 2000, 256
_LONGEST = 64  # bytes of a token that may be right


@dataclass(frozen=True)
class Tried:
    """What one bias does: right bytes a token, sampled and greedily; None is no pooling at all."""

    bias: float | None
    right: float
    greedy: float


def bias_curve(
    graft: FrozenModel,
    new: Sequence[int],
    first_parts: Sequence[int],
    lines: Sequence[str],
    biases: Sequence[float] = BIASES,
) -> list[Tried]:
    """Every bias, after none at all, on the first lines; UsageError where they hold no position."""
    encoded = [ids[: graft.window - 2] for ids in graft.tokenizer.encode(list(lines)[:_LINES])]
    sequences = [np.asarray(ids, np.int64) for ids in encoded if len(ids) > 1]
    if not sequences:
        raise UsageError("a bias is chosen on held-out lines of text: give more with --text FILE")
    pieces = graft.tokenizer.vocabulary.pieces
    by_piece = {piece: number for number, piece in enumerate(pieces) if piece}
    right = [ids for sequence in sequences for ids in _right(sequence, pieces, by_piece)]
    step = -(-len(right) // _POSITIONS)
    at = [np.arange(len(one) - 1) for one in sequences]
    states = read(graft, sequences, at).states[::step]
    head, right = graft.head().exact(), right[::step]
    sizes = torch.tensor([len(piece) for piece in pieces], dtype=torch.float32)
    ways: list[float | None] = [None, *biases]
    sums = np.zeros((len(ways), 2))
    for start in range(0, len(right), _CHUNK):
        logits = head.logits(states[start : start + _CHUNK]).cpu()
        fits = torch.zeros_like(logits)
        for place, ids in enumerate(right[start : start + _CHUNK]):
            fits[place, ids] = sizes[ids]
        for number, bias in enumerate(ways):
            pooled = logits.log_softmax(-1)
            if bias is not None:
                pooled = WinnerTakesAll(new, first_parts, bias)(None, logits)  # type: ignore[arg-type]
            best = fits.gather(1, pooled.argmax(1, keepdim=True))
            sums[number] += float((pooled.exp() * fits).sum()), float(best.sum())
    means = sums / len(right)
    return [Tried(bias, *values) for bias, values in zip(ways, means.tolist(), strict=True)]


def best_bias(curve: Sequence[Tried]) -> float:
    """The bias under which a sampled token is worth most."""
    best = max((one for one in curve if one.bias is not None), key=lambda one: one.right)
    assert best.bias is not None
    return best.bias


def _right(ids: np.ndarray, pieces: Sequence[bytes], by_piece: dict[bytes, int]) -> list[list[int]]:
    """For each position but the last, every token that the text after it begins with."""
    text = b"".join(pieces[number] for number in ids)
    ends = np.cumsum([len(pieces[number]) for number in ids])[:-1].tolist()
    after = (text[end : end + _LONGEST] for end in ends)
    return [
        [by_piece[rest[:n]] for n in range(1, len(rest) + 1) if rest[:n] in by_piece]
        for rest in after
    ]
