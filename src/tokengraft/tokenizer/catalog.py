"""Names → tokenizers: the paper's ten, modern ones by hub id, any path, any tiktoken encoding."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tokengraft.core.errors import TokenizerError, Unavailable, did_you_mean
from tokengraft.core.files import ASSETS, sha256
from tokengraft.tokenizer import sources
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.file_kinds import (
    CONFIG,
    choose_file,
    open_files,
    parse,
    used_files,
    well_known,
)
from tokengraft.tokenizer.sources import Source


@dataclass(frozen=True)
class Entry:
    """A tokenizer known by name."""

    name: str
    label: str  # as tables print it
    model: str  # a well-known model that uses it
    maker: str
    context: int  # tokens
    released: str
    licence: str
    hub_id: str | None = None
    kind: str | None = None  # which file to build from; None: whichever is found
    bundled: bool = False
    paper: bool = False


# fmt: off
ENTRIES = (
    Entry("t5", "T5", "T5", "Google", 512, "2019-10", "Apache-2.0", "google-t5/t5-base", "spiece.model", True, True),
    Entry("mistral-v0.3", "Mistral", "Mistral 7B v0.3", "Mistral AI", 4096, "2023-09", "Apache-2.0", "mistralai/Mistral-7B-v0.3", "tokenizer.model", True, True),
    Entry("gpt2", "GPT-2/3", "GPT-2", "OpenAI", 1024, "2019-02", "MIT", "openai-community/gpt2", "vocab.json", True, True),
    Entry("claude-2.1", "Claude 2.1", "Claude 2.1", "Anthropic", 200_000, "2023-11", "MIT", None, "tokenizer.json", True, True),
    Entry("olmo-2", "OLMo 2", "OLMo 2", "AllenAI", 4096, "2024-12", "Apache-2.0", "allenai/OLMo-2-1124-7B", "tokenizer.json", True, True),
    Entry("cl100k_base", "GPT-3.5/4", "GPT-3.5", "OpenAI", 16_385, "2022-03", "MIT", None, "cl100k_base.tiktoken", True, True),
    Entry("bert-multilingual", "BERT", "BERT Multilingual", "Google", 512, "2018-10", "Apache-2.0", "google-bert/bert-base-multilingual-cased", "vocab.txt", True, True),
    Entry("llama-3", "Llama 3", "Llama 3.2 1B", "Meta", 131_072, "2024-09", "Llama 3.2 Community", "meta-llama/Llama-3.2-1B", "tokenizer.json", True, True),
    Entry("m2m100", "M2M-100", "M2M-100", "Meta", 1024, "2020-10", "MIT", "facebook/m2m100_418M", "sentencepiece.bpe.model", False, True),
    Entry("o200k_base", "GPT-4o", "GPT-4o", "OpenAI", 128_000, "2024-05", "MIT", None, "o200k_base.tiktoken", True, True),
    Entry("qwen3", "Qwen 3", "Qwen 3", "Alibaba", 32_768, "2025-04", "Apache-2.0", "Qwen/Qwen3-0.6B"),
    Entry("gemma3", "Gemma 3", "Gemma 3", "Google", 131_072, "2025-03", "Gemma terms", "google/gemma-3-1b-it"),
    Entry("deepseek-v3", "DeepSeek V3", "DeepSeek V3", "DeepSeek", 131_072, "2024-12", "MIT", "deepseek-ai/DeepSeek-V3"),
    Entry("mistral-nemo", "Mistral Nemo", "Mistral Nemo", "Mistral AI", 131_072, "2024-07", "Apache-2.0", "mistralai/Mistral-Nemo-Base-2407"),
    Entry("command-r-plus", "Command R+", "Command R+", "Cohere", 131_072, "2024-04", "CC-BY-NC-4.0", "CohereLabs/c4ai-command-r-plus"),
    Entry("llama-4", "Llama 4", "Llama 4 Scout", "Meta", 10_485_760, "2025-04", "Llama 4 Community", "meta-llama/Llama-4-Scout-17B-16E"),
    Entry("nllb-200", "NLLB-200", "NLLB-200", "Meta", 1024, "2022-07", "CC-BY-NC-4.0", "facebook/nllb-200-distilled-600M"),
    Entry("bloom", "BLOOM", "BLOOM", "BigScience", 2048, "2022-07", "BigScience RAIL", "bigscience/bloom-560m"),
    Entry("mt5", "mT5", "mT5", "Google", 1024, "2020-10", "Apache-2.0", "google/mt5-small"),
    Entry("xlm-r", "XLM-R", "XLM-RoBERTa", "Meta", 512, "2019-11", "MIT", "FacebookAI/xlm-roberta-base"),
    Entry("phi-4", "Phi-4", "Phi-4", "Microsoft", 16_384, "2024-12", "MIT", "microsoft/phi-4"),
    Entry("gpt-oss", "gpt-oss", "gpt-oss", "OpenAI", 131_072, "2025-08", "Apache-2.0", "openai/gpt-oss-20b"),
)
# The model in the package: listed and found by name, but not audited unless it is asked for.
ROOTSTOCK = Entry("rootstock", "rootstock", "Rootstock", "tokengraft", 2048, "2026-11", "Apache-2.0", None, "tokenizer.json")
# fmt: on
LISTED = (*ENTRIES, ROOTSTOCK)
BY_NAME = {entry.name: entry for entry in LISTED}
#: Other names of tokenizers, mostly those of the models that use them.
ALSO_CALLED = {
    "o200k_base": ("gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-5", "o1", "o3", "o4-mini"),
    "cl100k_base": ("gpt-4", "gpt-4-turbo", "gpt-3.5", "gpt-3.5-turbo", "chatgpt"),
    "gpt2": ("gpt-2", "gpt-3"),
    "llama-3": ("llama3", "llama-3.1", "llama-3.2", "llama-3.3", "llama-3-8b", "llama-3.2-1b"),
    "mistral-v0.3": ("mistral", "mistral-7b"),
    "olmo-2": ("olmo2", "olmo"),
    "claude-2.1": ("claude-2",),
    "bert-multilingual": ("bert", "mbert"),
    "qwen3": ("qwen-3", "qwen"),
    "gemma3": ("gemma-3", "gemma"),
    "llama-4": ("llama4",),
    "deepseek-v3": ("deepseek", "deepseekv3"),
    "phi-4": ("phi4",),
    "xlm-r": ("xlm-roberta", "xlmr"),
    "nllb-200": ("nllb",),
}
_NAMES = {alias: name for name, aliases in ALSO_CALLED.items() for alias in aliases}
PAPER = tuple(entry.name for entry in ENTRIES if entry.paper)
BUNDLED = tuple(entry.name for entry in ENTRIES if entry.bundled)


#: Whose models are used most today, in our judgement, most first: what headlines are about.
MOST_USED = (
    "o200k_base", "gemma3", "qwen3", "deepseek-v3", "llama-3", "llama-4", "gpt-oss",
    "mistral-nemo", "mistral-v0.3", "command-r-plus", "phi-4", "cl100k_base", "olmo-2",
)  # fmt: skip
#: Models whose makers keep their tokenizers to themselves, and what comes nearest.
_UNPUBLISHED = re.compile(r"(claude|gemini)(-|$)", re.I)
_NEAREST = {
    "claude": "The last one that Anthropic published is claude-2.1.",
    "gemini": "Google says that Gemini 2.0 has the tokenizer of Gemma 3: audit gemma3.",
}
PLAN = "plan.json"
BESIDE = ("vocab.json", "merges.txt", CONFIG)  # further files an adapter may need, from the hub
#: Files beside `tokenizer.json` that a model folder needs to tokenize as before.
SIDE_FILES = (
    CONFIG, "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "chat_template.json",
)  # fmt: skip
ENVIRONMENT = "TOKENGRAFT_TOKENIZERS"  # folders or archives, separated like PATH


@dataclass(frozen=True)
class Located:
    """A tokenizer that was found: named, hashed, and opened only when it has to encode."""

    name: str
    label: str
    fingerprint: str
    where: str
    open: Callable[[], Tokenizer]
    source: Source | None = None  # its files; None if tiktoken itself provides it
    kind: str | None = None  # the file of `source` that defines it


def load(name: str | Path, search: Sequence[Path] = ()) -> Tokenizer:
    """Open a tokenizer by catalog name, path, hub id or tiktoken name."""
    return find(str(name), search).open()


def canonical(name: str) -> str:
    """The catalog's name for names like `GPT-4o` or `llama3`; any other name as it is."""
    plain = "-".join(name.lower().split())
    known = _NAMES.get(plain, plain)
    return known if known in BY_NAME else name


