"""One sentence on whether a graft works, for someone who has read nothing else.

A figure says little by itself: a KL of 1.9 nats is good if doing nothing gives 5, and bad if it
gives 1.8. So each is compared with its floor, what a model reaches that learned nothing about the
new tokens, and its ceiling, what the base model reaches on the same text cut differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tokengraft.core.wording import counted

#: The measures that decide, and their names. Others can be worse than their floor in a sound graft:
#: averages over a sentence change with the number of tokens, whatever they mean (docs/fidelity.md).
_NAMES = {
    "kl": "KL",
    "top1": "same likeliest next token",
    "continuation_excess": "added surprise at the rest of a line",
    "aligned_cosine": "same inner state",
}
DECIDING = tuple(_NAMES)
_PERFECT = 0.0005  # from the best: what tables print as 0.000, or as 1.000
LOWER = frozenset(
    {"kl", "continuation_excess", "continuation_bpb", "shared_bpb", "new_spelling_bpb",
     "mutual_rank", "aligned_mutual_rank", "centred_mutual_rank"}
)  # fmt: skip
_SHOWN = 3


@dataclass(frozen=True)
class Judged:
    """A figure and what it is compared with; `where` names the text it was measured on."""

    measure: str
    where: str
    value: float
    floor: float | None
    ceiling: float | None = None

    @property
    def below(self) -> bool:
        """Whether it is no better than its floor; what is not a number is not better."""
        if self.floor is None:
            return False
        lower = self.measure in LOWER
        return not (self.value < self.floor if lower else self.value > self.floor)

    @property
    def decides(self) -> bool:
        """Whether it counts for the verdict: not where the text holds hardly any new token.

        Then even a graft that learned nothing reads as the base does.
        """
        if self.measure not in DECIDING or self.floor is None:
            return False
        lower = self.measure in LOWER
        return any((x if lower else 1 - x) > _PERFECT for x in (self.value, self.floor))

    def __str__(self) -> str:
        name = _NAMES.get(self.measure, self.measure)
        return f"{name} {self.value:.3g} in {self.where}, floor {self.floor:.3g}"


@dataclass(frozen=True)
class Done:
    """How a graft was made, as far as it decides what to try next."""

    trained: str | None = None  # what learned: rows, lanes, lora or all; None if nothing did
    writes: bool = False
    settled: bool = False  # whether training stopped since held-out text was read no better
    unread: bool = False  # whether some of the text was never trained on
    by_text: float | None = None
    lanes: bool = False  # whether the model can have lanes
    fixed: bool = False  # whether the graft can only read by its rows: an encoder, or same size


@dataclass(frozen=True)
class Verdict:
    """The sentence, and the deciding figures that are no better than their floor."""

    sentence: str
    below: tuple[Judged, ...] = ()

    def __str__(self) -> str:
        return self.sentence

    @property
    def reads(self) -> bool:
        """Whether only what follows a prompt is below its floor."""
        return all(figure.measure == "continuation_excess" for figure in self.below)

    def next_step(self, done: Done | None) -> str:
        """What whoever made the graft can do about it; "" if it works.

        Nothing is proposed that was done already or that `graft` refuses for this graft.
        """
        if not self.below or done is None:
            return ""
        if done.trained is None:
            return "Nothing was trained yet: give text of its languages to graft (--text FILE)."
        same = "" if done.trained == "rows" else f" --train {done.trained}"
        same += " --policy write" if done.writes else ""
        ways = [f"train longer (graft --start goes on from it{f', with{same}' if same else ''})"]
        if done.settled:
            ways = ["give more text: with this text it stopped getting better"]
        elif done.unread:
            ways[0] += ": part of the text was not read yet"
        if done.trained == "rows" and not done.fixed:
            ways.append(f"train more than its rows (--train {'lanes' if done.lanes else 'lora'})")
        if self.reads and not done.writes and not done.fixed:
            if done.trained in ("rows", "lanes") and done.by_text != 1:
                ways.append("learn all that follows a prompt from the text (--by-text 1)")
            ways.append("let it write its new tokens (--policy write, without --by-text)")
        return f"To make it better: {'; or '.join(ways)}."

    def caution(self, done: Done | None) -> str:
        """What whoever uses the graft has to know; "" if it works."""
        if not self.below:
            return ""
        if done is not None and done.trained is None:
            return "Its new tokens were not trained on any text: do not rely on what it reads."
        if self.reads:
            return (
                "It reads its new tokens, but do not rely on what it says after a prompt that "
                "ends in them."
            )
        return "Do not rely on what it reads in its new tokens: its base may serve better."


def judge(figures: Sequence[Judged]) -> Verdict:
    """The verdict on all figures of one graft."""
    deciding = [figure for figure in figures if figure.decides]
    if not deciding:
        return Verdict(
            "No verdict: no floor was measured, or the text holds hardly any new token, so these "
            "figures cannot be told from those of a graft that kept nothing."
        )
    below = tuple(figure for figure in deciding if figure.below)
    if below:
        named = "; ".join(map(str, below[:_SHOWN])) + ("; …" if len(below) > _SHOWN else "")
        outcome = "did not work" if 2 * len(below) >= len(deciding) else "works only in part"
        return Verdict(
            f"This graft {outcome}: {len(below)} of {len(deciding)} deciding figures "
            f"{'is' if len(below) == 1 else 'are'} no better than if the new tokens had learned "
            f"nothing ({named}).",
            below,
        )
    # Text without new tokens is read as before, so that its averages equal their floor.
    changed = {figure.where for figure in deciding}
    averages = [figure for figure in figures if figure.measure not in DECIDING]
    others = sum(average.below for average in averages if average.where in changed)
    more = (
        f" {counted(others, 'average')} over whole sentences {'is' if others == 1 else 'are'} no "
        "better than the floor, which happens to sound grafts too."
        if others
        else ""
    )
    return Verdict(f"This graft works: {_kept(deciding)}.{more}")


def _kept(deciding: Sequence[Judged]) -> str:
    same = [figure for figure in deciding if figure.measure == "top1"]
    if not same:
        return f"all {len(deciding)} deciding figures are better than their floor"
    value = fmean([figure.value for figure in same])
    floor = fmean([figure.floor or 0.0 for figure in same])
    ceilings = [figure.ceiling for figure in same if figure.ceiling is not None]
    best = f", the base model on text cut differently: {fmean(ceilings):.0%}" if ceilings else ""
    return (
        f"its likeliest next token is the base model's in {value:.0%} of the places (a graft that "
        f"learned nothing: {floor:.0%}{best}), and all {len(deciding)} deciding figures are better "
        "than their floor"
    )
