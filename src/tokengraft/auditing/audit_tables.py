"""What an audit found: the facts of the run, and tables that are built when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

import polars as pl

from tokengraft.auditing.premium import Premium
from tokengraft.core.errors import CorpusError, UsageError, did_you_mean
from tokengraft.corpus.parallel import in_words
from tokengraft.languages.codes import resolve
from tokengraft.tokenizer.catalog import canonical

if TYPE_CHECKING:
    from tokengraft.engine.count_shards import Total
    from tokengraft.tokenizer import Located
    from tokengraft.tokenizer.packed import Packed


ENCODERS = "encoders"  # which library counted, by tokenizer: makes no difference to a result


class Frames(Mapping[str, pl.DataFrame]):
    """Tables by name, each built when first asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], pl.DataFrame]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclass(frozen=True)
class CorpusFacts:
    """The audited text: what it is called, where it is from, how many units, which languages."""

    name: str
    source: str
    units: int
    languages: tuple[str, ...]

    @property
    def title(self) -> str:
        """The text in words: `FLORES-200, devtest`."""
        return in_words(self.name, self.source)

    def __repr__(self) -> str:
        return f"{self.name}: {len(self.languages)} languages, {self.units:,} passages"


@dataclass(frozen=True)
class TokenizerFacts:
    """An audited tokenizer: its name, the label that tables print, the hash of its files."""

    name: str
    label: str
    fingerprint: str


class _Table:
    """An attribute that gives the audit's table of the same name; UsageError if it has none."""

    def __init__(self, about: str) -> None:
        self.__doc__ = about

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, audit: None, owner: type) -> _Table: ...
    @overload
    def __get__(self, audit: AuditTables, owner: type) -> pl.DataFrame: ...
    def __get__(self, audit: AuditTables | None, owner: type) -> _Table | pl.DataFrame:
        if audit is None:
            return self
        if self._name not in audit.frames:
            raise UsageError(f"This audit has no {self._name}, only {', '.join(audit.frames)}.")
        return audit.frames[self._name]


@dataclass(frozen=True, eq=False, repr=False)
class AuditTables:
    """The facts of a run as `manifest.json` has them, and every table by name.

    Two are equal if their facts and tables are, whichever library counted, so a saved audit equals
    itself when loaded. `total` holds the exact sums of a streamed corpus; it is not saved.
    """

    facts: Mapping[str, Any]
    frames: Mapping[str, pl.DataFrame]
    total: Total | None = None

    #: Tables that an audit may have, in this order.
    NAMES: ClassVar = (
        "premiums", "summary", "vocabulary", "jaccard", "containment", "coverage", "cost",
        "counts", "shards", "bad_rows",
    )  # fmt: skip

    premiums = _Table(
        "One row per tokenizer and language: premiums, intervals, UNK, decomposition."
    )
    summary = _Table("One row per tokenizer: Gini, median and worst premium of those compared.")
    vocabulary = _Table("The paper's breakdown, one row per tokenizer.")
    jaccard = _Table("Jaccard similarity of each pair of vocabularies, in clustering order.")
    containment = _Table("Share of the row's vocabulary that the column's contains, in that order.")
    coverage = _Table("One row per tokenizer and language: characters that are one token.")
    cost = _Table("One row per priced model and language: relative cost, dollars, context.")
    counts = _Table("One row per tokenizer and language of text that is not parallel.")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AuditTables)
            and {**self.facts, ENCODERS: None} == {**other.facts, ENCODERS: None}
            and list(self.frames) == list(other.frames)
            and all(
                frame.schema == other.frames[name].schema and frame.equals(other.frames[name])
                for name, frame in self.frames.items()
            )
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def corpus(self) -> CorpusFacts:
        """The audited text."""
        about = self.facts["corpus"]
        languages = tuple(about["languages"])
        return CorpusFacts(about["name"], about["source"], about["units"], languages)

    @cached_property
    def tokenizers(self) -> tuple[TokenizerFacts, ...]:
        """The audited tokenizers in the order given."""
        every = self.facts["tokenizers"].items()
        return tuple(TokenizerFacts(name, of["label"], of["sha256"]) for name, of in every)

    @property
    def pivot(self) -> str:
        """The language that premiums are relative to; its own is 1."""
        return str(self.facts["pivot"])

    @property
    def skipped(self) -> dict[str, str]:
        """Tokenizers that could not be used, and why."""
        return dict(self.facts["skipped"])

    @property
    def named(self) -> bool:
        """Whether the languages were named, rather than all of the corpus audited."""
        return bool(self.facts.get("languages_named"))

    @property
    def parallel(self) -> bool:
        """Whether the text is parallel, so that there are premiums."""
        return "premiums" in self.frames

    def premium(self, tokenizer: str, language: str) -> Premium:
        """One cell of `premiums` (mean of ratios) as a value with its definition.

        The language may be a bare code or a name (`shn`, `Shan`) if unambiguous.
        """
        try:
            language = resolve(language, self.corpus.languages, "the audit")
        except CorpusError as error:
            raise UsageError(str(error)) from None
        names = [known.name for known in self.tokenizers]
        tokenizer = tokenizer if tokenizer in names else canonical(tokenizer)
        rows = self.premiums.filter(
            (pl.col("tokenizer") == tokenizer) & (pl.col("language") == language)
        )
        if rows.is_empty():
            raise UsageError(
                f"The audit has no tokenizer {tokenizer!r}, only {', '.join(names)}."
                f"{did_you_mean(tokenizer, names)}"
            )
        row = rows.row(0, named=True)
        if row["premium"] is None:
            raise UsageError(f"{language} and {self.pivot} have no unit of text in common.")
        ends = (row["premium_low"], row["premium_high"])
        low, high = (float("nan") if end is None else end for end in ends)
        lost = row["unk_share"]
        if row["meaningless"]:  # since its own text is lost to UNK, or the pivot's
            same = self.premiums.filter(pl.col("tokenizer") == tokenizer)
            lost = max(lost, same.filter(pl.col("language") == self.pivot)["unk_share"][0])
        return Premium(row["premium"], low, high, row["n"], "mean of ratios", lost)

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table by name, as `save` writes them."""
        return dict(self.frames)

    def manifest(self) -> dict[str, Any]:
        """What went into the run: inputs with hashes, settings, versions."""
        return dict(self.facts)


def tokenizer_facts(tokenizers: Iterable[Located | Packed]) -> dict[str, dict[str, str]]:
    """Each tokenizer's entry in a manifest."""
    return {
        one.name: {"label": one.label, "sha256": one.fingerprint, "from": _origin(one.where)}
        for one in tokenizers
    }


def library_versions(*names: str) -> dict[str, str]:
    """The versions of the libraries that encode, and of those in `names`."""
    return {name: version(name) for name in ("tokenizers", "tiktoken", "sentencepiece", *names)}


def _origin(where: str) -> str:
    """Where a tokenizer came from, without the folders of this machine."""
    fixed = where == "tiktoken" or where.startswith("bundled/")
    return where if fixed else Path(where).resolve().name
