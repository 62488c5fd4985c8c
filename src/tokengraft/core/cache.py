"""A cache on disk, key → bytes, so that repeating an audit encodes nothing again."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

from tokengraft.core.errors import TokengraftError

ENVIRONMENT = "TOKENGRAFT_CACHE"


def cache_folder() -> Path:
    """`$TOKENGRAFT_CACHE`, or the platform's cache folder for tokengraft."""
    if given := os.environ.get(ENVIRONMENT):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tokengraft"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokengraft"


class Store:
    """Values by key in one SQLite file; every `put` is durable, so an interrupted run resumes.

    Keys name all that a value depends on (hashes of tokenizer and text, version of the method), so
    entries never go stale and need no invalidation. A file that cannot be written to is still read;
    new values then last as long as the process.
    """

    def __init__(self, folder: Path | None = None, name: str = "audit.sqlite") -> None:
        self.path = (folder or cache_folder()) / name
        self._unwritten: dict[str, bytes] | None = None  # new values, if the file is read-only
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except (OSError, sqlite3.OperationalError) as error:
            if self._open_to_read():
                return
            raise TokengraftError(
                f"{self.path.parent}: the cache cannot be written ({error}). Name another folder "
                f"in the environment variable {ENVIRONMENT}."
            ) from error
        except sqlite3.DatabaseError:
            # A damaged cache costs time, not results: set it aside and begin a new one.
            self.path.replace(self.path.with_suffix(".damaged"))
            self._open()

    def _open(self) -> None:
        self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS entry (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID"
        )

    def _open_to_read(self) -> bool:
        """Open an existing file read-only, without a journal beside it; False if that fails too."""
        try:
            place = f"{self.path.resolve().as_uri()}?mode=ro&immutable=1"
            self._db = sqlite3.connect(place, uri=True)
            self._db.execute("SELECT 1 FROM entry LIMIT 1")
        except (OSError, sqlite3.Error):
            return False
        self._unwritten = {}
        return True

    def get(self, key: str) -> bytes | None:
        """The value stored under `key`, or None."""
        if self._unwritten and key in self._unwritten:
            return self._unwritten[key]
        row = self._db.execute("SELECT value FROM entry WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, key: str, value: bytes) -> None:
        """Store `value` under `key`."""
        if self._unwritten is not None:
            self._unwritten[key] = value
            return
        try:
            self._db.execute("INSERT OR REPLACE INTO entry VALUES (?, ?)", (key, value))
        except sqlite3.OperationalError as error:
            raise TokengraftError(f"{self.path}: cannot write the cache ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()
