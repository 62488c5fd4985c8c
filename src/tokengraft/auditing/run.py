"""The audit: corpus × tokenizers → tables. Everything here derives from counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tokengraft.auditing import frames
from tokengraft.auditing.cost import PriceList, read_prices
from tokengraft.auditing.count import (
    SAMPLE_LINES,
    Counts,
    OnCount,
    TextCounts,
    count_corpus,
    count_texts,
)
from tokengraft.auditing.premium import RESAMPLES, Premium
from tokengraft.auditing.store import Store
from tokengraft.auditing.vocabularies import (
    Breakdown,
    Clean,
    cluster_order,
    compare,
    containment,
    jaccard,
    note,
)
from tokengraft.corpus.catalog import load as load_corpus
from tokengraft.corpus.languages import listed, resolve
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.errors import CorpusError, Unavailable, UsageError, did_you_mean
from tokengraft.tokenizer import Found
from tokengraft.tokenizer.catalog import find
from tokengraft.tokenizer.entries import BUNDLED, BY_NAME

if TYPE_CHECKING:
    from tokengraft.scaling.engine import Engine

PIVOT = "eng_Latn"


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of an audit: counts, and every table derived from them."""

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

    def save(self, folder: Path | str, figures: bool = True) -> list[Path]:
        """Write every table (CSV, Parquet, JSON, Markdown, LaTeX), figures and the manifest."""
        from tokengraft.reporting import save_audit

        return save_audit(self, Path(folder), figures=figures)


def audit(
    corpus: str | Path | ParallelCorpus = "udhr",
    tokenizers: Iterable[str] = BUNDLED,
    languages: Iterable[str] | None = None,
    *,
    pivot: str = PIVOT,
    search: Sequence[Path] = (),
    prices: Path | None = None,
    sample_lines: int | None = SAMPLE_LINES,
    resamples: int = RESAMPLES,
    store: Store | None = None,
    on_count: OnCount | None = None,
    engine: Engine | None = None,
    skip_missing: bool = False,
) -> Audit:
    """Audit tokenizers over a parallel corpus.

    Everything that can be wrong with the inputs is checked before anything is encoded. A tokenizer
    that is known but not on this machine is an error, or with `skip_missing` left out and listed
    in `skipped`. An `engine`
    (`scaling.engine.make_engine`) counts on other processes or machines, to the same result.
    """
    price_list = read_prices(prices)
    if not isinstance(corpus, ParallelCorpus):
        corpus = load_corpus(corpus)
    named = languages is not None
    if languages is not None:
        pivot = corpus.require(pivot)
        corpus = corpus.select([pivot, *listed(languages)])
    pivot = corpus.require(pivot)
    found, skipped = find_all(tokenizers, search, skip_missing)
    _check_prices(price_list, found, prices)
    opened = store or Store()
    try:
        clean: Clean = {}
        counts = count_corpus(
            corpus, found, opened, sample_lines, on_count, engine,
            on_open=lambda one, tokenizer: note(one, tokenizer, opened, clean),
        )  # fmt: skip
        texts = count_texts(corpus, opened)
        breakdowns, shared, characters = compare(found, opened, clean)
    finally:
        if store is None:
            opened.close()
    return Audit(
        corpus,
        pivot,
        tuple(found),
        skipped,
        counts,
        texts,
        tuple(breakdowns),
        shared,
        tuple(characters),
        price_list,
        resamples,
        named,
    )


def _check_prices(prices: PriceList, found: Sequence[Found], path: Path | None) -> None:
    """A UsageError where no price of the user's own file is for a tokenizer of the audit."""
    wanted = sorted({price.tokenizer for price in prices.models})
    have = [one.name for one in found]
    if path is not None and not set(wanted) & set(have):
        raise UsageError(
            f"{path}: its prices are for the tokenizers {', '.join(wanted) or 'of no model'}, none "
            f"of which is audited ({', '.join(have)}). Name one of these in the price file, or "
            f"audit those with -t."
        )


def find_all(
    names: Iterable[str], search: Sequence[Path], skip_missing: bool = False
) -> tuple[list[Found], dict[str, str]]:
    """Locate tokenizers; one that is not on this machine is `Unavailable`.

    With `skip_missing` such go to the second value with the reason, unless none is left.

    One given by its path is called by its last name, so that no table tells of the machine.
    """
    found: list[Found] = []
    skipped: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            here = find(name, search)
            taken = {*BY_NAME, *(other.name for other in found)}
            found.append(
                replace(here, name=_own_name(Path(name), taken)) if Path(name).exists() else here
            )
        except Unavailable as reason:
            skipped[name] = _in_short(name, str(reason))
    if skipped and not (found and skip_missing):
        raise Unavailable("\n".join(skipped.values()))
    return found, skipped


def _in_short(name: str, reason: str) -> str:
    """The reason without what a network library had to say, and with the way out."""
    if len(reason) < 240 and "HTTP" not in reason:
        return reason
    return (
        f"{name} is not on this machine and could not be downloaded. Go online once, give a folder "
        f"that holds it with --tokenizers, or leave it out."
    )


def _own_name(path: Path, taken: Collection[str]) -> str:
    """The path's last name, numbered where the catalog or another tokenizer has it already."""
    last = path.resolve().name
    names = (f"{last} ({n})" if n else last for n in count(0) if n != 1)
    return next(name for name in names if name not in taken)


def _origin(found: Found) -> str:
    """Where a tokenizer came from, without the folders of this machine."""
    fixed = found.where == "tiktoken" or found.where.startswith("bundled/")
    return found.where if fixed else Path(found.where).resolve().name
