"""`tokengraft.json`: what a folder was made from, by what, and the hash of each of its files."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.core import __version__
from tokengraft.core.errors import ModelError
from tokengraft.core.files import sha256, sha256_file, write_json
from tokengraft.core.verdict import Done
from tokengraft.deriving.distil.recipe import SETTLED, WIDENED
from tokengraft.grafting.output_policies import is_recorded, recorded
from tokengraft.grafting.write_folder import Written
from tokengraft.model.checkpoint import read_json
from tokengraft.model.embedding_tables import is_encoder
from tokengraft.model.folder import MANIFEST
from tokengraft.planning.plan import Plan

SCHEMA = 1
_SHORT = re.compile(r"(-[A-Za-z])([/~.].+)", re.DOTALL)  # -oPATH
_PACKAGES = ("numpy", "tokenizers", "safetensors", "torch", "transformers")


def write_manifest(
    folder: Path,
    *,
    base: str,
    plan: Plan,
    rows: NDArray[np.float32],
    method: Mapping[str, Any],
    output: Mapping[str, Any],
    written: Written,
    run: Mapping[str, Any],
) -> None:
    """Write the manifest of a complete folder; same inputs, versions and command, same bytes.

    `run` may say what else is to be known, such as `earlier`: the `outputs` of a base that is a
    graft too.
    """
    value = {
        "schema": SCHEMA,
        "versions": versions(),
        **run,
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
            **output,
            "new": [written.new.start, written.new.stop],
            "first_parts": [token.parts[0] for token in plan.tokens],
            "barred": [i for i in written.barred if i not in written.new],
        },
        "examples": sorted({token.example for token in plan.tokens if token.example}),
        "files": file_hashes(folder),
    }
    write_json(folder / MANIFEST, value)


def file_hashes(folder: Path) -> dict[str, str]:
    """The hash of every file but the manifest, by its name."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
    return {p.relative_to(folder).as_posix(): sha256_file(p) for p in files}


def new_ids(manifest: Mapping[str, Any]) -> Sequence[int]:
    """The ids of the new tokens, in the plan's order."""
    if "places" in manifest:
        ids: list[int] = manifest["places"]["ids"]
        return ids
    return range(*manifest["output"]["new"])


def done(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> Done | None:
    """What was done to make the graft of that manifest, whose config is given; None if unknown."""
    if manifest["rows"]["method"] == "given":
        return None
    params = manifest["rows"].get("params") or {}
    read, there = params.get("steps_done", 0) * params.get("passages", 0), "training_passages"
    learned = manifest["rows"]["method"] == "distil" or "trained" in manifest
    architecture = next(iter(config.get("architectures") or ()), None)
    return Done(
        trained=(manifest.get("trained") or {}).get("train", "rows") if learned else None,
        writes=recorded(manifest["output"]["policy"]).trains,
        settled=params.get("stopped") == SETTLED,
        unread=read < params.get(there, 0),
        by_text=params.get("by_text"),
        lanes=architecture in WIDENED,
        fixed="places" in manifest or is_encoder(config),
    )


def outputs(manifest: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What the new tokens of each graft in a folder may do, the latest last.

    New tokens that took the places of old ones are left out: they are only read.
    """
    if manifest is None:
        return []
    last = [] if "places" in manifest else [manifest["output"]]
    return [*manifest.get("earlier", ()), *last]


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The folder's manifest, or None if it has none; ModelError if it is damaged."""
    if not (folder / MANIFEST).is_file():
        return None
    value = read_json(folder / MANIFEST)
    output, hashes, earlier = value.get("output"), value.get("files"), value.get("earlier", [])
    if value.get("schema") != SCHEMA:
        raise ModelError(f"{MANIFEST} has schema {value.get('schema')!r}, expected {SCHEMA}")
    if not (isinstance(earlier, list) and all(map(_sound, [*earlier, output]))):
        raise ModelError(f"{MANIFEST} does not say what the new tokens may do: output is damaged")
    if not isinstance(hashes, dict) or not hashes:
        raise ModelError(f"{MANIFEST} names no files")
    trained = value.get("trained")
    if trained is not None and not (
        isinstance(trained, dict)
        and _words(trained.get("tensors"))
        and (_lanes(trained) or _promises(trained.get("promised")))
    ):
        raise ModelError(f"{MANIFEST} does not say what was trained: trained is damaged")
    places = value.get("places")
    if places is not None and not (
        isinstance(places, dict)
        and _numbers(places.get("ids"))
        and isinstance(output, dict)
        and len(places["ids"]) == len(output["first_parts"])
        and isinstance(places.get("replaced"), dict)
    ):
        raise ModelError(f"{MANIFEST} does not say which tokens were replaced: places is damaged")
    if not all(_words(value.get(key)) for key in ("languages", "examples")):
        raise ModelError(f"{MANIFEST} is damaged: languages or examples are not lists of words")
    return value


def _sound(output: Any) -> bool:
    return (
        isinstance(output, dict)
        and is_recorded(output.get("policy"))
        and isinstance(output.get("bias"), int | float)
        and math.isfinite(output["bias"])
        and all(_numbers(output.get(key)) for key in ("new", "first_parts", "barred"))
        and len(output["new"]) == 2
        and len(output["first_parts"]) == len(range(*output["new"]))
    )


def _lanes(trained: Mapping[str, Any]) -> bool:
    lanes = trained.get("lanes")
    return trained.get("train") == "lanes" and type(lanes) is int and lanes > 0


def _promises(value: Any) -> bool:
    figures = (value.get("kl"), value.get("top1")) if isinstance(value, dict) else (None,)
    return all(isinstance(one, int | float) for one in figures)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int for one in value)


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def plan_hash(plan: Plan) -> str:
    """sha256 of a plan's values, however its file is formatted."""
    text = json.dumps(plan.to_json(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass"))


def versions() -> dict[str, str]:
    """Versions of Python, tokengraft and what it builds on; packages not installed are left out."""
    by_package = {"python": platform.python_version(), "tokengraft": __version__}
    for name in _PACKAGES:
        try:
            by_package[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return by_package


def shown_command(command: Sequence[str]) -> str:
    """The command as it was typed, with paths shortened so that they say nothing about the machine.

    A path below the working folder becomes relative, any other keeps its last name; so do the
    paths in `--option=PATH`, `code=PATH` and `-oPATH`.
    """
    return " ".join(shlex.quote(_shown(word)) for word in command)


def _shown(word: str) -> str:
    path = Path(os.path.expanduser(word.removeprefix("file://")))  # noqa: PTH111 - never raises
    if path.is_absolute() or word.startswith(("~", "file:")):
        inside = path.is_relative_to(Path.cwd())
        return path.relative_to(Path.cwd()).as_posix() if inside else path.name
    if word.startswith(".."):
        return path.name
    option, sign, value = word.partition("=")
    if sign:
        return f"{option}={_shown(value)}"
    if match := _SHORT.fullmatch(word):
        return match[1] + _shown(match[2])
    return word
