"""Names → tokenizers: the paper's ten, modern ones by hub id, any path, any tiktoken encoding."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from tokengraft.core.errors import TokenizerError, Unavailable, did_you_mean
from tokengraft.core.files import sha256
from tokengraft.tokenizer import sources
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.entries import BY_NAME, ROOTSTOCK, Entry
from tokengraft.tokenizer.registry import (
    CONFIG,
    choose_file,
    open_files,
    parse,
    used_files,
    well_known,
)
from tokengraft.tokenizer.sources import Source

PLAN = "plan.json"
BESIDE = ("vocab.json", "merges.txt", CONFIG)  # what an adapter may need besides, from the hub
#: Files beside `tokenizer.json` that a model folder needs to tokenize as before.
SIDE_FILES = (
    CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
ENVIRONMENT = "TOKENGRAFT_TOKENIZERS"  # folders or archives, separated like PATH


@dataclass(frozen=True)
class Found:
    """A tokenizer that is here: named, hashed, and opened only when it has to encode."""

    name: str
    label: str
    fingerprint: str
    where: str
    open: Callable[[], Tokenizer]
    source: Source | None = None  # its files; None for what tiktoken itself provides
    kind: str | None = None  # the file of `source` that defines it


def load(name: str | Path, search: Sequence[Path] = ()) -> Tokenizer:
    """Open a tokenizer by catalog name, path, hub id or tiktoken name."""
    return find(str(name), search).open()


def find(name: str, search: Sequence[Path] = ()) -> Found:
    """Locate a tokenizer without opening it.

    Looked up in this order: a path; the folders and archives in `search` and in the environment
    variable; the package; tiktoken's names; the hub. Raises `Unavailable` for a known tokenizer
    that is not here, `TokenizerError` for a name that means nothing.
    """
    path = Path(name)
    if path.is_dir():
        return _found(name, path.resolve().name, sources.folder(path), None)
    if path.is_file():
        inner = sources.folder(path.parent)
        beside = {path.name, "tokenizer_config.json"}
        beside |= {"merges.txt"} if path.name == "vocab.json" else set()
        alone = {n: read for n, read in inner.files.items() if n in beside}
        return _found(name, path.stem, Source(str(path), alone, inner.digests), path.name)
    entry = BY_NAME.get(name)
    kind = entry.kind if entry else None
    label = entry.label if entry else name
    for place in places(search):
        if (source := _in_place(place, name)) is not None:
            return _found(name, label, source, kind)
    if entry is not None and entry.bundled:
        return _found(name, label, sources.bundled(name), kind)
    if (encoding := _tiktoken(name)) is not None:
        return encoding
    if entry is ROOTSTOCK:
        return _found(name, label, sources.folder(rootstock()), kind)
    if entry is not None and entry.hub_id is None:
        raise Unavailable(
            f"{name}: not bundled here; give a folder that holds it with --tokenizers."
        )
    if entry is None and (name.count("/") != 1 or name.startswith((".", "/", "~"))):
        raise TokenizerError(
            f"No tokenizer {name!r}: neither a path, a known name, a tiktoken encoding nor a hub "
            f"id (owner/model).{did_you_mean(name, BY_NAME)} See `tokengraft tokenizers`."
        )
    hub_id = entry.hub_id if entry is not None and entry.hub_id else name
    return _found(name, label, sources.hub(hub_id, [*well_known(), *BESIDE]), kind)


def rootstock() -> Path:
    """The folder of the bundled model."""
    return Path(str(package_files("tokengraft"))) / "assets" / "rootstock"


def places(search: Sequence[Path] = ()) -> list[Path]:
    """The folders and archives in which named tokenizers are looked up."""
    from_environment = [Path(p) for p in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if p]
    found = [*search, *from_environment]
    for place in found:
        if not place.exists():
            raise TokenizerError(f"{place}: no such folder or archive of tokenizers")
    return found


def status(entry: Entry, search: Sequence[Path] = ()) -> str:
    """Where the entry would come from: a given place, `bundled`, `cached` or `hub`."""
    for place in places(search):
        if _in_place(place, entry.name) is not None:
            return str(place)
    if entry.bundled or entry is ROOTSTOCK:
        return "bundled"
    if entry.hub_id is not None and sources.hub_cached(entry.hub_id, well_known()):
        return "cached"
    return "hub"


def _in_place(place: Path, name: str) -> Source | None:
    if not place.is_dir():
        return sources.archive(place).get(name)
    if (place / name).is_dir():
        return sources.folder(place / name)
    # The place may also be the tokenizer's own folder.
    return sources.folder(place) if place.resolve().name == name else None


def _tiktoken(name: str) -> Found | None:
    import tiktoken

    if name not in tiktoken.list_encoding_names():
        return None
    from tokengraft.tokenizer.openai import TikToken

    try:
        encoding = tiktoken.get_encoding(name)
    except OSError as error:
        raise Unavailable(f"{name}: tiktoken could not download it ({error})") from error
    ranks = b"".join(encoding.token_byte_values())
    fingerprint = sha256(ranks + encoding._pat_str.encode())
    return Found(name, name, fingerprint, "tiktoken", lambda: TikToken(name, fingerprint, encoding))


def _found(name: str, label: str, source: Source, kind: str | None) -> Found:
    """Choose the file to build from, and hash what defines the tokenizer."""
    kind = kind if kind in source.files and kind != PLAN else choose_file(source)
    if kind is None:
        plan = " This is a plan; `tokengraft insert TOKENIZER PLAN -o OUT` makes a tokenizer of it."
        raise TokenizerError(
            f"{source.where}: no tokenizer file here. Expected one of "
            f"{', '.join(well_known())} or a .tiktoken file."
            f"{plan if PLAN in source.files else ''}"
        )
    chosen = kind
    used = used_files(source, chosen)
    fingerprint = sha256("\n".join(f"{n} {source.digest(n)}" for n in used).encode())
    return Found(
        name,
        label,
        fingerprint,
        source.where,
        lambda: open_files(name, fingerprint, source, chosen),
        source,
        chosen,
    )


def as_json(found: Found) -> dict[str, Any]:
    """The tokenizer as `tokenizer.json`: read as it is, or converted so that it gives the same ids.

    Unigram: but for rare letters with several marks (`from_sentencepiece`). Raises TokenizerError
    where there is no conversion (SentencePiece BPE without byte fallback).
    """
    if found.source is None or found.kind is None:
        from tokengraft.tokenizer.openai import TikToken

        tokenizer = found.open()
        if not isinstance(tokenizer, TikToken):
            raise TokenizerError(f"{found.name}: no tokenizer.json and no way to make one")
        return tokenizer.as_json()
    try:
        return parse(found.source, found.kind)
    except TokenizerError as error:
        raise TokenizerError(f"{found.name}: {error}") from error


def side_files(found: Found) -> dict[str, bytes]:
    """What stands beside the tokenizer and travels with it, by file name."""
    if found.source is None:
        return {}
    return {n: found.source.read(n) for n in SIDE_FILES if n in found.source.files}
