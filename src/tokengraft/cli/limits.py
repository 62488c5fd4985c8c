"""Limits for `tokengraft audit`: what makes it exit with 4, and where that is written down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tokengraft.cli.console import stderr
from tokengraft.cli.options import panel
from tokengraft.core.errors import UsageError
from tokengraft.core.files import write_text

if TYPE_CHECKING:
    from tokengraft.api.results import Audit


_option = panel("Checks for CI (docs/ci.md)")
FailAboveOption = Annotated[
    list[str] | None,
    _option(
        "--fail-above",
        metavar="LANGUAGE=PREMIUM",
        help="Exit with 4 where a premium is higher, or says too little because of UNK: tam=3, "
        "Tamil=3, or '*=10' for every language without a limit of its own; repeat for more.",
    ),
]
BaselineOption = Annotated[
    Path | None,
    _option(
        "--baseline",
        metavar="FOLDER",
        help="An earlier audit (its --out) of the same text. Exit with 4 where a language takes "
        "more tokens than then, or loses text to UNK that it did not lose.",
    ),
]
MaxRegressionOption = Annotated[
    str | None,
    _option(
        "--max-regression",
        metavar="SHARE",
        help="How many more tokens than in --baseline are allowed, like 2%. Default: none.",
    ),
]
JunitOption = Annotated[
    Path | None,
    _option("--junit", metavar="FILE", help="Write every check as JUnit XML, as CI systems read."),
]
SummaryOption = Annotated[
    Path | None,
    _option("--summary", metavar="FILE", help="Write what failed as Markdown, for a pull request."),
]


@dataclass(frozen=True)
class Checks:
    """What was asked for; nothing where neither a limit nor a baseline was."""

    limits: dict[str, float]
    baseline: Audit | None
    max_regression: float
    junit: Path | None
    summary: Path | None

    @classmethod
    def asked(
        cls,
        fail_above: list[str] | None,
        baseline: Path | None,
        max_regression: str | None,
        junit: Path | None,
        summary: Path | None,
    ) -> Checks | None:
        """The checks, read before anything is counted; UsageError where they contradict."""
        from tokengraft.api.results import Audit
        from tokengraft.auditing.check import read_limits, read_share

        if not fail_above and baseline is None:
            for name, given in (
                ("--max-regression", max_regression),
                ("--junit", junit),
                ("--summary", summary),
            ):
                if given is not None:
                    raise UsageError(f"{name} goes with --fail-above or --baseline.")
            return None
        if max_regression is not None and baseline is None:
            raise UsageError("--max-regression goes with --baseline.")
        return cls(
            read_limits(fail_above or ()),
            None if baseline is None else Audit.load(baseline),
            read_share(max_regression or 0.0),
            junit,
            summary,
        )

    def make(self, audit: Audit) -> None:
        """Check, write what was asked for, say what failed; CheckFailed where something did."""
        checked = audit.check(
            self.limits, baseline=self.baseline, max_regression=self.max_regression
        )
        if self.junit is not None:
            write_text(self.junit, checked.junit())
        if self.summary is not None:
            write_text(self.summary, checked.markdown())
        from tokengraft.auditing.check import named

        for finding in checked.failures:
            label = checked.labels.get(finding.tokenizer, finding.tokenizer)
            said = f"{label}, {named(finding)}: {finding.detail}, wanted {finding.limit}"
            stderr.print("[bold red]FAIL[/bold red]", end=" ")
            stderr.print(said, markup=False)
        checked.require()
        stderr.print(repr(checked), markup=False)
