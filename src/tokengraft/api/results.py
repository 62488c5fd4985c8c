"""What the verbs return, all alike: `tables`, `save`, `load`, a short repr, HTML.

Each class is a row of `KINDS`: what it is called, the file that marks its folder, how it is written
and read. `load`, the page and the contract suite are made from that table.
"""

from __future__ import annotations

import abc
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import polars as pl

from tokengraft.api.checked import Checked
from tokengraft.auditing.audit_tables import AuditTables
from tokengraft.auditing.side_by_side import check, read_share
from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.core.files import adding, read_json, write_json, write_text
from tokengraft.core.wording import counted
from tokengraft.evaluating.score import SCORES, Measurements
from tokengraft.grafting.manifest import new_ids, read_manifest
from tokengraft.grafting.verify.invariants import Check, Report
from tokengraft.model.folder import MANIFEST
from tokengraft.planning.plan_files import TestedPlan, read_plan
from tokengraft.render.audit_folder import read_audit, write_audit
from tokengraft.render.audit_printed import matrix
from tokengraft.render.colours import PLAIN
from tokengraft.render.comparison_folder import COMPARISON, read_comparison, write_comparison
from tokengraft.render.evaluation_folder import write_evaluation
from tokengraft.render.plan_folder import PROVENANCE, curves, outcomes, write_plan
from tokengraft.render.selection import labels
from tokengraft.render.tables import Cell, Printed, html, markdown, reading_back, write_data
from tokengraft.tokenizer.insert import family, vocabulary
from tokengraft.tokenizer.vocabulary import piece_reader

if TYPE_CHECKING:
    from typing_extensions import Self

    from tokengraft.render.figures import Picture

Place = Path | str
Figures = bool | Literal["plain"]


class Result(abc.ABC):
    """What a verb returns. `load` of what `save` wrote gives an equal result."""

    called: ClassVar[str]
    mark: ClassVar[str]  # the file that marks its folder

    @classmethod
    def of(cls, plain: Any) -> Self:
        """The result around the plain object of a lower layer."""
        return cls(**{one.name: getattr(plain, one.name) for one in fields(plain)})

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether the folder holds such a result."""
        return (folder / cls.mark).is_file()

    @abc.abstractmethod
    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table by name."""

    def save(self, out: Place, figures: Figures = True) -> list[Path]:
        """Write everything into the folder `out`, all files or none; returns their paths.

        `figures="plain"` draws them for print: without title, credit or mark, as PDF too.
        """
        return self._save(out, lambda new: self._write(new, bool(figures)), figures)

    def _save(
        self, out: Place, write: Callable[[Path], list[Path]], figures: Figures
    ) -> list[Path]:
        before = PLAIN.set(figures == "plain")
        try:
            with adding(Path(out)) as new:
                paths = write(new)
        finally:
            PLAIN.reset(before)
        return [Path(out) / path.relative_to(new) for path in paths]

    @classmethod
    def load(cls, out: Place) -> Self:
        """What `save` wrote into `out`; TokengraftError if there is no such result."""
        folder = Path(out).parent if Path(out).name == cls.mark else Path(out)
        if not cls.is_in(folder):
            raise TokengraftError(f"{out}: there is no {cls.called} here (no {cls.mark} of one)")
        with reading_back(out, cls.called):
            result = cls._read(folder)
            result._repr_html_()  # needs the facts that everything else needs
        return result

    @abc.abstractmethod
    def _write(self, folder: Path, figures: bool) -> list[Path]: ...

    @classmethod
    @abc.abstractmethod
    def _read(cls, folder: Path) -> Self: ...

    @abc.abstractmethod
    def _in_short(self) -> str: ...

    @abc.abstractmethod
    def _lead(self) -> pl.DataFrame:
        """The table that says most, for notebooks."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._in_short()})"

    def _repr_html_(self) -> str:
        return html(repr(self), self._lead())


@dataclass(frozen=True, eq=False, repr=False)
class Audit(AuditTables, Result):
    """What each language pays: premiums, UNK, floors, vocabularies, coverage, cost."""

    called = "audit"
    mark = "manifest.json"

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether the folder holds an audit; other programs write a manifest.json too."""
        try:
            return "tokengraft" in read_json(folder / cls.mark)
        except TokengraftError:
            return False

    def check(
        self,
        fail_above: Mapping[str, float] | None = None,
        *,
        baseline: Audit | Place | None = None,
        max_regression: float | str = 0.0,
    ) -> Checked:
        """Check the audit against limits and an earlier audit; docs/ci.md says what fails.

        `fail_above` are the highest premiums allowed, by language (`"tam"`, `"Tamil"`), with `"*"`
        for all others. `baseline` is an audit of the same text, or its folder; in no language may
        the number of tokens rise by more than `max_regression` (0.02 or `"2%"`).
        """
        before = Audit.load(baseline) if isinstance(baseline, str | Path) else baseline
        findings = check(self, fail_above, before, read_share(max_regression))
        return Checked(findings, labels(self), self.corpus.name)

    def figure(self, name: str = "premiums") -> Picture | None:
        """The figure of that name, as a notebook shows it; None without the data for it."""
        from tokengraft.render.figures import Picture, draw

        drawn = draw(self, name)
        return None if drawn is None else Picture(name, drawn)

    def _write(self, folder: Path, figures: bool) -> list[Path]:
        return write_audit(self, folder, figures)

    @classmethod
    def _read(cls, folder: Path) -> Self:
        return cls.of(read_audit(folder))

    def _in_short(self) -> str:
        names = ", ".join(known.label for known in self.tokenizers)
        return f"{self.corpus!r}, pivot {self.pivot}, tokenizers: {names}"

    def _lead(self) -> pl.DataFrame:
        return matrix(self) if self.parallel else self.counts