def shown_as(name: str) -> str | None:
    """The label under which a tokenizer is shown, if `name` is that of another model (`gpt-5`)."""
    entry = BY_NAME.get(canonical(name))
    if entry is None or Path(name).exists():
        return None
    said, *own = ("".join(c for c in text.lower() if c.isalnum())
                  for text in (name, entry.name, entry.label))  # fmt: skip
    return None if any(said.startswith(o) or o.startswith(said) for o in own) else entry.label


def find(name: str, search: Sequence[Path] = ()) -> Located:
    """Locate a tokenizer without opening it.

    Looked up in this order: a path; the folders and archives in `search` and in the environment
    variable; the package; tiktoken's names; the hub. Other names (`ALSO_CALLED`) are understood.
    Raises `Unavailable` for a known tokenizer that is not here, `TokenizerError` for an unknown
    name.
    """
    if not name:  # as a path it would be the current folder
        raise TokenizerError("The name of the tokenizer is empty.")
    path = Path(name)
    if path.is_dir():
        return _located(name, path.resolve().name, sources.folder(path), None)
    if path.is_file():
        inner = sources.folder(path.parent)
        beside = {path.name, CONFIG}
        beside |= {"merges.txt"} if path.name == "vocab.json" else set()
        alone = {n: read for n, read in inner.files.items() if n in beside}
        return _located(name, path.stem, Source(str(path), alone, inner.digests), path.name)
    name = canonical(name)
    entry = BY_NAME.get(name)
    kind = entry.kind if entry else None
    label = entry.label if entry else name
    for place in places(search):
        if (source := _in_place(place, name)) is not None:
            return _located(name, label, source, kind)
    if entry is not None and entry.bundled:
        return _located(name, label, sources.bundled(name), kind)
    if (encoding := _tiktoken(name)) is not None:
        return encoding
    if entry is ROOTSTOCK:
        return _located(name, label, sources.folder(rootstock()), kind)
    if entry is not None and entry.hub_id is None:
        raise Unavailable(
            f"{name}: not bundled here; give a folder that holds it with --tokenizers."
        )
    if entry is None and (unpublished := _UNPUBLISHED.match(name)):
        raise TokenizerError(
            f"The tokenizer of {name} is not published, so its tokens cannot be counted here. "
            f"{_NEAREST[unpublished[1].lower()]} For exact numbers, ask its maker's own "
            "token-counting service."
        )
    if entry is None and (name.count("/") != 1 or name.startswith((".", "/", "~"))):
        raise TokenizerError(
            f"No tokenizer {name!r}: neither a path, a known name, a tiktoken encoding nor a hub "
            f"id (owner/model).{did_you_mean(name, [*BY_NAME, *_NAMES])} See `tokengraft "
            "tokenizers`."
        )
    hub_id = entry.hub_id if entry is not None and entry.hub_id else name
    return _located(name, label, sources.hub(hub_id, [*well_known(), *BESIDE]), kind)


