"""Fetch pinned packages from the npm registry, for the asset build tools."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def npm_package(spec: str, integrity: str, unpacked: Path | None = None) -> Iterator[Path]:
    """Yield the folder of the npm package ``spec`` (``name@version``).

    The tarball's SHA-512 is checked against ``integrity`` (npm's own notation) before it is
    unpacked, and ``ValueError`` is raised when they differ. With ``unpacked`` that folder is
    yielded unchecked and nothing is fetched.
    """
    if unpacked is not None:
        yield unpacked
        return
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        command = ["npm", "pack", "--silent", spec]
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
        tarball = next(root.glob("*.tgz"))
        digest = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
        if integrity != f"sha512-{digest}":
            raise ValueError(f"{spec}: tarball is sha512-{digest}, not {integrity}")
        with tarfile.open(tarball) as archive:
            archive.extractall(root, filter="data")
        # npm tarballs hold one top-level folder, but not always under the name "package".
        yield next(path for path in root.iterdir() if path.is_dir())
