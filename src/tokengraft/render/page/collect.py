"""What lies in the given run folders: audits, plans, grafts, evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.core.files import read_json

_DEPTH = 2  # demo/ holds demo/audit and demo/grafts/shan
PLAN, GRAFT, EVALUATION, AUDIT = "plan.json", "tokengraft.json", "evaluation.json", "manifest.json"


@dataclass(frozen=True)
class Runs:
    """Folders of audits and grafts, files of plans and evaluations, each once, in order."""

    audits: tuple[Path, ...] = ()
    plans: tuple[Path, ...] = ()
    grafts: tuple[Path, ...] = ()
    evaluations: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.audits or self.plans or self.grafts or self.evaluations)


def collect(given: Iterable[Path | str]) -> Runs:
    """Find every result in the given folders and files.

    A folder is searched two levels deep. A path that holds nothing a page can show is a
    UsageError that says what was looked for, one that is not there a TokengraftError.
    """
    found: dict[str, dict[Path, None]] = {
        kind: {} for kind in ("audits", "plans", "grafts", "evaluations")
    }
    for place in map(Path, given):
        hits = list(_results(place))
        if not hits:
            if surveyed := next((f for f in _folders(place, _DEPTH) if _is_survey(f)), None):
                raise UsageError(
                    f"{surveyed}: a survey of a large corpus (`tokengraft audit` with --stream or "
                    "--monolingual). It has tables but no page; a page shows audits without these."
                )
            raise UsageError(
                f"{place}: nothing to show here. Expected a folder written by `tokengraft audit "
                f"--out` ({AUDIT} and tables/), a {PLAN}, a graft ({GRAFT}) or an {EVALUATION}."
            )
        for kind, path in hits:
            found[kind][path] = None
    return Runs(**{kind: tuple(paths) for kind, paths in found.items()})


def _results(place: Path) -> Iterator[tuple[str, Path]]:
    if not place.exists():
        raise TokengraftError(f"{place}: no such file or folder")
    if place.is_file():
        kind = {PLAN: "plans", EVALUATION: "evaluations"}.get(place.name)
        if kind is None and place.suffix == ".json":
            kind = "evaluations" if "evaluation" in place.stem else "plans"
        if kind is not None:
            yield kind, place
        return
    for folder in _folders(place, _DEPTH):
        here = (folder / AUDIT).is_file() and table_path(folder, "premiums") is not None
        if here and not _is_survey(folder):
            yield "audits", folder
        if (folder / GRAFT).is_file():
            yield "grafts", folder
        for name, kind in ((PLAN, "plans"), (EVALUATION, "evaluations")):
            if (folder / name).is_file():
                yield kind, folder / name


def _is_survey(folder: Path) -> bool:
    """Whether `scaling` wrote the folder: its manifest tells of a layout, not of a corpus."""
    try:
        manifest = read_json(folder / AUDIT)
    except TokengraftError:
        return False
    return "layout" in manifest and "corpus" not in manifest


def _folders(place: Path, depth: int) -> Iterator[Path]:
    yield place
    if depth and place.is_dir():
        for inner in sorted(place.iterdir()):
            if inner.is_dir() and not inner.name.startswith((".", "_")):
                yield from _folders(inner, depth - 1)


def table_path(folder: Path, name: str) -> Path | None:
    """The file of a run's table in its most exact form, or None where the run lacks it."""
    paths = (folder / "tables" / f"{name}.{suffix}" for suffix in ("parquet", "csv"))
    return next((path for path in paths if path.is_file()), None)
