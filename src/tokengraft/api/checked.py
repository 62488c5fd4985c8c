"""What `Audit.check` returns: findings as a table, JUnit XML, or Markdown for a pull request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from xml.etree import ElementTree

import polars as pl

from tokengraft.auditing.side_by_side import Finding, named
from tokengraft.core.errors import CheckFailed
from tokengraft.core.wording import counted, in_markdown
from tokengraft.render.tables import Cell, Printed, html, markdown

_MOST = 50  # rows of a summary
_SHOWN = 5  # failures in a repr: what a failed `assert audit.check(…)` prints
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, repr=False)
class Checked:
    """All checks of an audit. Its `bool` says whether all passed, so it can be asserted."""

    findings: tuple[Finding, ...]
    labels: Mapping[str, str]  # of the tokenizers, by name
    corpus: str

    @property
    def passed(self) -> bool:
        """Whether no check failed; one that could not be made counts as not failed."""
        return not self.failures

    def __bool__(self) -> bool:
        return self.passed

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The checks that failed."""
        return tuple(finding for finding in self.findings if finding.passed is False)

    @property
    def verdict(self) -> str:
        """How many checks were made, and how many failed or could not be made."""
        skipped = sum(finding.passed is None for finding in self.findings)
        made = counted(len(self.findings) - skipped, "check")
        text = f"{len(self.failures):,} of {made} failed." if self.failures else f"{made} passed."
        return f"{text} {counted(skipped, 'check')} could not be made." if skipped else text

    def table(self) -> pl.DataFrame:
        """One row a check."""
        schema = {
            field.name: pl.Boolean if field.name == "passed" else pl.String
            for field in fields(Finding)
        }
        return pl.DataFrame([asdict(finding) for finding in self.findings], schema)

    def junit(self) -> str:
        """JUnit XML as CI systems read it: a test case per finding, a suite per tokenizer."""
        root = ElementTree.Element("testsuites", {"name": "tokengraft audit"})
        for tokenizer in dict.fromkeys(finding.tokenizer for finding in self.findings):
            own = [finding for finding in self.findings if finding.tokenizer == tokenizer]
            label = self.labels.get(tokenizer, tokenizer)
            suite = _element(root, "testsuite", name=label, **_totals(own))
            for finding in own:
                name = f"{named(finding)}: {finding.limit}"
                case = _element(suite, "testcase", classname=label, name=name)
                if not finding.passed:
                    kind = "skipped" if finding.passed is None else "failure"
                    _element(case, kind, message=finding.detail)
        for key, value in _totals(self.findings).items():
            root.set(key, value)
        ElementTree.indent(root)
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, "unicode")}\n'

    def markdown(self) -> str:
        """A summary for a pull request: the verdict, and a table of what failed."""
        failed = self.failures
        title = f"{counted(len(failed), 'check')} failed" if failed else "All checks passed"
        text = f"### tokengraft audit: {title}\n\n"
        text += f"{self.verdict} Text: {in_markdown(self.corpus)}.\n"
        if not failed:
            return text
        rows = [
            [Cell(self._label(finding)), Cell(named(finding)), Cell(finding.limit),
             Cell(finding.detail)]
            for finding in failed[:_MOST]
        ]  # fmt: skip
        header = ["tokenizer", "language", "wanted", "found"]
        rest = len(failed) - _MOST
        notes = [f"… and {rest:,} more; the JUnit file has all."] if rest > 0 else []
        table = Printed("failed", "What failed", header, rows, 4, notes=notes)
        return f"{text}\n{markdown(table)}"

    def require(self) -> None:
        """Raise CheckFailed, with which the command line exits with 4, unless all passed."""
        if not self.passed:
            raise CheckFailed(self.verdict)

    def __repr__(self) -> str:
        failed = [
            f"{self._label(finding)}, {named(finding)}: {finding.detail} (wanted: {finding.limit})"
            for finding in self.failures
        ]
        more = [f"and {len(failed) - _SHOWN:,} more"] if len(failed) > _SHOWN else []
        return f"Checked({'; '.join([self.verdict, *failed[:_SHOWN], *more])})"

    def _label(self, finding: Finding) -> str:
        return self.labels.get(finding.tokenizer, finding.tokenizer)

    def _repr_html_(self) -> str:
        return html(repr(self), self.table().sort("passed", nulls_last=True, maintain_order=True))


def _element(parent: ElementTree.Element, tag: str, /, **attributes: str) -> ElementTree.Element:
    """An element, with characters that XML cannot hold removed from its attributes."""
    legal = {key: _NO_XML.sub("\ufffd", value) for key, value in attributes.items()}
    return ElementTree.SubElement(parent, tag, legal)


def _totals(findings: Sequence[Finding]) -> dict[str, str]:
    return {
        "tests": str(len(findings)),
        "failures": str(sum(finding.passed is False for finding in findings)),
        "errors": "0",
        "skipped": str(sum(finding.passed is None for finding in findings)),
    }