def rootstock() -> Path:
    """The folder of the bundled model."""
    return ASSETS / "rootstock"


def places(search: Sequence[Path] = ()) -> list[Path]:
    """The folders and archives in which named tokenizers are looked up."""
    from_environment = [Path(p) for p in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if p]
    places = [*search, *from_environment]
    for place in places:
        if not place.exists():
            raise TokenizerError(f"{place}: no such folder or archive of tokenizers")
    return places


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


def _tiktoken(name: str) -> Located | None:
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
    return Located(
        name, name, fingerprint, "tiktoken", lambda: TikToken(name, fingerprint, encoding)
    )


def _located(name: str, label: str, source: Source, kind: str | None) -> Located:
    """Choose the file to build from, and hash what defines the tokenizer."""
    kind = kind if kind in source.files and kind != PLAN else choose_file(source)
    if kind is None:
        plan = " This is a plan; `tokengraft insert TOKENIZER PLAN -o OUT` makes a tokenizer of it."
        raise TokenizerError(
            f"{source.where}: no tokenizer file here. Expected one of "
            f"{', '.join(well_known())} or a .tiktoken file."
            f"{plan if PLAN in source.files else ''}"
        )
    used = used_files(source, kind)
    fingerprint = sha256("\n".join(f"{n} {source.digest(n)}" for n in used).encode())
    opened = partial(open_files, name, fingerprint, source, kind)
    return Located(name, label, fingerprint, source.where, opened, source, kind)


def as_json(located: Located) -> dict[str, Any]:
    """The tokenizer as `tokenizer.json`: read as it is, or converted so that it gives the same ids.

    A converted Unigram may differ on rare letters with several marks (`from_sentencepiece`). Raises
    TokenizerError if there is no conversion (SentencePiece BPE without byte fallback).
    """
    if located.source is None or located.kind is None:
        from tokengraft.tokenizer.openai import TikToken

        tokenizer = located.open()
        if not isinstance(tokenizer, TikToken):
            raise TokenizerError(f"{located.name}: no tokenizer.json and no way to make one")
        return tokenizer.as_json()
    try:
        return parse(located.source, located.kind)
    except TokenizerError as error:
        raise TokenizerError(f"{located.name}: {error}") from error


def side_files(located: Located) -> dict[str, bytes]:
    """The files that belong to the tokenizer besides the one that defines it, by name."""
    if located.source is None:
        return {}
    return {n: located.source.read(n) for n in SIDE_FILES if n in located.source.files}
