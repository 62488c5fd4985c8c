"""`push`: sends a page, a graft or any other result to a hub, with its card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengraft.api.results import KINDS, Grafted, Place
from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.core.files import sha256_file
from tokengraft.core.wording import counted
from tokengraft.model.folder import CARD, MANIFEST


@dataclass(frozen=True)
class Pushed:
    """What was or would be sent; after a dry run `url` is None and `why` gives the reason."""

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
    dataset. Only the result's own files are sent; those of a graft must still have the hashes in
    its `tokengraft.json`. Without a hub token on this machine (`hf auth login`, HF_TOKEN) it is a
    dry run. `api` replaces `huggingface_hub.HfApi()`.
    """
    place = folder.folder if isinstance(folder, Grafted) else Path(folder)
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise UsageError(f"{repo!r} is not the name of a repository: write owner/name")
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
                    f"{place}: {name} has changed since {MANIFEST} listed it; graft again, or put "
                    "the file back"
                )
        return "model", tuple(sorted({*graft.facts["files"], MANIFEST}))
    page = (place / "index.html").is_file()
    if not page and not any(kind.is_in(place) for kind in KINDS):
        raise UsageError(
            f"{place}: there is neither a result nor a page here; give a folder that a command "
            "wrote with --out"
        )
    inner = sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(place) for path in inner)
    shown = (name.as_posix() for name in names if not any(p.startswith(".") for p in name.parts))
    return "space" if page else "dataset", tuple(shown)
