"""Output policies by name: what `generate` may do with the new tokens.

They implement the paper's section on vote-splitting. A row of the table holds everything about a
policy: `--help`, the model's card, what is barred from generation and the contract suite
(`tests/contract/test_output_policies.py`) are made from it.

`input-only`: new tokens compress prompts; generation stays in old tokens. The weights alone cannot
ensure that: a tied table scores every row, and most architectures have no output bias (an untied
copy with a bias would need custom code and a second table). `suppress_tokens` of the generation
config can: plain `generate` sets those scores to minus infinity in transformers 4.5x and 5, so the
distribution over old tokens is the base model's, greedy and sampled. Beam search adds up scores
that were normalised before that; `renormalize_logits` makes those the base's too. Cost, one CPU
thread: 3 ms a step for 6,000 of 22,384 tokens, 21 ms for 10,000 of 262,144.
Programs that do not read it (vLLM, llama.cpp) see the raw scores. There an untied head helps: its
new rows are the mean of all old rows, so each scores the mean of the old scores, never more than
the best of them, and by Jensen's inequality n new tokens take at most n / (V + n) of the
probability. If the head has a bias, that of new tokens is -10,000, which no program gets past.

`write`: new tokens may be written too, by output rows that were trained for it
(`deriving.distil`). They are separate from the input rows, for which a tied model gets a copy of
its table as head (old rows are the same bytes in both), unless the model is to stay tied: then the
same rows serve both. Where a policy writes without trained rows, an untied head's are the mean of
the parts' output rows. (The first part's row alone would give all new tokens with that first part
the same score.)

`tokengraft.paper` adds policies of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import ModelError, UsageError
from tokengraft.core.options import find_row
from tokengraft.model.checkpoint import Checkpoint, Tensor
from tokengraft.model.embedding_tables import Tables, text_config


@dataclass(frozen=True)
class OutputPolicy:
    """One policy.

    `help` is a line for the command line, `card` the paragraph in a model's card. `writes`: plain
    `generate` may emit new tokens; `trains`: it needs trained output rows, hence text. A plugin's
    policy may have more: `bars` gives old ids that are barred too, and a note, from the tokenizers
    before and after, the new tokens' parts and the check text; `pools` makes a logits processor
    from the new ids, their first parts and a bias; `settle` gives that bias for the options that it
    `takes` (and whether there is text), or what chooses it, with a note, from the written folder,
    the new ids, their parts and text.
    """

    name: str
    help: str
    card: str
    writes: bool = True
    trains: bool = False
    bars: Callable[..., tuple[tuple[int, ...], str]] | None = None
    pools: Callable[[Sequence[int], Sequence[int], float], Any] | None = None
    settle: Callable[[Mapping[str, Any], bool], Any] | None = None
    takes: tuple[str, ...] = ()


POLICIES: dict[str, OutputPolicy] = {
    policy.name: policy
    for policy in (
        OutputPolicy(
            "input-only",
            "prompts are read in new tokens, answers are written in old ones as before",
            "`input-only`: the new tokens compress what goes in; `generate` writes with the old "
            "ones (`suppress_tokens` in `generation_config.json`), so its output for text without "
            "new tokens is the base model's.",
            writes=False,
        ),
        OutputPolicy(
            "write",
            "answers are in new tokens too, whose output rows were trained for it",
            "`write`: `generate` reads and writes the new tokens. Their output rows were trained "
            "so that, each counted with its first old part, the model says what its base said. "
            "Sample as usual; for greedy decoding switch on the choice by text with "
            "`model.generate(..., logits_processor=tokengraft.logits_processor(folder))`.",
            trains=True,
        ),
    )
}
DEFAULT = "input-only"


def named(name: str) -> OutputPolicy:
    """The policy of that name; UsageError with the known names otherwise."""
    return find_row("output policy", name, POLICIES)


def recorded(name: str) -> OutputPolicy:
    """The policy that a manifest names; those of `paper` once went without its name."""
    return find_row("output policy", name, POLICIES, recorded=True)


def is_recorded(name: object) -> bool:
    """Whether a manifest may name this policy."""
    with contextlib.suppress(UsageError):
        return isinstance(name, str) and bool(recorded(name))
    return False


BARRED_BIAS = -10_000.0  # far below any score, still finite in float16
_CHUNK = 1 << 22  # bytes of a table read at a time
#: Keys that transformers takes from config.json if there is no generation_config.json.
_GENERATION = (
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "do_sample",
    "early_stopping", "max_length", "max_new_tokens", "min_length", "num_beams", "temperature",
    "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id",
    "forced_eos_token_id",
)  # fmt: skip


def mean_row(checkpoint: Checkpoint, table: Tensor, rows: int) -> NDArray[np.float32]:
    """The mean of the first `rows` rows, summed in double precision, a few megabytes at a time."""
    total = np.zeros(table.shape[1:], np.float64)
    step = max(1, _CHUNK // max(1, table.row_bytes))
    for first in range(0, rows, step):
        block = checkpoint.rows(table, first, min(rows, first + step))
        total += block.sum(axis=0, dtype=np.float64)
    return (total / max(1, rows)).astype(np.float32)


def head_rows(
    policy: OutputPolicy,
    checkpoint: Checkpoint,
    table: Tensor,
    parts: Sequence[Sequence[int]],
    filler: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Rows of an untied head for new tokens with these old parts (see the module docstring)."""
    if not policy.writes:
        return np.broadcast_to(filler, (len(parts), *filler.shape)).astype(np.float32)
    needed = sorted({part for group in parts for part in group})
    known = {part: checkpoint.rows(table, part, part + 1)[0] for part in needed}
    return np.stack([np.mean([known[p] for p in group], axis=0) for group in parts])


