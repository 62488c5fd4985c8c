"""Where a tokenizer's files come from: the package, a folder, an archive or the model hub."""

from __future__ import annotations

import functools
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tokengraft.core.errors import TokenizerError, Unavailable
from tokengraft.core.files import ASSETS, download, sha256, sha256_file
from tokengraft.core.untrusted import check_unpacked, read_bounded, read_tar, refuse_links_out


@dataclass(frozen=True)
class Source:
    """The files of one tokenizer, read only when asked for."""

    where: str  # for messages and manifests
    files: Mapping[str, Callable[[], bytes]]
    digests: Mapping[str, str] | None = None  # sha256 known in advance

    def read(self, name: str) -> bytes:
        """Contents of the file `name`."""
        return self.files[name]()

    def digest(self, name: str) -> str:
        """sha256 of the file `name`."""
        return self.digests[name] if self.digests else sha256(self.read(name))


def bundled(name: str) -> Source:
    """The tokenizer `name` that the package holds, compressed."""
    root = ASSETS / "tokenizers"
    digests = {}
    for line in (root / "SHA256SUMS").read_text().splitlines():
        digest, path = line.split("  ")
        folder, file = path.split("/")
        if folder == name:
            digests[file] = digest

    def reader(file: str) -> Callable[[], bytes]:
        return lambda: lzma.decompress((root / name / f"{file}.xz").read_bytes())

    return Source(f"bundled/{name}", {file: reader(file) for file in digests}, digests)


def folder(path: Path) -> Source:
    """The tokenizer files in the folder `path`; none of them may be a link out of it."""
    refuse_links_out(path, TokenizerError, _wanted)
    paths = {p.name: p for p in sorted(path.iterdir()) if p.is_file()}
    reads = {n: functools.partial(read_bounded, p, TokenizerError) for n, p in paths.items()}
    return Source(str(path), reads, _LazyDigests(paths))


class _LazyDigests(dict[str, str]):
    """Hash a file when its digest is first asked for."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        super().__init__()
        self._paths = paths

    def __missing__(self, name: str) -> str:
        self[name] = sha256_file(self._paths[name])
        return self[name]


@functools.lru_cache(maxsize=4)
def archive(path: Path) -> dict[str, Source]:
    """The tokenizers in a tar or zip archive: folder name → its files, held in memory."""
    members: dict[str, dict[str, bytes]] = {}
    if not path.is_file():  # a device may never end
        raise TokenizerError(f"{path} is neither a folder nor an archive")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as zipped:
                wanted = [one for one in zipped.infolist() if _wanted(one.filename)]
                check_unpacked(sum(one.file_size for one in wanted), path, TokenizerError)
                contents = {one.filename: zipped.read(one) for one in wanted}
        else:
            contents = read_tar(path, _wanted, TokenizerError)
    except (
        tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, OSError,
        NotImplementedError, RuntimeError, UnicodeDecodeError,
    ) as error:  # fmt: skip
        raise TokenizerError(f"{path}: cannot read this archive ({error})") from error
    for name, data in contents.items():
        inner = PurePosixPath(name)
        members.setdefault(inner.parent.name, {})[inner.name] = data
    return {
        name: Source(
            f"{path}:{name}", {n: functools.partial(bytes, data) for n, data in files.items()}
        )
        for name, files in members.items()
    }


def _wanted(name: str) -> bool:
    """Whether a member of an archive may be a file of a tokenizer."""
    return name.endswith((".json", ".model", ".tiktoken", ".txt", ".jinja"))


def hub_cached(hub_id: str, names: Iterable[str]) -> bool:
    """Whether a file of `hub_id` with one of these names lies in the local hub cache."""
    from huggingface_hub import try_to_load_from_cache

    return any(isinstance(try_to_load_from_cache(hub_id, name), str) for name in names)


def hub(hub_id: str, names: Sequence[str]) -> Source:
    """The files with these names of a model on the hub, from the local cache or downloaded."""
    return folder(download(hub_id, names, Unavailable))
