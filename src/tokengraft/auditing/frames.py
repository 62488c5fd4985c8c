"""Counts → data frames: one function per table, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars import selectors

from tokengraft.auditing.cost import PriceList
from tokengraft.auditing.count import Counts, TextCounts
from tokengraft.auditing.premium import Estimates, Floats, estimate, gini
from tokengraft.auditing.vocabularies import Breakdown
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import language
from tokengraft.tokenizer import Located

UNK_LIMIT = 0.01  # above this share of UNK, a premium measures what was thrown away
IN_NFC = "/NFC"  # after a language's code: those of its entries that are not in NFC, put in NFC


def premiums(
    corpus: ParallelCorpus,
    pivot: str,
    tokenizers: Sequence[Located],
    counts: Mapping[tuple[str, str], Counts],
    texts: Mapping[str, TextCounts],
    resamples: int,
    composed: Mapping[str, Sequence[str | None]] | None = None,
) -> pl.DataFrame:
    """Premiums of every tokenizer and language, taken apart.

    `premium` = `floor` + `missing_tokens` + `missing_characters`, exactly: what the split pattern
    forces whatever the vocabulary, what longer tokens would save, and what splitting characters
    costs. `floor` is null if the tokenizer does not split text in advance. `utf8` is the premium of
    a tokenizer whose tokens are bytes. If a language shares no unit with the pivot, `n` is 0 and
    every figure that compares the two is null; nothing is ever NaN. A premium is `meaningless` if
    the tokenizer throws away text of the language or of the pivot (UNK).

    `composed` has entries in NFC by code and `IN_NFC`, and `counts` has theirs: `not_nfc` is the
    number of units, and `premium_nfc` what the premium would be with these; else null.
    """
    codes = corpus.languages
    composed = composed or {}
    here = {code: np.array([t is not None for t in corpus.texts[code]]) for code in codes}

    def spread(code: str, values: NDArray[np.int64]) -> Floats:
        column = np.full(len(corpus.units), np.nan)
        column[here[code]] = values
        return column

    def columns(per_language: Mapping[str, NDArray[np.int64]]) -> Floats:
        return np.stack([spread(code, per_language[code]) for code in codes], axis=1)

    def estimated(cost: Floats, resamples: int) -> Estimates:  # (units, languages)
        return estimate(cost, np.repeat(cost[:, [codes.index(pivot)]], len(codes), 1), resamples)

    utf8 = estimated(columns({code: texts[code].bytes for code in codes}), 0).mean_of_ratios
    rows = []
    for located in tokenizers:  # the bootstrap draws the same sentences for each
        cells = {code: counts[located.name, code] for code in codes}
        estimates = estimated(columns({code: cells[code].tokens for code in codes}), resamples)
        base = spread(pivot, cells[pivot].tokens)
        cost_nfc = columns({code: cells[code].tokens for code in codes})
        for number, code in enumerate(codes):
            if lines := composed.get(code + IN_NFC):
                put = [line is not None for line in lines]
                cost_nfc[put, number] = counts[located.name, code + IN_NFC].tokens
        in_nfc = estimated(cost_nfc, 0).mean_of_ratios if composed else None
        for number, (code, cell) in enumerate(cells.items()):
            row: dict[str, Any] = {
                "tokenizer": located.name,
                "label": located.label,
                "language": code,
                **about(code),
                "n": int(estimates.n[number]),
                "premium": estimates.mean_of_ratios[number],
                "premium_low": estimates.mean_low[number],
                "premium_high": estimates.mean_high[number],
                "ratio_of_sums": estimates.ratio_of_sums[number],
                "ratio_of_sums_low": estimates.sums_low[number],
                "ratio_of_sums_high": estimates.sums_high[number],
                "tokens": int(cell.tokens.sum()),
                "tokens_per_unit": float(cell.tokens.mean()),
                "tokens_per_byte": cell.tokens.sum() / texts[code].bytes.sum(),
                "bytes_per_token": texts[code].bytes.sum() / (cell.tokens.sum() or float("nan")),
                "tokens_per_character": cell.tokens.sum() / texts[code].characters.sum(),
                "unk_share": _lost(cell) / max(1, cell.tokens.sum() + cell.dropped.sum()),
                "lossless_share": cell.exact[cell.exact >= 0].mean(),
                "utf8": utf8[number],
            }
            row["meaningless"] = bool(row["unk_share"] > UNK_LIMIT)
            row |= _apart(row["premium"], cell, spread, code, base)
            lines = composed.get(code + IN_NFC)
            row["not_nfc"] = sum(line is not None for line in lines or ())
            row["premium_nfc"] = None if in_nfc is None or not lines else in_nfc[number]
            rows.append(row)
    schema = {"premium_nfc": pl.Float64}
    table = pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None)
    table = against_first(without_nan(table))
    return spoilt_by_pivot(table, pivot)


def spoilt_by_pivot(table: pl.DataFrame, pivot: str) -> pl.DataFrame:
    """The table with all premiums of a tokenizer `meaningless` if it loses text of the pivot."""
    spoilt = (pl.col("language") == pivot) & pl.col("meaningless")
    return table.with_columns(pl.col("meaningless") | spoilt.any().over("tokenizer"))


def against_first(table: pl.DataFrame) -> pl.DataFrame:
    """The table with `tokens_change`: by what share a text takes more tokens than with the first.

    The first tokenizer of the run is the reference. A premium cannot show this: it divides by the
    tokenizer's own count for the pivot. Null for the reference itself, and if either of the two
    throws text away.
    """
    first = table["tokenizer"].first()
    theirs = table.filter((pl.col("tokenizer") == first) & ~pl.col("meaningless"))
    base = theirs.select("language", pl.col("tokens").alias("_first"))
    compared = (pl.col("tokenizer") != first) & ~pl.col("meaningless") & (pl.col("_first") > 0)
    change = pl.when(compared).then(pl.col("tokens") / pl.col("_first") - 1)
    joined = table.join(base, on="language", how="left", maintain_order="left")
    return joined.with_columns(change.alias("tokens_change")).drop("_first")


def _apart(
    premium: float, cell: Counts, spread: Any, code: str, pivot: Floats
) -> dict[str, float | None]:
    """Take a premium apart into floor, missing tokens and missing characters."""
    tokens, inside = spread(code, cell.tokens), spread(code, cell.inside)
    pretokens = spread(code, cell.pretokens)
    usable = np.isfinite(tokens) & (pivot > 0)
    characters = float(np.mean(inside[usable] / pivot[usable])) if usable.any() else float("nan")
    floor = None
    measured = usable & (pretokens >= 0)
    if measured.any():
        # As a share of the premium on the measured lines, so that floor ≤ premium always holds.
        share = np.sum(pretokens[measured] / pivot[measured])
        paid = np.sum(tokens[measured] / pivot[measured])
        floor = premium * float(share / paid) if paid else None
    return {
        "floor": floor,
        "missing_tokens": premium - characters - (floor or 0.0),
        "missing_characters": characters,
        "floor_lines": int(measured.sum()),
    }


def _lost(cell: Counts) -> int:
    """Tokens that are UNK, and characters for which there is no token at all."""
    return int(cell.unks.sum() + cell.dropped.sum())


def honest(premium_table: pl.DataFrame, pivot: str) -> pl.DataFrame:
    """The rows that show what a language pays: with a premium, not meaningless, not the pivot."""
    return premium_table.filter(
        pl.col("premium").is_not_null() & ~pl.col("meaningless") & (pl.col("language") != pivot)
    )


def summary(premium_table: pl.DataFrame, pivot: str) -> pl.DataFrame:
    """One row per tokenizer: how unequal it is, where it is worst, how often UNK hides the cost.

    Every figure is over the `compared` languages (see `honest`), Gini over these and the pivot.
    Languages lost to UNK, and those that share no unit with the pivot, are counted separately.
    """
    rows = []
    for (name,), cells in premium_table.group_by(["tokenizer"], maintain_order=True):
        others = cells.filter(pl.col("language") != pivot)
        compared = honest(cells, pivot)
        lost = others.filter(pl.col("premium").is_not_null() & pl.col("meaningless"))
        worst = compared.sort("premium", descending=True).head(1)
        rows.append(
            {
                "tokenizer": name,
                "label": cells["label"][0],
                "languages": cells.height,
                "compared": compared.height,
                "gini": _gini(compared["ratio_of_sums"]),
                "median_premium": compared["premium"].median(),
                "worst_language": worst["language"][0] if worst.height else None,
                "worst_premium": worst["premium"][0] if worst.height else None,
                "above_2x": compared.filter(pl.col("premium") > 2).height,
                "meaningless_cells": lost.height,
                "not_comparable": others.height - compared.height - lost.height,
            }
        )
    schema = {
        "median_premium": pl.Float64,
        "worst_language": pl.String,
        "worst_premium": pl.Float64,
    }
    return without_nan(pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None))


def _gini(costs: pl.Series) -> float:
    """Gini of these costs and the pivot's, which is 1: a single language at 9 is not equality."""
    return gini(np.append(costs.to_numpy(), 1.0)) if len(costs) else float("nan")


