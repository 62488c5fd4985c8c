"""The adapters, one row each: which files it reads, how it opens them and turns them into JSON.

A new kind of tokenizer is a module with a `Tokenizer` (`adapters`) and a row here; the contract
suite (`tests/contract/test_adapters.py`) then runs on the row's `example`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

from tokengraft.core.errors import TokenizerError
from tokengraft.core.untrusted import parse_json
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.file_shape import checked, settings
from tokengraft.tokenizer.sources import Source, bundled

CONFIG = "tokenizer_config.json"
#: takes name, fingerprint, files, and which of them defines the tokenizer
Opens: TypeAlias = Callable[[str, str, Source, str], Tokenizer]
#: turns the same files into a parsed `tokenizer.json` that gives the same ids
Parses: TypeAlias = Callable[[Source, str], dict[str, Any]]


def _config_beside(source: Source, kind: str) -> tuple[str, ...]:
    del source, kind
    return (CONFIG,)


@dataclass(frozen=True)
class Adapter:
    """One kind of tokenizer file.

    `names` are looked for first, in the order of the table; then any file that matches `patterns`.
    Files that match `given` are read by this adapter only if the user names the file itself.
    `beside` says which other files matter. `example` gives files that this adapter opens.
    """

    name: str
    help: str
    opens: Opens
    example: Callable[[], Source]
    parses: Parses | None = None  # None: there is no way to write it as tokenizer.json
    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    beside: Callable[[Source, str], tuple[str, ...]] = _config_beside

    def recognises(self, file: str) -> bool:
        """Whether it reads a file of this name."""
        patterns = (*self.patterns, *self.given)
        return file in self.names or any(fnmatchcase(file, pattern) for pattern in patterns)


def adapter_of(kind: str) -> Adapter:
    """The adapter that reads the file `kind`; the one for JSON if no other does."""
    return next((adapter for adapter in ADAPTERS if adapter.recognises(kind)), ADAPTERS[0])


def well_known() -> list[str]:
    """Names of files that are looked for, the preferred first."""
    return [name for adapter in ADAPTERS for name in adapter.names]


def choose_file(source: Source) -> str | None:
    """The file to open a tokenizer from, at worst any `.json` that holds one; None without one."""
    order = [name for name in well_known() if name in source.files]
    patterns = [pattern for adapter in ADAPTERS for pattern in adapter.patterns]
    order += [n for n in source.files if any(fnmatchcase(n, pattern) for pattern in patterns)]
    others = (n for n in source.files if n.endswith(".json") and _is_tokenizer(source.read(n)))
    return next(iter(order), None) or next(others, None)


def used_files(source: Source, kind: str) -> list[str]:
    """The files of `source` that define the tokenizer in its file `kind`, that one first."""
    beside = adapter_of(kind).beside(source, kind)
    return [kind, *(name for name in beside if name in source.files)]


def open_files(name: str, fingerprint: str, source: Source, kind: str) -> Tokenizer:
    """The tokenizer in the file `kind`; no file but `used_files` is read."""
    return adapter_of(kind).opens(name, fingerprint, source, kind)


def parse(source: Source, kind: str) -> dict[str, Any]:
    """The file `kind` of `source`, with the others it needs, as a parsed `tokenizer.json`."""
    parses = adapter_of(kind).parses
    if parses is None:
        raise TokenizerError(f"{source.where}/{kind}: no tokenizer.json and no way to make one")
    try:
        return parses(source, kind)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise TokenizerError(f"{source.where}/{kind}: cannot be read ({error})") from error


def _is_tokenizer(data: bytes) -> bool:
    try:
        spec = parse_json(data)
    except ValueError:
        return False
    return isinstance(spec, dict) and isinstance(spec.get("model"), dict)


def _config(source: Source) -> dict[str, Any]:
    return settings(source.read(CONFIG), source.where) if CONFIG in source.files else {}


def _open_json(name: str, fingerprint: str, source: Source, kind: str) -> Tokenizer:
    from tokengraft.tokenizer.huggingface import HuggingFace

    return HuggingFace.from_json(name, fingerprint, source.read(kind))


def _parse_json(source: Source, kind: str) -> dict[str, Any]:
    data = source.read(kind)
    return checked(parse_json(data), len(data), source.where)


def _open_sentencepiece(name: str, fingerprint: str, source: Source, kind: str) -> Tokenizer:
    from tokengraft.tokenizer.sentence_piece import SentencePiece

    config = source.read(CONFIG) if CONFIG in source.files else None
    has_table = "vocab.json" in _beside_sentencepiece(source, kind) and "vocab.json" in source.files
    table = source.read("vocab.json") if has_table else None
    return SentencePiece.from_files(name, fingerprint, source.read(kind), config, table)


def _parse_sentencepiece(source: Source, kind: str) -> dict[str, Any]:
    from tokengraft.tokenizer.convert import from_sentencepiece
    from tokengraft.tokenizer.transformers_classes import completed

    return completed(from_sentencepiece(source.read(kind)), _config(source))


def _beside_sentencepiece(source: Source, kind: str) -> tuple[str, ...]:
    del source
    return ("vocab.json", CONFIG) if kind == "sentencepiece.bpe.model" else (CONFIG,)


def _parse_wordpiece(source: Source, kind: str) -> dict[str, Any]:
    from tokengraft.tokenizer.convert import from_vocab_txt
    from tokengraft.tokenizer.transformers_classes import completed

    said = _config(source)
    lower = bool(said.get("do_lower_case", True))
    return completed(from_vocab_txt(source.read(kind), lower), said)


def _open_parsed(name: str, fingerprint: str, source: Source, kind: str) -> Tokenizer:
    from tokengraft.tokenizer.huggingface import HuggingFace

    try:
        data = json.dumps(parse(source, kind)).encode("utf-8")
    except TokenizerError as error:
        raise TokenizerError(f"{name}: {error}") from error
    return HuggingFace.from_json(name, fingerprint, data)


def _open_ranks(name: str, fingerprint: str, source: Source, kind: str) -> Tokenizer:
    from tokengraft.tokenizer.openai import TikToken

    return TikToken.from_ranks(name, fingerprint, source.read(kind), Path(kind).stem)


def _parse_ranks(source: Source, kind: str) -> dict[str, Any]:
    from tokengraft.tokenizer.openai import TikToken

    return TikToken.from_ranks(kind, "", source.read(kind), Path(kind).stem).as_json()


def _open_vocab_and_merges(name: str, fingerprint: str, source: Source, kind: str) -> Tokenizer:
    from tokengraft.tokenizer.openai import TikToken

    if _ids_are_ranks(source):
        return TikToken.from_gpt2(name, fingerprint, source.read(kind))
    return _open_parsed(name, fingerprint, source, kind)


def _parse_vocab_and_merges(source: Source, kind: str) -> dict[str, Any]:
    from tokengraft.tokenizer.convert import from_merges

    if "merges.txt" not in source.files:
        raise TokenizerError("vocab.json has no merges.txt beside it")
    merges = source.read("merges.txt").decode("utf-8").split("\n")
    data = source.read(kind)
    return checked(from_merges(parse_json(data), merges), len(data), source.where)


def _ids_are_ranks(source: Source) -> bool:
    """Whether ids of a `vocab.json` are merge ranks; without a merges.txt they are taken for it."""
    if "merges.txt" not in source.files:
        return True
    from tokengraft.tokenizer.convert import ids_are_ranks

    try:
        merges = source.read("merges.txt").decode("utf-8").split("\n")
        return ids_are_ranks(parse_json(source.read("vocab.json")), merges)
    except (AttributeError, ValueError):
        return False  # broken files: opening them says what is wrong


ADAPTERS: tuple[Adapter, ...] = (
    Adapter(
        "tokenizer.json", "Hugging Face tokenizers, read as it is",
        _open_json, lambda: bundled("claude-2.1"), _parse_json, names=("tokenizer.json",),
        beside=lambda source, kind: () if kind == "tokenizer.json" else (CONFIG,),
    ),
    Adapter(
        "sentencepiece", "SentencePiece models (T5, Llama 2, Mistral, M2M-100)",
        _open_sentencepiece, lambda: bundled("mistral-v0.3"), _parse_sentencepiece,
        names=("tokenizer.model", "spiece.model", "sentencepiece.bpe.model"),
        patterns=("*.model",), beside=_beside_sentencepiece,
    ),
    Adapter(
        "wordpiece", "BERT's vocab.txt, one token a line",
        _open_parsed, lambda: bundled("bert-multilingual"), _parse_wordpiece,
        names=("vocab.txt",), given=("*.txt",),
    ),
    Adapter(
        "tiktoken", "OpenAI's ranks, for encodings whose split pattern is known",
        _open_ranks, lambda: bundled("cl100k_base"), _parse_ranks, patterns=("*.tiktoken",),
    ),
    Adapter(
        "vocab.json + merges.txt", "GPT-2's own files",
        _open_vocab_and_merges, lambda: bundled("gpt2"), _parse_vocab_and_merges,
        patterns=("vocab.json",),
        beside=lambda source, kind: () if _ids_are_ranks(source) else ("merges.txt",),
    ),
)  # fmt: skip
