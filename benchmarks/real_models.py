r"""A real model grafted, verified and asked for a few words, beside its base.

    python benchmarks/real_models.py MODEL PLAN OUT --text shn.txt amh.txt --minutes 2 \
        --prompts prompts.txt --json result.json

MODEL is a plain model folder (`tools/gguf_to_folder.py` makes one of a GGUF file). What stands in
`results/real-models` was made by the command line where there is one (`tokengraft plan`, `graft`,
`verify`, `evaluate`); this does the same by the Python interface, on a machine that has torch but
not typer or polars, and prints the samples. With `--sample-only` OUT is a graft that is there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any


def main() -> None:
    """Graft, verify, sample; print or write what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("plan", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--text", type=Path, nargs="*", default=[])
    parser.add_argument("--method", default="auto")
    parser.add_argument("--rows", type=Path, help="rows that were distilled before (safetensors)")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--prompts", type=Path, help="one prompt a line")
    parser.add_argument("--new", type=int, default=40, help="tokens to generate")
    parser.add_argument("--sample-only", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {} if options.sample_only else grafted(options)
    if options.prompts:
        prompts = [p for p in options.prompts.read_text(encoding="utf-8").splitlines() if p]
        folders = {"base": options.model, "graft": options.out}
        made = {
            name: sample(folder, prompts, options.new, options.device)
            for name, folder in folders.items()
        }
        found["samples"] = [
            {"prompt": prompt, **{name: made[name][n] for name in folders}}
            for n, prompt in enumerate(prompts)
        ]
    text = json.dumps(found, indent=1, ensure_ascii=False)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


def grafted(options: argparse.Namespace) -> dict[str, Any]:
    """Graft, then verify once more from the folder alone."""
    from tokengraft.corpus.stream import stream_lines
    from tokengraft.grafting.run import graft, verify_model
    from tokengraft.planning.run import read_plan

    begun = time.monotonic()
    result = graft(
        options.model, read_plan(options.plan), options.out, method=options.method,
        rows=given_rows(options.rows) if options.rows else None,
        text=list(stream_lines(options.text)) if options.text else None,
        derive_options={"max_minutes": options.minutes, "steps": options.steps,
                        "device": options.device},
    )  # fmt: skip
    spent = time.monotonic() - begun
    report = verify_model(options.out, options.model)
    return {
        "tokens": len(result.rows.rows), "method": result.rows.method,
        "params": dict(result.rows.params), "notes": result.rows.notes,
        "held_out": dict(result.rows.scores), "graft_seconds": spent,
        "verify_seconds": time.monotonic() - begun - spent, "passed": report.passed,
        "checks": [asdict(check) for check in report.checks],
    }  # fmt: skip


def given_rows(path: Path) -> Any:
    """Rows that `fidelity_gpu.py` kept."""
    from safetensors.torch import load_file

    from tokengraft.grafting.run import Rows

    (rows,) = load_file(path).values()
    return Rows(rows.float().numpy(), "distil", notes=("rows by benchmarks/fidelity_gpu.py",))


def sample(folder: Path, prompts: list[str], new: int, device: str) -> list[dict[str, Any]]:
    """Greedy continuations by plain transformers, with the prompt's tokens."""
    import torch

    hub: Any = importlib.import_module("transformers")
    where = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
    tokenizer = hub.AutoTokenizer.from_pretrained(folder)
    model = hub.AutoModelForCausalLM.from_pretrained(folder).to(where)
    found = []
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt").to(where)
        size = inputs.input_ids.shape[1]
        begun = time.monotonic()
        out = model.generate(**inputs, max_new_tokens=new, do_sample=False)[0]
        seconds = time.monotonic() - begun
        text = tokenizer.decode(out[size:], skip_special_tokens=True)
        found.append({"prompt_tokens": size, "text": text, "seconds": round(seconds, 2)})
    return found


if __name__ == "__main__":
    main()
