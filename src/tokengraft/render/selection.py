"""Which languages and tokenizers a table or figure shows, in which order, under which names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations
from math import isnan
from typing import TYPE_CHECKING, Any

import polars as pl

from tokengraft.core.wording import counted, some_languages
from tokengraft.languages.codes import language, language_name, well_formed
from tokengraft.tokenizer.catalog import MOST_USED

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables

# The columns of the paper's premium table, left to right.
PAPER_ORDER = (
    "claude-2.1", "olmo-2", "bert-multilingual", "llama-3", "mistral-v0.3", "t5", "m2m100",
    "gpt2", "cl100k_base", "o200k_base",
)  # fmt: skip

# A figure shows all languages if they are at most FEW, or at most ASKED and asked for by name.
FEW, ASKED = 12, 40

#: From this change of a premium on, a note tells it, with so many tokenizers as examples.
_TOLD, _EXAMPLES = 0.01, 3
#: Below this share of passages that decode back exactly, a note tells it.
_EXACT = 0.5


def pivot_name(audit: AuditTables) -> str:
    """The name of the language that costs 1."""
    return language_name(audit.pivot)


def column_order(audit: AuditTables) -> list[str]:
    """The audit's tokenizers: the paper's in the paper's order, then the others as given."""
    names = [located.name for located in audit.tokenizers]
    return [n for n in PAPER_ORDER if n in names] + [n for n in names if n not in PAPER_ORDER]


def labels(audit: AuditTables) -> dict[str, str]:
    """Tokenizer name → the label that tables print; where labels clash, the name itself."""
    given = [located.label for located in audit.tokenizers]
    return {
        located.name: located.label if given.count(located.label) == 1 else located.name
        for located in audit.tokenizers
    }


def by_cost(audit: AuditTables, tokenizer: str | None = None) -> pl.DataFrame:
    """One row per language, costliest first: `typical`, the median premium over honest cells.

    An honest cell is one that UNK does not make meaningless. With `tokenizer`, its premium alone.
    Languages without any honest cell are left out.
    """
    cells = audit.premiums.filter(~pl.col("meaningless") & pl.col("premium").is_finite())
    if tokenizer is not None:
        cells = cells.filter(pl.col("tokenizer") == tokenizer)
    about = ("name", "script", "speakers_total")
    return (
        cells.group_by("language", maintain_order=True)
        .agg(pl.col("premium").median().alias("typical"), *(pl.col(c).first() for c in about))
        .sort(["typical", "language"], descending=[True, False])
    )


def disagreements(premiums: pl.DataFrame, names: Mapping[str, str], pivot: str) -> list[str]:
    """Pairs in which one tokenizer takes fewer tokens in every language, yet has higher premiums.

    A premium divides by the pivot: a tokenizer that saves most there looks worse everywhere else.
    There is a sentence for each pair. `names` are the tokenizers' labels.
    """
    cells = premiums.filter(~pl.col("meaningless"))
    tokens: dict[str, dict[str, int]] = {}
    for tokenizer, code, count in cells.select("tokenizer", "language", "tokens").iter_rows():
        tokens.setdefault(tokenizer, {})[code] = count
    paid = cells.filter(pl.col("premium").is_not_null() & (pl.col("language") != pivot))
    medians = dict(paid.group_by("tokenizer").agg(pl.col("premium").median()).iter_rows())
    said = []
    for (better, theirs), (other, others) in permutations(tokens.items(), 2):
        if theirs.keys() != others.keys() or len(theirs) < 2:
            continue
        high, low = medians.get(better), medians.get(other)
        if high and low and high > low and all(n < others[c] for c, n in theirs.items()):
            saved = 1 - sum(theirs.values()) / sum(others.values())
            said.append(
                f"Premiums mislead here: {names[better]} needs fewer tokens than {names[other]} in "
                f"every language ({saved:.0%} fewer in all), and its median premium is higher "
                f"({high:.2f} against {low:.2f}) because {language_name(pivot)} gained most. "
                "Compare tokens per passage."
            )
    return said