def vocabulary(tokenizers: Sequence[Located], breakdowns: Sequence[Breakdown]) -> pl.DataFrame:
    """The paper's vocabulary breakdown, smallest vocabulary first."""
    rows = [
        {"tokenizer": located.name, "label": located.label, **row}
        for located, row in zip(tokenizers, breakdowns, strict=True)
    ]
    return pl.DataFrame(rows).sort("clean_vocab_size", "tokenizer")


def matrix(
    tokenizers: Sequence[Located], values: NDArray[np.float64], order: Sequence[int]
) -> pl.DataFrame:
    """A square table of tokenizers in the given order."""
    labels = [tokenizers[n].label for n in order]
    ordered = values[np.ix_(order, order)]
    return pl.DataFrame({"label": labels} | {t: ordered[:, n] for n, t in enumerate(labels)})


def coverage(
    tokenizers: Sequence[Located], characters: Sequence[str], texts: Mapping[str, TextCounts]
) -> pl.DataFrame:
    """Characters of each language, spaces left out, that are one token in each vocabulary.

    `covered_share` counts distinct characters, `running_share` all those of the text; `missing`
    lists the most frequent first.
    """
    rows = []
    for located, known in zip(tokenizers, characters, strict=True):
        single = frozenset(known)
        for code, text in sorted(texts.items()):
            total = sum(text.histogram.values())
            missing = [character for character in text.histogram if character not in single]
            covered = len(text.histogram) - len(missing)
            lost = sum(text.histogram[character] for character in missing)
            rows.append(
                {
                    "tokenizer": located.name,
                    "label": located.label,
                    "language": code,
                    "name": language(code).name,
                    "script": language(code).script,
                    "characters": len(text.histogram),
                    "covered": covered,
                    "covered_share": covered / max(1, len(text.histogram)),
                    "running_share": 1 - lost / total if total else float("nan"),
                    "missing": "".join(missing),
                }
            )
    return without_nan(pl.DataFrame(rows, infer_schema_length=None))