def new_bias(
    policy: OutputPolicy, checkpoint: Checkpoint, table: Tensor, parts: Sequence[Sequence[int]]
) -> NDArray[np.float32]:
    """The head's bias for new tokens: the mean of their parts', or so low that none is emitted."""
    if not policy.writes:
        return np.full(len(parts), BARRED_BIAS, np.float32)
    values = checkpoint.rows(table, 0, table.shape[0])
    return np.array([values[list(group)].mean() for group in parts], np.float32)


def barred(
    policy: OutputPolicy, new: range, layout: Tables, removed: Sequence[int] = ()
) -> tuple[int, ...]:
    """Ids that plain `generate` must never emit, sorted.

    Rows between the old table's end and the first new id belong to tokens that the base model
    could not emit either (Gemma 3's image token): they are always barred.
    """
    gap = range(layout.rows, new.start)
    ids = {*gap, *(() if policy.writes else new), *removed}
    return tuple(sorted(ids))


def generation_config(
    old: Mapping[str, Any] | None, config: Mapping[str, Any], ids: Sequence[int]
) -> dict[str, Any] | None:
    """The generation config that suppresses `ids` too; None if no file is needed.

    Without a file, transformers reads generation settings from config.json; a new file would hide
    them, so it takes them over. `_from_model_config` is dropped, because `generate` ignores a file
    that has it when config.json holds any such setting.
    """
    if not ids:
        return None if old is None else dict(old)
    if old is None:
        text = text_config(config)
        taken = {key: text.get(key, config.get(key)) for key in _GENERATION}
        old = {key: value for key, value in taken.items() if value is not None}
    kept = {key: value for key, value in old.items() if key != "_from_model_config"}
    own = kept.get("suppress_tokens") or []
    if not isinstance(own, list) or not all(type(one) is int for one in own):
        raise ModelError("suppress_tokens in the base's generation settings is no list of ids")
    suppressed = sorted({*own, *ids})
    return {**kept, "suppress_tokens": suppressed, "renormalize_logits": True}
