"""What a file may ask of the machine: bounds that follow from its size, and no way out of a folder.

A small file can name an id of a billion, unpack to gigabytes, nest its JSON ten thousand deep or
link to somebody's keys. Each of these is an error with a reason instead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokengraft.core.errors import TokengraftError

#: Tables of this many ids cost little, whatever the file's size.
_FREE_IDS = 1 << 20
#: Text takes a fifth to a fiftieth of its size when compressed; what shrinks further is no text.
_RATIO = 100
_FREE_BYTES = 64 << 20
_MOST_BYTES = 1 << 30


def parse_json(data: str | bytes, **options: Any) -> Any:
    """`json.loads`; JSON that is nested too deeply is a ValueError like any other."""
    try:
        return json.loads(data, **options)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def check_highest_id(
    highest: Any, size: int, where: str, error: type[TokengraftError] = TokengraftError
) -> None:
    """`error` unless ids up to `highest` are as many as a file of `size` bytes can name."""
    most = max(size, _FREE_IDS)
    if type(highest) is not int or not 0 <= highest < most:
        raise error(
            f"{where}: an id is {highest!r}, but a file of {size:,} bytes cannot name as many "
            f"tokens: ids here end below {most:,}. Fetch the tokenizer again."
        )


def most_unpacked(size: int) -> int:
    """Bytes that an archive of `size` bytes may unpack to in memory."""
    return min(_MOST_BYTES, max(_FREE_BYTES, _RATIO * size))


def check_unpacked(total: int, path: Path, error: type[TokengraftError] = TokengraftError) -> None:
    """`error` where the members of an archive come to more than its size allows."""
    size = path.stat().st_size
    if total > (most := most_unpacked(size)):
        raise error(
            f"{path} unpacks to more than {most >> 20:,} MiB, the most that is held in memory of "
            f"an archive of {size:,} bytes. If it is sound, unpack it to a folder and name that."
        )


def refuse_links_out(
    folder: Path, error: type[TokengraftError], wanted: Callable[[str], bool] = lambda _: True
) -> None:
    """`error` for a link in `folder`, or below it, that leads to a file outside.

    The cache of the model hub keeps its files in `blobs`, beside the `snapshots` that link to
    them: there the links of a model may lead to its own blobs. `wanted` chooses by name.
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
