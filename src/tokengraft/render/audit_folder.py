"""What an audit looks like on disk: tables, figures, a manifest, and a README that explains it.

Nothing here imports matplotlib until figures are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from tokengraft.auditing.audit_tables import AuditTables, Frames
from tokengraft.auditing.frames import UNK_LIMIT
from tokengraft.core.errors import TokengraftError
from tokengraft.core.files import read_json, write_json, write_text
from tokengraft.core.wording import counted, in_markdown
from tokengraft.render.audit_printed import matrix, printed, unk_note
from tokengraft.render.latex import latex
from tokengraft.render.selection import (
    comparable_note,
    disagreements,
    fairest,
    inexact_notes,
    labels,
    lead_sentence,
    pivot_name,
    units,
)
from tokengraft.render.tables import Printed, markdown, read_data, write_data

ENOUGH = 5  # languages that a Gini coefficient needs to be worth reporting
FILES = {
    "premiums": "premiums of every language and tokenizer, with intervals, taken apart",
    "premiums_compact": "the same without intervals, for a narrow page",
    "premium_matrix": "the same premiums as languages × tokenizers, unrounded; empty where UNK "
    "spoils them",
    "premiums_all": "the same for every language, grouped by script",
    "summary": "one row per tokenizer: inequality, worst language, languages with much UNK",
    "vocabulary": "what the vocabularies consist of: characters and token lengths",
    "jaccard": "how alike the vocabularies are, in clustering order",
    "containment": "how much of each vocabulary another one holds",
    "coverage": "how much of each language’s text is written with one-token characters",
    "cost": "what the premiums mean in money and context",
    "speakers": "premium against number of speakers",
    "apart": "the premium taken apart: split pattern, longer tokens, characters",
    "counts": "what each language’s text costs; texts differ, so this is not a premium",
    "shards": "what was counted, piece by piece, with hashes",
    "bad_rows": "rows and whole files that were left out, and why",
}

# An explanation of every column of every table; a test checks that none is missing.
COLUMNS = {
    "tokenizer": "name of the tokenizer in the catalog, or as it was given",
    "label": "the tokenizer’s name as tables print it",
    "language": "ISO 639-3 language, ISO 15924 script, and a suffix for a variety",
    "name": "the language’s English name",
    "script": "ISO 15924 code of the script",
    "family": "language family",
    "speakers_total": "people who use it, as a first language or later; empty where not known",
    "n": "passages (sentences, articles) that both languages have",
    "premium": "mean over passages of tokens(language) / tokens({pivot}); {pivot} is 1; empty "
    "where no passage is in both",
    "premium_low": "lower end of the premium’s 95% bootstrap interval over passages",
    "premium_high": "upper end of the same interval",
    "ratio_of_sums": "sum of tokens(language) / sum of tokens({pivot}) over the same passages",
    "ratio_of_sums_low": "lower end of its 95% bootstrap interval",
    "ratio_of_sums_high": "upper end of the same interval",
    "tokens": "tokens of the whole text in this language, without special tokens",
    "tokens_per_unit": "tokens per passage: the absolute cost, comparable between tokenizers",
    "tokens_per_byte": "tokens per byte of UTF-8",
    "tokens_change": "tokens ÷ those of the run’s first tokenizer, less 1 (−.1: a tenth fewer); "
    "empty for that one, and where one of the two loses text",
    "tokens_per_character": "tokens per Unicode character",
    "unk_share": "share of the tokens that are UNK: text the tokenizer threw away; a character "
    "that it drops without a token counts as one",
    "lossless_share": "share of passages that decode back to exactly the text",
    "utf8": "premium of a tokenizer whose tokens are single bytes",
    "meaningless": f"true where more than {UNK_LIMIT:.0%} of the tokens, or of the tokens of "
    "{pivot}, are UNK, so that the premium is none",
    "floor": "the part of the premium that the split pattern forces whatever the vocabulary; "
    "empty where the tokenizer cuts nothing in advance",
    "missing_tokens": "the part of the premium that longer tokens would save",
    "missing_characters": "the part of the premium due to characters split into several tokens",
    "floor_lines": "passages on which the floor was measured",
    "not_nfc": "passages whose text is not in Unicode’s composed form (NFC)",
    "premium_nfc": "the premium if these were; empty where all are",
    "languages": "languages audited",
    "compared": "languages that the figures are over: all but {pivot}, those marked meaningless "
    "and those without a passage in common",
    "gini": "Gini coefficient of what the compared languages and {pivot} pay (ratio of sums): "
    "0 equal, 1 unequal",
    "median_premium": "median premium over the compared languages",
    "worst_language": "the compared language with the highest premium",
    "worst_premium": "its premium",
    "above_2x": "compared languages that pay more than twice what {pivot} pays",
    "meaningless_cells": "languages whose premium is marked meaningless",
    "not_comparable": "languages without a premium: no passage in common with {pivot}",
    "clean_vocab_size": "entries of the normalised vocabulary (markers of spaces removed)",
    "unicode_blocks": "Unicode blocks among its characters",
    **{f"chars_{n}b": f"distinct characters of {counted(n, 'byte')} in UTF-8" for n in range(1, 5)},
    **{f"toks_{n}b": f"tokens of {counted(n, 'byte')}" for n in range(1, 8)},
    "toks_gt7b": "tokens of more than 7 bytes",
    "characters": "distinct characters in the language’s text, spaces left out",
    "covered": "how many of them are one token",
    "covered_share": "the same as a share",
    "running_share": "share of the running text’s characters that are one token",
    "missing": "characters that are not one token, most frequent first",
    "model": "model on the price list",
    "relative_cost": "cost of content that costs 1 in {pivot} (the ratio of sums)",
    "input_usd": "dollars to read what is a million tokens in {pivot}; empty without a price",
    "output_usd": "dollars to write the same; empty without a price",
    "context": "the model’s context in tokens",
    "effective_context": "how many {pivot} tokens’ worth of content fits in it",
    "as_of": "date of the price list",
    "source": "where the price comes from",
    "rows": "rows of text in this language",
    "bytes": "their bytes in UTF-8",
    "bytes_per_token": "bytes that a token stands for",
    "characters_per_token": "characters that a token stands for",
    "inside_share": "share of the tokens that begin inside a character",
    "relative_tokens_per_byte": "tokens per byte ÷ that of {pivot}",
    "relative_tokens_per_character": "tokens per character ÷ that of {pivot}",
    "file": "the file",
    "line": "its line, or row of a table; empty where the whole file is broken",
    "reason": "why it was left out",
}


def write_audit(audit: AuditTables, folder: Path, figures: bool = True) -> list[Path]:
    """Write the audit into `folder` and return every path written, in a fixed order.

    `tables/NAME` as csv, parquet, json (all columns, full precision), md and tex (as printed),
    `figures/NAME` as svg and png, `manifest.json` and `README.md`. The same audit always gives the
    same bytes.
    """
    paths: list[Path] = []
    forms = printed(audit)
    for name, frame in audit.tables().items():
        stem = folder / "tables" / name
        paths += write_data(frame, stem)
        if name in forms:
            paths.append(write_text(stem.with_suffix(".md"), markdown(forms[name])))
            paths.append(write_text(stem.with_suffix(".tex"), latex(forms[name])))
    if audit.parallel:
        stem = folder / "tables" / "premiums_compact"
        paths.append(write_text(stem.with_suffix(".md"), markdown(forms[stem.name])))
        paths.append(write_text(stem.with_suffix(".tex"), latex(forms[stem.name])))
        paths += write_data(matrix(audit), folder / "tables" / "premium_matrix")
    if audit.parallel and figures:
        from tokengraft.render.figures import save_figures

        paths += save_figures(audit, folder / "figures")
    paths.append(write_json(folder / "manifest.json", audit.manifest()))
    paths.append(write_text(folder / "README.md", write_up(audit, forms, folder, paths)))
    return paths


def read_audit(folder: Path) -> AuditTables:
    """What `write_audit` wrote, with tables read on demand; TokengraftError if it is damaged."""
    facts = read_json(folder / "manifest.json")
    there = {name: read for name in AuditTables.NAMES if (read := read_data(folder, name))}
    if "corpus" not in facts or not there:
        raise TokengraftError(f"{folder}: an audit of an older version; audit again")
    audit = AuditTables(facts, Frames(there))
    try:
        _ = audit.corpus, audit.tokenizers, audit.pivot
    except (KeyError, TypeError, AttributeError) as error:
        raise TokengraftError(f"{folder}: this audit is damaged ({error!r})") from error
    return audit


def write_up(
    audit: AuditTables, forms: Mapping[str, Printed], folder: Path, paths: Sequence[Path]
) -> str:
    """Markdown for the README of `folder`, which holds `paths`; every claim comes from the data.

    `forms` are the printed tables (`tables.printed`).
    """
    pivot = pivot_name(audit)
    lines = [
        f"# Audit: {in_markdown(audit.corpus.title)}",
        "",
        f"{counted(len(audit.tokenizers), 'tokenizer')}, "
        f"{counted(len(audit.corpus.languages), 'language')}, "
        + (
            f"{units(audit)} of parallel text. A *premium* of 2 means that the same content "
            f"takes twice the tokens it takes in {pivot}."
            if audit.parallel
            else f"{counted(audit.corpus.units, 'row')} of text that is not parallel."
        ),
        "",
        "## Findings",
        "",
        *(f"- {in_markdown(finding)}" for finding in findings(audit)),
        "",
        *([markdown(forms["summary"])] if "summary" in forms else []),
        *_pictures(folder, paths),
        "## Files",
        "",
        *_listing(folder, paths),
        "",
        "## Columns",
        "",
        "Each is explained where it comes first.",
        "",
    ]
    if audit.skipped:
        skipped = in_markdown(", ".join(sorted(audit.skipped)))
        lines[4:4] = [f"Left out, because not on the machine that ran this: {skipped}.", ""]
    seen: set[str] = set()
    for name, frame in audit.tables().items():
        square = name in ("jaccard", "containment")
        new = [c for c in frame.columns if c not in seen and not square]
        seen.update(new)
        lines += [f"**{name}**: {FILES[name]}.", ""]
        lines += ["- every column but `label`: a tokenizer by its label"] if square else []
        lines += [f"- `{c}`: {COLUMNS[c].format(pivot=pivot)}" for c in new if c in COLUMNS]
        lines += [""]
    return "\n".join(lines)


def findings(audit: AuditTables) -> list[str]:
    """The headline findings, each a sentence computed from the tables."""
    names = labels(audit)
    if not audit.parallel:
        return _densest(audit, names)
    rows = fairest(audit.summary.to_dicts())
    sentences = [f"No language but {pivot_name(audit)} has a premium free of UNK."]
    if audit.premiums.filter(pl.col("language") == audit.pivot)["meaningless"].all():
        sentences = [f"No premiums: text of {pivot_name(audit)} itself is lost to UNK."]
    if said := lead_sentence(audit):
        sentences = [said]
    ranked = [row for row in rows if not row["meaningless_cells"] and row["compared"] >= ENOUGH]
    if ranked and (low := f"{ranked[0]['gini']:.2f}") != (high := f"{ranked[-1]['gini']:.2f}"):
        sentences.append(
            f"Among tokenizers that encode every language, {names[ranked[0]['tokenizer']]} is the "
            f"fairest (Gini {low}) and {names[ranked[-1]['tokenizer']]} the least fair (Gini "
            f"{high})."
        )
    cells = audit.premiums.filter((pl.col("floor") > 1) & ~pl.col("meaningless"))
    for top in cells.sort("floor", descending=True, nulls_last=True).head(1).to_dicts():
        sentences.append(
            f"The split pattern of {names[top['tokenizer']]} alone makes {top['name']} cost at "
            f"least {top['floor']:.2f}×, whatever its vocabulary (it costs {top['premium']:.2f}× "
            "today)."
        )
    spoilt = audit.premiums.filter(pl.col("meaningless"))
    if spoilt.height:
        count = spoilt.group_by("tokenizer").len().sort(["len", "tokenizer"], descending=True)
        each = ", ".join(f"{names[name]} {number}" for name, number in count.rows())
        verb = "has" if spoilt.height == 1 else "have"
        sentences.append(
            f"{spoilt.height} of {audit.premiums.height} cells {verb} no premium because of UNK "
            f"({each}). {unk_note(audit.premiums)}"
        )
    else:
        sentences.append(f"In no cell are more than {UNK_LIMIT:.0%} of the tokens UNK.")
    if missing := comparable_note(audit):
        sentences.append(missing)
    return [
        *sentences,
        *disagreements(audit.premiums, names, audit.pivot),
        *inexact_notes(audit.premiums, names),
    ]


def _densest(audit: AuditTables, names: dict[str, str]) -> list[str]:
    cells = audit.counts.filter(~pl.col("meaningless") & pl.col("tokens_per_byte").is_not_null())
    densest = cells.sort("tokens_per_byte", descending=True).head(1)
    return [
        *(
            f"Most tokens a byte: {top['tokens_per_byte']:.3f}, {top['name']} with "
            f"{names[top['tokenizer']]}."
            for top in densest.to_dicts()
        ),
        "Texts differ between languages, so these figures compare tokenizers, not languages.",
    ]


def _pictures(folder: Path, paths: Sequence[Path]) -> list[str]:
    """The two most telling figures, if they were written."""
    here = {path.relative_to(folder).as_posix() for path in paths}
    wanted = [(name, f"figures/{name}.png") for name in ("premiums", "apart")]
    lines = [f"![{FILES[name]}]({file})\n" for name, file in wanted if file in here]
    return ["", *lines] if lines else []


def _listing(folder: Path, paths: Sequence[Path]) -> list[str]:
    kinds: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        inside = path.relative_to(folder)
        kinds.setdefault((str(inside.parent.as_posix()), inside.stem), []).append(inside.suffix)
    lines = []
    for (parent, stem), suffixes in kinds.items():
        links = ", ".join(f"[{s[1:]}]({parent}/{stem}{s})" for s in suffixes)
        if parent != ".":
            lines.append(f"- `{parent}/{stem}` ({links}): {FILES.get(stem, stem)}")
    return [*lines, "- [`manifest.json`](manifest.json): inputs with hashes, settings, versions"]
