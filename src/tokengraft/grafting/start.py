"""Where training goes on: what an earlier graft of the same plan had learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import UsageError
from tokengraft.deriving.distil.recipe import Adapting
from tokengraft.deriving.task import Start
from tokengraft.grafting.manifest import new_ids, plan_hash, read_manifest
from tokengraft.grafting.output_policies import POLICIES
from tokengraft.model.checkpoint import Tensor, read_checkpoint, read_json
from tokengraft.model.embedding_tables import find_layout, text_config
from tokengraft.model.folder import CONFIG, MANIFEST, Model
from tokengraft.planning.plan import Plan


def read_start(
    folder: Path, plan: Plan, base: Model, adapting: Adapting | None
) -> tuple[Start, Adapting | None, str]:
    """What the graft in `folder` knows of the plan's tokens; `adapting` that fits; what is left.

    Input rows are taken, output rows if it was trained to write, and lanes if `adapting` has lanes:
    then with as many lanes and neurons as there are. What else its body learned is left, which the
    third value says in a sentence, or "". Raises UsageError for anything but a graft of that plan
    into a model as wide as `base`.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise UsageError(f"{folder} has no {MANIFEST}: start from a folder that graft wrote")
    if manifest.get("plan") != plan_hash(plan):
        raise UsageError(f"{folder} was grafted by another plan: its rows are not for these tokens")
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{folder} holds an adapter without its model: start from a whole graft")
    made, known = read_checkpoint(folder), read_checkpoint(base.path)
    config, old = (text_config(read_json(place / CONFIG)) for place in (folder, base.path))
    layout = find_layout(read_json(folder / CONFIG), made)
    width = find_layout(read_json(base.path / CONFIG), known).width
    if layout.width < width:
        raise UsageError(f"{folder} has rows of {layout.width}, {base.name} of {width} dimensions")

    def rows(table: Tensor) -> NDArray[np.float32]:
        return np.concatenate([made.rows(table, one, one + 1) for one in new_ids(manifest)])

    def wider(name: str) -> NDArray[np.float32]:
        if name not in made.tensors:
            raise UsageError(f"{folder} has no {name}: it is a graft into another model")
        tensor = made.tensors[name]
        return made.rows(tensor, 0, tensor.shape[0])

    inputs = rows(layout.input)
    writes = POLICIES[manifest["output"]["policy"]].trains
    head = rows(layout.head or layout.input)[:, :width] if writes else None
    start = Start(inputs[:, :width], head)
    trained = (manifest.get("trained") or {}).get("train")
    if trained is None:
        return start, adapting, ""
    if trained != "lanes" or adapting is None or not adapting.grows:
        more = "" if trained != "lanes" else " (--train lanes goes on from them)"
        what = "lanes" if trained == "lanes" else "body"
        return start, adapting, f"of {folder.name} only rows are used, not its {what}{more}"
    neurons = config.get("intermediate_size", 0) - old.get("intermediate_size", 0)
    adapting = replace(adapting, lanes=layout.width - width, neurons=neurons)
    return Start(inputs, head, wider), adapting, ""
