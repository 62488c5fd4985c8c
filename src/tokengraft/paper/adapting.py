"""`adapt_input`: new rows and a small map behind them, in front of a model that stays as it is.

The folder holds the rows and the map as safetensors, the new tokenizer, a card, and the loader, a
copy of `input_adapter`, which does not need tokengraft. It is proved by loading it afresh
with that copy: planned text must be read as in training, other text as by the base, to the bit.
How it compares with rows alone and with LoRA: `docs/paper.md`.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch

from tokengraft.core.errors import GraftError, UsageError, look_up
from tokengraft.core.files import write_text, writing_folder
from tokengraft.core.progress import OnProgress
from tokengraft.core.wording import in_code, in_markdown
from tokengraft.corpus.lines_of import Sources, texts_of
from tokengraft.deriving.derive import Derived
from tokengraft.deriving.methods import Rows
from tokengraft.deriving.task import Task
from tokengraft.grafting import small_files
from tokengraft.grafting.graft import check_target, derive_for
from tokengraft.grafting.verify.invariants import check_lines
from tokengraft.grafting.verify.loading import load_model
from tokengraft.model.checkpoint import read_json
from tokengraft.model.embedding_tables import is_encoder
from tokengraft.model.folder import CARD, CONFIG, resolve
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.libraries import quiet
from tokengraft.model.tokenizer_files import base_tokenizer
from tokengraft.paper import input_adapter
from tokengraft.paper.input_adapter import FILE, KINDS, adapted
from tokengraft.planning.plan import Plan
from tokengraft.planning.plan_files import TestedPlan, read_plan
from tokengraft.planning.protect import insert_proved
from tokengraft.tokenizer.huggingface import HuggingFace

RATE = 1e-3  # of Adam
_MOST = 0.01  # nats from what was trained to what is loaded: half precision rounds
_LINES, _TOKENS = 40, 64  # training lines that the folder is proved on, and tokens of each


@dataclass(frozen=True, repr=False)
class InputAdapted:
    """A finished adapter: its folder and kind, the rows in it, and how many weights the map has."""

    folder: Path
    kind: str
    rows: Derived
    weights: int


class Behind(FrozenModel):
    """A model behind a trainable `input_adapter`, on one device only."""

    can_be_halved = False
    front: Any = None

    def embed(self, ids: torch.Tensor, new: NewRows) -> torch.Tensor:
        """Rows of `ids`, passed through the adapter."""
        return adapted(self.front, super().embed(ids, new), ids >= new.first)


def student(kind: str, task: Task) -> tuple[FrozenModel, float]:
    """The task's model behind a new adapter of that kind, which does nothing yet; and its rate."""
    with torch.random.fork_rng([]):
        torch.manual_seed(task.options.recipe.seed)
        return behind(task.model, kind), RATE


def behind(base: FrozenModel, kind: str) -> Behind:
    """The model behind a new adapter of that kind."""
    made = base.around(base.model, of=Behind)
    assert isinstance(made, Behind)
    made.front = KINDS[kind](base.dimensions).to(base.device)
    made.learning = dict(made.front.named_parameters())
    return made


