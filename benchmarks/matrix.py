"""Every plan can become a model: tokenizers × plans × output policies, each grafted and read back.

    python benchmarks/matrix.py [--tokenizer NAME …] [--plan NAME …] [--tokenizers FOLDER]
        [--workers 2] [--out results/matrix.md] [--cells FILE.jsonl]

For each tokenizer a tiny model of its kind with random weights; for each plan a graft, which is
verified, evaluated on one line and exported, or refused for the reason that `plan` gives. What is
exported is read by llama.cpp, every line as the folder reads it. `rows` and `write` take turns over
the plans, and each Llama-like model is trained with lanes on one of them. The table says for each
cell what was done; the exit status is 1 if anything failed. `--cells` keeps the outcomes, so that
an interrupted run goes on where it was. Needs `tokengraft[serve,model]`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch: cells run side by side

import numpy as np

import serving
from tokengraft.api.verbs import evaluate
from tokengraft.core.errors import ModelError, TokengraftError, UsageError
from tokengraft.corpus import udhr
from tokengraft.deriving.derive import Derived
from tokengraft.deriving.distil.recipe import Adapting
from tokengraft.grafting.graft import Derivation, Finishing, Output, graft
from tokengraft.grafting.verify.invariants import check_lines
from tokengraft.model.checkpoint import read_json
from tokengraft.model.folder import CONFIG
from tokengraft.planning.plan import Planning
from tokengraft.planning.plan_files import plan as plan_for
from tokengraft.serving import llama_cpp, where_served, why_not_llama_cpp
from tokengraft.serving.export_gguf import export
from tokengraft.tokenizer.insert import family

#: Tokenizers and the kind of model that has them; None: `graft` takes no model that has it.
KINDS: dict[str, str | None] = {
    **serving.FAMILIES, "bert-multilingual": "bert", "t5": "xlm-roberta", "mt5": None,
}  # fmt: skip
SHARED = ("qwen3", "qwen2", "gemma3", "llama2", "deepseek-v3", "mistral-nemo", "command-r-plus",
          "mt5")  # fmt: skip
ENCODERS = ("bert", "xlm-roberta")


@dataclass(frozen=True)
class Asked:
    """A plan: languages, options, text to protect, and the output policy of its graft."""

    languages: tuple[str, ...]
    options: Planning
    policy: str = "input-only"
    protect: tuple[str, ...] = ()


def _planning(budget: int | None = 120, **options: Any) -> Planning:
    return Planning(budget, **options)


WORLD = tuple(udhr.load().languages)[::12]
PLANS = {
    "kept": Asked(("shn_Mymr",), _planning(boundaries="keep")),
    "relaxed": Asked(("shn_Mymr", "tam_Taml"), _planning(), "write"),
    "Latin": Asked(("swh_Latn",), _planning()),
    "keep names": Asked(("swh_Latn", "yor_Latn"), _planning(keep_names=True), "write"),
    "protect": Asked(("quy_Latn",), _planning(), "input-only", ("fra_Latn",)),
    "mixed": Asked(("shn_Mymr", "swh_Latn", "amh_Ethi"), _planning(), "write"),
    "same size": Asked(("tam_Taml",), _planning(40, same_size=True)),
    "unigram": Asked(("amh_Ethi",), _planning(mode="paper.unigram"), "write"),
    "paper": Asked(("shn_Mymr",), _planning(None, mode="paper")),
    "world": Asked(WORLD, _planning(1000, objective="parity"), "write"),
    "lanes": Asked(("amh_Ethi",), _planning(60), "lanes"),
}  # fmt: skip
FEW = ("relaxed", "Latin", "keep names", "world")  # of tokenizers that are not bundled
#: What a tokenizer cannot have, which has to be refused when it is asked for.
REFUSALS = {"same size": "BPE", "unigram": "BPE", "keep names": "BPE"}


def main() -> None:
    """Run the cells and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokenizer", action="append", choices=KINDS)
    parser.add_argument("--plan", action="append", choices=PLANS)
    parser.add_argument("--tokenizers", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cells", type=Path, default=Path(os.devnull))
    options = parser.parse_args()
    search = [options.tokenizers] if options.tokenizers else []
    names = options.tokenizer or [n for n in KINDS if n not in SHARED or search]
    began = time.monotonic()
    rows: dict[str, dict[str, str]] = {name: {} for name in names}
    if options.cells.is_file():
        for line in options.cells.open(encoding="utf-8"):
            name, plan, outcome = json.loads(line)
            rows.setdefault(name, {})[plan] = outcome
    jobs = [
        (n, p) for n in names for p in options.plan or PLANS
        if p not in rows[n] and (n not in SHARED or p in FEW)
    ]  # fmt: skip
    with ProcessPoolExecutor(options.workers) as pool, options.cells.open("a") as kept:
        running = [pool.submit(_cell, name, plan, search) for name, plan in jobs]
        for done in as_completed(running):
            name, plan, outcome = done.result()
            rows[name][plan] = outcome
            line = json.dumps([name, plan, outcome], ensure_ascii=False)
            print(line, flush=True)
            kept.write(line + "\n")
            kept.flush()
    written = table(rows)
    failed = [(n, p) for n, cells in rows.items() for p, said in cells.items() if "FAIL" in said]
    minutes = (time.monotonic() - began) / 60
    said = f"{sum(map(len, rows.values()))} cells, {len(failed)} failed, {minutes:.0f} minutes"
    print(said)
    if options.out is not None:
        intro = (__doc__ or "").split("\n\n")[2].strip()
        text = (
            f"# Every plan can become a model\n\n`make matrix`: {said}.\n\n{intro}\n\n{written}\n"
        )
        options.out.write_text(text, encoding="utf-8")
    if failed:
        sys.exit(1)


def _cell(name: str, plan: str, search: list[Path]) -> tuple[str, str, str]:
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch) / name
        serving.tiny_base(name, KINDS[name] or "llama", search, base)
        return name, plan, cell(base, name, plan, Path(scratch))


