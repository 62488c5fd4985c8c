"""What a file from elsewhere may demand of the machine.

A small file can unpack to gigabytes, nest its JSON ten thousand deep, link to somebody's keys or
ask for code of its own. Each of these is an error with a reason instead.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokengraft.core.errors import ModelError, TokengraftError

#: Text shrinks to between a fifth and a fiftieth; what shrinks to less than this is not text.
_RATIO = 100
_FREE_BYTES = 64 << 20
_MOST_BYTES = 1 << 30


def parse_json(data: str | bytes) -> Any:
    """`json.loads`; JSON that is nested too deeply is a ValueError like any other."""
    try:
        return json.loads(data)
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


def read_tar(
    path: Path, wanted: Callable[[str], bool], error: type[TokengraftError]
) -> dict[str, bytes]:
    """The files in a tar archive whose names are `wanted`; `error` if they unpack to too much."""
    contents: dict[str, bytes] = {}
    total = 0
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isfile() and wanted(member.name):
                total += member.size
                check_unpacked(total, path, error)
                stream = tar.extractfile(member)
                contents[member.name] = stream.read() if stream else b""
    return contents


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
