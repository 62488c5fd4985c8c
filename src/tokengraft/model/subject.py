"""A model under examination: weights, tokenizer and the special tokens every text gets.

Causal models and encoders are read alike: ids in, last hidden states (after the final norm) out.
Weights come from safetensors only, and no code of a model's own is ever run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.model.folder import resolve
from tokengraft.model.libraries import body, load_frozen, pick_device, require_torch
from tokengraft.model.specials import model_tokenizer, surroundings
from tokengraft.tokenizer.adapters import Tokenizer

if TYPE_CHECKING:
    import torch

Kind: TypeAlias = Literal["causal", "encoder"]
MANIFEST = "tokengraft.json"
_MOST_WINDOW = 4096
_SANE = 1 << 20  # tokenizer configs write 10^30 for "no limit"


@dataclass
class Subject:
    """A loaded model; `prefix` and `suffix` are what its tokenizer puts around every text."""

    name: str
    folder: Path
    kind: Kind
    model: Any
    tokenizer: Tokenizer
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    window: int
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        found: torch.device = self.embedding.weight.device
        return found

    @property
    def embedding(self) -> Any:
        """The input embedding module."""
        return self.model.get_input_embeddings()

    @property
    def scale(self) -> float:
        """What the embedding module multiplies its rows by (Gemma)."""
        scale: Any = getattr(self.embedding, "embed_scale", 1.0)
        return float(scale)

    @property
    def pad(self) -> int:
        """An id to fill up with; masked out, or behind what a causal model can see."""
        found = getattr(_text(self.model.config), "pad_token_id", None)
        return found if isinstance(found, int) and found >= 0 else 0

    @property
    def policy(self) -> str:
        """The graft's output policy, `input-only` where it states none."""
        return str(self.manifest.get("output", {}).get("policy", "input-only"))

    def states(self, ids: Any, mask: Any, rows: Any = None) -> torch.Tensor:
        """Last hidden states (batch, length, dimensions); `rows` stand in for `ids` if given.

        Rows are given as the model's own embedding module would give them (scaled).
        """
        base = body(self.model) if self.kind == "causal" else self.model
        given = {"input_ids": ids} if rows is None else {"inputs_embeds": rows}
        if self.kind == "causal":
            # Filling is at the right, where causal attention cannot see it: no mask, faster path.
            given["use_cache"] = False
        else:
            given["attention_mask"] = mask
        found: torch.Tensor = base(**given).last_hidden_state
        return found


def open_subject(
    model: str | Path | Subject,
    device: str = "auto",
    dtype: str = "auto",
    window: int | None = None,
) -> Subject:
    """Load a model by name, folder or hub id; one that is loaded already is given back.

    `window` is the most tokens read of one line (default: what config and tokenizer_config say, at
    most 4096). Raises UsageError for encoder-decoder models, ModelError for damaged weights.
    """
    if isinstance(model, Subject):
        return model
    torch = require_torch()
    found = resolve(model)
    folder, name = found.path, found.name
    config = _json(folder / "config.json")
    if config.get("auto_map"):
        raise UsageError(f"{name} runs code of its own, which is never loaded here")
    if config.get("is_encoder_decoder"):
        raise UsageError(f"{name} is an encoder-decoder; served are causal models and encoders")
    kind = kind_of(config)
    where = pick_device(device)
    loaded = load_frozen(folder, _dtype(torch, dtype, where), kind == "causal")
    tokenizer = model_tokenizer(folder)
    prefix, suffix = surroundings(tokenizer)
    manifest = _json(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}
    limit = window or _window(folder, loaded.config)
    return Subject(name, folder, kind, loaded.to(where), tokenizer, prefix, suffix, limit, manifest)


def kind_of(config: dict[str, Any]) -> Kind:
    """Whether a model's head predicts the next token, by the architecture its config names."""
    name = str(next(iter(config.get("architectures") or ()), ""))
    causal = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
    return "causal" if name.endswith(causal) else "encoder"


def with_specials(subject: Subject, ids: Sequence[int] | Any) -> Any:
    """Ids with what the tokenizer puts around every text."""
    return np.concatenate(
        [np.asarray(part, np.int64) for part in (subject.prefix, ids, subject.suffix)]
    )


def _window(folder: Path, config: Any) -> int:
    limits = [_MOST_WINDOW, getattr(_text(config), "max_position_embeddings", None)]
    settings = folder / "tokenizer_config.json"
    if settings.is_file():
        limits.append(_json(settings).get("model_max_length"))
    return int(min(limit for limit in limits if isinstance(limit, int) and 0 < limit < _SANE))


def _text(config: Any) -> Any:
    return getattr(config, "text_config", config)


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        where = f"{path.name} of {path.parent.name}"
        raise TokengraftError(f"{where} cannot be read ({error})") from None
    return found


def _dtype(torch: Any, dtype: str, device: Any) -> Any:
    if dtype == "auto":
        # Half types are slow or inexact on a CPU.
        return "auto" if device.type == "cuda" else torch.float32
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"no dtype {dtype!r}; known: auto, float32, bfloat16, float16")
    return found
