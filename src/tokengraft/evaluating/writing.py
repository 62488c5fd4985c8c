"""What a graft writes: its language in new tokens, and English as its base would.

Prompts are the beginnings of lines, all of the same number of tokens so that they form one batch.
Text is sampled at temperature 1 from the model's distribution, without the ids that the folder
suppresses. A written token is worth as many old tokens as its text takes; the ceiling is what real
text gives under the new tokenizer. A broken character is one that no further token can complete.

In English (lines in which no new token occurs) base and graft should write the same: we count the
greedy continuations that agree to the last id. `protected` compares the probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokengraft.evaluating.generation import generated
from tokengraft.evaluating.lines import Case
from tokengraft.evaluating.score import Bootstrap, Metric, Score, Sums, score
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.libraries import require_torch
from tokengraft.tokenizer.align import Ints

WORTH = Metric(
    "written_worth",
    "old tokens that the text of one sampled token takes; the ceiling is real text under the new "
    "tokenizer",
)
BROKEN = Metric(
    "broken_characters",
    "broken characters in a hundred sampled ones; the ceiling is what the base writes",
    higher=False,
)
GREEDY = Metric(
    "english_greedy", "greedy continuations of English beginnings that are the base's, id by id"
)
_MOST = 64  # prompts per language
_BASE = 16  # fewer for the base, which needs many times as many tokens for the same text
_PROMPT, _TOKENS = 12, 40  # new tokens read and written for each
_GREEDY_PROMPT, _GREEDY_TOKENS = 8, 24


def written_scores(
    base: FrozenModel,
    graft: FrozenModel,
    case: Case,
    drawn: Bootstrap,
) -> dict[str, Score]:
    """Worth and broken characters of what the graft samples; none if no line is long enough."""
    sizes = case.sizes()
    real = float(sizes["tokens_before"]) / max(1.0, float(sizes["tokens_after"]))
    seed, lengths = drawn.seed, (round(_PROMPT * real), round(_TOKENS * real))
    written = _sample(graft, case.new, _PROMPT, _TOKENS, seed)
    before = _sample(base, case.old, *lengths, seed, _BASE)
    if not written or not before:
        return {}
    texts = [graft.tokenizer.decode([ids])[0].rstrip("\ufffd") for ids in written]
    worth = np.array([len(ids) for ids in base.tokenizer.encode(texts)], np.float64)
    steps = np.array([len(ids) for ids in written], np.float64)
    theirs = [base.tokenizer.decode([ids])[0].rstrip("\ufffd") for ids in before]
    broken, whole = _broken(texts)
    base_broken, base_whole = _broken(theirs)
    theirs_broken = float(100 * base_broken.sum() / max(1.0, base_whole.sum()))
    return {
        WORTH.name: score(WORTH, Sums(worth, steps), drawn, ceiling=real),
        BROKEN.name: score(BROKEN, Sums(100 * broken, whole), drawn, ceiling=theirs_broken),
    }


def english_greedy(
    base: FrozenModel,
    graft: FrozenModel,
    lines: Sequence[str],
    drawn: Bootstrap,
    *,
    most: int = 200,
) -> dict[str, Score]:
    """How many of the first `most` lines without a new token both models continue alike."""
    old, new = base.tokenizer.encode(list(lines)), graft.tokenizer.encode(list(lines))
    kept = [np.asarray(a, np.int64) for a, b in zip(old, new, strict=True) if a == b][:most]
    same = _same_greedy(base, graft, kept)
    if not len(same):
        return {}
    return {GREEDY.name: score(GREEDY, Sums(same, np.ones(len(same))), drawn, ceiling=1.0)}


def _same_greedy(base: FrozenModel, graft: FrozenModel, lines: Sequence[Ints]) -> Any:
    """For every prompt, 1 if both models write the same ids after it, else 0."""
    prompts = [ids[:_GREEDY_PROMPT] for ids in lines if len(ids) >= _GREEDY_PROMPT]
    if not prompts:
        return np.zeros(0)
    both = [
        _generate(model, prompts, _GREEDY_TOKENS, {"do_sample": False}) for model in (base, graft)
    ]
    return (both[0] == both[1]).all(1).astype(np.float64)


def _sample(
    model: FrozenModel, lines: Sequence[Ints], prompt: int, tokens: int, seed: int,
    most: int = _MOST,
) -> list[list[int]]:  # fmt: skip
    """Ids sampled after the first `prompt` tokens of the first `most` lines that have as many."""
    torch = require_torch()
    chosen = [ids[:prompt] for ids in lines if len(ids) >= prompt][:most]
    if not chosen:
        return []
    torch.manual_seed(seed)
    options = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    ids: list[list[int]] = _generate(model, chosen, tokens, options).tolist()
    return ids


def _generate(
    model: FrozenModel, prompts: Sequence[Ints], tokens: int, options: dict[str, Any]
) -> Any:
    """Ids written after prompts of one length, (prompts, tokens); no text ends early."""
    whole = np.stack([np.concatenate([model.prefix, ids]).astype(np.int64) for ids in prompts])
    ids = require_torch().from_numpy(whole).to(model.device)
    return generated(model, ids, tokens, {**options, "min_new_tokens": tokens}).cpu().numpy()


def _broken(texts: Sequence[str]) -> tuple[Any, Any]:
    """The number of broken characters and of all characters in each text."""
    return (
        np.array([text.count("\ufffd") for text in texts], np.float64),
        np.array([len(text) for text in texts], np.float64),
    )
