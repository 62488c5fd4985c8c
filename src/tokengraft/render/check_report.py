"""What a check found, for machines (JUnit XML) and for a pull request (Markdown)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from tokengraft.auditing.check import Finding, named
from tokengraft.core.wording import counted, in_markdown
from tokengraft.render.tables import Cell, Printed, markdown

_MOST = 50  # rows of a summary
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(findings: Sequence[Finding], labels: Mapping[str, str]) -> str:
    """One test case a finding, in a suite a tokenizer, as every CI system reads it."""
    root = ElementTree.Element("testsuites", {"name": "tokengraft audit"})
    for tokenizer in dict.fromkeys(finding.tokenizer for finding in findings):
        own = [finding for finding in findings if finding.tokenizer == tokenizer]
        label = labels.get(tokenizer, tokenizer)
        suite = ElementTree.SubElement(root, "testsuite", _legal({"name": label, **_totals(own)}))
        for finding in own:
            name = f"{named(finding)}: {finding.limit}"
            case = ElementTree.SubElement(
                suite, "testcase", _legal({"classname": label, "name": name})
            )
            if not finding.passed:
                kind = "skipped" if finding.passed is None else "failure"
                ElementTree.SubElement(case, kind, _legal({"message": finding.detail}))
    for key, value in _totals(findings).items():
        root.set(key, value)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, "unicode")}\n'


def summary(findings: Sequence[Finding], labels: Mapping[str, str], corpus: str) -> str:
    """A verdict for a pull request, and a table of what failed."""
    failed = [finding for finding in findings if finding.passed is False]
    title = f"{counted(len(failed), 'check')} failed" if failed else "All checks passed"
    text = f"### tokengraft audit: {title}\n\n"
    text += f"{verdict(findings)} Text: {in_markdown(corpus)}.\n"
    if not failed:
        return text
    rows = [
        [
            Cell(labels.get(finding.tokenizer, finding.tokenizer)),
            Cell(named(finding)),
            Cell(finding.limit),
            Cell(finding.detail),
        ]
        for finding in failed[:_MOST]
    ]
    header = ["tokenizer", "language", "wanted", "found"]
    rest = len(failed) - _MOST
    notes = [f"… and {rest:,} more; the JUnit file has all."] if rest > 0 else []
    return text + "\n" + markdown(Printed("failed", "What failed", header, rows, 4, notes=notes))


def verdict(findings: Sequence[Finding]) -> str:
    """How many checks were made, and how many failed or could not be made."""
    made = [finding for finding in findings if finding.passed is not None]
    failed = sum(not finding.passed for finding in made)
    text = f"{failed:,} of {counted(len(made), 'check')} failed."
    skipped = len(findings) - len(made)
    return f"{text} {counted(skipped, 'check')} could not be made." if skipped else text


def _totals(findings: Sequence[Finding]) -> dict[str, str]:
    return {
        "tests": str(len(findings)),
        "failures": str(sum(finding.passed is False for finding in findings)),
        "errors": "0",
        "skipped": str(sum(finding.passed is None for finding in findings)),
    }


def _legal(attributes: Mapping[str, str]) -> dict[str, str]:
    """Characters that XML cannot hold at all become replacement characters."""
    return {key: _NO_XML.sub("\ufffd", value) for key, value in attributes.items()}
