"""A graft fine-tuned with Trainer, TRL and PEFT, saved and loaded again: does it keep its ids?

    python benchmarks/fine_tune.py GRAFT LINES.txt [--steps 3]

Runs in any environment with torch, transformers, accelerate, peft and (for TRL only) trl; it does
not need tokengraft, so that one graft can be tried with many versions. Each way trains a few steps
on the lines, saves model and tokenizer as its library does, loads them again, and compares the ids
of every line with those that `tokenizers` gets from the graft's tokenizer.json. The exit status is
1 if one differs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

_LENGTH = 32  # tokens of a training line


def main() -> None:
    """Print what each way of training leaves of a graft, as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graft", type=Path)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    lines = [line for line in options.lines.read_text("utf-8").split("\n") if line]
    with tempfile.TemporaryDirectory() as scratch:
        kept = fine_tuned(options.graft, lines, Path(scratch), options.steps)
    print(json.dumps(kept, ensure_ascii=False))
    if any(one["other_ids"] or not one["bars"] for one in kept["saved"].values()):
        sys.exit(1)


def fine_tuned(graft: Path, lines: Sequence[str], scratch: Path, steps: int = 3) -> dict[str, Any]:
    """What a graft's ids and barred ids have become after each way of training and saving it."""
    import peft
    import transformers

    saved = {"Trainer": _trainer(graft, lines, scratch, steps)}
    if there := importlib.util.find_spec("trl") is not None:
        saved["TRL"] = _trl(graft, lines, scratch / "trl", steps)
    adapter, merged = _peft(graft, lines, scratch, steps)
    saved |= {"PEFT adapter": adapter, "PEFT merged": merged}
    return {
        "transformers": transformers.__version__,
        "peft": peft.__version__,
        "trl": metadata.version("trl") if there else None,
        "lines": len(lines),
        "saved": {way: _kept(graft, folder, lines) for way, folder in saved.items()},
    }


def _trainer(graft: Path, lines: Sequence[str], scratch: Path, steps: int) -> Path:
    """Every weight trained, saved by `save_model`."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(graft, local_files_only=True)
    return _train(model, graft, lines, scratch / "trainer", steps)


def _trl(graft: Path, lines: Sequence[str], out: Path, steps: int) -> Path:
    """TRL encodes the lines itself and trains on them."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    model = AutoModelForCausalLM.from_pretrained(graft, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(graft, local_files_only=True)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    arguments = SFTConfig(**_arguments(out, steps), max_length=_LENGTH)
    trainer = SFTTrainer(
        model, args=arguments, train_dataset=Dataset.from_dict({"text": list(lines)}),
        processing_class=tokenizer,
    )  # fmt: skip
    return _trained(trainer, out)


def _peft(graft: Path, lines: Sequence[str], scratch: Path, steps: int) -> tuple[Path, Path]:
    """A LoRA adapter on the graft, and the model with it merged."""
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = AutoModelForCausalLM.from_pretrained(graft, local_files_only=True)
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    adapter = _train(get_peft_model(base, lora), graft, lines, scratch / "adapter", steps)
    fresh = AutoModelForCausalLM.from_pretrained(graft, local_files_only=True)
    whole = PeftModel.from_pretrained(fresh, str(adapter)).merge_and_unload()
    merged = scratch / "merged"
    whole.save_pretrained(merged)
    AutoTokenizer.from_pretrained(adapter, local_files_only=True).save_pretrained(merged)
    return adapter, merged


def _train(model: Any, graft: Path, lines: Sequence[str], out: Path, steps: int) -> Path:
    """A few steps of `Trainer` on lines of one length, and what it saves."""
    from transformers import AutoTokenizer, Trainer, TrainingArguments, default_data_collator

    tokenizer = AutoTokenizer.from_pretrained(graft, local_files_only=True)
    ids = [tokenizer(line)["input_ids"][:_LENGTH] for line in lines]
    rows = [{"input_ids": one, "labels": one} for one in ids if len(one) == _LENGTH]
    trainer = Trainer(
        model=model, args=TrainingArguments(**_arguments(out, steps)), train_dataset=rows,
        data_collator=default_data_collator, processing_class=tokenizer,
    )  # fmt: skip
    return _trained(trainer, out)


def _arguments(out: Path, steps: int) -> dict[str, Any]:
    return {
        "output_dir": str(out), "max_steps": steps, "per_device_train_batch_size": 2,
        "learning_rate": 1e-2, "report_to": [], "use_cpu": True, "bf16": False,
        "save_strategy": "no", "disable_tqdm": True,
    }  # fmt: skip


def _trained(trainer: Any, out: Path) -> Path:
    """What a trainer saves; the weights must have moved."""
    model = trainer.model
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    trainer.train()
    moved = [
        name for name, p in model.named_parameters() if name in before and p.ne(before[name]).any()
    ]
    if not moved:
        raise RuntimeError("nothing was trained")
    trainer.save_model(str(out))
    return out


def _kept(graft: Path, folder: Path, lines: Sequence[str]) -> dict[str, Any]:
    """Lines whose ids differ from those of the graft's file, and whether the same ids are barred.

    An adapter has no generation config: it is loaded onto the graft, which has one.
    """
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    own = Tokenizer.from_file(str(graft / "tokenizer.json"))
    again = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    wrong = 0
    for framed in (False, True):
        expected = [one.ids for one in own.encode_batch(list(lines), add_special_tokens=framed)]
        got = again(list(lines), add_special_tokens=framed)["input_ids"]
        wrong = max(wrong, sum(a != b for a, b in zip(expected, got, strict=True)))
    barred = [_barred(graft), _barred(folder)]
    bars = barred[0] == barred[1] or not (folder / "config.json").is_file()
    return {"other_ids": wrong, "bars": bars, "class": type(again).__name__}


def _barred(folder: Path) -> list[int]:
    path = folder / "generation_config.json"
    said = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return list(said.get("suppress_tokens") or ())


if __name__ == "__main__":
    main()
