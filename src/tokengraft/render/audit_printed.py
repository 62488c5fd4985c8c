"""An audit's tables as a reader sees them: rounded, captioned, in the order of what is paid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from tokengraft.auditing.frames import UNK_LIMIT
from tokengraft.core.wording import in_percent
from tokengraft.languages.codes import language_name
from tokengraft.render.selection import (
    by_cost,
    column_order,
    comparable_note,
    labels,
    nfc_notes,
    pivot_name,
    printed_code,
    units,
)
from tokengraft.render.tables import Cell, Printed

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables


_WITH = ", with its 95% interval"


def matrix(audit: AuditTables) -> pl.DataFrame:
    """Premiums as languages × tokenizers, unrounded, in the order of the printed table.

    A cell that UNK spoils is empty, since a plain number could not be marked.
    """
    names = labels(audit)
    ranked = by_cost(audit)["language"].to_list()[::-1]
    codes = [audit.pivot, *(code for code in ranked if code != audit.pivot)]
    order = pl.DataFrame({"language": codes, "position": range(len(codes))})
    honest = pl.when(~pl.col("meaningless")).then("premium")
    wide = audit.premiums.with_columns(honest.alias("premium")).pivot(
        on="tokenizer", index=["language", "name"], values="premium"
    )
    return (
        wide.join(order, on="language", how="left")
        .sort("position", maintain_order=True, nulls_last=True)
        .select("language", "name", *(pl.col(c).alias(names[c]) for c in column_order(audit)))
    )


def printed(audit: AuditTables) -> dict[str, Printed]:
    """The audit's tables in printed form, by name of the frame; not every frame has one."""
    alike = "Jaccard similarity of each pair of normalised vocabularies"
    contained = "Share of the row’s normalised vocabulary that the column’s holds too"
    makers: dict[str, Callable[[AuditTables], Printed]] = {
        "premiums": _premiums, "premiums_compact": _compact, "summary": _summary,
        "vocabulary": _vocabulary, "jaccard": partial(_square, name="jaccard", caption=alike),
        "containment": partial(_square, name="containment", caption=contained),
        "coverage": _coverage, "cost": _cost,
    }  # fmt: skip
    there = {*audit.frames, *(f"{name}_compact" for name in audit.frames)}
    return {name: make(audit) for name, make in makers.items() if name in there}


def unk_note(cells: pl.DataFrame) -> str:
    """Why the marked among these premiums must not be read as such; empty if none is marked."""
    marked = cells.filter(pl.col("meaningless"))["unk_share"].to_list()
    shares = [share for share in marked if share > UNK_LIMIT]
    if not shares:
        return ""
    ends = min(shares), max(shares)
    low, high = (f"{share:.1%}" if share < 0.1 else f"{share:.0%}" for share in ends)
    here = f"here {low}" if low == high else f"here {low} to {high}"
    note = (
        f"† More than {UNK_LIMIT:.0%} of these tokens ({here}) are UNK: what they stood for was "
        "thrown away, not encoded, so the number says too little and a low one is no merit."
    )
    if len(shares) < len(marked):
        note += " A tokenizer that throws away the pivot’s own text has no premium at all."
    return note


def _compact(audit: AuditTables) -> Printed:
    """The premiums without their intervals, for a narrow page."""
    table = _premiums(audit)
    rows = [[replace(cell, beside="") for cell in row] for row in table.rows]
    caption = table.caption.replace(_WITH, "")
    return replace(table, name="premiums_compact", rows=rows, caption=caption)


def _premiums(audit: AuditTables) -> Printed:
    caption = (
        f"Tokenization premiums over {pivot_name(audit)}: mean over {units(audit)} "
        f"of the ratio of token counts{_WITH} ({audit.corpus.title})"
    )
    table = _wide(audit, "premiums", caption, "premium")
    if not any(cell.beside for row in table.rows for cell in row):
        table = replace(table, caption=caption.replace(_WITH, ""))
    return replace(table, notes=[*_notes(audit, audit.premiums), *nfc_notes(audit)])


def _coverage(audit: AuditTables) -> Printed:
    caption = "Share of running characters (spaces left out) that are one token, in percent"
    order = sorted(audit.corpus.languages)
    return _wide(audit, "coverage", caption, "running_share", order=order, percent=True)


def _wide(
    audit: AuditTables,
    name: str,
    caption: str,
    column: str,
    by: str = "tokenizer",
    order: Sequence[str] | None = None,
    percent: bool = False,
) -> Printed:
    """A long frame as languages × tokenizers (or models); languages not in it are left out."""
    frame, names = audit.frames[name], labels(audit)
    titles = {one: names[one] for one in column_order(audit)}
    titles = titles if by == "tokenizer" else {one: one for one in frame[by]}
    form, factor = ("{:.1f}", 100) if percent else ("{:.2f}", 1)
    cells = {
        (row["language"], row[by]): _number(
            None if row[column] is None else factor * row[column],
            form,
            row.get("meaningless"),
            _interval(row) if column == "premium" else "",
        )
        for row in frame.to_dicts()
    }
    rows = [
        _language(code) + [cells[code, one] for one in titles]
        for code in order or matrix(audit)["language"]
        if any((code, one) in cells for one in titles)
    ]
    return Printed(name, caption, ["Language", "Code", *titles.values()], rows, left=2, codes=1)


