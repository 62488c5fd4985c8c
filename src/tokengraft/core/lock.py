"""One process at a time in a folder: two that write to one `--out` or `--work` would mix results.

The lock is the operating system's (`flock`), so a process that dies lets go of it. It lies in the
machine's folder for temporary files, under the hash of the folder's real path: nothing is left
where results go. Processes on two machines that share a disk do not see each other's.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

from tokengraft.core.errors import TokengraftError

try:
    import fcntl
except ImportError:  # Windows has no flock; there nobody is kept apart
    fcntl = None  # type: ignore[assignment]


class Lock:
    """A folder that this process holds as long as anything refers to the lock."""

    def __init__(self, file: IO[str] | None) -> None:
        self._file = file


_held: WeakValueDictionary[str, Lock] = WeakValueDictionary()


def hold(folder: Path) -> Lock:
    """The lock of `folder`, there or not; keep it as long as the folder is worked in.

    The same process may hold it twice. TokengraftError where another process has it.
    """
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
            return None  # someone else's folder: a lock there would be theirs to take
        file = (place / f"{name}.lock").open("a+", encoding="utf-8")
    except OSError:
        return None  # no place for a lock is no reason not to work
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