def by_use(names: Iterable[str]) -> list[str]:
    """Tokenizers, those used most today first, then the others as given."""
    return sorted(names, key=lambda n: MOST_USED.index(n) if n in MOST_USED else len(MOST_USED))


@dataclass(frozen=True)
class Lead:
    """The figure that page, card, README and terminal lead with.

    It is of the tokenizer used most today among those audited that have an honest premium, and of
    the language that it makes pay most; `low` to `high` is what the honest ones make it pay.
    """

    tokenizer: str
    language: str
    premium: float
    low: float
    high: float
    several: bool  # whether other tokenizers have an honest premium there
    used: bool  # whether the tokenizer is known to be in wide use, not only the first given


def lead(premiums: pl.DataFrame, pivot: str, code: str | None = None) -> Lead | None:
    """What to lead with, of all languages or of `code`; None without an honest premium.

    Of all languages, one whose script has no readers leads only if none has.
    """
    cells = premiums.filter(
        ~pl.col("meaningless") & pl.col("premium").is_finite() & (pl.col("language") != pivot)
    )
    if code is not None:
        cells = cells.filter(pl.col("language") == code)
    if cells.is_empty():
        return None
    first = by_use(cells["tokenizer"].unique(maintain_order=True))[0]
    rows = cells.filter(pl.col("tokenizer") == first).sort("language").to_dicts()
    read = [row for row in rows if readers(row["language"])] or rows
    top = max(read, key=lambda row: float(row["premium"]))
    same = cells.filter(pl.col("language") == top["language"]).sort("premium")
    low, high = same["premium"][0], same["premium"][-1]
    several, used = same.height > 1, first in MOST_USED
    return Lead(first, top["language"], top["premium"], low, high, several, used)


def lead_sentence(audit: AuditTables) -> str:
    """The lead in words; empty without one."""
    led = lead(audit.premiums, audit.pivot)
    if led is None:
        return ""
    names, pivot = labels(audit), pivot_name(audit)
    among = " (used most today of those audited)" if led.used and len(names) > 1 else ""
    exact = audit.premium(led.tokenizer, led.language)
    interval = "" if isnan(exact.low) else f" (95% interval {exact.low:.2f} to {exact.high:.2f})"
    text = (
        f"On {names[led.tokenizer]}{among}, {language_name(led.language)} takes "
        f"{led.premium:.2f} times the tokens of {pivot}{interval}"
    )
    if led.several:
        text += f"; on all that write it, {led.low:.2f} to {led.high:.2f} times"
    return f"{text}."


