"""vLLM's logits processor for grafts: bars `suppress_tokens`, and lets one winner take all.

vLLM finds it by the entry point `vllm.logits_processors` as soon as tokengraft is installed beside
it; `vllm serve FOLDER` needs no option and a request no parameter. It reads the served folder
itself: `suppress_tokens` of generation_config.json, and the output policy of tokengraft.json. A
model without either is left alone. Only torch and vLLM are imported.
"""

from __future__ import annotations

import json
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
        """`where` is the device, or the second runner's states, which know it."""
        del is_pin_memory
        model = vllm_config.model_config
        device = getattr(where, "device", where)
        generation = model.try_get_generation_config() or {}
        barred = generation.get("suppress_tokens") or []
        self._barred = torch.tensor(barred, dtype=torch.long, device=device)
        self._pooling = _pooling(Path(model.model))
        self._active = bool(barred) or self._pooling is not None

    def is_argmax_invariant(self) -> bool:
        """Greedy output changes: the best token may be a barred one."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Nothing is kept between steps."""

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Whether the second runner should apply this to the request."""
        del req_idx, sampling_params
        return self._active

    def apply(self, logits: torch.Tensor, context: Any = None) -> torch.Tensor:
        """Scores with the barred ids out of reach, and first parts pooled with new tokens."""
        del context
        if len(self._barred):
            logits.index_fill_(-1, self._barred, float("-inf"))
        if self._pooling is not None and len(logits):
            logits.copy_(self._pooling(None, logits))
        return logits


def _pooling(folder: Path) -> Any:
    """The folder's winner-takes-all, None where its policy is another."""
    from tokengraft.grafting.output_policies import DEFAULT, POLICIES

    path = folder / "tokengraft.json"
    if not path.is_file():
        return None
    output = json.loads(path.read_text("utf-8")).get("output", {})
    policy = POLICIES.get(output.get("policy", DEFAULT))
    if policy is None or not policy.pools:
        return None
    from tokengraft.grafting.winner_takes_all import WinnerTakesAll

    return WinnerTakesAll(range(*output["new"]), output["first_parts"], output["bias"])
