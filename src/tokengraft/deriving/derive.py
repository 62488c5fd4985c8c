"""`derive_rows`: from a model and the parts of new tokens to their rows.

A token that was UNK gets its parts from the Unicode names of its letters:

    ሰላም → SYLLABLE SA, LAA, ME → salaame → the old tokens of that

A word that the tokenizer could not spell has no parts to average. The names of its letters spell it
in Latin script, roughly as it sounds: names and loan words come out close to what the model knows,
other words as sounds without meaning. Training starts from there; without training that is all.
"""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokengraft.core.errors import UsageError
from tokengraft.core.options import TRAINING_FREE, refuse_unknown
from tokengraft.core.progress import OnProgress
from tokengraft.core.verdict import Judged, Verdict, judge
from tokengraft.deriving.known_methods import named
from tokengraft.deriving.methods import Rows
from tokengraft.deriving.task import Deriving, Start, Task
from tokengraft.model.frozen import FrozenModel
from tokengraft.tokenizer.adapters import Tokenizer

if TYPE_CHECKING:
    from tokengraft.deriving.distil.recipe import CurvePoint, HeldOut


AnyTokenizer: TypeAlias = Tokenizer | Mapping[str, Any]  # Mapping: a parsed tokenizer.json


@dataclass(frozen=True, repr=False)
class Derived:
    """Rows for new tokens, and how they were made.

    `head` are output rows, if those were trained too (`Deriving.writing`), `student` the model with
    what its body learned (`Deriving.adapting`); `checkpoint` is the folder that keeps all of it.
    `held_out`, `start` and `floor` are scores on held-out text: of these rows, of the rows that
    training started from, and of one and the same row for all new tokens; None for methods that
    read no text.
    """

    rows: Rows  # (new tokens, dimensions), float32
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    held_out: HeldOut | None = None
    start: HeldOut | None = None
    floor: HeldOut | None = None
    curve: tuple[CurvePoint, ...] = ()
    head: Rows | None = None
    student: FrozenModel | None = None
    checkpoint: Path | None = None

    def __repr__(self) -> str:
        judged = "" if self.held_out is None else f", held-out KL {self.held_out.kl:.3f}"
        count, width = self.rows.shape
        return f"Derived({count} rows of {width} by {self.method}{judged})"

    @property
    def scores(self) -> dict[str, float]:
        """The scores on held-out text by name; empty if there are none."""
        score = self.held_out
        if score is None:
            return {}
        return {"KL (nats)": score.kl, "top-1 agreement": score.agreement, "cosine": score.cosine}

    @property
    def verdict(self) -> str:
        """What the scores on held-out text say about the rows, in a sentence; "" without any."""
        return "" if self.judged is None else self.judged.sentence

    @property
    def judged(self) -> Verdict | None:
        """The verdict, with the figures no better than their floor; None without scores."""
        score = self.held_out
        if score is None:
            return None
        low = self.floor or score
        figures = (
            ("kl", score.kl, low.kl),
            ("top1", score.agreement, low.agreement),
            ("aligned_cosine", score.cosine, low.cosine),
            ("continuation_excess", score.excess, low.excess),
        )
        return judge(
            [
                Judged(name, "held-out text", value, floor)
                for name, value, floor in figures
                if value is not None
            ]
        )


