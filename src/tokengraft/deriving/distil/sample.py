"""Text by the model itself: more passages to distil on where little text is at hand.

    x ~ p(x | the first tokens of a given line), token by token at temperature 1

Reference: distilling on the teacher's own samples, Kim & Rush 2016
(https://aclanthology.org/D16-1139/). Changed: nothing is learned from what the text says; it only
shows the new tokens in contexts that the model holds likely. Lines that come out as broken UTF-8
are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from tokengraft.model.frozen import FrozenModel
from tokengraft.tokenizer.adapters import Tokenizer


def sample_text(
    model: FrozenModel,
    tokenizer: Tokenizer,
    lines: Sequence[str],
    count: int,
    prompt: int = 8,
    tokens: int = 160,
    batch: int = 512,
    top_k: int = 0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Up to `count` lines, each begun with the first `prompt` tokens of a line of `lines`."""
    generator = np.random.default_rng(seed)
    starts = [ids[:prompt] for ids in tokenizer.encode(list(lines)) if len(ids) >= prompt]
    if not starts:
        return []
    found: list[str] = []
    end = {"eos_token_id": None, "pad_token_id": 0}
    with torch.random.fork_rng(devices=_gpus(model)):
        torch.manual_seed(seed)
        for begun in range(0, count, batch):
            size = min(batch, count - begun)
            chosen = generator.integers(0, len(starts), size)
            ids = torch.tensor([starts[n] for n in chosen], device=model.device)
            made = model.model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0,
                top_k=top_k, top_p=1.0, max_new_tokens=tokens, **end,
            )  # fmt: skip
            texts = tokenizer.decode(made.tolist())
            found += [text for text in map(_whole, texts) if text]
            if progress is not None:
                progress(begun + size, count)
    return found


def _whole(text: str) -> str:
    """The line without a character cut off at its end; '' where it is broken inside."""
    text = text.rstrip("�").strip()
    return "" if "�" in text or "\n" in text else text


def _gpus(model: FrozenModel) -> list[int]:
    device = model.device
    return [device.index or 0] if device.type == "cuda" else []
