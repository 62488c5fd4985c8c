"""Two audits side by side, cell by cell; and an audit against limits or an earlier one, for CI.

Tokens decide, and premiums are given beside them: a premium divides by the pivot, so it rises if
only the pivot got cheaper. What a language pays is the tokens of its own text. These say what got
better and what got worse, and can be compared only if both audits counted the same text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tokengraft.auditing.audit_tables import AuditTables
from tokengraft.auditing.frames import UNK_LIMIT, summary
from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.languages.codes import known, language_name, meanings, resolve, suggest

EVERY = "*"


@dataclass(frozen=True)
class Finding:
    """One check of one language under one tokenizer; `passed` is None if it cannot be made."""

    check: str  # "premium" or "regression"
    tokenizer: str
    language: str
    limit: str
    passed: bool | None
    detail: str


def read_limits(options: Sequence[str]) -> dict[str, float]:
    """Limits as the command line gives them: `tam=3`, `*=10`; UsageError says what is wrong."""
    limits: dict[str, float] = {}
    for option in options:
        name, equals, number = option.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not equals or not name or not value > 0:
            raise UsageError(
                f"--fail-above {option}: write LANGUAGE=PREMIUM, like tam=3, or '*=10' for all "
                "others"
            )
        if name != EVERY and not meanings(name):
            raise UsageError(
                f"--fail-above {option}: no language {name!r}.{suggest(name, known())}"
            )
        if name in limits:
            raise UsageError(f"--fail-above {option}: {name} has a limit already")
        limits[name] = value
    return limits


def read_share(share: str | float) -> float:
    """A share as people write it: `2%`, `0.02`; UsageError for anything else."""
    text = str(share).strip()
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UsageError(f"{share!r} is not a share: write 2% or 0.02")
    return value


def check(
    audit: AuditTables,
    limits: Mapping[str, float] | None = None,
    baseline: AuditTables | None = None,
    max_regression: float = 0.0,
) -> tuple[Finding, ...]:
    """Every check of the audit, in the order of its tokenizers and languages.

    A premium above its language's limit fails, and so does one that UNK makes meaningless: text
    that is thrown away is not cheap. A limit under a language's own code or name overrides the one
    under `*`. Against `baseline`, a language fails if its text takes over `max_regression` (a
    share) more tokens than before, or loses text to UNK that it did not lose before.
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
    by_code = {}
    for name, limit in limits.items():
        if name != EVERY:
            try:
                by_code[resolve(name, audit.corpus.languages, "the audit")] = limit
            except CorpusError as error:
                raise UsageError(f"{name}={limit:g}: {error}") from None
    findings = []
    for row in audit.premiums.to_dicts():
        code = row["language"]
        most = by_code.get(code, None if code == audit.pivot else limits.get(EVERY))
        if most is None:
            continue
        passed: bool | None = None
        detail = f"no line in common with {audit.pivot}"
        if row["unk_share"] > UNK_LIMIT:
            passed, detail = False, f"{row['unk_share']:.1%} UNK: text is thrown away"
        elif row["meaningless"]:
            passed, detail = False, f"no premium: text of {audit.pivot} is thrown away (UNK)"
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
        elif row["unk_share_b"] > UNK_LIMIT:
            detail += f", {row['unk_share_b']:.1%} UNK"
        allowed = f"at most {100 * most:g}%" if most else "no"
        limit = f"{allowed} more tokens than the baseline"
        if row["tokenizer_a"] != row["tokenizer_b"]:
            limit += f"'s {row['tokenizer_a']}"
        findings.append(
            Finding("regression", row["tokenizer_b"], row["language"], limit, passed, detail)
        )
    return findings


def named(finding: Finding) -> str:
    """The language as people say it, with its code."""
    name = language_name(finding.language)
    return finding.language if name == finding.language else f"{name} ({finding.language})"


#: What became of a language from a to b.
OUTCOMES = {
    "better": "fewer tokens for the same text",
    "worse": "more tokens for the same text",
    "same": "as many tokens",
    "lost": "b throws part of the text away (UNK), a does not",
    "regained": "a throws part of the text away (UNK), b does not",
    "neither": "both throw part of the text away (UNK)",
}
_SHARED = ("language", "name", "script", "speakers_total")
_REAL = ("premium", "premium_low", "premium_high", "tokens_per_unit", "unk_share", "covered")
_EVENNESS: dict[str, Any] = {
    "median_premium": pl.Float64,
    "gini": pl.Float64,
    "above_2x": pl.Int64,
    "worst_language": pl.String,
    "worst_premium": pl.Float64,
}
_BOTH = ("tokens", "tokens_per_unit", "premium", "premium_low", "premium_high", "unk_share",
         "meaningless")  # fmt: skip


def pairs(a: AuditTables, b: AuditTables) -> list[tuple[str, str]]:
    """Which tokenizers to compare: those in both audits, or the only one of each; or UsageError."""
    for audit in (a, b):
        if not audit.parallel:
            raise UsageError(
                f"{audit.corpus.name}: this text is not parallel, so there are no premiums."
            )
    first, second = ([known.name for known in audit.tokenizers] for audit in (a, b))
    if len(first) == len(second) == 1:
        return [(first[0], second[0])]
    if shared := [(name, name) for name in first if name in second]:
        return shared
    raise UsageError(
        f"No tokenizer is in both audits ({', '.join(first)}; {', '.join(second)}): audit the same "
        "ones, or one each."
    )


