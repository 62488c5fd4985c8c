"""What a file from elsewhere may demand of the machine.

A small file can unpack to gigabytes, claim a header of gigabytes, never end, nest its JSON ten
thousand deep, link to somebody's keys or ask for code of its own. Each of these is an error with a
reason instead. Whatever reads a file of the user's into memory goes through here.
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
_MOST_FILE = 4 << 30  # a file that is read as it is
_MOST_PIPED = 128 << 20
_HEADER_BYTES = 1 << 20
_MOST_MEMBERS = 100_000
_BLOCK = 1 << 20


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


def read_bounded(
    path: Path, error: type[TokengraftError], most: int = _MOST_FILE, stream: Any = None
) -> bytes:
    """The bytes of a file, or of what a `stream` unpacks it to; `error` if they are over `most`.

    What is not a regular file (a pipe, /dev/zero) may never end, so less of it is read.
    """
    if not path.is_file():
        most = min(most, _MOST_PIPED)
    if stream is None:
        with path.open("rb") as file:
            return read_bounded(path, error, most, file)
    blocks, total = [], 0
    while block := stream.read(_BLOCK):
        total += len(block)
        if total > most:
            raise error(
                f"{path} holds more than {most >> 20:,} MiB, the most that is read into memory "
                "here. If it is sound, give a part of it."
            )
        blocks.append(block)
    return b"".join(blocks)


def check_ratio(total: int, size: int, path: str, error: type[TokengraftError]) -> None:
    """`error` if `total`, what lines of a compressed file take, is more than text unpacks to."""
    if total > max(_FREE_BYTES, _RATIO * size):
        raise error(
            f"{path} unpacks to more than {_RATIO} times its {size:,} bytes, which text does not. "
            "If it is sound, unpack it and give the file instead."
        )


class _TooLongHeader(Exception):
    """What `tarfile` would read into memory, were it let."""


class _Tar(tarfile.TarFile):
    """A tar archive whose headers may claim a megabyte at most; what a file may hold is `most`."""

    most = _HEADER_BYTES

    @classmethod
    def taropen(cls, name: Any, mode: Any = "r", fileobj: Any = None, **more: Any) -> Any:
        """Open the unpacked archive; `tarfile` reads headers as long as they say they are."""
        stream = fileobj if fileobj is not None else Path(name).open("rb")  # noqa: SIM115
        read = stream.read

        def bounded(size: int = -1) -> bytes:
            if size > tar.most:
                raise _TooLongHeader(f"a header claims {size:,} bytes")
            return bytes(read(size))

        tar: Any = cls
        stream.__dict__["read"] = bounded
        tar = super().taropen(name, mode, stream, **more)
        tar._extfileobj = fileobj is not None  # opened here, so closed with the archive
        return tar


def read_tar(
    path: Path, wanted: Callable[[str], bool], error: type[TokengraftError]
) -> dict[str, bytes]:
    """The files in a tar archive whose names are `wanted`; `error` if they unpack to too much."""
    contents: dict[str, bytes] = {}
    total = 0
    try:
        with _Tar.open(path) as tar:
            for number, member in enumerate(tar):
                if number >= _MOST_MEMBERS:
                    raise error(
                        f"{path} has more than {_MOST_MEMBERS:,} files: unpack it and give a folder"
                    )
                if member.isfile() and wanted(member.name):
                    total += member.size
                    check_unpacked(total, path, error)
                    tar.most = max(_HEADER_BYTES, member.size)
                    stream = tar.extractfile(member)
                    contents[member.name] = stream.read() if stream else b""
                    tar.most = _HEADER_BYTES
    except _TooLongHeader as reason:
        raise error(f"{path} is damaged or not an archive: {reason}") from None
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
