"""`Plan`: what to add to a tokenizer and what that gains, on disk as `plan.json`.

Text that becomes UNK takes few tokens, so a premium over it looks low for the wrong reason. A plan
therefore says how much text is UNK, in characters: one UNK token may stand for a whole clause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from tokenizers import Tokenizer

from tokengraft.auditing.frames import UNK_LIMIT
from tokengraft.core.errors import TokengraftError, TokenizerError, UsageError
from tokengraft.core.files import write_json
from tokengraft.core.options import PIVOT, read_as, require
from tokengraft.core.wording import one_line
from tokengraft.languages.codes import well_formed
from tokengraft.planning import MODES, mode_named
from tokengraft.planning.new_tokens import NewToken, check_tokens
from tokengraft.tokenizer.insert import Additions, Family, family, fingerprint, fold, insert
from tokengraft.tokenizer.pre_tokenizer import RELAXABLE, relaxed_pattern

SCHEMA = 1
Boundaries: TypeAlias = Literal["auto", "keep", "relax", "portable"]
Objective: TypeAlias = str  # one of OBJECTIVES, or minimax:PREMIUM
OBJECTIVES = ("total", "parity", "equal", "speakers")
BUDGET = 2000


@dataclass(frozen=True)
class Planning:
    """How tokens are chosen.

    The `budget` is `BUDGET` if not given; mode paper adds every absent character and refuses a
    budget. The objectives parity, speakers and minimax go by `premiums` (if not given, by those on
    the test corpus, relative to `pivot`); speakers also goes by `speakers`. `border_penalty` is the
    share that a pair's count loses if its result begins or ends inside a character. With
    `same_size` new tokens take the places of old ones (`planning.same_size`), but first the padding
    rows of the model's table, which has `rows` rows. With `keep_names` words that begin with a
    capital keep their ids by a rule (`permitted.keeps_names`), and an English dictionary is
    protected besides the bundled sample.
    """

    budget: int | None = None
    mode: str = "merges"
    boundaries: Boundaries = "auto"
    objective: Objective = "total"
    pivot: str = PIVOT
    speakers: Mapping[str, float] | None = None
    premiums: Mapping[str, float] | None = None
    border_penalty: float = 0.05
    same_size: bool = False
    rows: int | None = None
    keep_names: bool = False


@dataclass(frozen=True)
class Point:
    """A point on the what-if curve: after `tokens` new tokens."""

    tokens: int
    planning_tokens: int
    premium: float | None  # mean of per-sentence ratios on the test corpus
    unk_share: float | None = None  # of the test text; see `Effect`


@dataclass(frozen=True)
class Effect:
    """What the plan does for one language.

    Planning numbers are over the text the tokens were chosen on; premiums over the parallel test
    corpus, None if none was given. `floor` is the premium that no vocabulary can beat under the
    boundaries used. `unk_share` is the share of the test text's characters that are UNK, None for
    families without UNK; if it is high, the premium is low because text was lost.
    `first_token` says, in a plan for several languages, after how many new tokens this language's
    planning text first gets shorter; None if it never does.
    """

    planning_before: int
    planning_after: int
    premium_before: float | None = None
    premium_after: float | None = None
    floor_before: float | None = None
    floor_after: float | None = None
    unknown_before: int = 0  # characters of the planning text that are UNK
    unknown_after: int = 0
    unk_share_before: float | None = None
    unk_share_after: float | None = None
    first_token: int | None = None
    curve: tuple[Point, ...] = ()


@dataclass(frozen=True)
class PlanCut:
    """How words are cut: `scripts` are the relaxed ones, none if the old pattern is kept."""

    scripts: tuple[str, ...] = ()
    old_pattern: str | None = None
    new_pattern: str | None = None


@dataclass(frozen=True)
class Proven:
    """The proof over given text: how many distinct pieces of text were encoded both ways."""

    pieces: int = 0
    longer: int = 0
    repairs: int = 0  # always 0 now; early plans joined at every mark and spent tokens on repairs


@dataclass(frozen=True)
class Elsewhere:
    """Text that was not protected: how many of its words (pre-tokens) get other ids."""

    text: str
    words: int
    changed: int


@dataclass(frozen=True)
class Protection:
    """Text whose ids stay: every line of it was encoded both ways, and none differs."""

    sources: tuple[str, ...]
    sha256: str  # of its lines, each ended by a line feed
    lines: int
    elsewhere: tuple[Elsewhere, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of a text in it; anyone may have written them."""
        return *self.sources, *(one.text for one in self.elsewhere)

    @property
    def said(self) -> str:
        """What was proved and what was measured, in a sentence each."""
        proved = (
            f"No id changed in any of {self.lines:,} protected lines ({', '.join(self.sources)})."
        )
        measured = ", ".join(
            f"{one.changed:,} of {one.words:,} words in {one.text}" for one in self.elsewhere
        )
        return f"{proved} Changed in unprotected text: {measured}." if measured else proved


