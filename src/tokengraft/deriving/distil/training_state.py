"""A distillation in progress as one safetensors file, written whole or not at all.

Its key covers everything it depends on, down to every weight of the model: a fine-tuned model often
has the rows of its base, and must not continue from the base's checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tokengraft.core.files import writing
from tokengraft.deriving.distil.passages import Lots, following
from tokengraft.deriving.distil.recipe import Recipe
from tokengraft.deriving.distil.replay import Replay
from tokengraft.deriving.distil.writer import Writer
from tokengraft.deriving.methods import Rows
from tokengraft.model.reading import Reader

_NAME = "distil.safetensors"
_FORM = 2  # of what is saved; another one is not gone on from


def key(
    reader: Reader,
    lots: Lots,
    start: Rows,
    recipe: Recipe,
    parts: Sequence[Sequence[int]] | None = None,
    writer: Writer | None = None,
    replay: Replay | None = None,
) -> str:
    """sha256 of all that a distillation depends on: any change gives another key."""
    facts = {
        "form": _FORM,
        "model": reader.model.fingerprint(),
        "recipe": asdict(recipe),
        "prefix": list(reader.prefix),
        "first_new": reader.first_new,
        "parts": None if parts is None else [[int(part) for part in one] for one in parts],
        "lots": [len(lots.train), len(lots.held_out), len(lots.mixed)],
        "writer": None if writer is None else writer.facts(),
        "replay": None if replay is None else replay.facts(),
        "start": list(start.shape),
    }
    if lots.languages:
        facts["languages"] = lots.languages
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    digest.update(np.ascontiguousarray(start, np.float32).tobytes())
    for one in (*lots.train, *lots.held_out, *lots.mixed):
        for ids in (one.old, one.new, one.old_at, one.new_at, following(one)):
            digest.update(len(ids).to_bytes(8, "little") + ids.astype(np.int64).tobytes())
    return digest.hexdigest()


class Saver:
    """Writes checkpoints one after the other while training goes on."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def save(self, folder: Path, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        """Begin to write tensors and facts, as they are now, into `folder`."""
        self.wait()
        now = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        self._last = self._thread.submit(save, folder, now, facts)

    def wait(self) -> None:
        """Wait until what was begun is written; OSError if the system refuses."""
        last, self._last = self._last, None
        if last is not None:
            last.result()


def save(folder: Path, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
    """Write tensors and facts into `folder`; OSError if the system refuses."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with writing(folder / _NAME) as temporary:
        mode = temporary.stat().st_mode
        try:
            save_file(held, temporary, metadata={"facts": json.dumps(facts)})
        except SafetensorError as error:
            said = re.search(r"os error (\d+)", str(error))
            if said is None:
                raise
            number = int(said[1])
            raise OSError(number, os.strerror(number), str(folder / _NAME)) from error
        temporary.chmod(mode)  # safetensors makes private files


def load(folder: Path, wanted: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """What was saved under the key `wanted`, or None; a damaged file counts as none."""
    from safetensors import SafetensorError, safe_open

    file = folder / _NAME
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as opened:
            facts: dict[str, Any] = json.loads((opened.metadata() or {}).get("facts", "{}"))
            if facts.get("key") != wanted:
                return None
            return {name: opened.get_tensor(name) for name in opened.keys()}, facts  # noqa: SIM118
    except (SafetensorError, OSError, ValueError):
        return None
