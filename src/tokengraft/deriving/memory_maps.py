"""Arrays kept in .npy files and read as memory maps: their space is taken before they are used.

A map over a sparse file kills the process (SIGBUS) when the disk has no room for what is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib.format import open_memmap

_UNSERVED = (errno.EINVAL, errno.EOPNOTSUPP)  # file systems that reserve nothing


def reserve(file: Path, shape: tuple[int, ...], kind: type) -> np.ndarray[Any, Any]:
    """A new file of zeros, mapped to be written to; OSError, and no file, where it does not fit."""
    try:
        made: np.ndarray[Any, Any] = open_memmap(file, mode="w+", dtype=kind, shape=shape)
        with file.open("r+b") as opened:
            _take(opened.fileno(), file.stat().st_size)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from error
    return made


def _take(descriptor: int, size: int) -> None:
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in _UNSERVED:
            raise


def reopen(
    file: Path, shape: tuple[int, ...], kind: type, mode: Literal["r", "r+"] = "r"
) -> np.ndarray[Any, Any] | None:
    """The array in a file, or None where there is no such array or the file is damaged."""
    with contextlib.suppress(OSError, ValueError, EOFError):
        array: np.ndarray[Any, Any] = open_memmap(file, mode="r")  # r+ would lengthen a cut file
        if array.shape == shape and array.dtype == np.dtype(kind):
            return array if mode == "r" else open_memmap(file, mode=mode)
    return None
