"""A LoRA graft saved as a `peft` adapter: only what was learned, without the base's weights.

    base = AutoModelForCausalLM.from_pretrained(BASE)
    base.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model = PeftModel.from_pretrained(base, FOLDER)

New rows are saved as peft's trainable tokens, whose values replace the rows that resizing added.
The grafted tokenizer, the generation config and the card lie beside the adapter. On its base, the
adapter is the merged model, which was verified before, up to the rounding of merged weights to the
base's dtype; `write_adapter` measures the difference.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.core.errors import GraftError, UsageError
from tokengraft.deriving.distil.student import adapted, lora, require_peft
from tokengraft.grafting.verify.loading import load_model
from tokengraft.grafting.write_folder import Written
from tokengraft.model.folder import CONFIG
from tokengraft.model.frozen import FrozenModel

_WEIGHTS = (".safetensors", ".safetensors.index.json")  # an adapter has its own
_MOST_KL = 0.01  # nats from merged model to adapter on its base: half precision rounds


def refuse_unfit(train: str | None, parted: bool) -> None:
    """Raise UsageError if an adapter could not hold the graft; `parted`: a tied table was split."""
    if train != "lora":
        raise UsageError(
            f"an adapter holds what --train lora learns; got --train {train or 'rows'}"
        )
    if parted:
        raise UsageError(
            "input and output share a table in this model, and an adapter cannot split it: add "
            "--tied, graft without --adapter-only, or use --policy input-only"
        )


def write_adapter(
    folder: Path, whole: Path, base: Path, student: FrozenModel, written: Written, rank: int
) -> str:
    """Write the merged model in `whole` as an adapter into `folder`; says how close the two are."""
    peft = require_peft()
    model, _ = load_model(base, dtype="auto")
    merged, _ = load_model(whole, dtype="auto")
    model.resize_token_embeddings(written.rows_after, mean_resizing=False)
    names = {id(module): name for name, module in model.named_modules()}
    tables = {id(model.get_input_embeddings())}
    if not written.tied:
        tables.add(id(model.get_output_embeddings()))
    ids = list(written.new)
    wrapped = peft.get_peft_model(
        model,
        lora(
            rank,
            [name for name, _ in adapted(student)],
            trainable_token_indices={names[table].rpartition(".")[2]: ids for table in tables},
        ),
    )
    _fill(wrapped, student, merged, ids)
    wrapped.save_pretrained(str(folder), safe_serialization=True)
    for file in whole.iterdir():
        if not file.name.endswith(_WEIGHTS) and file.name != CONFIG and file.is_file():
            shutil.copyfile(file, folder / file.name)
    return _compared(folder, base, merged, written)


def _fill(wrapped: Any, student: FrozenModel, merged: Any, ids: list[int]) -> None:
    """Copy the student's LoRA weights and the merged model's new rows into the adapter."""
    import torch

    learned = {name.replace(".default", ""): weight for name, weight in student.learning.items()}
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            short = name.removeprefix("base_model.model.").replace(".default", "")
            if short in learned:
                weight.copy_(learned[short])
            elif "trainable_tokens_delta" in name:
                head = "lm_head" in name.split(".")
                table = merged.get_output_embeddings() if head else merged.get_input_embeddings()
                weight.copy_(table.weight[ids])


def _compared(folder: Path, base: Path, merged: Any, written: Written) -> str:
    """Load the adapter on its base afresh; GraftError if it is too far from the merged model."""
    import torch

    model, _ = load_model(base, dtype="auto")
    model.resize_token_embeddings(written.rows_after, mean_resizing=False)
    loaded = require_peft().PeftModel.from_pretrained(model, str(folder)).eval()
    generator = np.random.default_rng(0)
    news = generator.permutation(written.new)[:48]
    olds = generator.integers(0, written.rows_before, 48)
    given = torch.from_numpy(generator.permutation(np.append(news, olds)))[None]
    with torch.no_grad():
        p, q = (one(given).logits[0].float().log_softmax(-1) for one in (merged, loaded))
    far = float((p.exp() * (p - q)).sum(-1).mean())
    if not far <= _MOST_KL:
        raise GraftError(
            f"the adapter on its base is {far:.3g} nats from the merged model: nothing was written"
        )
    return f"adapter on its base against the merged model: KL {far:.1e}"
