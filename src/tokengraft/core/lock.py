"""One process at a time in a folder: two with the same `--out` would mix their results.

The lock is the operating system's (`flock`), so it ends with the process. Its file lies in the
machine's temporary folder, or in the cache if another user holds ours there, and is named by a hash
of the locked folder's real path, so nothing is left among the results. Machines that share a disk
do not share locks.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

from tokengraft.core.cache import cache_folder
from tokengraft.core.errors import TokengraftError

try:
    import fcntl
except ImportError:  # Windows has no flock, so nothing is locked there
    fcntl = None  # type: ignore[assignment]


class Lock:
    """Keeps a folder locked for this process as long as anything refers to this object."""

    def __init__(self, file: IO[str] | None) -> None:
        self._file = file

    @property
    def held(self) -> bool:
        """Whether the folder is locked; not where the system or the file system has no locks."""
        return self._file is not None


_held: WeakValueDictionary[str, Lock] = WeakValueDictionary()


def hold(folder: Path) -> Lock:
    """Lock `folder`, again if it is ours already; TokengraftError if another process holds it."""
    path = os.path.realpath(folder)
    if (mine := _held.get(path)) is not None:
        return mine
    lock = Lock(_locked(path))
    _held[path] = lock
    return lock


def _lock_file(place: Path, name: str) -> IO[str] | None:
    """The file in a folder of ours; None if the folder is someone else's or cannot be used."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.is_symlink() or place.stat().st_uid != os.getuid():
            return None
        return (place / f"{name}.lock").open("a+", encoding="utf-8")
    except OSError:
        return None


def _locked(path: str) -> IO[str] | None:
    if fcntl is None:
        return None
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    # Someone else may hold the first: then they could take our locks.
    places = (Path(tempfile.gettempdir()) / f"tokengraft-{os.getuid()}", cache_folder() / "locks")
    file = next((file for place in places if (file := _lock_file(place, name))), None)
    if file is None:
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
