"""A claim is a YAML file in `reproduce/`; a verdict says which of its values came out.

A value counts as reproduced when it equals the printed one at the printed precision. A value that
is known to differ carries the figure we get instead: it must come out as that one, so a change in
either direction is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import yaml

from tokengraft.core.errors import TokengraftError

Key = tuple[str, str]  # row, column


@dataclass(frozen=True)
class Claim:
    """One published table."""

    name: str
    title: str
    command: str
    inputs: dict[str, dict[str, str]]  # kind → name → sha256
    decimals: int
    expected: dict[Key, float]
    known: dict[Key, float]  # cells where the paper's figure does not come out, and what does
    why: str
    besides: tuple[str, ...] = ()  # columns the paper prints but does not count with the others


@dataclass(frozen=True)
class Cell:
    """One value of a claim against the run's."""

    row: str
    column: str
    paper: float
    ours: float | None
    verdict: str  # "reproduced", "known difference", "differs", "missing"
    low: float | None = None  # the interval of ours, where there is one
    high: float | None = None


@dataclass(frozen=True)
class Verdict:
    """Every cell of a claim."""

    claim: Claim
    cells: tuple[Cell, ...]

    @property
    def reproduced(self) -> int:
        """How many values equal the paper's."""
        return sum(cell.verdict == "reproduced" for cell in self.cells)

    @property
    def holds(self) -> bool:
        """Whether every value is the paper's, or the one known to stand in its place."""
        return all(cell.verdict in ("reproduced", "known difference") for cell in self.cells)

    def exact(self, column: str) -> bool:
        """Whether every value of a column equals the paper's."""
        return all(c.verdict == "reproduced" for c in self.cells if c.column == column)

    @property
    def line(self) -> str:
        """The closing line."""
        known = sum(cell.verdict == "known difference" for cell in self.cells)
        suffix = f" ({known} known to differ)" if known else ""
        return f"{self.reproduced} of {len(self.cells)} reproduced{suffix}"


def folder() -> Path:
    """Where the claims lie: in the installed package, or in the repository."""
    installed = Path(str(package_files("tokengraft"))) / "assets" / "reproduce"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "reproduce"


def read_claim(name: str) -> Claim:
    """The claim `reproduce/NAME.yaml`."""
    path = folder() / f"{name}.yaml"
    try:
        data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise TokengraftError(f"{path}: cannot read this claim ({error})") from error
    columns = data["columns"]
    expected = {
        (str(row), column): float(value)
        for row, values in data["rows"].items()
        for column, value in zip(columns, values, strict=True)
        if value is not None
    }
    known = {
        (str(row), column): float(value)
        for column, values in data.get("known_differences", {}).items()
        for row, value in values.items()
    }
    return Claim(
        name,
        data["title"],
        data["command"],
        data.get("inputs", {}),
        data["decimals"],
        expected,
        known,
        data.get("why", ""),
        tuple(data.get("besides", ())),
    )


def judge(
    claim: Claim,
    values: Mapping[Key, float],
    intervals: Mapping[Key, tuple[float | None, float | None]] | None = None,
) -> Verdict:
    """Compare a run's values with the claim's, cell by cell."""
    cells = []
    for (row, column), paper in claim.expected.items():
        ours = values.get((row, column))
        instead = claim.known.get((row, column))
        if ours is None:
            verdict = "missing"
        elif instead is not None:
            same = _same(ours, instead, claim.decimals)
            verdict = "known difference" if same else "differs"
        else:
            verdict = "reproduced" if _same(ours, paper, claim.decimals) else "differs"
        low, high = (intervals or {}).get((row, column), (None, None))
        cells.append(Cell(row, column, paper, ours, verdict, low, high))
    return Verdict(claim, tuple(cells))


def changed_inputs(claim: Claim, hashes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The inputs whose hash is not the one the claim was recorded with."""
    return [
        f"{kind} {name}"
        for kind, names in claim.inputs.items()
        for name, digest in names.items()
        if name in hashes.get(kind, {}) and hashes[kind][name] != digest
    ]


def _same(ours: float, printed: float, decimals: int) -> bool:
    return f"{ours:.{decimals}f}" == f"{printed:.{decimals}f}"