def _cost(audit: AuditTables) -> Printed:
    frame = audit.cost
    caption = (
        f"Relative cost: what content that costs 1 in {pivot_name(audit)} costs "
        f"(ratio of summed token counts; models on the price list of {audit.facts['prices_as_of']})"
    )
    priced = pl.col("tokenizer").is_in(frame["tokenizer"].unique().to_list())
    notes = _notes(audit, audit.premiums.filter(priced))
    if free := list(dict.fromkeys(frame.filter(pl.col("input_usd").is_null())["model"])):
        notes.append(f"Without a price on that list, so the factor only: {', '.join(free)}.")
    return replace(_wide(audit, "cost", caption, "relative_cost", by="model"), notes=notes)


def _notes(audit: AuditTables, cells: pl.DataFrame) -> list[str]:
    missing = comparable_note(audit)
    return [note for note in (unk_note(cells), f"— {missing}" if missing else "") if note]


def _summary(audit: AuditTables) -> Printed:
    names, exact = labels(audit), dict[str, float]()
    if "lossless_share" in audit.premiums.columns:
        shares = audit.premiums.group_by("tokenizer").agg(pl.col("lossless_share").mean())
        exact = dict(shares.rows())
    rows = [
        [
            Cell(names[row["tokenizer"]]),
            Cell(language_name(row["worst_language"]) if row["worst_language"] else "—"),
            *(_number(row[name], "{:.2f}") for name in ("worst_premium", "median_premium")),
            _number(row["gini"], "{:.3f}"),
            Cell(f"{row['above_2x']:,} of {row['compared']:,}"),
            Cell(f"{row['meaningless_cells']:,}"),
            Cell("—" if (share := exact.get(row["tokenizer"])) is None else in_percent(share)),
        ]
        for row in audit.summary.to_dicts()
    ]
    header = ["Tokenizer", "Worst language", "Premium", "Median", "Gini", "Above 2×",
              f"UNK > {UNK_LIMIT:.0%}", "Exact %"]  # fmt: skip
    caption = (
        f"Each tokenizer at a glance, over the languages other than {pivot_name(audit)} with at "
        f"most {UNK_LIMIT:.0%} of UNK: the worst and its premium, the median premium, the "
        "inequality of costs, how many pay over twice; last, how many languages have more UNK, and "
        "how many of the passages decode back exactly"
    )
    notes = list(filter(None, [comparable_note(audit)]))
    return Printed("summary", caption, header, rows, left=2, notes=notes)


def _vocabulary(audit: AuditTables) -> Printed:
    columns = [c for c in audit.vocabulary.columns if c not in ("tokenizer", "label")]
    titles = {"clean_vocab_size": "Size", "unicode_blocks": "Blocks", "toks_gt7b": "8+ B"}
    titles |= {f"chars_{n}b": f"C{n}" for n in range(1, 5)}
    titles |= {f"toks_{n}b": f"{n} B" for n in range(1, 8)}
    rows = [
        [Cell(labels(audit)[row["tokenizer"]]), *(Cell(f"{row[c]:,}") for c in columns)]
        for row in audit.vocabulary.to_dicts()
    ]
    caption = (
        "Normalised vocabularies: size, Unicode blocks, distinct characters of 1 to 4 bytes of "
        "UTF-8 (C1 to C4), tokens by length in bytes (1 B to 8+ B)"
    )
    return Printed("vocabulary", caption, ["Tokenizer", *(titles[c] for c in columns)], rows)


def _square(audit: AuditTables, name: str, caption: str) -> Printed:
    frame: pl.DataFrame = getattr(audit, name)
    rows = [
        [Cell(row[0]), *(_number(value, "{:.2f}") for value in row[1:])] for row in frame.rows()
    ]
    return Printed(name, caption, ["", *frame.columns[1:]], rows)


def _language(code: str) -> list[Cell]:
    return [Cell(language_name(code)), Cell(printed_code(code))]


def _interval(row: Mapping[str, Any]) -> str:
    """`[9.10, 10.02]`: the premium's 95% interval; empty without one, and for the pivot."""
    low, high = row.get("premium_low"), row.get("premium_high")
    return "" if low is None or row["meaningless"] or low == high else f"[{low:.2f}, {high:.2f}]"


def _number(value: float | None, form: str, spoilt: bool | None = False, beside: str = "") -> Cell:
    if value is None or not math.isfinite(value):
        return Cell("—")
    return Cell(form.format(value), None if spoilt else float(value), bool(spoilt), beside)
