"""Where results go: one rule for every `--out`, applied before anything is computed.

A missing or empty folder, or one with an earlier result of the same command, is written to. Any
other folder is left alone unless `--force` is given; a file, or a place that cannot be written to,
always is an error.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.core.files import Lock, hold, real

RULE = "Must be missing, empty or an earlier result of this command; --force writes into any other."
WHOLE_RULE = (
    "Must be missing, empty or an earlier result of this command; --force replaces any other."
)
ForceOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--force", help="Write into --out even where this command did not write what it holds."
    ),
]
ReplaceOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--force", help="Replace --out, with all in it, even where this command did not write it."
    ),
]
_held: list[Lock] = []  # until this process ends
_NAMED = 3  # files in the way that a message names


def holds_file(name: str) -> Callable[[Path], bool]:
    """Whether a folder holds the file by which a command's result is known."""
    return lambda folder: (folder / name).is_file()


def holds_audit(folder: Path) -> bool:
    """Whether a folder holds an audit: many a program writes a manifest.json."""
    from tokengraft.api.results import Audit

    return Audit.is_in(folder)


def holds_page(folder: Path) -> bool:
    """Whether a folder holds a page that `report` made."""
    try:
        with (folder / "index.html").open(encoding="utf-8") as file:
            return '<meta name="generator" content="tokengraft">' in file.read(4096)
    except (OSError, ValueError):
        return False


def check_out(
    out: Path | None, holds: Callable[[Path], bool], force: bool = False, whole: bool = False
) -> None:
    """Raise unless `out` may be written to; nothing is left there.

    `holds` recognises an earlier result; `whole` says that the folder will be replaced as a whole.
    The folder is this process's from here on (`lock`). UsageError names what is in the way,
    TokengraftError what the system refuses.
    """
    if out is None:
        return
    try:
        out = real(out)
        file = next((one for one in (out, *out.parents) if one.exists() and not one.is_dir()), None)
        if file is not None:
            raise UsageError(f"--out {out}: {file} is a file, a folder is needed; name another one")
        if not force and out.exists() and any(out.iterdir()) and not holds(out):
            raise UsageError(_in_the_way(out, whole))
        _try(out, whole)
        _held.append(hold(out))
    except OSError as error:
        said = error.strerror or str(error)
        raise TokengraftError(
            f"--out {out} cannot be written to ({said}): name another folder"
        ) from error


def _in_the_way(out: Path, whole: bool) -> str:
    names = sorted(one.name for one in out.iterdir())
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    what = "replace it with all that it holds" if whole else "write there anyway"
    return (
        f"--out {out} already holds {', '.join(names[:_NAMED])}{more}, and no earlier result of "
        f"this command: name another folder, or {what} with --force"
    )


def _try(out: Path, whole: bool) -> None:
    """Make the folder and a file in it, and remove both again."""
    made = [one for one in (out, *out.parents) if not one.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent if whole and not out.is_mount() else out):
            pass
    finally:
        for one in made:
            with contextlib.suppress(OSError):
                one.rmdir()
