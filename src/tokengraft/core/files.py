"""Whole files or none: what a run writes appears under its final name only when complete.

Files that are missing or broken, and downloads that fail, raise errors that say why.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tokengraft.core.errors import TokengraftError
from tokengraft.core.lock import Lock, hold
from tokengraft.core.untrusted import parse_json, read_bounded

_OURS: set[Path] = set()  # temporary names that this process has made
MOST_JSON = 1 << 30
ASSETS = Path(__file__).resolve().parents[1] / "assets"  # what comes with the package


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` on success; on failure nothing is left of it."""
    with _making(path.parent):
        temporary = _beside(path)
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def writing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` on success; an existing `path` is replaced.

    On any failure `path` is as it was: the old folder is removed only after the new one has taken
    its name. Of a symlink, the target is replaced; of a mount point, the contents.
    """
    path = real(path)
    lock = hold(path)
    if path.is_mount():
        with _refilling(path) as inside:
            yield inside
        return
    with _making(path.parent):
        _clear_killed(path, lock)
        temporary = _beside(path)
        old = temporary.with_name(temporary.name + ".old")
        temporary.mkdir()
        try:
            yield temporary
            if path.exists():
                path.replace(old)
            temporary.replace(path)
        except BaseException:
            if old.exists() and not path.exists():
                old.replace(path)
            raise
        else:
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            del lock


@contextlib.contextmanager
def _refilling(path: Path) -> Iterator[Path]:
    """`writing_folder` for a mount point, which cannot be renamed: its contents are exchanged."""
    temporary = _beside(path / "new")
    old = temporary.with_name(temporary.name + ".old")
    temporary.mkdir()
    moved: list[tuple[Path, Path]] = []
    try:
        yield temporary
        old.mkdir()
        for source, target in ((path, old), (temporary, path)):
            for one in [one for one in source.iterdir() if one not in (temporary, old)]:
                moved.append((one, target / one.name))
                one.replace(target / one.name)
    except BaseException:
        for one, there in reversed(moved):
            if there.exists() and not one.exists():
                there.replace(one)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def real(path: Path) -> Path:
    """The target of a symlink, existing or not, or of a path with `..`; any other as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() or ".." in path.parts else path


@contextlib.contextmanager
def adding(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder whose files all go into `folder` on success, or none on failure.

    Other files in `folder` stay. Those of the same names are replaced, but kept on failure.
    """
    folder = real(folder)
    lock = hold(folder)
    with _making(folder):
        # Inside, not beside: `folder` may be a mount point, or the only place we may write to.
        _clear_killed(folder / "new", lock)
        temporary = _beside(folder / "new")
        old = temporary.with_name(temporary.name + ".old")
        temporary.mkdir()
        moved: list[tuple[Path, Path]] = []  # a file in `folder`, and where its old version is
        try:
            yield temporary
            files = filter(Path.is_file, temporary.rglob("*"))
            # Deepest first, so that a manifest, at the top, is moved after what it describes.
            for new in sorted(files, key=lambda path: (-len(path.parts), path)):
                inside = new.relative_to(temporary)
                target, kept = folder / inside, old / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                moved.append((target, kept))
                if target.is_file():
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    target.replace(kept)
                new.replace(target)
        except BaseException:
            for target, kept in reversed(moved):
                if kept.exists():
                    kept.replace(target)
                elif not (temporary / target.relative_to(folder)).exists():
                    target.unlink(missing_ok=True)
                _prune(target.parent, folder)
            raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
            del lock


def _clear_killed(path: Path, lock: Lock) -> None:
    """Remove what killed processes left beside `path`, while `lock` says that none writes there.

    One that was killed between its two last steps had moved the old folder away: it comes back.
    """
    made = re.compile(rf"\.{re.escape(path.stem)}\.[0-9a-f]{{8}}{re.escape(path.suffix)}(\.old)?")
    for left in sorted(path.parent.iterdir()) if lock.held else ():
        if made.fullmatch(left.name) and left not in _OURS and left.is_dir():
            if left.suffix == ".old" and path.name != "new" and not path.exists():
                left.replace(path)
            else:
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _making(folder: Path) -> Iterator[None]:
    """Make `folder`; if the block fails, remove it and its new parents unless they hold files."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        _prune(folder, there)
        raise


def _prune(folder: Path, top: Path) -> None:
    """Remove `folder` and its parents below `top` as long as they are empty."""
    while folder != top:
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass  # never made
        except OSError:
            return
        folder = folder.parent


def _beside(path: Path) -> Path:
    """A free hidden name in the same folder; files created there get the usual permissions.

    The suffix stays, since figure and table writers choose their format by it. (`tempfile` makes
    private files, and to widen them one must read the umask, which sets it for every thread.)
    """
    made = path.parent / f".{path.stem}.{secrets.token_hex(4)}{path.suffix}"
    _OURS.update((made, made.with_name(f"{made.name}.old")))
    return made


def write_text(path: Path, text: str) -> Path:
    r"""Write `text` as UTF-8 with Unix line ends, whole or not at all.

    A byte of a file name that is not UTF-8, in Python a lone surrogate, is written as an escape
    (`\udce9`), which JSON reads back as the same name.
    """
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write `value` as indented JSON; keys keep their order, so equal values give equal bytes."""
    return write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def read_json(
    path: Path, error: type[TokengraftError] = TokengraftError, what: str = "JSON object"
) -> dict[str, Any]:
    """The JSON object in a file; `error` if it cannot be read or is not an object (a `what`)."""
    data = b""
    try:
        data = read_bounded(path, error, MOST_JSON)
        value = parse_json(data)
    except OSError as reason:
        raise error(f"{path.name} cannot be read: {reason}") from reason
    except ValueError as reason:
        why = not_the_file(data[:99]) or "it is damaged: make or fetch it again"
        raise error(f"{path.name} cannot be read ({reason}); {why}") from reason
    if not isinstance(value, dict):
        raise error(f"{path.name} is not a {what}")
    return value


def sha256(data: bytes) -> str:
    """Hex digest of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex digest of a file, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def not_the_file(head: bytes) -> str:
    """What stands in for a file that was not really downloaded, from its first bytes; else ''."""
    if head.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer: fetch the file itself with `git lfs pull`"
    if head.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
        return "it is a web page: download the file itself"
    return ""


def download(hub_id: str, patterns: Sequence[str], error: type[TokengraftError]) -> Path:
    """The folder with the matching files of `hub_id`; `error` says why there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(patterns)))
    except LocalEntryNotFoundError as reason:
        raise error(
            f"{hub_id} is not on this machine, and the model hub cannot be reached. Go online "
            "once, or give a folder that holds it."
        ) from reason
    except HfHubHTTPError as reason:
        raise error(
            f"the model hub refused {hub_id} ({reason.response.status_code}). Check the id; for a "
            "gated model accept its licence on the hub and run `hf auth login`."
        ) from reason
    except (OSError, RuntimeError, ValueError) as reason:
        raise error(f"{hub_id} could not be downloaded ({reason})") from reason
