"""Where training goes on: what an earlier graft of the same plan had learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import ModelError, UsageError
from tokengraft.deriving.distil.recipe import Adapting
from tokengraft.deriving.task import Start
from tokengraft.grafting.manifest import new_ids, plan_hash, read_manifest
from tokengraft.grafting.output_policies import recorded
from tokengraft.model.checkpoint import Tensor, read_checkpoint, read_json
from tokengraft.model.embedding_tables import find_layout, refuse_damaged
from tokengraft.model.folder import CONFIG, MANIFEST, Model
from tokengraft.planning.plan import Plan

_SOME = 1000  # old rows by which a model is recognised
_APART = 0.01  # of their sum of squares; models trained further from the same weights are nearer
_GATE = "model.layers.0.mlp.gate_proj.weight"  # of every architecture that can have lanes


def read_start(
    folder: Path, plan: Plan, base: Model, adapting: Adapting | None
) -> tuple[Start, Adapting | None, str]:
    """What the graft in `folder` knows of the plan's tokens; `adapting` that fits; what is left.

    Input rows are taken, output rows if it was trained to write, and lanes if `adapting` has lanes:
    then with as many lanes and neurons as there are. What else its body learned is left, which the
    third value says in a sentence, or "". Raises UsageError for anything but a graft of that plan
    into `base`, or into a model with nearly the same old rows; ModelError if it is damaged.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: start from one that graft wrote")
    try:
        return _read(folder, plan, base, adapting)
    except ModelError as error:
        raise ModelError(f"training cannot start from {folder}: {error}") from error


def _read(
    folder: Path, plan: Plan, base: Model, adapting: Adapting | None
) -> tuple[Start, Adapting | None, str]:
    manifest = read_manifest(folder)
    if manifest is None:
        raise UsageError(f"{folder} has no {MANIFEST}: start from a folder that graft wrote")
    if manifest.get("plan") != plan_hash(plan):
        raise UsageError(f"{folder} was grafted by another plan: its rows are not for these tokens")
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{folder} holds an adapter without its model: start from a whole graft")
    refuse_damaged(folder, folder.name)
    made, known = read_checkpoint(folder), read_checkpoint(base.path)
    layout = find_layout(read_json(folder / CONFIG), made)
    config = read_json(base.path / CONFIG)
    old, ids = find_layout(config, known), new_ids(manifest)
    if len(ids) != len(plan.tokens) or not all(0 <= one < layout.rows for one in ids):
        raise ModelError(
            f"{MANIFEST} does not say which rows the plan's tokens have: it is damaged"
        )
    trained = manifest.get("trained") or {}
    laned = trained.get("train") == "lanes"
    width = layout.width - (trained["lanes"] if laned else 0)
    if width != old.width:
        raise UsageError(
            f"{folder} is a graft into a model of {width} dimensions, {base.name} has {old.width}: "
            "start from a graft into the same model"
        )
    some = min(_SOME, layout.rows, old.rows)
    kept = [number for number in range(some) if number not in ids]
    ours = made.rows(layout.input, 0, some)[kept, :width]
    theirs = known.rows(old.input, 0, some)[kept]
    if np.square(ours - theirs).sum() > _APART * np.square(theirs).sum():
        raise UsageError(
            f"{folder} is a graft into another model than {base.name}, with other rows for old "
            "tokens: start from a graft into the same model"
        )

    def rows(table: Tensor) -> NDArray[np.float32]:
        return np.concatenate([made.rows(table, one, one + 1) for one in ids])

    def wider(name: str) -> NDArray[np.float32]:
        tensor = made.tensors.get(name)
        if tensor is None or len(tensor.shape) != 2:
            raise UsageError(f"{folder} has no matrix {name}: it is a graft into another model")
        values = made.rows(tensor, 0, tensor.shape[0])
        if not np.isfinite(values).all():
            raise ModelError(f"{folder} is damaged: {name} holds numbers that are not finite")
        return values

    inputs = rows(layout.input)
    writes = recorded(manifest["output"]["policy"]).trains
    head = rows(layout.head or layout.input)[:, :width] if writes else None
    start = Start(inputs[:, :width], head)
    if not trained:
        return start, adapting, ""
    if not laned or adapting is None or not adapting.grows:
        more = " (--train lanes goes on from them)" if laned else ""
        what = "lanes" if laned else "body"
        return (
            start,
            adapting,
            f"of {folder.resolve().name} only rows are used, not its {what}{more}",
        )
    neurons = len(wider(_GATE)) - config["intermediate_size"]
    if neurons < 0:
        raise UsageError(f"{folder} has fewer neurons than {base.name}: it is a graft into another")
    adapting = replace(adapting, lanes=layout.width - width, neurons=neurons)
    return Start(inputs, head, wider), adapting, ""
