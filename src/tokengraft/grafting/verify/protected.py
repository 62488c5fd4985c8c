"""How far a graft whose body was trained moved on protected text that it was not trained on.

Both models are run by plain transformers, in float32, with no code of the training:

    KL(p ‖ q) = Σ p log p / q,   top-1 = share of positions with one likeliest token,
    bits = −Σ log2 q(next) / bytes,     p of the base, q of the graft, over ids that neither bars

New tokens count only if they were trained to be written (policy `write`): the probability that
untrained ones take under `shared` is due to the policy, whatever was trained. Lines with new or
barred tokens are left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengraft.deriving.distil.silent_text import untrained
from tokengraft.grafting.verify.loading import PlainModels, load_tokenizer
from tokengraft.model.libraries import quiet

_TOKENS = 64  # per line
_LINES = 40  # per kind of text, about


@dataclass(frozen=True)
class Moved:
    """How far one kind of text moved: means over all positions."""

    kl: float
    top1: float
    bits: float  # the graft's over the base's, minus 1

    def __str__(self) -> str:
        return f"KL {self.kl:.4f}, top-1 {self.top1:.3f}, bits {self.bits:+.2%}"


def measure(
    models: PlainModels, folder: Path, base: Path, untaught: Collection[int] = ()
) -> dict[str, Moved]:
    """`Moved` by kind of text; empty if there is no text, or no memory for both models.

    `untaught` are ids that were not trained to stay silent: they are left out.
    """
    import torch

    if not models.fit(base, folder):
        return {}
    tokenizers = [load_tokenizer(one) for one in (base, folder)]
    both = [models.load(one)[0] for one in (base, folder)]
    out = set(untaught).union(*(one.generation_config.suppress_tokens or () for one in both))
    moved = {}
    for kind, texts in untrained().items():
        with quiet(warnings=False):  # lines longer than the model's window are cut below
            ids = [one(texts)["input_ids"] for one in tokenizers] if texts else [[], []]
        kept = [old[:_TOKENS] for old, new in zip(*ids, strict=True) if old == new]
        same = [line for line in kept if len(line) > 2 and out.isdisjoint(line)]
        sums = torch.zeros(5, dtype=torch.float64, device=both[0].device)
        for line in same[:: -(-len(same) // _LINES) or 1]:
            with torch.no_grad():
                p, q = (_logs(one, torch.tensor([line], device=one.device), out) for one in both)
            q = q.to(p.device)
            known = min(p.shape[1], q.shape[1])
            after = torch.tensor(line[1:], device=p.device)[:, None]
            sums[0] += torch.where(p > -torch.inf, p.exp() * (p - q[:, :known]), 0.0).sum()
            sums[1] += (p.argmax(-1) == q.argmax(-1)).sum()
            sums[2] += len(line)
            sums[3] += p[:-1].gather(1, after).sum()
            sums[4] += q[:-1].gather(1, after).sum()
        kl, agreed, count, old_bits, new_bits = sums.tolist()
        if count:
            moved[kind] = Moved(kl / count, agreed / count, new_bits / old_bits - 1)
    return moved


def _logs(model: Any, ids: Any, out: Collection[int]) -> Any:
    """Log-probabilities at every position; ids in `out` have none."""
    logits = model(ids).logits[0].clone()
    logits[:, [number for number in out if number < logits.shape[1]]] = -float("inf")
    return logits.log_softmax(-1)