def fairest(summary: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `summary` that compare any language, fairest first.

    Those that lose the fewest languages to UNK come first, since such a language is not counted;
    of these the one with the lowest Gini coefficient, then with the lowest median premium.
    """
    rows = [dict(row) for row in summary if row["compared"]]
    return sorted(
        rows, key=lambda row: (row["meaningless_cells"], row["gini"], row["median_premium"])
    )


def readers(code: str) -> int:
    """Speakers, or 0 for a language's second script, since most of its speakers write the first."""
    if not well_formed(code):
        return 0
    entry = language(code)
    return 0 if entry.name.endswith(("script)", "(Romanized)")) else entry.speakers_total or 0


def typical_costs(audit: AuditTables) -> pl.DataFrame:
    """`by_cost` without the pivot, whose premium is 1 by definition."""
    return by_cost(audit).filter(pl.col("language") != audit.pivot)


def all_of_few(audit: AuditTables, tokenizer: str | None = None) -> list[str] | None:
    """Every language, costliest first, if they are few or were asked for by name; else None."""
    if len(audit.corpus.languages) - 1 > (ASKED if audit.named else FEW):
        return None
    return by_cost(audit, tokenizer)["language"].to_list()


def one_a_script(audit: AuditTables, tokenizer: str, count: int, costliest: int) -> list[str]:
    """The most spoken language of each script, and the `costliest` languages, costliest first.

    Scripts compete for the places by speakers, so that well-known ones are never crowded out.
    """
    ranked = by_cost(audit, tokenizer)
    top = ranked.head(costliest)["language"].to_list()
    spoken = (
        ranked.with_columns(pl.Series("readers", [readers(c) for c in ranked["language"]]))
        .filter(pl.col("readers") > 0)
        .sort(["readers", "typical", "language"], descending=[True, True, False])
        .unique("script", keep="first", maintain_order=True)
        .filter(~pl.col("language").is_in(top))
        .head(count - len(top))["language"]
        .to_list()
    )
    chosen = {*top, *spoken}
    return [code for code in ranked["language"] if code in chosen]


def without_unk(audit: AuditTables) -> list[str]:
    """Tokenizers without a meaningless cell, whose mean therefore compares languages fairly."""
    bad = set(audit.premiums.filter(pl.col("meaningless"))["tokenizer"])
    return [name for name in column_order(audit) if name not in bad]


def printed_code(code: str) -> str:
    """The code as the paper prints it: `shn (Mymr)`."""
    iso, _, script = code.partition("_")
    return f"{iso} ({script})" if script else code


def units(audit: AuditTables) -> str:
    """How many passages premiums are means of: `2,009 passages`, or `12 to 61 passages`."""
    cells = audit.premiums.filter(pl.col("n") > 0)
    others = cells.filter(pl.col("language") != audit.pivot)
    n = (cells if others.is_empty() else others)["n"]
    low, high = int(n.min() or 0), int(n.max() or 0)  # type: ignore[arg-type]
    return counted(high, "passage") if low == high else f"{low:,} to {high:,} passages"


def not_comparable(audit: AuditTables) -> list[str]:
    """Languages that share no unit of text with the pivot: they have no premium."""
    return sorted(set(audit.premiums.filter(pl.col("n") == 0)["language"]))


def nfc_notes(audit: AuditTables) -> list[str]:
    """A sentence for each language whose premium would be another if its text were in NFC."""
    if "premium_nfc" not in audit.premiums.columns:
        return []  # saved by an earlier version, or streamed
    names = labels(audit)
    change = (pl.col("premium_nfc") / pl.col("premium") - 1).abs()
    cells = audit.premiums.filter(~pl.col("meaningless") & (change >= _TOLD))
    notes = []
    for (code,), rows in cells.group_by(["language"], maintain_order=True):
        said = ", ".join(
            f"{row['premium_nfc']:.2f} instead of {row['premium']:.2f} "
            f"with {names[row['tokenizer']]}"
            for row in rows.sort(change, descending=True).head(_EXAMPLES).to_dicts()
        )
        more = f" and {counted(rows.height - _EXAMPLES, 'more tokenizer')}"
        notes.append(
            f"{language_name(str(code))} ({code}) is not in Unicode’s composed form (NFC) in "
            f"{counted(rows['not_nfc'][0], 'line')}. In NFC its premium would be {said}"
            f"{more if rows.height > _EXAMPLES else ''}."
        )
    return notes


def inexact_notes(premiums: pl.DataFrame, names: Mapping[str, str]) -> list[str]:
    """A sentence for each tokenizer that changes most passages of a language, UNK apart."""
    if "lossless_share" not in premiums.columns:
        return []
    cells = premiums.filter(~pl.col("meaningless") & (pl.col("lossless_share") < _EXACT))
    notes = []
    for (name,), rows in cells.group_by(["tokenizer"], maintain_order=True):
        whose = some_languages([str(one) for one in rows["name"]])
        shares = rows["lossless_share"].sort().to_list()
        low, high = f"{shares[0]:.0%}", f"{shares[-1]:.0%}"
        share = low if low == high else f"{low} to {high}"
        notes.append(
            f"{names[str(name)]} gives back {share} of the passages exactly in {whose}: what it "
            "changes or drops never reaches a model, so these premiums say too little."
        )
    return notes


def comparable_note(audit: AuditTables) -> str:
    """Which languages have no premium, and why; empty if all have one."""
    names = [language(code).name for code in not_comparable(audit)]
    if not names:
        return ""
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f"No lines in common with {pivot_name(audit)}, so no premium: {shown}."
