"""What a method is given: a frozen model, the parts of new tokens, text, and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokengraft.core.errors import UsageError
from tokengraft.core.options import TRAINING_FREE
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.deriving.distil.passages import Lots, read_lots
from tokengraft.deriving.distil.recipe import Adapting, Recipe, Writing
from tokengraft.deriving.methods import Rows
from tokengraft.model.frozen import FrozenModel, Reading
from tokengraft.model.reading import Reader
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.align import Aligner

if TYPE_CHECKING:
    from tokengraft.deriving.distil.recipe import HeldOut

_MOST_TOKENS = 512  # of a passage
# In fewer minutes of a CPU than this, many steps with passages of `_SHORT` characters teach more
# than few steps with long ones (rootstock, Hindi, 80 seconds of half a core: KL 1.10 against 1.18).
_LITTLE = 5.0
_SHORT = 160


@dataclass(frozen=True)
class Start:
    """What was learned before of the same tokens, for training to go on from.

    Besides input `rows` there may be output rows (`head`). Where training goes on from lanes, the
    rows have theirs, and `wider` gives the body's wider tensors by name (`distil.lanes`).
    """

    rows: Rows
    head: Rows | None = None
    wider: Callable[[str], Rows] | None = None


@dataclass(frozen=True)
class Deriving:
    """How rows are derived.

    For methods that train: `recipe`, `start` (a method that needs no text, or what was learned
    before), `characters` (the longest passage) and `languages` (how many lines of the text each
    language has, in this order: all are trained on alike). For distil alone: `writing` trains
    output rows too, `adapting` the body; `student` makes another model to learn beside the rows,
    and its rate; `translation` has the text's lines in a language that an encoder reads, from which
    it learns what was UNK. In `checkpoint_dir` a second call with the same arguments goes on from
    the last checkpoint; unless `keep_states` is false, the teacher's states are kept there too.
    `more` holds options that a plugin's method takes, by name.
    """

    reading: Reading = field(default_factory=Reading)
    recipe: Recipe = field(default_factory=Recipe)
    writing: Writing | None = None
    adapting: Adapting | None = None
    student: Callable[[Task], tuple[FrozenModel, float]] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    start: str | Start = TRAINING_FREE
    translation: Sequence[str] | None = None
    characters: int = 400
    languages: tuple[int, ...] = ()
    checkpoint_dir: Path | str | None = None
    keep_states: bool = True

    def __post_init__(self) -> None:
        if self.recipe.by_text is not None and not self.only_rows:
            raise UsageError(
                "--by-text (by_text) does nothing with --policy write or --train lora: there, what "
                "follows a prompt is learned from the base model alone"
            )

    @property
    def only_rows(self) -> bool:
        """Whether only rows and lanes learn, and only to be read: English is safe either way."""
        return self.writing is None and self.student is None and not self.replays

    @property
    def replays(self) -> bool:
        """Whether weights learn with which protected text is read: those of lanes are not."""
        return self.adapting is not None and not self.adapting.grows


@dataclass
class Task:
    """What a method works on, and where it leaves results other than the rows.

    `old` and `new` are the tokenizers before and after; `text` and `new` are None if there is no
    text. `start` gives the rows that training starts from.
    """

    model: FrozenModel
    parts: Sequence[Sequence[int]]
    new: Tokenizer | None
    text: Sequence[str] | None
    options: Deriving
    start: Callable[[Task], Rows]
    progress: OnProgress | None = None
    notes: list[str] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, HeldOut] = field(default_factory=dict)  # on held-out text, by what was judged
    curve: tuple[Any, ...] = ()
    head: Rows | None = None  # output rows, if they were trained
    student: FrozenModel | None = None  # the model with what its body learned
    checkpoint: Path | None = None  # where what was learned is kept

    @property
    def old(self) -> Tokenizer:
        """The tokenizer before the graft."""
        return self.model.tokenizer

    @property
    def first_new(self) -> int:
        """The id of the first new token."""
        return len(self.old.vocabulary)

    def tell(self, stage: str) -> Callable[[int, int], None]:
        """A function that reports progress within a stage."""

        def report(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(Progress(stage, done, total or None))

        if self.progress is not None:
            self.progress(Progress(stage, 0))
        return report

    def passages(self, more: Sequence[str] = ()) -> tuple[Reader, Lots]:
        """What reads passages, and the text as such; `more` lines are for training only."""
        assert self.new is not None and self.text is not None
        aligner = Aligner(self.old, self.new)
        prefix = self.model.prefix
        tokens = min(_MOST_TOKENS, self.model.window - len(prefix))
        rows, characters = len(self.model.weight), self.options.characters
        minutes = self.options.recipe.max_minutes
        if self.model.device.type == "cpu" and minutes is not None and minutes < _LITTLE:
            characters = min(characters, _SHORT)
        ends = np.cumsum(self.options.languages)[:-1].tolist()
        texts = [self.text[start:end] for start, end in pairwise([0, *ends, len(self.text)])]
        lots = read_lots(
            texts if ends else self.text, aligner, self.first_new, characters, tokens,
            rows=rows, more=more,
        )  # fmt: skip
        return Reader(self.model, self.first_new, prefix), lots
