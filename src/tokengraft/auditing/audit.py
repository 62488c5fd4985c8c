"""The audit: corpus × tokenizers → tables. Everything here derives from counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengraft.auditing import frames
from tokengraft.auditing.audit_tables import (
    ENCODERS,
    AuditTables,
    Frames,
    library_versions,
    tokenizer_facts,
)
from tokengraft.auditing.cost import PriceList, read_prices
from tokengraft.auditing.count_corpus import count_corpus, count_texts
from tokengraft.auditing.premium import CONFIDENCE
from tokengraft.auditing.vocabularies import (
    Clean,
    cluster_order,
    compare,
    containment,
    jaccard,
    note,
)
from tokengraft.core import __version__
from tokengraft.core.cache import Store
from tokengraft.core.errors import Unavailable, UsageError
from tokengraft.core.options import PIVOT, RESAMPLES
from tokengraft.core.progress import OnProgress
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import listed
from tokengraft.tokenizer import Located
from tokengraft.tokenizer.catalog import BESIDE, BY_NAME, find
from tokengraft.tokenizer.file_kinds import well_known

if TYPE_CHECKING:
    from tokengraft.engine.protocol import Engine


@dataclass(frozen=True)
class Auditing:
    """How an audit is made.

    Premiums are relative to `pivot`. Tokenizers are also looked up in the folders and archives in
    `search`; one that is known but not on this machine is an error, or with `skip_missing` left out
    and listed in `skipped`. `prices` is the user's own price list. Intervals come from `resamples`
    of the bootstrap. With `reference`, no faster encoder is used in place of the libraries that
    tokenizers come with (`tokenizer.fast`).
    """

    pivot: str = PIVOT
    search: Sequence[Path] = ()
    prices: Path | None = None
    resamples: int = RESAMPLES
    skip_missing: bool = False
    reference: bool = False


def audit(
    corpus: ParallelCorpus,
    tokenizers: Iterable[str],
    languages: Iterable[str] | None,
    options: Auditing,
    *,
    store: Store | None = None,
    progress: OnProgress | None = None,
    engine: Engine | None = None,
) -> AuditTables:
    """Audit tokenizers over a parallel corpus.

    Everything that can be wrong with the inputs is checked before anything is encoded. An `engine`
    (`engine.make_engine`) counts in other processes or on other machines, with the same result.
    """
    price_list = read_prices(options.prices)
    named = languages is not None
    pivot = corpus.require(options.pivot)
    if languages is not None:
        corpus = corpus.select([pivot, *listed(languages)])
    located, skipped = find_all(tokenizers, options.search, options.skip_missing)
    _check_prices(price_list, located, options.prices)
    opened = store or Store()
    try:
        clean: Clean = {}
        composed = {code + frames.IN_NFC: lines for code, lines in corpus.not_nfc().items()}
        counts = count_corpus(
            replace(corpus, texts={**corpus.texts, **composed}), located, opened, progress, engine,
            on_open=lambda one, tokenizer: note(one, tokenizer, opened, clean),
            reference=[one.name for one in located] if options.reference else (),
        )  # fmt: skip
        texts = count_texts(corpus, opened)
        breakdowns, shared, characters = compare(located, opened, clean)
    finally:
        if store is None:
            opened.close()
    resamples = options.resamples
    order = cluster_order(jaccard(shared))
    made = Frames(
        {
            "premiums": lambda: frames.premiums(
                corpus, pivot, located, counts, texts, resamples, composed
            ),
            "summary": lambda: frames.summary(made["premiums"], pivot),
            "vocabulary": lambda: frames.vocabulary(located, breakdowns),
            "jaccard": lambda: frames.matrix(located, jaccard(shared), order),
            "containment": lambda: frames.matrix(located, containment(shared), order),
            "coverage": lambda: frames.coverage(located, characters, texts),
            "cost": lambda: frames.cost(made["premiums"], price_list),
        }
    )
    facts = _facts(corpus, pivot, located, skipped, price_list, resamples, named)
    return AuditTables(facts | {ENCODERS: counts.encoders}, made)


def _facts(
    corpus: ParallelCorpus,
    pivot: str,
    located: Sequence[Located],
    skipped: dict[str, str],
    prices: PriceList,
    resamples: int,
    named: bool,
) -> dict[str, Any]:
    """What went into the run: inputs with hashes, settings, versions."""
    return {
        "tokengraft": __version__,
        "corpus": {
            "name": corpus.name,
            "source": corpus.source,
            "units": len(corpus.units),
            **({"left_out": corpus.left_out} if corpus.left_out else {}),
            "languages": {code: corpus.digest(code) for code in corpus.languages},
        },
        "pivot": pivot,
        "tokenizers": tokenizer_facts(located),
        "skipped": skipped,
        "prices_as_of": prices.as_of,
        "bootstrap": {"resamples": resamples, "confidence": CONFIDENCE, "method": "percentile"},
        "languages_named": named,
        "libraries": library_versions("numpy", "scipy"),
    }


def _check_prices(prices: PriceList, located: Sequence[Located], path: Path | None) -> None:
    """UsageError if the user's own price file has no price for any audited tokenizer."""
    wanted = sorted({price.tokenizer for price in prices.models})
    have = [one.name for one in located]
    if path is not None and not set(wanted) & set(have):
        raise UsageError(
            f"{path}: its prices are for the tokenizers {', '.join(wanted) or 'of no model'}, none "
            f"of which is audited ({', '.join(have)}). Name one of these in the price file, or "
            f"audit those with -t."
        )


def find_all(
    names: Iterable[str], search: Sequence[Path], skip_missing: bool = False
) -> tuple[list[Located], dict[str, str]]:
    """Locate tokenizers; if one is not on this machine, that is `Unavailable`.

    With `skip_missing` it goes into the second value instead, name → reason, unless none is left.

    A tokenizer given by path is named by the path's last part, or by its folder if the file has a
    name that all share (tokenizer.json), so tables reveal nothing else about the machine.
    """
    located: list[Located] = []
    skipped: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            here = find(name, search)
        except Unavailable as reason:
            skipped[name] = _in_short(name, str(reason))
            continue
        taken = {other.name for other in located}
        if Path(name).exists():
            own = _own_name(Path(name), {*BY_NAME, *taken})
            here = replace(here, name=own, label=own)
        if here.name not in taken:  # `gpt-4o` and `o200k_base` are one
            located.append(here)
    if skipped and not (located and skip_missing):
        raise Unavailable("\n".join(skipped.values()))
    return located, skipped


def _in_short(name: str, reason: str) -> str:
    """The reason, without a network library's long message, and what to do about it."""
    if len(reason) < 240 and "HTTP" not in reason:
        return reason
    return (
        f"{name} is not on this machine and could not be downloaded. Go online once, give a folder "
        f"that holds it with --tokenizers, or leave it out."
    )


def _own_name(path: Path, taken: Collection[str]) -> str:
    """The path's last distinctive part, numbered if it is among the names `taken`."""
    place = path.resolve()
    alike = place.is_file() and place.name in (*well_known(), *BESIDE)
    last = (place.parent if alike else place).name
    names = (f"{last} ({n})" if n else last for n in count(0) if n != 1)
    return next(name for name in names if name not in taken)
