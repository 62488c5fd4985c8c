"""Every visible GPU at once: each has a copy of the frozen model and an even share of the work.

Shares run side by side, a thread a device, and their results come back in order, so what is summed
from them does not depend on which device is done first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from tokengraft.tokenizer.align import Ints

Member = TypeVar("Member")
Result = TypeVar("Result")


def spread(
    team: Sequence[Member], numbers: Ints, work: Callable[[Member, Ints], Result]
) -> list[Result]:
    """`work(member, share)` for even, consecutive shares of `numbers`; none for an empty share."""
    shares = [share for share in np.array_split(numbers, len(team)) if len(share)]
    if len(shares) < 2:
        return [work(team[0], share) for share in shares]
    with ThreadPoolExecutor(len(shares)) as threads:
        return list(threads.map(work, team, shares))