@dataclass(frozen=True, repr=False)
class Planned(TestedPlan, Result):
    """A plan, the text it was chosen on and the text its premiums were measured on."""

    called = "plan"
    mark = "plan.json"

    def tables(self) -> dict[str, pl.DataFrame]:
        """What the plan gains, the what-if curve, and the new tokens."""
        schema = {"id": pl.Int64, "token": pl.String, "text": pl.String, "parts": pl.Int64}
        tokens = [
            {"id": new.id, "token": new.token, "text": new.text, "parts": len(new.parts)}
            for new in self.plan.tokens
        ]
        return {
            "outcomes": outcomes(self.plan),
            "curve": curves(self.plan),
            "tokens": pl.DataFrame(tokens, schema),
        }

    def save(
        self, out: Place, figures: Figures = True, others: Mapping[str, TestedPlan] | None = None
    ) -> list[Path]:
        """Write `plan.json`, tables of what it gains, and the what-if curve as a figure.

        `others` are plans by objective, to be drawn side by side.
        """
        return self._save(out, lambda new: write_plan(self, new, bool(figures), others), figures)

    def _write(self, folder: Path, figures: bool) -> list[Path]:
        return write_plan(self, folder, figures)

    @classmethod
    def _read(cls, folder: Path) -> Self:
        texts = read_json(folder / PROVENANCE) if (folder / PROVENANCE).is_file() else {}
        chosen_on, tested_on = (texts.get(key, "?") for key in ("chosen_on", "tested_on"))
        return cls(read_plan(folder), chosen_on, tested_on)

    def _in_short(self) -> str:
        return f"{self.plan!r}, chosen on {self.chosen_on}, tested on {self.tested_on}"

    def _lead(self) -> pl.DataFrame:
        table = outcomes(self.plan)
        return table.select(one.name for one in table if one.null_count() < table.height)