def derive_rows(
    model: str | Path | FrozenModel,
    parts: Sequence[Sequence[int]],
    method: str = "auto",
    *,
    text: Iterable[str] | None = None,
    tokenizer: AnyTokenizer | None = None,
    options: Deriving | None = None,
    progress: OnProgress | None = None,
) -> Derived:
    """Rows for new tokens, given each one's old ids (`parts`), in the order of their new ids.

    `auto` is distil if `text` and the extended `tokenizer` are given, otherwise the best
    training-free method; `notes` say which. New token i has id `len(old vocabulary) + i` in
    `tokenizer`.
    """
    begun = time.monotonic()
    options = options or Deriving()
    notes: list[str] = []
    if method == "auto":
        ready = text is not None and tokenizer is not None
        method = "distil" if ready else TRAINING_FREE
        why = (
            "text is given, so rows can be trained to be read as their parts were"
            if ready
            else "no text is given; it is the best method that needs none"
        )
        notes.append(f"method {method}: {why}")
    chosen = named(method)
    if chosen.needs == "text" and (text is None or tokenizer is None):
        raise UsageError(
            f"method {chosen.name} learns from text: give some with --text FILE (in Python: `text` "
            "and the extended `tokenizer`), or take --method auto"
        )
    if options.writing is not None and chosen.name != "distil":
        raise UsageError(
            f"method {chosen.name} makes no rows to write with, only distil does: give text "
            "(--text FILE), or take another output policy"
        )
    if options.adapting is not None and chosen.name != "distil":
        raise UsageError(
            f"method {chosen.name} trains rows at most, only distil the body too: give text "
            "(--text FILE), or graft without --train"
        )
    refuse_unknown(options.more, chosen.takes, f"method {chosen.name}")
    loaded = FrozenModel.load(model, options.reading)
    _check(parts, loaded)
    extended = None if tokenizer is None else _tokenizer(tokenizer)
    if extended is not None:
        parts, lost = known_parts(parts, loaded.tokenizer, extended)
        if lost:
            notes.append(f"{lost} tokens were UNK: their transliteration gives their parts")
    lines = None if text is None else list(text)
    task = Task(loaded, parts, extended, lines, options, _start, progress, notes)
    rows = chosen.derive(task)
    if not np.isfinite(rows).all():
        raise UsageError(f"method {chosen.name} gave rows that are not finite: take another one")
    params = json.loads(json.dumps(task.params, default=lambda number: number.item()))  # of numpy
    return Derived(
        rows, chosen.name, params, tuple(notes), time.monotonic() - begun, **task.scores,
        curve=task.curve, head=task.head, student=task.student, checkpoint=task.checkpoint,
    )  # fmt: skip


def _start(task: Task) -> Rows:
    """The rows that training starts from: given, or made by a method that needs no text."""
    start = task.options.start
    if isinstance(start, Start):
        return np.array(start.rows, np.float32)
    chosen = named(start)
    if chosen.needs == "text":
        raise UsageError(f"distil cannot start from {start!r}: give a training-free method")
    return chosen.derive(task)


def _tokenizer(given: AnyTokenizer) -> Tokenizer:
    if isinstance(given, Tokenizer):
        return given
    from tokengraft.tokenizer.huggingface import HuggingFace

    return HuggingFace.from_parsed("tokenizer", given)


def _check(parts: Sequence[Sequence[int]], model: FrozenModel) -> None:
    count = len(model.weight)
    for number, one in enumerate(parts):
        if not one or not all(0 <= part < count for part in one):
            raise UsageError(f"new token {number} has parts {list(one)}; ids are 0 to {count - 1}")


def transliterate(text: str) -> str:
    """`text` in Latin letters by the names of its characters; marks without a sound are left out.

    A vowel sign replaces a letter's inherent vowel, and a mark may silence it.
    """
    spelled = ""
    inherent = False  # whether the last letter ends in a vowel that is not written
    for character in unicodedata.normalize("NFC", text):
        if character.isascii():
            spelled, inherent = spelled + character, False
            continue
        *kind, sound = unicodedata.name(character, "NOTHING").split()
        silences = {"VIRAMA", "ASAT", "HALANTA", "PULLI"} & {sound}
        if inherent and (silences or "VOWEL" in kind):
            spelled = spelled[:-1]
        digit = unicodedata.digit(character, None)
        if digit is not None:
            spelled += str(digit)
        elif unicodedata.category(character)[0] == "L" or "VOWEL" in kind:
            spelled += "".join(letter for letter in sound.lower() if letter.isalpha())
        inherent = "LETTER" in kind and "VOWEL" not in kind and spelled.endswith("a")
    return spelled


def known_parts(
    parts: Sequence[Sequence[int]], old: Tokenizer, new: Tokenizer
) -> tuple[list[Sequence[int]], int]:
    """The parts, for tokens with UNK those of the transliteration; and how many tokens had UNK."""
    unknown = old.vocabulary.unknown
    pieces = new.vocabulary.pieces[len(old.vocabulary) :]
    lost = [number for number, one in enumerate(parts) if not unknown.isdisjoint(one)]
    texts = [transliterate(pieces[number].decode("utf-8", "replace")) for number in lost]
    whole: list[Sequence[int]] = list(parts)
    for number, ids in zip(lost, old.encode(texts), strict=True):
        whole[number] = [one for one in ids if one not in unknown] or parts[number]
    return whole, len(lost)
