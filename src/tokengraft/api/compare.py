"""`compare`: two audits, tokenizers, plans or grafts side by side."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tokengraft.api.results import Audit, Comparison, Grafted, Place, Planned, Result
from tokengraft.api.verbs import Corpus, audit, folders, open_corpus
from tokengraft.auditing.side_by_side import pairs, same_text, side_by_side, summed
from tokengraft.core import __version__
from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.core.options import PIVOT, RESAMPLES
from tokengraft.core.progress import OnProgress
from tokengraft.core.wording import counted
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.planning.plan import Plan
from tokengraft.planning.plan_files import TestedPlan, insert_plan
from tokengraft.render.selection import labels
from tokengraft.tokenizer.catalog import LISTED

#: What can be compared: a tokenizer's name or path, a result, or a result's folder.
Comparable = str | Path | Audit | Planned | Grafted


@dataclass(frozen=True)
class _Side:
    """One side: an existing audit, or a tokenizer that has yet to be audited."""

    what: str
    label: str
    audit: Audit | None = None
    tokenizer: str = ""


def compare(
    a: Comparable,
    b: Comparable,
    corpus: Corpus | None = None,
    languages: str | Iterable[str] | None = None,
    *,
    split: str | None = None,
    skip_empty: bool = False,
    pivot: str | None = None,
    base: Place | None = None,
    search: Place | Iterable[Place] = (),
    resamples: int = RESAMPLES,
    progress: OnProgress | None = None,
) -> Comparison:
    """Compare `b` with `a`: tokens of the same text, premiums, coverage, speakers.

    Each is a tokenizer (name or path), an audit, a plan or a graft, or the folder of one. Two
    audits are compared as they are, tokenizers of the same name with each other (or the only ones).
    Anything else is audited on `corpus`: by default the text of the audit, if one of the two is
    one, else the bundled Declaration. A plan is inserted into `base`, by default the tokenizer it
    names. The other options are those of `audit`.
    """
    with ExitStack() as temporary:
        sides = [_side(what, base, folders(search), temporary) for what in (a, b)]
        first, second = (side.audit for side in sides)
        if first is not None and second is not None:
            if any(one is not None for one in (corpus, languages, split, pivot)):
                raise UsageError(
                    "Two audits are compared as they are: leave corpus, languages, split and pivot "
                    "(--corpus, -l, --split, --pivot) out."
                )
            paired = pairs(first, second)
        else:
            existing = first or second
            if existing is not None:
                languages = list(existing.corpus.languages) if languages is None else languages
                corpus = _again(existing, split, skip_empty) if corpus is None else corpus
                pivot = pivot or existing.pivot
            names = [side.tokenizer for side in sides if side.audit is None]
            made = audit(
                "udhr" if corpus is None else corpus, names, languages, split=split,
                skip_empty=skip_empty, pivot=pivot or PIVOT, search=search, resamples=resamples,
                progress=progress,
            )  # fmt: skip
            name_a, name_b = made.tokenizers[0].name, made.tokenizers[-1].name
            if first is not None:
                name_a = _counterpart(first, name_b)
            elif second is not None:
                name_b = _counterpart(second, name_a)
            paired = [(name_a, name_b)]
            first, second = first or made, second or made
        return _compared(sides, first, second, paired)


def _again(audit: Audit, split: str | None, skip_empty: bool) -> ParallelCorpus:
    """The text of an audit, found by its name or, in the current folder, by that of its file."""
    name, source = audit.corpus.name, audit.corpus.source
    if split is None and (part := re.search(r", ([^,]+), from ", source)):
        split = part[1].replace(" + ", "+")
    file = source.partition(" from ")[2]
    if file and Path(file).exists():
        return open_corpus(file, split, skip_empty)
    try:
        return open_corpus(name, split, skip_empty)
    except CorpusError:
        chosen = f" --split {split}" if split else ""
        way = f"give its place with --corpus .../{file}{chosen} (in Python corpus=, split=), or "
        raise UsageError(
            f"The text of the audit ({source}) is not found again, as an audit keeps no paths: "
            f"{way if file else ''}audit the other tokenizer on it too and compare both audits."
        ) from None


def _counterpart(audit: Audit, name: str) -> str:
    """The audit's tokenizer to compare with: its only one, or the one of the same name."""
    known = [tokenizer.name for tokenizer in audit.tokenizers]
    if len(known) == 1:
        return known[0]
    if name not in known:
        raise UsageError(
            f"The audit has no tokenizer {name!r} but several others ({', '.join(known)}): compare "
            "with an audit of one tokenizer, or give two tokenizers."
        )
    return name


def _compared(
    sides: Sequence[_Side], a: Audit, b: Audit, paired: list[tuple[str, str]]
) -> Comparison:
    cells = side_by_side(a, b, paired)
    codes = set(same_text(a, b))
    facts = {
        "tokengraft": __version__,
        "a": {"what": sides[0].what, "label": sides[0].label},
        "b": {"what": sides[1].what, "label": sides[1].label},
        "corpus": {
            "name": b.corpus.name,
            "source": b.corpus.title,
            "left_out": b.facts["corpus"].get("left_out", 0),
        },
        "pivot": b.pivot,
        "labels": {"a": labels(a), "b": labels(b)},
        "left_out": sorted({*a.corpus.languages, *b.corpus.languages} - codes),
    }
    return Comparison(facts, {"languages": cells, "summary": summed(cells, a, b)})


def _side(
    what: Comparable, base: Place | None, search: Sequence[Path], temporary: ExitStack
) -> _Side:
    """One side; a plan's tokenizer is written into a folder that lasts as long as `temporary`."""
    if isinstance(what, str | Path) and Path(what).exists():
        what = _saved(Path(what))
    if isinstance(what, Audit):
        return _Side("audit", ", ".join(labels(what).values())[:80], what)
    if isinstance(what, TestedPlan | Plan):
        plan = what.plan if isinstance(what, TestedPlan) else what
        name = f"{plan.label or 'tokenizer'} + {counted(len(plan.tokens), 'token')}"
        folder = Path(temporary.enter_context(tempfile.TemporaryDirectory()))
        plan.write(folder / "plan.json")
        insert_plan(_base(plan, base), folder / "plan.json", folder / name, search)
        return _Side("plan", name, tokenizer=str(folder / name))
    if isinstance(what, Grafted):
        return _Side("graft", what.name, tokenizer=str(what.folder))
    return _Side("tokenizer", Path(what).name, tokenizer=str(what))


def _saved(place: Path) -> Comparable:
    """The result in a folder or file, if it is one of ours; otherwise the path as it is."""
    folder = place.parent if place.is_file() else place
    kinds: tuple[type[Result], ...] = (Audit, Planned, Grafted)
    for kind in kinds:
        if (place.is_dir() or place.name == kind.mark) and kind.is_in(folder):
            return kind.load(folder)  # type: ignore[return-value]
    return place


def _base(plan: Plan, named: Place | None) -> str:
    """The tokenizer to insert a plan into: the `named` one, or the known one the plan is for."""
    if named is not None:
        return str(named)
    for entry in LISTED:
        if plan.label in (entry.name, entry.label):
            return entry.name
    raise UsageError(
        f"This plan is for {plan.label or 'a tokenizer without a name'}, which is not known here: "
        "say where that tokenizer is (base=, --base)."
    )