def side_by_side(
    a: AuditTables, b: AuditTables, paired: Sequence[tuple[str, str]] | None = None
) -> pl.DataFrame:
    """One row per pair of tokenizers and language whose text is the same in both audits.

    `change` is tokens(b) / tokens(a) - 1, null if either throws text away; `outcome` is one of
    `OUTCOMES`. UsageError if no text is the same.
    """
    codes = same_text(a, b)
    rows = []
    for name_a, name_b in pairs(a, b) if paired is None else paired:
        cells_a, cells_b = _cells(a, name_a), _cells(b, name_b)
        for code in codes:
            cells = {"a": cells_a[code], "b": cells_b[code]}
            row: dict[str, Any] = {"tokenizer_a": name_a, "tokenizer_b": name_b}
            row |= {column: cells["a"][column] for column in _SHARED}
            row |= {f"{column}_{x}": cells[x].get(column) for column in _BOTH for x in "ab"}
            row |= {f"covered_{x}": cells[x]["covered"] for x in "ab"}
            lost = tuple(row[f"unk_share_{x}"] > UNK_LIMIT for x in "ab")
            before, after = row["tokens_a"], row["tokens_b"]
            row["change"] = after / before - 1 if before and not any(lost) else None
            row["outcome"] = _outcome(before, after, *lost)
            rows.append(row)
    schema = {
        "speakers_total": pl.Int64,
        "change": pl.Float64,
        **{f"{column}_{x}": pl.Float64 for column in _REAL for x in "ab"},
    }
    return pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)


def same_text(a: AuditTables, b: AuditTables) -> list[str]:
    """Languages whose text is the same in both: by hash, or by size if one audit has no hash."""
    first, second = (audit.facts["corpus"]["languages"] for audit in (a, b))
    sizes = [_sizes(audit) for audit in (a, b)]
    codes = [
        code
        for code, digest in first.items()
        if code in second
        and (
            digest == second[code]
            if digest and second[code]
            else code in sizes[0] and sizes[0][code] == sizes[1].get(code)
        )
    ]
    if codes:
        return codes
    shared = len(set(first) & set(second))
    raise UsageError(
        f"The two audits have no text in common: {a.corpus.name} and {b.corpus.name} share "
        f"{shared} languages, but not the same lines of any. Tokens compare only on the same text."
    )


def summed(cells: pl.DataFrame, a: AuditTables, b: AuditTables) -> pl.DataFrame:
    """One row per pair: how many languages and speakers gained and lost, and how even each is.

    Speakers are summed over languages, so whoever speaks two counts twice. Medians, Gini and the
    like are over the languages of which neither side throws text away.
    """
    rows = []
    pair = ["tokenizer_a", "tokenizer_b"]
    for (name_a, name_b), own in cells.group_by(pair, maintain_order=True):
        row: dict[str, Any] = {"tokenizer_a": name_a, "tokenizer_b": name_b}
        row["languages"] = own.height
        for outcome in OUTCOMES:
            part = own.filter(pl.col("outcome") == outcome)
            row[outcome] = part.height
            if outcome in ("better", "worse", "lost", "regained"):
                row[f"speakers_{outcome}"] = int(part["speakers_total"].sum())
        whole = own.filter(pl.col("change").is_not_null())  # neither side throws text away
        compared = [*whole["language"], a.pivot]
        for x, audit, name in (("a", a, name_a), ("b", b, name_b)):
            premiums = audit.premiums.filter(
                pl.col("tokenizer") == name, pl.col("language").is_in(compared)
            )
            figures = summary(premiums, audit.pivot).to_dicts()
            row[f"tokens_{x}"] = int(whole[f"tokens_{x}"].sum())
            row |= {f"{key}_{x}": figures[0][key] if figures else None for key in _EVENNESS}
        row["change"] = row["tokens_b"] / row["tokens_a"] - 1 if row["tokens_a"] else None
        rows.append(row)
    kinds = {f"{key}_{x}": kind for key, kind in _EVENNESS.items() for x in "ab"}
    kinds["change"] = pl.Float64
    return pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None)


def _outcome(before: int, after: int, lost_before: bool, lost_after: bool) -> str:
    if lost_before or lost_after:
        return "neither" if lost_before and lost_after else "lost" if lost_after else "regained"
    return "better" if after < before else "worse" if after > before else "same"


def _cells(audit: AuditTables, tokenizer: str) -> dict[str, dict[str, Any]]:
    covered: dict[str, float] = {}
    if "coverage" in audit.frames:
        own = audit.coverage.filter(pl.col("tokenizer") == tokenizer)
        covered = dict(own.select("language", "running_share").iter_rows())
    rows = audit.premiums.filter(pl.col("tokenizer") == tokenizer).to_dicts()
    return {row["language"]: row | {"covered": covered.get(row["language"])} for row in rows}


def _sizes(audit: AuditTables) -> dict[str, int]:
    """Bytes of each language's text, which a streamed audit has instead of a hash."""
    if "bytes" not in audit.premiums.columns:
        return {}
    return dict(audit.premiums.select("language", "bytes").iter_rows())