def cost(premium_table: pl.DataFrame, prices: PriceList) -> pl.DataFrame:
    """What content that costs a million tokens in the pivot language costs in the others."""
    schema: dict[str, Any] = {
        **dict.fromkeys(("model", "tokenizer"), pl.String),
        "context": pl.Int64,
        "source": pl.String,
        **dict.fromkeys(("input", "output"), pl.Float64),
    }
    listed = pl.DataFrame([asdict(price) for price in prices.models], schema)
    # Money and context add up over text, so the ratio of sums is the one to use here.
    ratio = pl.col("ratio_of_sums")
    room = pl.when(ratio > 0).then(pl.col("context") / ratio).cast(pl.Int64)
    return listed.join(premium_table, on="tokenizer", maintain_order="left_right").select(
        "model", "tokenizer", "language", "name", ratio.alias("relative_cost"),
        (pl.col("input") * ratio).alias("input_usd"),
        (pl.col("output") * ratio).alias("output_usd"),
        "context", room.alias("effective_context"), "meaningless",
        pl.lit(prices.as_of).alias("as_of"), "source",
    )  # fmt: skip


def without_nan(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with null instead of NaN, which would sort first; columns keep their types."""
    return frame.with_columns(
        selectors.float().fill_nan(None), pl.col("^speakers_total$").cast(pl.Int64)
    )


def about(code: str) -> dict[str, Any]:
    """What the table of languages has on one: name, script, family, speakers."""
    entry = language(code)
    return {
        "name": entry.name,
        "script": entry.script,
        "family": entry.family,
        "speakers_total": entry.speakers_total,
    }
