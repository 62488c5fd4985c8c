"""A model by name: the embedded default, a folder, or an id on the model hub."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from tokengraft.core.errors import ModelError, did_you_mean
from tokengraft.core.files import download, read_json, sha256_file
from tokengraft.core.untrusted import refuse_links_out
from tokengraft.tokenizer.catalog import BUNDLED, ROOTSTOCK, canonical, rootstock

CONFIG = "config.json"
CARD = "README.md"
ADAPTER = "adapter_config.json"  # peft recognises an adapter by this file
MANIFEST = "tokengraft.json"  # how a graft was made, and what it contains
SIGNATURE = "model.sig"  # over all other files, as OpenSSF model signing writes it
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_PATTERNS = [
    "*.safetensors", "*.json", "*.jinja", "tokenizer.model", "README.md", "LICENSE*", "NOTICE*",
    "USE_POLICY*", "additional_chat_templates/*",
]  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A model folder, the name to cite it by (never a path), and its licence if it states one."""

    path: Path
    name: str
    license: str | None


def resolve(model: str | Path) -> Model:
    """The folder of `model`: `rootstock`, an existing folder, or a hub id (downloaded once).

    From the hub only safetensors, tokenizer, config and licence files are fetched. Raises
    ModelError if there is no such model or the hub cannot be reached.
    """
    if str(model) == ROOTSTOCK.name:
        return Model(rootstock(), ROOTSTOCK.name, "apache-2.0")
    path = Path(model).expanduser()
    if path.is_dir():
        refuse_adapter(path)
        if not (path / CONFIG).is_file():
            raise ModelError(f"{path} holds no {CONFIG}: it is not a model folder")
        refuse_links_out(path, ModelError)
        return Model(path, _cited(path), _license(path))
    if isinstance(model, str) and _HUB_ID.fullmatch(model):
        path = download(model, _PATTERNS, ModelError)
        return Model(path, model, _license(path))
    hint = did_you_mean(str(model), [ROOTSTOCK.name])
    if canonical(str(model)) in BUNDLED:
        hint = " Only its tokenizer is bundled."
    raise ModelError(
        f"no model {str(model)!r}: neither the embedded {ROOTSTOCK.name}, nor a folder, nor a hub "
        f"id like org/name.{hint}"
    )


def refuse_adapter(folder: Path) -> None:
    """Raise ModelError if the folder holds an adapter without its base."""
    if (folder / ADAPTER).is_file() and not (folder / CONFIG).is_file():
        raise ModelError(
            f"{folder} is an adapter without its base: its README says how peft loads and merges "
            "it; or graft again without --adapter-only"
        )


def model_hash(folder: Path | str) -> str:
    """sha256 over config and weights, on which hidden states depend."""
    folder = Path(folder)
    files = sorted([folder / CONFIG, *folder.glob("*.safetensors")])
    digest = hashlib.sha256()
    for file in files:
        if not file.is_file():
            raise ModelError(f"{folder}: no {file.name}; a model folder with config.json is needed")
        state = file.stat()
        digest.update(f"{file.name} {_hash(file, state.st_size, state.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


@functools.lru_cache(maxsize=256)
def _hash(file: Path, _size: int, _changed: int) -> str:
    return sha256_file(file)


def _cited(path: Path) -> str:
    """The hub id that the config records, else the folder's name."""
    remembered = read_json(path / CONFIG, ModelError).get("_name_or_path")
    if isinstance(remembered, str) and _HUB_ID.fullmatch(remembered):
        return remembered
    return path.resolve().name


def _license(path: Path) -> str | None:
    """The licence that the base's card states in its front matter."""
    if not (path / CARD).is_file():
        return None
    text = (path / CARD).read_text(encoding="utf-8", errors="replace")
    match = re.match(r"---\r?\n(.*?)\r?\n---", text, re.DOTALL)
    try:
        front = yaml.safe_load(match[1]) if match else None
    except yaml.YAMLError:
        return None
    stated = front.get("license") if isinstance(front, dict) else None
    return stated if isinstance(stated, str) else None
