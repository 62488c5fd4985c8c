"""`report`: results, or the folders that hold them, as one self-contained page.

`push` sends a page, a graft or any other result to a hub, with its card.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from tokengraft.core.files import sha256_file
from tokengraft.core.wording import counted
from tokengraft.model.folder import MANIFEST
from tokengraft.render.page.build import Page, Runs, make_page, save_page

if TYPE_CHECKING:
    from tokengraft.corpus.parallel import ParallelCorpus


_DEPTH = 2  # demo/ holds demo/audit and demo/grafts/shan
#: What the page shows of each kind, and under which name of `Runs` it goes.
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
) -> Path:
    """Write `out`/index.html and a README.md that makes the folder a static hub space.

    `runs` are results, folders that hold them, or plan and evaluation files. The page needs no
    network and no other file, has a bounded size, and names no path of this machine. `tokenizers`
    are further places to look tokenizers up in, `corpus` the text for “See the tokens” (by default
    the run's own where it is here, else the bundled one).

    With `site` a folder for static hosting is written: a page a language under an address of its
    own, pictures for previews of links, and a playground that tokenizes in the browser. `address`
    (https://…) is where it will lie: previews need whole addresses.
    """
    page = page_of(runs, tokenizers=tokenizers, corpus=corpus, site=site, address=address)
    return save_page(page, Path(out))


def page_of(
    runs: Place | Result | Iterable[Place | Result],
    *,
    tokenizers: Sequence[Path] = (),
    corpus: Place | ParallelCorpus | None = None,
    site: bool = False,
    address: str | None = None,
) -> Page:
    """What `report` writes, with what the page has to say of itself."""
    from tokengraft.render.page.playground import example
    from tokengraft.render.page.site import offered, site_files

    if address is not None and not site:
        raise UsageError("an address is for a site (site=True, --site)")
    if address is not None and not address.startswith(("https://", "http://")):
        raise UsageError(f"{address}: an address begins with https://")
    place = None if address is None else address.rstrip("/") + "/"
    files = offered(search=tokenizers) if site else {}
    box = [
        {"file": name, "label": label, "size": len(data)} for name, (label, data) in files.items()
    ]
    live = {**example(), "tokenizers": box} if site else None
    every = [runs] if isinstance(runs, str | Path | Result) else list(runs)
    with ExitStack() as kept:
        there = collect(_place(run, number, kept) for number, run in enumerate(every))
        page = make_page(there, tokenizers=tokenizers, corpus=corpus, live=live, place=place)
    if not site:
        return page
    kept_files = {name: data for name, (_, data) in files.items()}
    return replace(page, files=kept_files | site_files(page, place))


def collect(given: Iterable[Place]) -> Runs:
    """Find every result in the given folders and files.

    A folder is searched two levels deep. A path that holds nothing a page can show is a
    UsageError that says what was looked for, one that is not there a TokengraftError.
    """
    paths_by_kind: dict[str, dict[Path, None]] = {name: {} for name in _SHOWN.values()}
    for place in map(Path, given):
        hits = list(_results(place))
        if not hits:
            known = ", ".join(f"{kind.mark} ({kind.called})" for kind in _SHOWN)
            raise UsageError(
                f"{place}: nothing to show here. Expected a folder that a command wrote with "
                f"--out: {known}."
            )
        for kind, path in hits:
            paths_by_kind[_SHOWN[kind]][path] = None
    return Runs(**{name: tuple(paths) for name, paths in paths_by_kind.items()})


def _place(run: Place | Result, number: int, kept: ExitStack) -> Path:
    """Where a result lies; one that lies nowhere is saved for as long as the page is made."""
    if isinstance(run, Grafted):
        return run.folder
    if not isinstance(run, Result):
        return Path(run)
    if type(run) not in _SHOWN:
        raise UsageError(f"{run!r}: a page does not show a {run.called}")
    folder = Path(kept.enter_context(tempfile.TemporaryDirectory())) / f"{run.called} {number + 1}"
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


CARD = "README.md"


@dataclass(frozen=True)
class Pushed:
    """What was sent, or would be: `url` is None after a dry run, and `why` says why it was one."""

    repo: str
    kind: str  # "model", "dataset" or "space"
    files: tuple[tuple[str, int], ...]  # names and bytes
    url: str | None = None
    why: str = ""

    def __str__(self) -> str:
        size = sum(bytes_ for _, bytes_ in self.files)
        what = f"{counted(len(self.files), 'file')}, {size / 1e6:,.1f} MB"
        if self.url is not None:
            return f"{what} sent: {self.url}"
        return f"Dry run ({self.why}): {what} would go to the {self.kind} repository {self.repo}"


def push(
    folder: Place | Grafted,
    repo: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    message: str | None = None,
    api: Any = None,
) -> Pushed:
    """Send a result's folder to `repo` (owner/name), or say what would be sent.

    A graft goes to a model repository, a page or site to a static space, other results to a
    dataset. Only files that the result consists of are sent; those of a graft must still have the
    hashes of its `tokengraft.json`. Without a token on this machine (`hf auth login`, HF_TOKEN) it
    is a dry run. `api` stands in for `huggingface_hub.HfApi()`.
    """
    place = folder.folder if isinstance(folder, Grafted) else Path(folder)
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise UsageError(f"{repo!r} is no repository: write owner/name")
    kind, names = _contents(place)
    if CARD not in names:
        raise TokengraftError(f"{place}: there is no {CARD}, and nothing is sent without its card")
    files = tuple((name, (place / name).stat().st_size) for name in names)
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError

    why = "as asked" if dry_run else ""
    if not why and api is None and get_token() is None:
        why = "no token on this machine: log in with `hf auth login`, or set HF_TOKEN"
    if why:
        return Pushed(repo, kind, files, why=why)
    hub = HfApi() if api is None else api
    options: dict[str, Any] = {"space_sdk": "static"} if kind == "space" else {}
    try:
        hub.create_repo(repo, repo_type=kind, private=private, exist_ok=True, **options)
        commit = hub.upload_folder(
            repo_id=repo, repo_type=kind, folder_path=str(place), allow_patterns=list(names),
            commit_message=message or f"{place.resolve().name}, by tokengraft",
        )  # fmt: skip
    except (HfHubHTTPError, OSError) as error:
        said = str(error).strip().splitlines()[-1]
        raise TokengraftError(f"{repo}: the hub refused it ({said})") from error
    return Pushed(repo, kind, files, url=str(getattr(commit, "commit_url", commit)))


def _contents(place: Path) -> tuple[str, tuple[str, ...]]:
    """Which kind of repository the folder goes to, and its files in order."""
    if Grafted.is_in(place):
        graft = Grafted.load(place)
        for name, digest in graft.facts["files"].items():
            if not (place / name).is_file() or sha256_file(place / name) != digest:
                raise TokengraftError(
                    f"{place}: {name} is not the file that {MANIFEST} lists; verify the graft, or "
                    "make it anew"
                )
        return "model", tuple(sorted({*graft.facts["files"], MANIFEST}))
    kinds: tuple[type[Result], ...] = KINDS
    page = (place / "index.html").is_file()
    if not page and not any(kind.is_in(place) for kind in kinds):
        raise UsageError(
            f"{place}: neither a result nor a page lies here; give a folder that a command wrote "
            "with --out"
        )
    inner = sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(place) for path in inner)
    shown = (name.as_posix() for name in names if not any(p.startswith(".") for p in name.parts))
    return "space" if page else "dataset", tuple(shown)