def adapt_input(
    model: str | Path,
    plan: Plan | TestedPlan | str | Path,
    out: Path | str,
    text: Sources,
    kind: str = "attention",
    *,
    minutes: float | None = None,
    steps: int | None = None,
    device: str = "auto",
    seed: int = 0,
    derive_options: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: OnProgress | None = None,
) -> InputAdapted:
    """Train rows for the plan's tokens and a map of that `kind` behind them; write both to `out`.

    `minutes` and `steps` limit the training; `derive_options` are those of `derive`. Raises
    GraftError if what is loaded afresh is not what was trained; `out` then stays as it was.
    """
    look_up("adapter", kind, KINDS)
    if isinstance(plan, str | Path):
        plan = read_plan(Path(plan))
    plan = plan.plan if isinstance(plan, TestedPlan) else plan
    base, out = resolve(model), Path(out)
    check_target(out, base.path, force, FILE)
    if is_encoder(read_json(base.path / CONFIG)):
        raise UsageError(f"{base.name} is an encoder: an adapter is trained by next tokens only")
    if plan.places is not None:
        raise UsageError(
            "an adapter's new tokens come after the old ones: plan without --same-size"
        )
    old = base_tokenizer(base.path)
    new = insert_proved(old, plan, base.name)
    texts = texts_of(text)
    settings = {
        "max_minutes": minutes,
        "steps": steps,
        "device": device,
        "seed": seed,
        "progress": progress,
        "student": partial(student, kind),
        **(derive_options or {}),
    }
    derived = derive_for(base.path, plan, new, "distil", texts, settings)
    model_behind, rows = derived.student, derived.rows
    assert isinstance(model_behind, Behind)
    first = len(model_behind.tokenizer.vocabulary)
    with writing_folder(out) as folder:
        _write(folder, model_behind, rows, {"kind": kind, "first": str(first), "base": base.name})
        small_files.write_tokenizer(base.path, folder, read_json(base.path / CONFIG), old, new)
        weights = sum(weight.numel() for weight in model_behind.learning.values())
        write_text(folder / CARD, _card(out.name, base.name, kind, weights, derived))
        tokenizer = HuggingFace.from_parsed("new", new)
        lines = [*islice(chain.from_iterable(texts), _LINES), *check_lines(plan.languages)]
        _prove(folder, base.path, model_behind, rows, tokenizer.encode(lines))
    return InputAdapted(out, kind, derived, weights)


def _write(folder: Path, student: Behind, rows: Rows, about: dict[str, str]) -> None:
    """Write the weights, and the loader beside them."""
    from safetensors.torch import save_file

    tensors = {name: one.detach().cpu() for name, one in student.front.state_dict().items()}
    tensors["rows"] = torch.from_numpy(rows)
    save_file(tensors, folder / FILE, about)
    loader = Path(input_adapter.__file__)
    write_text(folder / loader.name, loader.read_text(encoding="utf-8"))


def _prove(
    folder: Path, base: Path, student: FrozenModel, rows: Rows, lines: Sequence[Sequence[int]]
) -> None:
    """Raise GraftError unless the folder, loaded by its own loader, reads `lines` as trained."""
    load = runpy.run_path(str(folder / Path(input_adapter.__file__).name))["load"]
    with quiet(warnings=False):
        loaded, _ = load(folder, base, dtype="auto")
    plain, _ = load_model(base, dtype="auto")
    first = len(student.tokenizer.vocabulary)
    new = NewRows(first, torch.from_numpy(rows).to(student.device))
    with torch.no_grad():
        for ids in lines:
            given = torch.tensor([[*student.prefix, *ids[:_TOKENS]]])
            here = loaded(given).logits
            if int(given.max()) >= first:
                states = student.states(given.to(student.device), new=new)
                there = student.head().logits(states).cpu()
                p, q = (one.float().log_softmax(-1) for one in (there, here))
                same = float((p.exp() * (p - q)).sum(-1).mean()) <= _MOST
            else:
                same = torch.equal(here, plain(given).logits)
            if not same:
                raise GraftError(
                    f"the adapter, loaded afresh, reads {list(ids[:8])} … differently than it was "
                    "trained to: nothing was written"
                )


def _card(name: str, base: str, kind: str, weights: int, derived: Derived) -> str:
    """The card: what it is, how to load it, how well it did on held-out text."""
    count = len(derived.rows)
    scores = {"this": derived.held_out, "start": derived.start, "floor": derived.floor}
    kl = {who: "" if score is None else f"{score.kl:.3f}" for who, score in scores.items()}
    where, whose = (json.dumps(one, ensure_ascii=False) for one in (name, base))
    return f"""# {in_markdown(name)}

New tokens for {in_code(base)}, which stays as it is: {count:,} rows and a map behind them
(`{kind}`, {weights:,} weights), written by `tokengraft paper adapt-input`. Held-out text: KL
{kl["this"]} nats to the base's own reading; rows alone, untrained, {kl["start"]}; knowing nothing
of them {kl["floor"]}. Text without a new token is read as by the base, to the bit.

```python
from input_adapter import load  # the file beside this one

model, tokenizer = load({where}, {whose})  # or the folder in which the base lies
print(model(**tokenizer("…", return_tensors="pt")).logits)
```

It writes old tokens only, and without a cache: `generate` reads the whole text for every token.
Pad batches on the right.
"""
