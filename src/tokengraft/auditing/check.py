"""Checks of an audit against limits and an earlier audit, for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokengraft.auditing.audit_tables import AuditTables
from tokengraft.auditing.side_by_side import side_by_side
from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.languages.codes import known, language_name, meanings, resolve, suggest

EVERY = "*"


@dataclass(frozen=True)
class Finding:
    """One check of one language under one tokenizer; `passed` is None where it cannot be made."""

    check: str  # "premium" or "regression"
    tokenizer: str
    language: str
    limit: str
    passed: bool | None
    detail: str


def read_limits(said: Sequence[str]) -> dict[str, float]:
    """Limits as the command line gives them: `tam=3`, `*=10`; UsageError says what is wrong."""
    limits: dict[str, float] = {}
    for one in said:
        name, equals, number = one.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not equals or not name or not value > 0:
            raise UsageError(
                f"--fail-above {one}: write LANGUAGE=PREMIUM, like tam=3 or '*=10' for all others"
            )
        if name != EVERY and not meanings(name):
            raise UsageError(f"--fail-above {one}: no language {name!r}.{suggest(name, known())}")
        if name in limits:
            raise UsageError(f"--fail-above {one}: {name} has a limit already")
        limits[name] = value
    return limits


def read_share(said: str | float) -> float:
    """A share as people write it: `2%`, `0.02`; UsageError for anything else."""
    text = str(said).strip()
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"{said!r} is no share: write 2% or 0.02")
    return value


def check(
    audit: AuditTables,
    limits: Mapping[str, float] | None = None,
    baseline: AuditTables | None = None,
    max_regression: float = 0.0,
) -> tuple[Finding, ...]:
    """Every check of the audit, in the order of its tokenizers and languages.

    A premium above its language's limit fails, and so does one that UNK makes meaningless: text
    that is thrown away is not cheap. The limit under a language's own code or name goes before the
    one under `*`. Against `baseline`, a language fails whose text takes more tokens than before by
    over `max_regression`, or loses text to UNK that it did not lose.
    """
    if not audit.parallel:
        raise UsageError("This audit's text is not parallel: it has no premiums to check.")
    if not limits and baseline is None:
        raise UsageError("Nothing to check: give limits (fail_above) or a baseline.")
    findings = _below(audit, limits or {})
    if baseline is not None:
        findings += _no_worse(audit, baseline, max_regression)
    return tuple(findings)


def _below(audit: AuditTables, limits: Mapping[str, float]) -> list[Finding]:
    own = {}
    for said, limit in limits.items():
        if said != EVERY:
            try:
                own[resolve(said, audit.corpus.languages, "the audit")] = limit
            except CorpusError as error:
                raise UsageError(f"{said}={limit:g}: {error}") from None
    findings = []
    for row in audit.premiums.to_dicts():
        code = row["language"]
        most = own.get(code, None if code == audit.pivot else limits.get(EVERY))
        if most is None:
            continue
        passed: bool | None = None
        detail = f"no line in common with {audit.pivot}"
        if row["meaningless"]:
            passed, detail = False, f"{row['unk_share']:.1%} UNK: text is thrown away"
        elif row["premium"] is not None:
            passed, detail = row["premium"] <= most, f"premium {row['premium']:.3f}"
            if row["premium_low"] is not None:
                detail += f" [{row['premium_low']:.2f}, {row['premium_high']:.2f}]"
        findings.append(
            Finding("premium", row["tokenizer"], code, f"premium at most {most:g}", passed, detail)
        )
    return findings


def _no_worse(audit: AuditTables, baseline: AuditTables, most: float) -> list[Finding]:
    findings = []
    for row in side_by_side(baseline, audit).to_dicts():
        change, outcome = row["change"], row["outcome"]
        passed: bool | None = None if outcome == "neither" else outcome != "lost"
        if change is not None:
            passed = change <= most
        detail = f"{row['tokens_a']:,} → {row['tokens_b']:,} tokens"
        if change is not None:
            detail += f" ({change:+.1%})"
        elif row["meaningless_b"]:
            detail += f", {row['unk_share_b']:.1%} UNK"
        allowed = f"at most {100 * most:g} %" if most else "no"
        limit = f"{allowed} more tokens than the baseline"
        findings.append(
            Finding("regression", row["tokenizer_b"], row["language"], limit, passed, detail)
        )
    return findings


def named(finding: Finding) -> str:
    """The language as people say it, with its code."""
    name = language_name(finding.language)
    return finding.language if name == finding.language else f"{name} ({finding.language})"
