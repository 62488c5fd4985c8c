"""The base's reading of passages in old tokens: computed when first needed, kept in half precision.

Kept is the last hidden state at each aligned position (2 · dimensions bytes). The next-token
distribution is one product with the head away; top-k log-probabilities would take more space for
any k above dimensions / 3, and would not be exact. Rounding to float16 costs a KL of 1e-7 nats on
rootstock (at most 1e-6 at one position); values beyond its range become its largest. Where new
tokens are written, log-probabilities at the forks of `branches` are kept too.

A passage and the mixtures made of it have the same old ids. They are a group: read in one pass, and
a state that several of them are matched to is kept once. In a work folder all this is in memory
maps that a resumed run goes on with, otherwise in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tokengraft.deriving.distil.branches import Branches
from tokengraft.deriving.distil.passages import Mixture
from tokengraft.deriving.states import reopen, reserve
from tokengraft.model.head_losses import Twigs
from tokengraft.model.libraries import spread
from tokengraft.model.reading import BATCH_TOKENS, Reader, batches
from tokengraft.tokenizer.align import Alignment, Ints

_LARGEST = float(np.finfo(np.float16).max)


class Teacher:
    """The base's states at the common positions of fixed passages, filled in as they are needed."""

    def __init__(
        self, reader: Reader, passages: Sequence[Alignment], folder: Path | None = None,
        name: str = "teacher", branches: Branches | None = None,
    ) -> None:  # fmt: skip
        self.reader, self.passages, self.branches = reader, passages, branches
        kin: dict[int, list[int]] = {}  # numbers of the passages of one source
        for n, one in enumerate(passages):
            kin.setdefault(one.source if isinstance(one, Mixture) else n, []).append(n)
        # By group: its passages, the old ids that are read, how many they are, where states are
        # kept, and the row of the first of these.
        self._kin = [np.array(group) for group in kin.values()]
        self._whole = [max((passages[n].old for n in group), key=len) for group in self._kin]
        self.sizes: Ints = np.fromiter(map(len, self._whole), np.int64, len(self._whole))
        self._places = [np.unique(np.concatenate([passages[n].old_at for n in group]))
                        for group in self._kin]  # fmt: skip
        self._starts: Ints = np.cumsum([0, *map(len, self._places)])
        self._group: Ints = np.zeros(len(passages), np.int64)  # of each passage
        for n, group in enumerate(self._kin):
            self._group[group] = n
        self._forks = [] if branches is None else [branches.forks(one) for one in passages]
        said = [0] if branches is None else [branches.sizes(one).sum() for one in self._forks]
        self._said_at: Ints = np.concatenate([[0], np.cumsum(said)]).astype(np.int64)
        shape = (int(self._starts[-1]), reader.model.dimensions)
        self._states, self._said, self._known = _arrays(
            folder, name, shape, (int(self._said_at[-1]),), (len(self._kin),)
        )

    @property
    def size(self) -> int:
        """Bytes of all that it keeps once everything is read."""
        return int(self._states.nbytes + self._said.nbytes)

    def kin(self, numbers: Ints) -> Ints:
        """The passages of these numbers and all others in their groups."""
        groups = np.unique(self._group[numbers])
        return np.sort(np.concatenate([numbers[:0], *(self._kin[group] for group in groups)]))

    def fill(
        self, wanted: Ints | None = None, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Read what has not been read yet of the `wanted` passages (all by default)."""
        groups = np.unique(self._group if wanted is None else self._group[wanted])
        groups = groups[~self._known[groups]]
        done = 0
        team = self.reader.team

        def read(reader: Reader, share: Ints) -> np.ndarray:
            states = self._read(reader, share).float()
            halves: np.ndarray = states.clamp_(-_LARGEST, _LARGEST).half().cpu().numpy()
            return halves

        for chosen in batches(self.sizes[groups], BATCH_TOKENS * len(team)):
            batch = groups[chosen]
            states = np.concatenate(spread(team, batch, read))
            at = 0
            for group in batch:
                start, end = self._starts[group : group + 2]
                self._states[start:end] = states[at : at + end - start]
                at += end - start
            # Known only once the states are there: an interrupted run finds no half-truth.
            self._known[batch] = True
            done += len(batch)
            if progress is not None:
                progress(done, len(groups))

    def _read(self, reader: Reader, groups: Ints) -> torch.Tensor:
        """States at the groups' places. Log-probabilities at their passages' forks are stored."""
        whole = []
        for group in groups:
            at = [self._forks[n].old_at for n in self._kin[group]] if self._forks else []
            places, old = np.concatenate([self._places[group], *at]), self._whole[group]
            whole.append(Alignment(old, old, places, places))
        states = reader.old(whole)
        if self.branches is None:
            return states
        members = np.concatenate([self._kin[group] for group in groups])
        forks = [self._forks[n] for n in members]
        pairs = [
            (len(self._places[group]), sum(len(self._forks[n].step) for n in self._kin[group]))
            for group in groups
        ]
        is_fork = np.repeat(np.tile([False, True], len(groups)), np.ravel(pairs))
        asked = torch.from_numpy(is_fork).to(states.device)
        if is_fork.any():
            said, start = self.branches.likelihoods(reader, states[asked], forks), 0
            for n in members:
                here = slice(self._said_at[n], self._said_at[n + 1])
                end = start + int(here.stop - here.start)
                self._said[here] = said[start:end]
                start = end
        return states[~asked]

    def twigs(self, numbers: Ints, share: float, device: torch.device) -> Twigs | None:
        """What the base says at passages' forks, weighed by `share`; None without branches."""
        if self.branches is None:
            return None
        self.fill(numbers)
        said = [self._said[self._said_at[n] : self._said_at[n + 1]] for n in numbers]
        forks = [self._forks[n] for n in numbers]
        counts = np.fromiter((len(self.passages[n]) for n in numbers), np.int64)
        twigs = self.branches.pulls(forks, counts, np.concatenate(said), device)
        return replace(twigs, weight=share * twigs.weight)

    def states(self, numbers: Ints, device: torch.device | None = None) -> torch.Tensor:
        """Float32 states at the common positions of passages, one passage after the other.

        On `device`, or where the model is.
        """
        self.fill(numbers)
        at = [
            self._starts[group] + np.searchsorted(self._places[group], self.passages[n].old_at)
            for n, group in zip(numbers, self._group[numbers], strict=True)
        ]
        states = torch.from_numpy(self._states[np.concatenate(at)])
        return states.to(device or self.reader.model.device).float()


def _arrays(
    folder: Path | None, name: str, *shapes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States, log-probabilities at forks, and which groups are known.

    Those in the folder are used if all three are there and have these shapes; else new ones.
    """
    kinds: tuple[type, ...] = (np.float16, np.float16, np.bool_)
    if folder is None:
        return _three([np.zeros(*one) for one in zip(shapes, kinds, strict=True)])
    files = [folder / f"{name}-{what}.npy" for what in ("states", "said", "known")]
    every = list(zip(files, shapes, kinds, strict=True))
    had: list[np.ndarray | None] = [
        reopen(*one, "r+") if any(one[1]) else np.zeros(one[1], one[2]) for one in every
    ]
    whole = [one for one in had if one is not None]
    if len(whole) == len(had):
        return _three(whole)
    folder.mkdir(parents=True, exist_ok=True)
    # First nothing is known, then the states are empty: never the other way round.
    for file in reversed(files):
        file.unlink(missing_ok=True)
    return _three([reserve(*one) if any(one[1]) else np.zeros(one[1], one[2]) for one in every])


def _three(arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    states, said, known = arrays
    return states, said, known