@dataclass(frozen=True, repr=False)
class Plan:
    """Everything `insert` needs, and the expected effects. The same inputs give the same plan."""

    tokenizer: str  # `insert.fingerprint` of the tokenizer it is for
    family: Family
    mode: str
    objective: Objective
    budget: int
    cut: PlanCut
    tokens: tuple[NewToken, ...]
    merges: tuple[tuple[str, str], ...]
    languages: Mapping[str, Effect] = field(default_factory=dict)
    pivot: str | None = None
    check: Proven = Proven()
    notes: tuple[str, ...] = ()
    label: str | None = None  # the name of the tokenizer it is for
    protected: Protection | None = None
    places: tuple[int, ...] | None = None  # the id of each token where the vocabulary does not grow

    def __repr__(self) -> str:
        bought = [
            code
            if effect.premium_before is None or effect.premium_after is None
            else f"{code} {effect.premium_before:.2f} → {effect.premium_after:.2f}"
            for code, effect in self.languages.items()
        ]
        where = self.label or f"tokenizer {self.tokenizer[:12]}"
        return f"Plan({len(self.tokens):,} tokens for {where}: {', '.join(bought)})"

    @property
    def checked(self) -> str:
        """A sentence on what was checked with the real encoder when the plan was made."""
        if self.check.pieces:
            longer = f"{self.check.longer} of {self.check.pieces:,} pieces of text got longer."
            return f"{longer} {self.protected.said}" if self.protected else longer
        if self.literal:
            return f"Mode {self.mode} does not check whether text gets longer."
        return "Every new token is used in the text, and no more of its characters are UNK."

    @property
    def literal(self) -> bool:
        """Whether its tokens are added tokens, cut out of the text before the model sees it."""
        return mode_named(self.mode, recorded=True).literal is not None

    @property
    def additions(self) -> Additions:
        """What goes into the tokenizer."""
        unigram = self.family == "unigram" and not self.literal
        return Additions(
            tokens=tuple((token.id, token.token) for token in self.tokens),
            merges=self.merges,
            scores=tuple(token.score or 0.0 for token in self.tokens) if unigram else (),
            literal=self.literal,
            pattern=self.cut.new_pattern,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values, in a fixed order; what was not measured or named is left out."""
        data = asdict(self)
        for effect in data["languages"].values():
            _drop_none(effect, "unk_share_before", "unk_share_after", "first_token")
            for point in effect["curve"]:
                _drop_none(point, "unk_share")
        _drop_none(data, "label", "protected", "places")
        return {"schema": SCHEMA, **data}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """The plan that `to_json` wrote; TokengraftError for another schema or a broken file."""
        if data.get("schema") != SCHEMA:
            raise TokengraftError(
                f"this plan has schema {data.get('schema')!r}, this reads {SCHEMA}: plan again"
            )
        known = {one.name for one in fields(cls)}
        given = {key: value for key, value in data.items() if key in known}
        plan = cast(Plan, read_as(cls, given, "the plan"))
        _check_values(plan)
        return plan

    def write(self, path: Path) -> Path:
        """Write `plan.json`, whole or not at all."""
        return write_json(path, self.to_json())


def _drop_none(data: dict[str, Any], *keys: str) -> None:
    for key in keys:
        if data[key] is None:
            del data[key]


def _check_values(plan: Plan) -> None:
    """TokengraftError for a plan with a value out of range."""
    objectives, objective = (*OBJECTIVES, "minimax"), plan.objective.partition(":")[0]
    require(objective in objectives, "objective", objective, f"one of {', '.join(objectives)}")
    try:
        mode_named(plan.mode, recorded=True)
    except UsageError:
        require(False, "mode", plan.mode, f"one of {', '.join(MODES)}")
    require(plan.tokens, "tokens", plan.tokens, "at least one token")
    require(plan.languages, "languages", plan.languages, "at least one language")
    for name in plan.cut.scripts:
        require(name in RELAXABLE, "a script", name, f"one of {', '.join(RELAXABLE)}")
    for token in plan.tokens:
        require(token.parts, f"parts of token {token.id}", token.parts, "old ids")
    count = len(plan.tokens) if plan.places is None else len(plan.places)
    require(count == len(plan.tokens), "places", plan.places, "one for each token")
    for code in (*plan.languages, *([] if plan.pivot is None else [plan.pivot])):
        require(well_formed(code), "a language", code, "like shn_Mymr")
    for code, effect in plan.languages.items():
        _check_effect(code, effect)
    sentences = (*plan.notes, plan.label or "", *(plan.protected.names if plan.protected else ()))
    for line in sentences:
        require(line == one_line(line), "a note or a name", line, "a line of text")


def _check_effect(code: str, effect: Effect) -> None:
    for figures in (effect, *effect.curve):
        for name, value in vars(figures).items():
            if value is not None and name.startswith(("premium", "floor")):
                require(value > 0, f"{name} of {code}", value, "a number above 0")
            elif value is not None and name.startswith("unk_share"):
                require(0 <= value <= 1, f"{name} of {code}", value, "a share from 0 to 1")
    if effect.curve:
        first, last = effect.curve[0], effect.curve[-1]
        ends = [("premium", effect.premium_before, first.premium),
                ("premium", effect.premium_after, last.premium),
                ("number of tokens", effect.planning_before, first.planning_tokens),
                ("number of tokens", effect.planning_after, last.planning_tokens)]  # fmt: skip
        for what, said, end in ends:
            same = said == end or (said and end and math.isclose(said, end, rel_tol=1e-6))
            require(same, f"a {what} of {code}", said, f"where its curve ends, {end}")


def with_plan(tokenizer: dict[str, Any], plan: Plan, label: str | None = None) -> dict[str, Any]:
    """The tokenizer with the plan's tokens.

    TokenizerError if the plan is for another tokenizer, or was edited so that what it says about
    its tokens is false (`check_tokens`). `label` names the tokenizer in that message. For a plan
    read from a file use `protect.insert_proved`.
    """
    got = fingerprint(tokenizer)
    if got != plan.tokenizer:
        raise TokenizerError(
            f"this plan is for the tokenizer {_named(plan.label, plan.tokenizer)}, not "
            f"{_named(label, got)}: plan again"
        )
    check_tokens(tokenizer, plan.tokens, plan.merges, plan.literal)
    cut = plan.cut
    expected = relaxed_pattern(tokenizer, cut.scripts) if cut.scripts else None
    if cut.new_pattern != expected:
        raise TokenizerError(
            "this plan's split pattern is not the one that is proved to make no text longer: it "
            "was edited, or made by an earlier version. Plan again."
        )
    return insert(tokenizer, plan.additions)


def folded(extended: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """What `insert` gave, with the new tokens moved to the plan's `places`, if it has any."""
    return extended if plan.places is None else fold(extended, plan.places)


def _named(label: str | None, fingerprint: str) -> str:
    short = f"{fingerprint[:12]}…"
    return f"{label} ({short})" if label else short


_BATCH = 1 << 12
CAPTION = (
    f"† No honest premium: more than {UNK_LIMIT:.0%} of the characters of the test text are UNK, "
    "so lost."
)


def unknown_of(tokenizer: dict[str, Any]) -> int:
    """The id of UNK; -1 if nothing can become UNK (the families with bytes)."""
    model = tokenizer["model"]
    kind = family(tokenizer)
    if kind == "unigram" and model.get("unk_id") is not None:
        return int(model["unk_id"])
    return int(model["vocab"].get(model["unk_token"], -1)) if kind == "wordpiece" else -1


def lost_characters(pipeline: Tokenizer, unknown: int, lines: Sequence[str]) -> int:
    """Characters of the lines, without spaces, that are UNK."""
    if unknown < 0:
        return 0
    count = 0
    for start in range(0, len(lines), _BATCH):
        batch = list(lines[start : start + _BATCH])
        encoded = pipeline.encode_batch(batch, add_special_tokens=False)
        for line, one in zip(batch, encoded, strict=True):
            if unknown in one.ids:
                spans = zip(one.ids, one.offsets, strict=True)
                lost = {at for number, span in spans if number == unknown for at in range(*span)}
                count += sum(not line[at].isspace() for at in lost)
    return count


def unknown_share(pipeline: Tokenizer, unknown: int, lines: Sequence[str]) -> float:
    """The share of the lines' characters, without spaces, that are UNK."""
    every = sum(not c.isspace() for line in lines for c in line)
    return lost_characters(pipeline, unknown, lines) / max(1, every)


def spoilt(share: float | None) -> bool:
    """Whether so much text is UNK that a premium over it means nothing."""
    return share is not None and share > UNK_LIMIT


def warnings(code: str, effect: Effect) -> list[str]:
    """Warnings about premiums of the effect that are misleading."""
    before, after = effect.unk_share_before or 0.0, effect.unk_share_after or 0.0
    if not (spoilt(before) or spoilt(after)):
        return []
    which = "the premium before is" if spoilt(before) else "the premium after is"
    if spoilt(before) and spoilt(after):
        which = "the premiums before and after are"
    return [
        f"{code}: {which} not honest, since text was lost: of the characters of the test text "
        f"{before:.1%} are UNK before, {after:.1%} after"
    ]
