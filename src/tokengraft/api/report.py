"""`report`: results, or the folders that hold them, as one self-contained page."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokengraft.api.results import (
    KINDS,
    Audit,
    Comparison,
    Evaluation,
    Grafted,
    Place,
    Planned,
    Result,
)
from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.render.page.build import Page, Runs, make_page, save_page

if TYPE_CHECKING:
    from tokengraft.corpus.parallel import ParallelCorpus


_DEPTH = 2  # demo/ holds demo/audit and demo/grafts/shan
#: The kinds of result that a page shows, each with its field of `Runs`.
_SHOWN: dict[type[Result], str] = {
    Audit: "audits",
    Planned: "plans",
    Grafted: "grafts",
    Evaluation: "evaluations",
    Comparison: "comparisons",
}


def report(
    runs: Place | Result | Iterable[Place | Result],
    out: Place,
    *,
    tokenizers: Sequence[Path] = (),
    corpus: Place | ParallelCorpus | None = None,
    site: bool = False,
    address: str | None = None,
    progress: OnProgress | None = None,
) -> Path:
    """Write `out`/index.html and a README.md that makes the folder a static hub space.

    `runs` are results, folders that hold them, or plan and evaluation files. The page needs no
    network and no other file, has a bounded size, and names no path of this machine. `tokenizers`
    are further places in which to look up tokenizers, `corpus` the text for “See the tokens” (by
    default the run's own if it is available, else the bundled one).

    With `site` a folder for static hosting is written: also a page for each language at its own
    address, preview pictures for links, and a playground that tokenizes in the browser. `address`
    (https://…) is where the site will be; previews need full addresses.
    """
    page = page_of(
        runs, tokenizers=tokenizers, corpus=corpus, site=site, address=address, progress=progress
    )
    return save_page(page, Path(out))


def page_of(
    runs: Place | Result | Iterable[Place | Result],
    *,
    tokenizers: Sequence[Path] = (),
    corpus: Place | ParallelCorpus | None = None,
    site: bool = False,
    address: str | None = None,
    progress: OnProgress | None = None,
) -> Page:
    """What `report` writes, with the page's notes about itself."""
    from tokengraft.render.page.browser_tokenizers import offered
    from tokengraft.render.page.playground import example
    from tokengraft.render.page.site import site_files

    if address is not None and not site:
        raise UsageError("an address is for a site: add --site (site=True), or leave it out")
    if address is not None and not address.startswith(("https://", "http://")):
        raise UsageError(f"{address}: a full address is needed, which begins with https://")
    place = None if address is None else address.rstrip("/") + "/"
    files = offered(search=tokenizers, progress=progress) if site else {}
    box = [
        {"file": name, "label": label, "size": len(data)} for name, (label, data) in files.items()
    ]
    live = {**example(), "tokenizers": box} if site else None
    listed = [runs] if isinstance(runs, str | Path | Result) else list(runs)
    if not listed and not site:
        raise UsageError("there is nothing to show: give a result, or the folder of one")
    if progress:
        progress(Progress("Making the page", 0))
    with ExitStack() as temporary:
        saved = collect(_place(run, number, temporary) for number, run in enumerate(listed))
        page = make_page(saved, tokenizers=tokenizers, corpus=corpus, live=live, place=place)
    if not site:
        return page
    tokenizer_files = {name: data for name, (_, data) in files.items()}
    return replace(page, files=tokenizer_files | site_files(page, place, progress))


def collect(places: Iterable[Place]) -> Runs:
    """Find every result in these folders and files.

    A folder is searched two levels deep. Raises UsageError, which says what was looked for, for a
    path without anything that a page can show, and TokengraftError for one that does not exist.
    """
    paths_by_kind: dict[str, dict[Path, None]] = {name: {} for name in _SHOWN.values()}
    for place in map(Path, places):
        results = list(_results(place))
        if not results:
            known = ", ".join(f"{kind.mark} ({kind.called})" for kind in _SHOWN)
            raise UsageError(
                f"{place}: nothing to show here. Expected a folder that a command wrote with "
                f"--out: {known}."
            )
        for kind, path in results:
            paths_by_kind[_SHOWN[kind]][path] = None
    return Runs(**{name: tuple(paths) for name, paths in paths_by_kind.items()})


def _place(run: Place | Result, number: int, temporary: ExitStack) -> Path:
    """Where a result is saved; a result in memory is saved while the page is being made."""
    if isinstance(run, Grafted):
        return run.folder
    if not isinstance(run, Result):
        return Path(run)
    if type(run) not in _SHOWN:
        raise UsageError(f"{run!r}: a page does not show a {run.called}")
    parent = Path(temporary.enter_context(tempfile.TemporaryDirectory()))
    folder = parent / f"{run.called} {number + 1}"
    run.save(folder, figures=False)
    return folder


def _results(place: Path) -> Iterator[tuple[type[Result], Path]]:
    if not place.exists():
        raise TokengraftError(f"{place}: no such file or folder")
    if place.is_file():
        marked = next((kind for kind in (Planned, Evaluation) if kind.mark == place.name), None)
        if marked is None and place.suffix == ".json":
            marked = Evaluation if "evaluation" in place.stem else Planned
        if marked is not None:
            yield marked, place
        return
    for folder in _folders(place, _DEPTH):
        for kind in KINDS:
            if kind in _SHOWN and kind.is_in(folder):
                yield kind, folder / kind.mark if kind in (Planned, Evaluation) else folder


def _folders(place: Path, depth: int) -> Iterator[Path]:
    yield place
    if depth and place.is_dir():
        for inner in sorted(place.iterdir()):
            if inner.is_dir() and not inner.name.startswith((".", "_")):
                yield from _folders(inner, depth - 1)
