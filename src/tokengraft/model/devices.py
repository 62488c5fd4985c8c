"""Devices by name, and work spread over all of them: each has a copy of the frozen model.

Shares run side by side, a thread a device, and their results come back in order, so what is summed
from them does not depend on which device is done first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tokengraft.core.errors import UsageError
from tokengraft.model.libraries import require_torch
from tokengraft.tokenizer.align import Ints

if TYPE_CHECKING:
    import torch

Member = TypeVar("Member")
Result = TypeVar("Result")


def pick_devices(names: str) -> list[torch.device]:
    """`auto` (every GPU, else the CPU), or names with commas between them, as torch devices."""
    library = require_torch()
    if names == "auto":
        count = library.cuda.device_count() if library.cuda.is_available() else 0
        return [library.device("cuda", n) for n in range(count)] or [library.device("cpu")]
    return [pick_device(name.strip()) for name in names.split(",")]


def pick_device(name: str) -> torch.device:
    """`auto`, `cpu`, `cuda`, `cuda:1` … as one torch device; UsageError where there is none."""
    library = require_torch()
    if name == "auto":
        return pick_devices(name)[0]
    if name.startswith("cuda") and not library.cuda.is_available():
        raise UsageError(f"device {name!r} was asked for, but torch sees no GPU here")
    try:
        device: torch.device = library.device(name)
    except RuntimeError as error:
        raise UsageError(f"no device {name!r}: give auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= library.cuda.device_count():
        raise UsageError(f"no device {name!r}: torch sees {library.cuda.device_count()} GPUs here")
    return device


def spread(
    team: Sequence[Member], numbers: Ints, work: Callable[[Member, Ints], Result]
) -> list[Result]:
    """`work(member, share)` for even, consecutive shares of `numbers`; none for an empty share."""
    shares = [share for share in np.array_split(numbers, len(team)) if len(share)]
    if len(shares) < 2:
        return [work(team[0], share) for share in shares]
    with ThreadPoolExecutor(len(shares)) as threads:
        return list(threads.map(work, team, shares))
