"""The small files of a model folder: configs, tokenizer, chat template, licence."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokengraft.core.errors import ModelError
from tokengraft.core.files import write_json
from tokengraft.core.untrusted import parse_json
from tokengraft.grafting import output_policies as policies
from tokengraft.model import tokenizer_files
from tokengraft.model.checkpoint import read_if_there, read_json
from tokengraft.model.embedding_tables import text_config
from tokengraft.model.folder import CARD, CONFIG, MANIFEST, SIGNATURE
from tokengraft.tokenizer import transformers_classes as classes

GENERATION = "generation_config.json"
TEMPLATES = "additional_chat_templates"
MODULES = "modules.json"  # of sentence-transformers
_CARRIED = (".json", ".jinja", ".txt", ".md", "")
_SMALL = 32 << 20


def write(
    model_dir: Path,
    folder: Path,
    base: Mapping[str, Any],
    tokenizer: dict[str, Any],
    rows: tuple[int, int],
    barred: Sequence[int],
    untied: bool = False,
) -> None:
    """Copy the small files of `model_dir`, with the new tokenizer and the configs that go with it.

    `rows` are the table's before and after, `barred` the ids that generation must not emit;
    `untied`: the input and output tables were one and are now two. Not copied: the base's card,
    which describes another model, the old vocabulary in other formats, indexes of other weights,
    code, and anything large.
    """
    config = read_json(model_dir / CONFIG)
    for name in carried(model_dir):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(model_dir / name, folder / name)
    larger = larger_config(config, *rows)
    write_json(folder / CONFIG, untie(larger) if untied else larger)
    path = model_dir / GENERATION
    old = read_json(path) if path.is_file() else None
    new = policies.generation_config(old, config, barred)
    if new is not None and new != old:
        write_json(folder / GENERATION, new)
    write_tokenizer(model_dir, folder, config, base, tokenizer)


def barred_ids(folder: Path) -> set[int]:
    """The ids that the folder's generation config says must never be written.

    ModelError if these are not integers: transformers bars nothing by 5.0, "5" or true.
    """
    ids = read_if_there(folder / GENERATION).get("suppress_tokens") or []
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise ModelError(f"suppress_tokens in {GENERATION} is not a list of ids")
    return set(ids)


def carried(model_dir: Path) -> list[str]:
    """Names of the base's small files that a graft copies as they are, or rewrites."""
    names = []
    for path in sorted(model_dir.iterdir()):
        if path.suffix in _CARRIED and not _left(path.name) and path.is_file():
            if path.stat().st_size <= _SMALL:
                names.append(path.name)
        elif path.name in (TEMPLATES, *modules(model_dir)) and path.is_dir():
            inner = sorted(p.relative_to(model_dir) for p in path.rglob("*") if p.is_file())
            hidden = [p for p in inner if any(part.startswith(".") for part in p.parts)]
            names += [p.as_posix() for p in inner if p.suffix != ".py" and p not in hidden]
    return names


def modules(model_dir: Path) -> list[str]:
    """A sentence-transformers model's other folders; ModelError if one holds pickled weights."""
    path = model_dir / MODULES
    listed = parse_json(path.read_text("utf-8")) if path.is_file() else []
    named = [one.get("path") for one in listed if isinstance(one, dict)]
    folders = [name for name in named if isinstance(name, str) and name and Path(name).name == name]
    for name in folders:
        if pickled := sorted((model_dir / name).glob("*.bin")):
            raise ModelError(
                f"{name}/{pickled[0].name} is pickled, which can run code when opened: save the "
                "model with safetensors (`SentenceTransformer(DIR).save(OUT)`)"
            )
    return folders


def _left(name: str) -> bool:
    return (
        name in (CARD, MANIFEST, SIGNATURE, tokenizer_files.TOKENIZER, "Modelfile")
        or name in tokenizer_files.STALE
        or name.endswith(".index.json")
        or name.startswith(".")
    )


def untie(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the same model with a head that is a separate table."""
    key = "tie_word_embeddings"
    new = {**config, key: False}
    if isinstance(inner := config.get("text_config"), Mapping):
        new["text_config"] = {**inner, key: False}
    return new


def larger_config(config: Mapping[str, Any], before: int, after: int) -> dict[str, Any]:
    """The config with the new vocabulary size wherever it had the old one."""
    new = dict(config)
    if after == before:
        return new
    if new.get("vocab_size") == before:
        new["vocab_size"] = after
    if text_config(config) is not config:
        new["text_config"] = {**config["text_config"], "vocab_size": after}
    return new


def write_tokenizer(
    model_dir: Path,
    folder: Path,
    config: Mapping[str, Any],
    base: Mapping[str, Any],
    tokenizer: dict[str, Any],
) -> None:
    """Write the new tokenizer and its config as transformers loads them."""
    old = read_if_there(model_dir / tokenizer_files.TOKENIZER_CONFIG)
    tokenizer_files.write_tokenizer_json(folder, classes.with_start(tokenizer, old))
    relaxed = base.get("pre_tokenizer") != tokenizer.get("pre_tokenizer")
    new = classes.tokenizer_config(old, config, tokenizer, relaxed)
    write_json(folder / tokenizer_files.TOKENIZER_CONFIG, new)