def cell(base: Path, name: str, asked: str, scratch: Path) -> str:
    """What became of one plan for one tokenizer, in a few words; FAIL and why if it went wrong."""
    try:
        return _graft(base, name, asked, scratch)
    except Exception as error:
        return f"FAIL: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _graft(base: Path, name: str, asked: str, scratch: Path) -> str:
    request, kind = PLANS[asked], KINDS[name]
    config, policy = read_json(base / CONFIG), request.policy
    bpe = family(read_json(base / "tokenizer.json")) not in ("unigram", "wordpiece")
    try:
        tested = plan_for(base, request.languages, options=request.options, protect=request.protect)
    except UsageError as error:
        wanted = "" if bpe else REFUSALS.get(asked, "")
        places = asked == "same size" and "places" in str(error)
        return "no such plan" if places or (wanted and wanted in str(error)) else _fail(error)
    plan = tested.plan
    if kind is None:
        said = where_served(tested.base, {"architectures": ["MT5ForConditionalGeneration"]})
        return "plan only, and it says so" if "graft does not take" in said else f"FAIL: {said}"
    if kind in ENCODERS:
        policy = "input-only" if policy != "lanes" else policy
    width = int(config.get("hidden_size") or config["n_embd"])
    drawn = np.random.default_rng(0).normal(0, 0.02, (len(plan.tokens), 2 * width))
    values = drawn.astype(np.float32)
    rows: Any = Derived(values[:, :width], "given", head=values[:, width:])
    if policy == "lanes":
        text = [line for code in request.languages for line in udhr.load([code]).lines(code)][:60]
        quick = {"steps": 4, "passages": 4, "check_every": 2, "warmup": 1, "patience": 0}
        recipe = {**quick, "adapting": Adapting(train="lanes", lanes=4, neurons=8)}
        rows = Derivation(train="lanes", text=text, options=recipe)
    out = scratch / "graft"
    output = Output("input-only" if policy == "lanes" else policy)
    try:
        made = graft(base, plan, out, rows, output=output, options=Finishing(force=True))
    except UsageError as error:
        fits = kind in ("llama", "mistral", "qwen2", "qwen3") and policy == "lanes"
        return _fail(error) if fits or policy != "lanes" else "no lanes for this kind"
    if made.report is None or not made.report.passed:
        return "FAIL: not verified"
    language = request.languages[0]
    measured = evaluate(base, out, languages=language, lines=1, resamples=20, device="cpu")
    if measured.scores.is_empty():
        return "FAIL: not evaluated"
    about = {"input-only": "rows"}.get(policy, policy)
    return f"{about}, {len(plan.tokens)}: {_exported(out, config, plan.cut.scripts, scratch)}"


def _exported(folder: Path, config: dict[str, Any], relaxed: Sequence[str], scratch: Path) -> str:
    """Whether llama.cpp reads the file, or why there is none, as `plan` says."""
    if llama_cpp.installed() is None:
        return "not exported: no llama.cpp"
    tokenizer = read_json(folder / "tokenizer.json")
    why = why_not_llama_cpp(tokenizer, config, bool(relaxed))
    lines = check_lines(read_json(folder / "tokengraft.json")["languages"])[:150]
    try:
        made = export(folder, scratch / "out.gguf", texts=lines, force=True)
    except (TokengraftError, ModelError) as error:
        return "export refused" if why else f"FAIL: {' '.join(str(error).split())[:200]}"
    if why or not made.checked:
        return f"FAIL: exported, though {why}"
    return made.pattern or "SentencePiece"


def _fail(error: Exception) -> str:
    return f"FAIL: {' '.join(str(error).split())[:300]}"


def table(rows: dict[str, dict[str, str]]) -> str:
    """The cells as Markdown."""
    plans = [plan for plan in PLANS if any(plan in cells for cells in rows.values())]
    lines = [f"| tokenizer | {' | '.join(plans)} |", "|---" * (len(plans) + 1) + "|"]
    for name, cells in rows.items():
        shown = [cells.get(plan, "").replace("|", "\\|") for plan in plans]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
