"""Names → tokenizers: the paper's ten, modern ones by hub id, any path, any tiktoken encoding."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path

from tokengraft.core.errors import TokenizerError, Unavailable, did_you_mean
from tokengraft.core.files import sha256
from tokengraft.tokenizer import sources
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.entries import BY_NAME, ROOTSTOCK, Entry
from tokengraft.tokenizer.sources import Source

PLAN = "plan.json"
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
    return _found(name, label, sources.hub(hub_id), kind)


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
    if entry.hub_id is not None and sources.hub_cached(entry.hub_id):
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
    kind = kind if kind in source.files and kind != PLAN else _preferred(source)
    if kind is None:
        plan = " This is a plan; `tokengraft insert TOKENIZER PLAN -o OUT` makes a tokenizer of it."
        raise TokenizerError(
            f"{source.where}: no tokenizer file here. Expected one of "
            f"{', '.join(sources.KNOWN_FILES[:5])} or a .tiktoken file."
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


def _preferred(source: Source) -> str | None:
    """The file to build from; a `.json` of another name only if its contents are a tokenizer's."""
    order = [n for n in sources.KNOWN_FILES[:5] if n in source.files]
    order += [n for n in source.files if n.endswith((".tiktoken", ".model")) or n == "vocab.json"]
    others = (n for n in source.files if n.endswith(".json") and _is_tokenizer(source.read(n)))
    return next(iter(order), None) or next(others, None)


def _is_tokenizer(data: bytes) -> bool:
    try:
        spec = json.loads(data)
    except ValueError:
        return False
    return isinstance(spec, dict) and isinstance(spec.get("model"), dict)


def used_files(source: Source, kind: str) -> list[str]:
    """The files of `source` that say what the tokenizer in its file `kind` is: `kind` first."""
    companions = {
        "tokenizer.json": [],
        "vocab.json": ["merges.txt"],
        "sentencepiece.bpe.model": ["vocab.json", "tokenizer_config.json"],
    }.get(kind, ["tokenizer_config.json"])
    if kind == "vocab.json" and _ids_are_ranks(source):
        companions = []  # the merges say nothing that the ids do not
    return [kind, *(name for name in companions if name in source.files)]


def open_files(name: str, fingerprint: str, source: Source, kind: str) -> Tokenizer:
    """The tokenizer in the file `kind`; no file but `used_files` is read."""
    data = source.read(kind)
    if kind.endswith(".model"):
        from tokengraft.tokenizer.sentence_piece import SentencePiece

        settings = "tokenizer_config.json"
        config = source.read(settings) if settings in source.files else None
        has_table = kind == "sentencepiece.bpe.model" and "vocab.json" in source.files
        table = source.read("vocab.json") if has_table else None
        return SentencePiece.from_files(name, fingerprint, data, config, table)
    if kind.endswith(".tiktoken"):
        from tokengraft.tokenizer.openai import TikToken

        return TikToken.from_ranks(name, fingerprint, data, Path(kind).stem)
    if kind == "vocab.json" and _ids_are_ranks(source):
        from tokengraft.tokenizer.openai import TikToken

        return TikToken.from_gpt2(name, fingerprint, data)
    from tokengraft.tokenizer.huggingface import HuggingFace

    if kind == "vocab.json" or kind.endswith(".txt"):
        from tokengraft.tokenizer.parse import parse

        try:
            data = json.dumps(parse(source, kind)).encode("utf-8")
        except TokenizerError as error:
            raise TokenizerError(f"{name}: {error}") from error
    return HuggingFace.from_json(name, fingerprint, data)


def _ids_are_ranks(source: Source) -> bool:
    """Of a `vocab.json`; without merges beside it there is nothing else to take for ranks."""
    if "merges.txt" not in source.files:
        return True
    from tokengraft.tokenizer.insert_convert import ids_are_ranks

    try:
        merges = source.read("merges.txt").decode("utf-8").split("\n")
        return ids_are_ranks(json.loads(source.read("vocab.json")), merges)
    except (AttributeError, ValueError):
        return False  # broken files: whoever opens them says so