@dataclass(frozen=True, repr=False)
class Verified(Report, Result):
    """Every check of a grafted folder against its base, in the order of the invariants."""

    graft: str = ""
    base: str = ""

    called = "verification"
    mark = "verification.json"
    __repr__ = Result.__repr__

    def tables(self) -> dict[str, pl.DataFrame]:
        """One row a check: its name, whether it passed, what was seen."""
        schema = {"name": pl.String, "passed": pl.Boolean, "detail": pl.String}
        return {"checks": pl.DataFrame([asdict(check) for check in self.checks], schema)}

    def _write(self, folder: Path, figures: bool) -> list[Path]:
        del figures  # there is nothing to draw
        caption = f"{self.graft} against {self.base}: {'sound' if self.passed else 'NOT sound'}"
        rows = [
            [Cell(check.name), Cell("ok" if check.passed else "FAIL"), Cell(check.detail)]
            for check in self.checks
        ]
        table = Printed("checks", caption, ["check", "holds", "what was seen"], rows, left=3)
        facts = {"graft": self.graft, "base": self.base, "checks": [asdict(c) for c in self.checks]}
        return [
            write_json(folder / self.mark, facts),
            *write_data(self.tables()["checks"], folder / "tables" / "checks"),
            write_text(folder / "README.md", markdown(table)),
        ]

    @classmethod
    def _read(cls, folder: Path) -> Self:
        facts = read_json(folder / cls.mark)
        checks = tuple(Check(**check) for check in facts["checks"])
        return cls(checks, facts["graft"], facts["base"])

    def _in_short(self) -> str:
        passed = sum(check.passed for check in self.checks)
        return f"{self.graft} against {self.base}: {passed} of {len(self.checks)} checks hold"

    def _lead(self) -> pl.DataFrame:
        return self.tables()["checks"]


