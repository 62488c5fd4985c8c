"""What `Audit.check` gives back: findings that are true where all passed, as tables and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

import polars as pl

from tokengraft.auditing.check import Finding
from tokengraft.core.errors import CheckFailed
from tokengraft.render import check_report
from tokengraft.render.tables import html


@dataclass(frozen=True, repr=False)
class Checked:
    """Every check of an audit. `bool` of it says whether all passed, so it can be asserted."""

    findings: tuple[Finding, ...]
    labels: Mapping[str, str]  # of the tokenizers, by name
    corpus: str

    @property
    def passed(self) -> bool:
        """Whether none failed; a check that could not be made did not fail."""
        return all(finding.passed is not False for finding in self.findings)

    def __bool__(self) -> bool:
        return self.passed

    @property
    def failures(self) -> tuple[Finding, ...]:
        """Those that failed."""
        return tuple(finding for finding in self.findings if finding.passed is False)

    def table(self) -> pl.DataFrame:
        """One row a check."""
        schema = {
            one.name: pl.Boolean if one.name == "passed" else pl.String for one in fields(Finding)
        }
        return pl.DataFrame([asdict(finding) for finding in self.findings], schema)

    def junit(self) -> str:
        """JUnit XML, as CI systems read it."""
        return check_report.junit(self.findings, self.labels)

    def markdown(self) -> str:
        """A summary for a pull request."""
        return check_report.summary(self.findings, self.labels, self.corpus)

    def require(self) -> None:
        """Raise CheckFailed, which ends the command line with 4, unless all passed."""
        if not self.passed:
            raise CheckFailed(check_report.verdict(self.findings))

    def __repr__(self) -> str:
        return f"Checked({check_report.verdict(self.findings)})"

    def _repr_html_(self) -> str:
        return html(repr(self), self.table().sort("passed", nulls_last=True, maintain_order=True))
