"""`tokengraft.json`: what a folder was made from, by what, and the hash of each of its files."""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.files import sha256, sha256_file, write_json
from tokengraft.grafting.export import Written
from tokengraft.grafting.side_files import MANIFEST
from tokengraft.planning.types import Plan

SCHEMA = 1
_PACKAGES = ("tokengraft", "numpy", "tokenizers", "safetensors", "torch", "transformers")


def write_manifest(
    folder: Path,
    *,
    base: str,
    plan: Plan,
    rows: NDArray[np.float32],
    method: Mapping[str, Any],
    policy: str,
    bias: float,
    written: Written,
    seed: int,
    command: Sequence[str],
) -> Path:
    """Write the manifest of a complete folder; everything but it is hashed.

    The same inputs, versions and command give the same bytes: there is no date in it.
    """
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
    value = {
        "schema": SCHEMA,
        "versions": versions(),
        "command": shown_command(command),
        "seed": seed,
        "base": base,
        "plan": plan_hash(plan),
        "tokenizer": plan.tokenizer,
        "languages": list(plan.languages),
        "rows": {"sha256": sha256(np.ascontiguousarray(rows, "<f4").tobytes()), **method},
        "table": {
            "before": written.rows_before,
            "after": written.rows_after,
            "width": written.width,
            "dtype": written.dtype,
            "tied": written.tied,
        },
        "output": {
            "policy": policy,
            "bias": bias,
            "new": [written.new.start, written.new.stop],
            "first_parts": [token.parts[0] for token in plan.tokens],
            "barred": [i for i in written.barred if i not in written.new],
        },
        "examples": sorted({token.example for token in plan.tokens if token.example}),
        "files": {p.relative_to(folder).as_posix(): sha256_file(p) for p in files},
    }
    return write_json(folder / MANIFEST, value)


def plan_hash(plan: Plan) -> str:
    """sha256 of a plan's values, whatever the spacing of its file."""
    text = json.dumps(plan.to_json(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass"))


def versions() -> dict[str, str]:
    """The versions that took part; a package that is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def shown_command(command: Sequence[str]) -> str:
    """The command as it was typed, with absolute paths cut to what does not tell of the machine.

    A path below the working folder becomes relative, any other keeps its last name.
    """
    return " ".join(shlex.quote(_shown(word)) for word in command)


def _shown(word: str) -> str:
    option, sign, value = word.partition("=")
    if sign and option.startswith("--"):
        return f"{option}={_shown(value)}"
    path = Path(word).expanduser()
    if not path.is_absolute():
        return word
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.name
