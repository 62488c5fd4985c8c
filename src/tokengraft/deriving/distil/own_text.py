"""Text that the base writes itself, to train on if the given text is little or of one kind.

A line begins like a given one and continues as the base would, each token drawn from the base's
distribution without those below 1/50 of the likeliest (min-p). When the base ends a text, another
is begun in its place. Whether the text is true or well written does not matter: the base is the
teacher, and this resembles all the kinds of text that it was trained on.

Reference: data written by the teacher itself, Liu et al. 2023, LLM-QAT
(https://arxiv.org/abs/2305.17888); min-p, Nguyen et al. 2024 (https://arxiv.org/abs/2407.01082).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tokengraft.model.frozen import FrozenModel
from tokengraft.tokenizer.align import Ints

_BEGUN = 48  # tokens to continue from, and at most half of the given line
_TOGETHER = {"cpu": 32, "cuda": 2048}  # passages written at a time,
_HELD = 4 << 30  # unless their keys and values take more bytes than this
_LEAST = math.log(1 / 50)


def go_on(
    model: FrozenModel,
    lines: Sequence[str],
    count: int,
    tokens: int,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """The lines of `count` passages of `tokens` tokens that the model writes, begun as given ones.

    If a line breaks off inside a character, its whole characters are kept.
    """
    halves = [ids[: min(_BEGUN, len(ids) // 2)] for ids in model.tokenizer.encode(list(lines))]
    halves = [half for half in halves if half]
    if not halves or count < 1:
        return []
    begun = _Begun(model, halves)
    author, dice = _author(model), torch.Generator(model.device).manual_seed(seed)
    config = author.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    each = 2 * 2 * model.layers * heads * width * tokens
    together = _TOGETHER.get(model.device.type, _TOGETHER["cpu"])
    together = max(1, min(together, _HELD // each))
    written: list[str] = []
    for start in range(0, count, together):
        size = min(together, count - start)
        ids = _write(author, model, begun, size, tokens, dice)
        written += [line for one in ids for line in _lines(model, one)]
        if progress is not None:
            progress(start + size, count)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()  # keys and values are not needed any more
    return written


class _Begun:
    """Beginnings of lines on the model's device: ids (lines, longest), and how many each has."""

    def __init__(self, model: FrozenModel, halves: Sequence[Sequence[int]]) -> None:
        ids = np.zeros((len(halves), max(map(len, halves))), np.int64)
        for row, half in zip(ids, halves, strict=True):
            row[: len(half)] = half
        self.ids = torch.from_numpy(ids).to(model.device)
        self.sizes = torch.tensor([len(half) for half in halves], device=model.device)
        self.known = min(len(model.weight), len(model.tokenizer.vocabulary))
        self.ends = torch.zeros(self.known, dtype=torch.bool, device=model.device)
        self.ends[[one for one in model.tokenizer.vocabulary.special if one < self.known]] = True

    def draw(self, size: int, dice: torch.Generator) -> torch.Tensor:
        """Numbers of `size` lines, drawn at random."""
        return torch.randint(len(self.ids), (size,), generator=dice, device=self.ids.device)


def _author(model: FrozenModel) -> Any:
    """The model; on a GPU in half precision, in which it writes twice as fast."""
    if model.device.type != "cuda" or model.weight.element_size() < 4:
        return model.model
    return copy.deepcopy(model.model).bfloat16()


@torch.no_grad()
def _write(
    author: Any, model: FrozenModel, begun: _Begun, size: int, tokens: int, dice: torch.Generator
) -> Ints:
    """Passages (size, tokens): beginnings of lines, and what the author draws after them."""
    line, place = begun.draw(size, dice), torch.zeros(size, dtype=torch.int64, device=model.device)
    drawn, past, every = begun.ids[line, 0], None, []
    front = torch.tensor([model.prefix] * size, device=model.device, dtype=torch.int64)
    for _ in range(tokens):
        given = begun.ids[line, place.clamp(max=begun.ids.shape[1] - 1)]
        within = place < begun.sizes[line]
        ids = torch.where(within, given, drawn)
        every.append(ids)
        over = begun.ends[ids] & ~within
        line = torch.where(over, begun.draw(size, dice), line)
        place = torch.where(over, 0, place + 1)
        after = torch.cat([front, ids[:, None]], 1)
        read = author(input_ids=after, past_key_values=past, use_cache=True, logits_to_keep=1)
        past, front = read.past_key_values, front[:, :0]
        scores = read.logits[:, -1, : begun.known].float()
        unlikely = scores < scores.amax(-1, keepdim=True) + _LEAST
        likely = scores.masked_fill_(unlikely, -math.inf).softmax(-1)
        drawn = torch.multinomial(likely, 1, generator=dice)[:, 0]
    whole: Ints = torch.stack(every, 1).cpu().numpy()
    return whole


def _lines(model: FrozenModel, ids: Ints) -> list[str]:
    """The text of the ids, in lines; a special token ends a line."""
    vocabulary = model.tokenizer.vocabulary
    said = b"".join(
        b"\n" if one in vocabulary.special else vocabulary.pieces[one] for one in ids.tolist()
    )
    whole = (line.decode("utf-8", "replace").split("\ufffd")[0] for line in said.split(b"\n"))
    return [line.strip() for line in whole if line.strip()]
