"""The audit: corpus × tokenizers → tables. Everything here derives from counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from tokengraft.auditing.cost import PriceList, read_prices
from tokengraft.auditing.count_corpus import OnCount, count_corpus, count_texts
from tokengraft.auditing.results import Tables
from tokengraft.auditing.vocabularies import Clean, compare, note
from tokengraft.core.cache import Store
from tokengraft.core.defaults import PIVOT, RESAMPLES, SAMPLE_LINES
from tokengraft.core.errors import Unavailable, UsageError
from tokengraft.corpus.catalog import load as load_corpus
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import listed
from tokengraft.tokenizer import Found
from tokengraft.tokenizer.catalog import find
from tokengraft.tokenizer.entries import BUNDLED, BY_NAME

if TYPE_CHECKING:
    from tokengraft.engine.protocol import Engine


@dataclass(frozen=True, repr=False)
class Audit(Tables):
    """The result of an audit: every table, and `save` to write them."""

    def save(self, folder: Path | str, figures: bool = True) -> list[Path]:
        """Write every table (CSV, Parquet, JSON, Markdown, LaTeX), figures and the manifest."""
        from tokengraft.render.audit import save_audit

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
    (`scaling.engines.make_engine`) counts on other processes or machines, to the same result.
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