@dataclass(frozen=True, repr=False)
class Grafted(Result):
    """A grafted model: its folder, what its `tokengraft.json` says, and what was proved.

    Two are equal if their facts are, which include the hash of every file; the folder does not
    matter. The proof is not saved in the folder: after loading there is none until `verify`.
    """

    folder: Path = field(compare=False)
    facts: Mapping[str, Any]
    report: Verified | None = field(default=None, compare=False)

    called = "graft"
    mark = MANIFEST

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def method(self) -> str:
        """How the new rows were derived."""
        return str(self.facts["rows"]["method"])

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the derivation."""
        return tuple(self.facts["rows"]["notes"])

    @property
    def new(self) -> Sequence[int]:
        """The ids of the new tokens."""
        return new_ids(self.facts)

    def tables(self) -> dict[str, pl.DataFrame]:
        """The new tokens, and the files of the folder with their hashes."""
        parsed = read_json(self.folder / "tokenizer.json")
        names = {number: token for token, number in vocabulary(parsed).items()}
        read = piece_reader(family(parsed))
        first = self.facts["output"]["first_parts"]
        tokens = [
            {
                "id": number,
                "token": names[number],
                "text": read(names[number]).decode("utf-8", "replace"),
                "first_part": part,
            }
            for number, part in zip(self.new, first, strict=True)
        ]
        schema: dict[str, Any] = {"id": pl.Int64, "token": pl.String, "text": pl.String}
        files = {"file": list(self.facts["files"]), "sha256": list(self.facts["files"].values())}
        return {
            "tokens": pl.DataFrame(tokens, schema | {"first_part": pl.Int64}),
            "files": pl.DataFrame(files, {"file": pl.String, "sha256": pl.String}),
        }

    def save(self, out: Place, figures: Figures = True) -> list[Path]:
        """Copy the model to `out`, unless it is there already; returns the paths of its files."""
        if Path(out).resolve() != self.folder.resolve():
            super().save(out, bool(figures))
        return [Path(out) / name for name in (*self.facts["files"], MANIFEST)]

    def _write(self, folder: Path, figures: bool) -> list[Path]:
        del figures  # there is nothing to draw
        paths = [folder / name for name in (*self.facts["files"], MANIFEST)]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / path.relative_to(folder), path)
        return paths

    @classmethod
    def _read(cls, folder: Path) -> Self:
        return cls(folder, cast(dict[str, Any], read_manifest(folder)))

    def _in_short(self) -> str:
        proof = "not verified here"
        if self.report is not None:
            proof = "verified" if self.report.passed else "failed its verification"
        return f"{str(self.folder)!r}, {len(self.new)} tokens by {self.method}, {proof}"

    def _lead(self) -> pl.DataFrame:
        facts = {
            "base": self.facts["base"],
            "languages": ", ".join(self.facts["languages"]),
            "method": self.method,
            "output policy": self.facts["output"]["policy"],
            "new tokens": str(len(self.new)),
        }
        return pl.DataFrame({"": list(facts), "of this graft": list(facts.values())})


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Measurements, Result):
    """How much of a base model's behaviour a graft keeps: every figure with floor and ceiling."""

    called = "evaluation"
    mark = "evaluation.json"

    def _write(self, folder: Path, figures: bool) -> list[Path]:
        return write_evaluation(self, folder, figures)

    @classmethod
    def _read(cls, folder: Path) -> Self:
        data = read_json(folder / cls.mark)
        tables: dict[str, Any] = {
            name: pl.DataFrame(
                data.pop(name), SCORES if name == "scores" else None, infer_schema_length=None
            )
            for name in ("scores", "sizes", "generation", "samples", "tasks")
            if name in data
        }
        return cls(**{**data, "notes": tuple(data["notes"])}, **tables)

    def _in_short(self) -> str:
        codes = ", ".join(self.sizes["language"])
        return (
            f"{self.graft} against {self.base}, {self.corpus}: {codes}; see .verdict and .summary"
        )

    def _lead(self) -> pl.DataFrame:
        return self.summary

    def _repr_html_(self) -> str:
        return html(f"{self!r}: {self.verdict} {self.next_step}".strip(), self._lead())


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """Two sides compared: tokens of the same text, premiums, coverage, speakers."""

    facts: Mapping[str, Any]
    frames: Mapping[str, pl.DataFrame]

    called = "comparison"
    mark = COMPARISON

    @property
    def languages(self) -> pl.DataFrame:
        """One row per pair of tokenizers and language; `outcome` is better, worse, lost …"""
        return self.frames["languages"]

    @property
    def summary(self) -> pl.DataFrame:
        """One row per pair: languages and speakers that gained and lost, and how even each is."""
        return self.frames["summary"]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Both tables by name."""
        return dict(self.frames)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Comparison)
            and self.facts == other.facts
            and all(frame.equals(other.frames[name]) for name, frame in self.frames.items())
        )

    __hash__ = None  # type: ignore[assignment]

    def _write(self, folder: Path, figures: bool) -> list[Path]:
        return write_comparison(self.facts, self.frames, folder, figures)

    @classmethod
    def _read(cls, folder: Path) -> Self:
        return cls(*read_comparison(folder))

    def _in_short(self) -> str:
        a, b = (self.facts[side]["label"] for side in "ab")
        better, worse = (int(self.summary[name].sum()) for name in ("better", "worse"))
        return f"{a[:60]} → {b[:60]}: {counted(better, 'language')} better, {worse:,} worse"

    def _lead(self) -> pl.DataFrame:
        shown = ("language", "name", "tokens_a", "tokens_b", "change", "premium_a", "premium_b")
        return self.languages.select(*shown, "outcome")


KINDS: tuple[type[Result], ...] = (Audit, Planned, Grafted, Evaluation, Verified, Comparison)


def load(out: Place) -> Result:
    """The result in `out`, of whichever kind: audit, plan, graft, evaluation, verification …"""
    path = Path(out)
    for kind in KINDS:
        if path.name == kind.mark or kind.is_in(path):
            return kind.load(path)
    known = ", ".join(f"{kind.mark} ({kind.called})" for kind in KINDS)
    raise UsageError(f"{out}: there is no result here; looked for {known}")
