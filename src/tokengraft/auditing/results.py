"""What an audit found: counts and the tables that derive from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tokengraft.auditing import frames
from tokengraft.auditing.cost import PriceList
from tokengraft.auditing.count import Counts, TextCounts
from tokengraft.auditing.premium import Premium
from tokengraft.auditing.vocabularies import Breakdown, cluster_order, containment, jaccard
from tokengraft.core.defaults import RESAMPLES
from tokengraft.core.errors import CorpusError, UsageError, did_you_mean
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import resolve
from tokengraft.tokenizer import Found


@dataclass(frozen=True, repr=False)
class Tables:
    """Counts, and every table derived from them."""

    corpus: ParallelCorpus
    pivot: str
    tokenizers: tuple[Found, ...]
    skipped: dict[str, str]  # tokenizer name → why it could not be used
    counts: dict[tuple[str, str], Counts]
    texts: dict[str, TextCounts]
    breakdowns: tuple[Breakdown, ...]
    shared: np.ndarray[Any, np.dtype[np.int64]]
    characters: tuple[str, ...]
    prices: PriceList
    resamples: int = RESAMPLES
    named: bool = False  # whether the languages were asked for one by one

    @cached_property
    def premiums(self) -> pl.DataFrame:
        """One row a tokenizer and language: premiums, intervals, UNK, floor, decomposition."""
        return frames.premiums(
            self.corpus, self.pivot, self.tokenizers, self.counts, self.texts, self.resamples
        )

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row a tokenizer: Gini, median and worst premium over the languages compared."""
        return frames.summary(self.premiums, self.pivot)

    @cached_property
    def vocabulary(self) -> pl.DataFrame:
        """The paper's breakdown, one row a tokenizer."""
        return frames.vocabulary(self.tokenizers, self.breakdowns)

    @cached_property
    def jaccard(self) -> pl.DataFrame:
        """Jaccard similarity of each pair of vocabularies, in clustering order."""
        return frames.matrix(self.tokenizers, jaccard(self.shared), self.order)

    @cached_property
    def containment(self) -> pl.DataFrame:
        """Share of the row's vocabulary that the column's holds, in clustering order."""
        return frames.matrix(self.tokenizers, containment(self.shared), self.order)

    @cached_property
    def order(self) -> list[int]:
        """Clustering order of the tokenizers by Jaccard similarity."""
        return cluster_order(jaccard(self.shared))

    @cached_property
    def coverage(self) -> pl.DataFrame:
        """One row a tokenizer and language: characters that are one token, and those missing."""
        return frames.coverage(self.tokenizers, self.characters, self.texts)

    @cached_property
    def cost(self) -> pl.DataFrame:
        """One row a priced model and language: relative cost, dollars, effective context."""
        return frames.cost(self.premiums, self.prices)

    def __repr__(self) -> str:
        names = ", ".join(found.label for found in self.tokenizers)
        return f"Audit({self.corpus!r}, pivot {self.pivot}, tokenizers: {names})"

    def premium(self, tokenizer: str, language: str) -> Premium:
        """One cell of `premiums` (mean of ratios) as a value with its definition.

        The language may be a bare code or a name (`shn`, `Shan`) where unambiguous.
        UsageError where there is no such cell, or no unit of text that both languages have.
        """
        try:
            language = resolve(language, self.corpus.texts, "the audit")
        except CorpusError as error:
            raise UsageError(str(error)) from None
        rows = self.premiums.filter(
            (pl.col("tokenizer") == tokenizer) & (pl.col("language") == language)
        )
        if rows.is_empty():
            names = [found.name for found in self.tokenizers]
            raise UsageError(
                f"The audit has no tokenizer {tokenizer!r}, only {', '.join(names)}."
                f"{did_you_mean(tokenizer, names)}"
            )
        row = rows.row(0, named=True)
        if row["premium"] is None:
            raise UsageError(f"{language} and {self.pivot} have no unit of text in common.")
        low, high = row["premium_low"], row["premium_high"]
        return Premium(
            row["premium"],
            float("nan") if low is None else low,
            float("nan") if high is None else high,
            row["n"],
            "mean of ratios",
            row["unk_share"],
        )

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table by name, as `save` writes them."""
        names = ("premiums", "summary", "vocabulary", "jaccard", "containment", "coverage", "cost")
        return {name: getattr(self, name) for name in names}

    def manifest(self) -> dict[str, Any]:
        """What the run was made of: inputs with hashes, settings, versions."""
        return {
            "tokengraft": version("tokengraft"),
            "corpus": {
                "name": self.corpus.name,
                "source": self.corpus.source,
                "units": len(self.corpus.units),
                "languages": {code: self.corpus.digest(code) for code in self.corpus.languages},
            },
            "pivot": self.pivot,
            "tokenizers": {
                t.name: {"label": t.label, "sha256": t.fingerprint, "from": _origin(t)}
                for t in self.tokenizers
            },
            "skipped": self.skipped,
            "prices_as_of": self.prices.as_of,
            "bootstrap": {"resamples": self.resamples, "confidence": 0.95, "method": "percentile"},
            "libraries": {
                name: version(name)
                for name in ("tokenizers", "tiktoken", "sentencepiece", "numpy", "scipy")
            },
        }


def _origin(found: Found) -> str:
    """Where a tokenizer came from, without the folders of this machine."""
    fixed = found.where == "tiktoken" or found.where.startswith("bundled/")
    return found.where if fixed else Path(found.where).resolve().name
