"""A vLLM logits processor for grafts: bars `suppress_tokens` and applies the output policy.

vLLM finds it by the entry point `vllm.logits_processors` as soon as tokengraft is installed in its
environment; `vllm serve FOLDER` needs no option, and requests no parameter. It reads the served
folder itself: `suppress_tokens` of generation_config.json and the output policy of tokengraft.json.
A model with neither is left alone. A graft is refused if this environment's transformers gives its
text other ids than its tokenizer.json. Nothing heavy but torch, transformers and vLLM is imported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor as FirstRunner

try:
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SecondRunner
except ImportError:  # before vLLM had its second model runner

    class SecondRunner:  # type: ignore[no-redef]
        """Nothing to inherit."""


class GraftOutput(FirstRunner, SecondRunner):  # type: ignore[misc, unused-ignore]
    """Applies the output policy of the served folder to every request."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Every request is served."""

    def __init__(self, vllm_config: Any, where: Any, is_pin_memory: Any = None) -> None:
        """`where` is the device, or the second runner's states, which hold it."""
        del is_pin_memory
        model = vllm_config.model_config
        device = getattr(where, "device", where)
        generation = model.try_get_generation_config() or {}
        barred = generation.get("suppress_tokens") or []
        self._barred = torch.tensor(barred, dtype=torch.long, device=device)
        folder = Path(model.model)
        graft = _graft(folder)
        _refuse_other_ids(folder, model.tokenizer or model.model, graft.get("examples", ()))
        self._pooling = _pooling(graft)
        self._active = bool(barred or self._pooling)

    def is_argmax_invariant(self) -> bool:
        """False: greedy output changes too, as the best token may be a barred one."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Nothing is kept between steps."""

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Whether the second runner should apply this to the request."""
        del req_idx, sampling_params
        return self._active

    def apply(self, logits: torch.Tensor, context: Any = None) -> torch.Tensor:
        """Logits with barred ids at −inf and, if the policy pools, new tokens with first parts."""
        del context
        if len(self._barred):
            logits.index_fill_(-1, self._barred, float("-inf"))
        for pool in self._pooling if len(logits) else ():
            logits.copy_(pool(None, logits))
        return logits


def _graft(folder: Path) -> dict[str, Any]:
    """The manifest of a graft's folder; empty for another model."""
    path = folder / "tokengraft.json"
    manifest: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return manifest


def _refuse_other_ids(folder: Path, served: str, words: Sequence[str]) -> None:
    """Raise ValueError if transformers gives words with new tokens other ids than tokenizer.json.

    `served` is where vLLM loads the tokenizer from (`--tokenizer`). If a config.json says Qwen 2,
    transformers 5.17 to 5.19 use their own split pattern, whatever tokenizer.json says.
    """
    if not words:
        return
    import transformers
    from tokenizers import Tokenizer

    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs = transformers.AutoTokenizer.from_pretrained(served, local_files_only=True)
    for word in words:
        ids = theirs(word, add_special_tokens=False)["input_ids"]
        if ids != own.encode(word, add_special_tokens=False).ids:
            raise ValueError(
                f"transformers {transformers.__version__} reads {word!r} into {ids}, not into the "
                f"ids of tokenizer.json, and so would vLLM: plan {folder.name} again with "
                "--boundaries portable, or serve it with another version of transformers"
            )


def _pooling(graft: dict[str, Any]) -> list[Any]:
    """The logits processor of each graft in the folder whose policy has one, the latest first."""
    from tokengraft.grafting.output_policies import recorded

    every = [*graft.get("earlier", ()), graft.get("output", {})]
    made = []
    for output in filter(None, every[::-1]):
        if pools := recorded(output["policy"]).pools:
            made.append(pools(range(*output["new"]), output["first_parts"], output["bias"]))
    return made
