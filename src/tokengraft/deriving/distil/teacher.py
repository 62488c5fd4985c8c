"""Teacher states: computed once, kept in half precision.

What is kept is the last hidden state at each aligned position (2 · dimensions bytes); the
next-token distribution is a product with the head away, while top-k log-probabilities would be
larger for any k above dimensions / 3 and not exact. Rounding to float16 makes a KL of 1e-7 nats on
rootstock (at most 1e-6 at one position). In a work folder the store is a memory map that a resumed
run goes on with; without one it lies in memory. Values beyond float16 are kept as its largest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from tokengraft.deriving.states import reopen, reserve
from tokengraft.model.devices import spread
from tokengraft.model.reading import Reader, batches
from tokengraft.tokenizer.align import Alignment, Ints

_LARGEST = float(np.finfo(np.float16).max)


class Teacher:
    """The old reading of fixed passages, filled in as it is asked for."""

    def __init__(
        self, reader: Reader, passages: Sequence[Alignment], folder: Path | None = None,
        name: str = "teacher", batch_tokens: int = 8192,
    ) -> None:  # fmt: skip
        self.reader, self.passages = reader, passages
        self.batch_tokens = batch_tokens
        counts = np.fromiter(map(len, passages), np.int64, len(passages))
        self.ends: Ints = np.cumsum(counts)
        self.starts: Ints = self.ends - counts
        self.sizes: Ints = np.fromiter((len(one.old) for one in passages), np.int64, len(passages))
        shape = (int(counts.sum()), reader.model.dimensions)
        self._states, self._known = _arrays(folder, name, shape, (len(passages),))

    def fill(
        self, wanted: Ints | None = None, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Compute what is not known yet of the `wanted` passages (all by default)."""
        numbers = np.arange(len(self.passages)) if wanted is None else wanted
        numbers = numbers[~self._known[numbers]]
        done = 0
        team = self.reader.team

        def read(reader: Reader, share: Ints) -> np.ndarray:
            states = reader.old([self.passages[n] for n in share])
            halves: np.ndarray = states.float().clamp_(-_LARGEST, _LARGEST).half().cpu().numpy()
            return halves

        for chosen in batches(self.sizes[numbers], self.batch_tokens * len(team)):
            batch = numbers[chosen]
            states = np.concatenate(spread(team, batch, read))
            at = 0
            for n in batch:
                size = self.ends[n] - self.starts[n]
                self._states[self.starts[n] : self.ends[n]] = states[at : at + size]
                at += size
            # Known only once the states are there: an interrupted run finds no half-truth.
            self._known[batch] = True
            done += len(batch)
            if progress is not None:
                progress(done, len(numbers))

    def states(self, numbers: Ints, device: torch.device | None = None) -> torch.Tensor:
        """Float32 states of passages, one after the other, where the model is or on `device`."""
        self.fill(numbers)
        halves = np.concatenate([self._states[self.starts[n] : self.ends[n]] for n in numbers])
        return torch.from_numpy(halves).to(device or self.reader.model.device).float()


def _arrays(
    folder: Path | None, name: str, shape: tuple[int, ...], count: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """States, and which passages' are known; from the folder only where both are there whole."""
    if folder is None:
        return np.zeros(shape, np.float16), np.zeros(count, np.bool_)
    states, known = (folder / f"{name}-{what}.npy" for what in ("states", "known"))
    had = reopen(states, shape, np.float16, "r+"), reopen(known, count, np.bool_, "r+")
    if had[0] is not None and had[1] is not None:
        return had[0], had[1]
    folder.mkdir(parents=True, exist_ok=True)
    # First nothing is known, then the states are empty: never the other way round.
    for file in (known, states):
        file.unlink(missing_ok=True)
    return reserve(states, shape, np.float16), reserve(known, count, np.bool_)
