"""The bias of winner-takes-all, chosen on text that no row was trained on.

    right(b) = mean over positions of  Σ_t p_b(t) · (bytes with which t and the text begin alike)

p_b is the distribution that is pooled with bias b; the text is read in the new spelling. With a low
bias old parts always win: they are hardly ever wrong, and short. With a high one a new token wins
wherever there is one, and may go wrong after a few letters. Between them lies the most text before
the first wrong byte a token, which is what the bias is for. `greedy` counts the likeliest token
alone. (Counting whole tokens only would favour old parts everywhere: a byte of a letter is easily
right.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tokengraft.core.errors import UsageError
from tokengraft.grafting.decoding import WinnerTakesAll
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.reading import read
from tokengraft.tokenizer.align import Floats, Ints

BIASES = (-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)
_LINES, _POSITIONS, _CHUNK = 200, 2000, 256
_LONGEST = 64  # bytes of a text that are looked at


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
    after = [text for sequence in sequences for text in _texts_after(sequence, pieces)]
    step = -(-len(after) // _POSITIONS)
    at = [np.arange(len(one) - 1) for one in sequences]
    states = read(graft, sequences, at).states[::step]
    head, after, prefixes = graft.head().exact(), after[::step], _prefixes(pieces)
    ways: list[float | None] = [None, *biases]
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
    """The bias under which a sampled token is worth most."""
    best = max((one for one in curve if one.bias is not None), key=lambda one: one.right)
    assert best.bias is not None
    return best.bias


def _prefixes(pieces: Sequence[bytes]) -> dict[bytes, Ints]:
    """Tokens by each of their beginnings."""
    numbers: dict[bytes, list[int]] = {}
    for number, piece in enumerate(pieces):
        for size in range(1, len(piece) + 1):
            numbers.setdefault(piece[:size], []).append(number)
    return {beginning: np.array(ids) for beginning, ids in numbers.items()}


def _texts_after(ids: Ints, pieces: Sequence[bytes]) -> list[bytes]:
    """What the text goes on with after each position but the last."""
    text = b"".join(pieces[number] for number in ids)
    ends = np.cumsum([len(pieces[number]) for number in ids])[:-1].tolist()
    return [text[end : end + _LONGEST] for end in ends]


def _right(after: bytes, prefixes: Mapping[bytes, Ints], count: int) -> Floats:
    """How many bytes of each of `count` tokens the text begins with."""
    sizes = np.zeros(count)
    for size in range(1, len(after) + 1):
        numbers = prefixes.get(after[:size])
        if numbers is None:
            break
        sizes[numbers] = size
    return sizes
