"""`compare`: two audits, tokenizers, plans or grafts side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tokengraft.api.results import Audit, Comparison, Grafted, Place, Planned, Result
from tokengraft.api.verbs import Corpus, audit
from tokengraft.auditing.audit_tables import Frames
from tokengraft.auditing.side_by_side import pairs, same_text, side_by_side, summed
from tokengraft.core import __version__
from tokengraft.core.errors import UsageError
from tokengraft.core.options import PIVOT, RESAMPLES
from tokengraft.core.progress import OnProgress
from tokengraft.core.wording import counted
from tokengraft.planning.plan import Plan
from tokengraft.planning.plan_files import TestedPlan, insert_plan
from tokengraft.render.selection import credit, labels
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
    pivot: str | None = None,
    base: Place | None = None,
    search: Sequence[Path] = (),
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
    with ExitStack() as kept:
        sides = [_side(given, base, search, kept) for given in (a, b)]
        first, second = (side.audit for side in sides)
        if first is not None and second is not None:
            if any(one is not None for one in (corpus, languages, split, pivot)):
                raise UsageError(
                    "Two audits are compared as they are: leave corpus, languages, split and pivot "
                    "(--corpus, -l, --split, --pivot) out."
                )
            both = pairs(first, second)
        else:
            there = first or second
            if there is not None:
                languages = list(there.corpus.languages) if languages is None else languages
                corpus = there.corpus.name if corpus is None else corpus
                pivot = pivot or there.pivot
            names = [side.tokenizer for side in sides if side.audit is None]
            made = audit(
                "udhr" if corpus is None else corpus, names, languages, split=split,
                pivot=pivot or PIVOT, search=search, resamples=resamples, progress=progress,
            )  # fmt: skip
            ours = [known.name for known in made.tokenizers]
            if there is None:
                both = [(ours[0], ours[-1])]
            else:
                both = _against(there, ours[0], made is not first and first is None)
            first, second = first or made, second or made
        return _compared(sides, first, second, both)


def _against(there: Audit, name: str, swapped: bool) -> list[tuple[str, str]]:
    """The audit's tokenizer to compare with: its only one, or the one of the same name."""
    known = [one.name for one in there.tokenizers]
    other = known[0] if len(known) == 1 else name
    if other not in known:
        raise UsageError(
            f"The audit has no tokenizer {name!r} but several others ({', '.join(known)}): compare "
            "with an audit of one tokenizer, or give two tokenizers."
        )
    return [(name, other)] if swapped else [(other, name)]


def _compared(
    sides: Sequence[_Side], a: Audit, b: Audit, both: list[tuple[str, str]]
) -> Comparison:
    cells = side_by_side(a, b, both)
    codes = set(same_text(a, b))
    facts = {
        "tokengraft": __version__,
        "a": {"what": sides[0].what, "label": sides[0].label},
        "b": {"what": sides[1].what, "label": sides[1].label},
        "corpus": {"name": b.corpus.name, "source": credit(b)},
        "pivot": b.pivot,
        "labels": {"a": labels(a), "b": labels(b)},
        "left_out": sorted({*a.corpus.languages, *b.corpus.languages} - codes),
    }
    frames = {"languages": lambda: cells, "summary": lambda: summed(cells, a, b)}
    return Comparison(facts, dict(Frames(frames)))


def _side(given: Comparable, base: Place | None, search: Sequence[Path], kept: ExitStack) -> _Side:
    if isinstance(given, str | Path) and Path(given).exists():
        given = _saved(Path(given))
    if isinstance(given, Audit):
        return _Side("audit", ", ".join(labels(given).values())[:80], given)
    if isinstance(given, TestedPlan | Plan):
        plan = given.plan if isinstance(given, TestedPlan) else given
        name = f"{plan.label or 'tokenizer'} + {counted(len(plan.tokens), 'token')}"
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory()))
        plan.write(folder / "plan.json")
        insert_plan(_base(plan, base), folder / "plan.json", folder / name, search)
        return _Side("plan", name, tokenizer=str(folder / name))
    if isinstance(given, Grafted):
        return _Side("graft", given.name, tokenizer=str(given.folder))
    return _Side("tokenizer", Path(given).name, tokenizer=str(given))


def _saved(place: Path) -> Comparable:
    """The result in a folder or file, if it is one of ours; otherwise the path as it is."""
    folder = place.parent if place.is_file() else place
    kinds: tuple[type[Result], ...] = (Audit, Planned, Grafted)
    for kind in kinds:
        if (place.is_dir() or place.name == kind.mark) and kind.is_in(folder):
            return kind.load(folder)  # type: ignore[return-value]
    return place


def _base(plan: Plan, given: Place | None) -> str:
    if given is not None:
        return str(given)
    for entry in LISTED:
        if plan.label in (entry.name, entry.label):
            return entry.name
    raise UsageError(
        f"This plan is for {plan.label or 'a tokenizer without a name'}, which is not known here: "
        "say where that tokenizer is (base=, --base)."
    )
