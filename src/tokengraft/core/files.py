"""Whole files or none: what a run writes appears under its final name only when complete.

Files that are missing or broken, and downloads that fail, raise errors that say why. Only one
process at a time may work in a folder, since two that write to the same `--out` or `--work` would
mix their results (`hold`). The lock is the operating system's (`flock`), so it ends with the
process. Its file lies in the machine's temporary folder, named by a hash of the locked folder's
real path, so nothing is left among the results. Machines that share a disk do not share locks.

What a file may demand of the machine is bounded by its size. A small file can unpack to gigabytes,
nest its JSON ten thousand deep, link to somebody's keys or ask for code of its own. Each of these
is an error with a reason instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from weakref import WeakValueDictionary

from tokengraft.core.errors import ModelError, TokengraftError

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
    """The target of a symlink, existing or not; any other path, or a symlink loop, as it is."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextlib.contextmanager
def adding(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder whose files all go into `folder` on success, or none on failure.

    Other files in `folder` stay. Those of the same names are replaced, but kept on failure.
    """
    folder = real(folder)
    lock = hold(folder)
    with _making(folder):
        # Inside, not beside: `folder` may be a mount point, or the only place we may write to.
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
    return path.parent / f".{path.stem}.{secrets.token_hex(4)}{path.suffix}"


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
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except OSError as reason:
        raise error(f"{path.name} cannot be read: {reason}") from reason
    except ValueError as reason:
        why = not_the_file(path.read_bytes()[:99]) or "it is damaged: make or fetch it again"
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


try:
    import fcntl
except ImportError:  # Windows has no flock, so nothing is locked there
    fcntl = None  # type: ignore[assignment]


class Lock:
    """Keeps a folder locked for this process as long as anything refers to this object."""

    def __init__(self, file: IO[str] | None) -> None:
        self._file = file


_held: WeakValueDictionary[str, Lock] = WeakValueDictionary()


def hold(folder: Path) -> Lock:
    """Lock `folder`, again if it is ours already; TokengraftError if another process holds it."""
    path = os.path.realpath(folder)
    if (mine := _held.get(path)) is not None:
        return mine
    lock = Lock(_locked(path))
    _held[path] = lock
    return lock


def _locked(path: str) -> IO[str] | None:
    if fcntl is None:
        return None
    place = Path(tempfile.gettempdir()) / f"tokengraft-{os.getuid()}"
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        if place.is_symlink() or place.stat().st_uid != os.getuid():
            return None  # someone else's folder, so they could take our locks
        file = (place / f"{name}.lock").open("a+", encoding="utf-8")
    except OSError:
        return None  # better to work unlocked than not at all
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        who = file.read().strip()
        file.close()
        process = f" (process {who})" if who.isdigit() else ""
        raise TokengraftError(
            f"another tokengraft{process} is working in {path} at this moment: wait until it has "
            "ended, or name another folder"
        ) from None
    except OSError:
        file.close()
        return None  # a file system without locks
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


#: Text shrinks to between a fifth and a fiftieth; what shrinks to less than this is not text.
_RATIO = 100
_FREE_BYTES = 64 << 20
_MOST_BYTES = 1 << 30


def parse_json(data: str | bytes, **options: Any) -> Any:
    """`json.loads`; JSON that is nested too deeply is a ValueError like any other."""
    try:
        return json.loads(data, **options)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def most_unpacked(size: int) -> int:
    """The most bytes that an archive of `size` bytes may unpack to in memory."""
    return min(_MOST_BYTES, max(_FREE_BYTES, _RATIO * size))


def check_unpacked(total: int, path: Path, error: type[TokengraftError]) -> None:
    """`error` if `total`, the unpacked size of an archive, is more than its own size allows."""
    size = path.stat().st_size
    if total > (most := most_unpacked(size)):
        raise error(
            f"{path} unpacks to more than {most >> 20:,} MiB, the most that is held in memory for "
            f"an archive of {size:,} bytes. If it is sound, unpack it and give the folder instead."
        )


def refuse_code(config: Mapping[str, Any], where: str) -> None:
    """ModelError if the config of a model or tokenizer asks for code that comes with it."""
    if config.get("auto_map"):
        raise ModelError(f"{where} has an auto_map: it needs custom code, which is never run")


def refuse_links_out(
    folder: Path, error: type[TokengraftError], wanted: Callable[[str], bool] = lambda _: True
) -> None:
    """`error` for a symlink in `folder`, or below it, that leads to a file outside.

    The hub's cache keeps files in `blobs`, beside `snapshots` full of links to them, so a model's
    links may lead to its own blobs. Links whose name is not `wanted` are not checked.
    """
    home = folder.resolve()
    allowed = [home]
    if home.parent.name == "snapshots":
        allowed.append(home.parent.parent / "blobs")
    for place, folders, names in os.walk(home):
        for name in (*folders, *names):
            path = Path(place) / name
            if not path.is_symlink() or not wanted(name):
                continue
            target = path.resolve()
            if not any(target.is_relative_to(one) for one in allowed):
                raise error(
                    f"{path.relative_to(home)} in {folder.name} is a link that leads out of the "
                    "folder, and is not followed: put the file itself there"
                )
