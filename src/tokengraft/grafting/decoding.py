"""Decoding with new tokens: greedy text, or winner takes all.

Greedy text: take the likeliest text that may come next, not the likeliest single token.

New tokens with a common beginning divide its probability among them, so each alone may be less
likely than the old part they all begin with. Taking the likeliest token would then spell in old
tokens a text that the model prefers in new ones. So where a new token is likelier to come next than
an old one, new tokens are counted together, and the choice descends the tree of their texts (q are
the model's probabilities):

    first       take the likeliest old token, unless the new tokens t with one first part f are
                likelier together:  Σ q(t) > q(any old token)
    then        stop at the token that ends here, if it is likelier than all that go on;
                else go on with the byte whose tokens are likeliest together

Elsewhere the likeliest token is taken. In English, where each new token is unlikely but there are
many, they would otherwise win where the model hesitates between a space and something else: on
rootstock in 2 of 100 continuations of 24 tokens, now in 3 of 1,000 (Shan, FLORES dev). Those three
follow beginnings such as `Nadal bagged 882`, of which the model makes little: new tokens have .2 to
.7 together. So, until a new token has been read or written, old ones are taken unless new ones have
nine tenths.
Tamil on rootstock: 4.1 characters a step, where the likeliest token gives .65 and the base .36; and
the base finds that text likelier than its own greedy text (.5 bits per byte against .7).
For greedy decoding only: sampling draws from q itself and needs none of this.

Winner takes all: a new token and its first old part share one vote.

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
from itertools import groupby

import numpy as np
import torch
from transformers import LogitsProcessor

from tokengraft.core.errors import UsageError
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.reading import read
from tokengraft.tokenizer.align import Floats, Ints

Span = tuple[int, int]  # of places among the new tokens, sorted by first part and bytes
_LIKELY = 0.5  # probability that new tokens must have together to be chosen,
_SURE = 0.9  # and as long as none has been read or written


@dataclass(frozen=True)
class Node:
    """A prefix of new tokens: the place of the token that ends here, if any, and how others go on.

    `spans` are the places of the tokens beyond each of the `ways`.
    """

    token: int | None
    spans: tuple[Span, ...] = ()
    ways: tuple[Node, ...] = ()


class GreedyText(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Raises the chosen token's score above all others; the other scores stay as they are."""

    def __init__(self, new: Sequence[int], first: Sequence[int], pieces: Sequence[bytes]) -> None:
        order = sorted(range(len(new)), key=lambda n: (first[n], pieces[n]))
        self._new = torch.tensor([new[n] for n in order], dtype=torch.long)
        self._first = torch.tensor([first[n] for n in order], dtype=torch.long)
        spelled = [(pieces[n], place) for place, n in enumerate(order)]
        self._pools: dict[int, Node] = {}
        for part, group in groupby(range(len(order)), key=lambda place: first[order[place]]):
            self._pools[part] = _node(spelled, list(group), 0, None)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores (batch, vocabulary) in which the chosen token has the highest."""
        q = torch.softmax(scores.float(), dim=-1)
        new, first = self._new.to(q.device), self._first.to(q.device)
        news = q[:, new]
        together, part = torch.zeros_like(q).index_add_(1, first, news).max(-1)
        alone, chosen = q.index_fill(1, new, 0).max(-1)
        begun = torch.isin(input_ids, new.to(input_ids.device)).any(-1).to(q.device)
        likely = news.sum(-1) > torch.where(begun, _LIKELY, _SURE)
        chosen = torch.where(likely | ~begun, chosen, q.argmax(-1))
        for row in (likely & (together > alone)).nonzero()[:, 0].tolist():
            masses = news[row].double().cpu().numpy()
            chosen[row] = self._new[_descend(self._pools[int(part[row])], masses)]
        best = scores.max(-1, keepdim=True).values
        return scores.scatter(-1, chosen[:, None], best + 1)


def _descend(node: Node, masses: np.ndarray) -> int:
    """The place of the token to take, in the tree `node`; `masses` are probabilities by place."""
    sums, taken, ends = np.concatenate([[0.0], np.cumsum(masses)]), 0, -1.0
    while node.ways:
        beyond = [sums[last] - sums[first] for first, last in node.spans]
        if ends >= sum(beyond):
            return taken
        node = node.ways[int(np.argmax(beyond))]
        # Where no token ends, there is nothing to stop at.
        ends = -1.0
        if node.token is not None:
            taken, ends = node.token, float(masses[node.token])
    return taken


def _node(
    spelled: list[tuple[bytes, int]], places: list[int], depth: int, token: int | None
) -> Node:
    """The tree over the tokens at `places`, which share `depth` bytes; `token` ends with these."""
    spans, ways = [], []
    for _, group in groupby(places, key=lambda place: spelled[place][0][depth]):
        among = list(group)
        deeper = depth + 1
        while all(len(spelled[n][0]) > deeper for n in among) and (
            len({spelled[n][0][deeper] for n in among}) == 1
        ):
            deeper += 1  # all share the next byte too
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
