"""Tokenizer families in programs that serve models: does each line get the ids of tokenizer.json?

    python benchmarks/serving.py ids GRAFTS --out FILE.jsonl [--tokenizer NAME …]
        [--tokenizers FOLDER] [--boundaries portable] [--reader LABEL=PYTHON …]
    python benchmarks/serving.py table FILE.jsonl …

`ids` grafts 300 tokens for Shan and Tamil into a tiny model of each family, with portable and with
relaxed boundaries (into the folder GRAFTS; existing grafts are used), and counts the lines to which
a program gives other ids: llama.cpp, SentencePiece with the written tokenizer.model, and each
`--reader`, the Python of another environment, whose label begins with the program to run there
(transformers, vllm, openvino-genai, onnxruntime-genai, ctranslate2). Programs that do not normalise
text get it in the tokenizer's Unicode form. The exit status is 1 if a program gives a line of a
portable graft other ids instead of refusing the graft. One line of JSON per graft is appended to
`--out`; `table` prints them as Markdown. Needs `tokengraft[serve,model]`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.core.errors import TokengraftError
from tokengraft.corpus import udhr
from tokengraft.grafting.graft import Finishing, graft
from tokengraft.grafting.verify.invariants import check_lines
from tokengraft.planning.plan import Boundaries, Planning
from tokengraft.planning.plan_files import plan as plan_for
from tokengraft.serving import split_patterns
from tokengraft.serving.own_readers import OWN_READERS, run_script
from tokengraft.tokenizer.adapters import AWKWARD
from tokengraft.tokenizer.catalog import as_json, find, side_files
from tokengraft.tokenizer.insert import first_free_id
from tokengraft.tokenizer.pre_tokenizer import is_relaxed
from tokengraft.tokenizer.sentence_piece import SENTENCEPIECE, read_otherwise

#: Tokenizers and the kind of model that has them.
FAMILIES = {
    "rootstock": "llama", "gpt2": "gpt2", "llama-3": "llama", "o200k_base": "llama",
    "cl100k_base": "llama", "claude-2.1": "llama", "olmo-2": "olmo2", "mistral-v0.3": "mistral",
    "qwen3": "qwen3", "qwen2": "qwen2", "gemma3": "gemma3_text", "llama2": "llama",
    "deepseek-v3": "llama", "mistral-nemo": "mistral", "command-r-plus": "llama",
}  # fmt: skip
SAME_FILES = {"qwen2": "qwen3"}  # the tokenizer of Qwen 2.5 in Qwen 3's files
LANGUAGES = ("shn_Mymr", "tam_Taml")
BOUNDARIES: tuple[Boundaries, ...] = ("portable", "auto")
BUDGET = 300
LINES = 4893
WIDTH = 16
_SIZES = {
    "hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 8,
    "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip
_GPT2 = {"n_embd": WIDTH, "n_layer": 1, "n_head": 2, "n_positions": 512}
#: Scripts for other environments besides those of `own_readers`: ids of each line, by reading.
_SCRIPTS = {
    "transformers": """
import shutil
from transformers import AutoTokenizer
def read(place):
    tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True)
    return tokenizer, [tokenizer(line, add_special_tokens=False)["input_ids"] for line in lines]
tokenizer, loaded = read(folder)
with tempfile.TemporaryDirectory() as place:
    tokenizer.save_pretrained(place)
    shutil.copyfile(os.path.join(folder, "config.json"), os.path.join(place, "config.json"))
    answer = {"loaded": loaded, "saved": read(place)[1]}
""",
    "vllm": """
from vllm.tokenizers import get_tokenizer
tokenizer = get_tokenizer(folder)
answer = {"ids": [tokenizer.encode(line, add_special_tokens=False) for line in lines]}
""",
    **{program: script for program, (_, script) in OWN_READERS.items()},
}


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("ids")
    one.add_argument("grafts", type=Path)
    one.add_argument("--tokenizer", action="append", choices=FAMILIES)
    one.add_argument("--tokenizers", type=Path)
    one.add_argument("--boundaries", action="append", choices=BOUNDARIES)
    one.add_argument("--reader", action="append", default=[], metavar="LABEL=PYTHON")
    one.add_argument("--only-readers", action="store_true", help="run nothing but the readers")
    one.add_argument("--out", type=Path, required=True)
    one = parts.add_parser("table")
    one.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    if options.part == "table":
        print(table([json.loads(x) for f in options.files for x in f.open(encoding="utf-8")]))
        return
    readers = dict(reader.split("=", 1) for reader in options.reader)
    search = [options.tokenizers] if options.tokenizers else []
    right = True
    for name in options.tokenizer or FAMILIES:
        for boundaries in options.boundaries or BOUNDARIES:
            folder = tiny_graft(name, boundaries, search, options.grafts)
            read = outcomes(folder, readers, options.out, here=not options.only_readers)
            right &= boundaries != "portable" or is_right(read)
    if not right:
        sys.exit(1)


def check_text() -> list[str]:
    """The lines: awkward ones, planned languages and their scripts, English, code, the world."""
    corpus = udhr.load()
    folder = resources.files("tokengraft") / "assets" / "protected"
    bundled = [
        line
        for name in ("english", "code")
        for line in lzma.decompress((folder / f"{name}.txt.xz").read_bytes()).decode().split("\n")
    ]
    world = [line for code in corpus.languages for line in corpus.lines(code)]
    first = [*AWKWARD, *check_lines(LANGUAGES), *bundled[:: max(1, len(bundled) // 1000)]]
    kept = list(dict.fromkeys(line for line in first if line))
    rest = [line for line in dict.fromkeys(world) if line not in set(kept)]
    missing = LINES - len(kept)
    return kept + [rest[i * len(rest) // missing] for i in range(missing)]


def outcomes(
    folder: Path, readers: Mapping[str, str], out: Path, here: bool = True
) -> dict[str, Any]:
    """Lines to which each program gives other ids, or its refusal; also appended to `out`."""
    lines = check_text()
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    name, _, boundaries = folder.name.rpartition("-")
    read: dict[str, Any] = {}
    if boundaries == "auto" and not is_relaxed(tokenizer):
        read["nothing to relax"] = True
    else:
        if here:
            read = read_here(folder, tokenizer, lines)
        read |= read_elsewhere(folder, first_free_id(tokenizer), lines, readers)
    row = {"tokenizer": name, "boundaries": boundaries, "lines": len(lines), "found": read}
    print(json.dumps(row, ensure_ascii=False), flush=True)
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return read


def is_right(read: Mapping[str, Any]) -> bool:
    """Whether every program gives every line the same ids or refuses."""
    wrong = [read[program] for program in read if program != "pattern"]
    return all(one == 0 or str(one).startswith("refused") for one in wrong)


def tiny_graft(name: str, boundaries: Boundaries, search: list[Path], root: Path) -> Path:
    """A graft with the family's tokenizer and a one-layer model of its kind with random weights."""
    out = root / f"{name}-{boundaries}"
    if out.is_dir():
        return out
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch) / name
        tiny_base(name, FAMILIES[name], search, base)
        choosing = Planning(budget=BUDGET, boundaries=boundaries)
        plan = plan_for(base, LANGUAGES, options=choosing).plan
        rows = np.random.default_rng(0).normal(0, 0.02, (len(plan.tokens), WIDTH))
        made = rows.astype(np.float32)
        graft(base, plan, out, rows=made, options=Finishing(verified=False))
    return out


def tiny_base(name: str, kind: str, search: list[Path], base: Path) -> None:
    """A one-layer model of this kind with random weights and the tokenizer of that name."""
    import torch
    import transformers

    source = find(SAME_FILES.get(name, name), search)
    parsed = as_json(source)
    sizes = _GPT2 if kind == "gpt2" else _SIZES
    encoder = kind in ("bert", "xlm-roberta")
    if encoder:
        sizes = {**sizes, "max_position_embeddings": 514}
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=first_free_id(parsed), bos_token_id=None, eos_token_id=None,
        pad_token_id=0 if encoder else None, **sizes,
    )  # fmt: skip
    torch.manual_seed(0)
    model: Any = transformers.AutoModelForMaskedLM if encoder else transformers.AutoModelForCausalLM
    model.from_config(config).save_pretrained(base)
    for file, data in side_files(source).items():
        (base / file).write_bytes(data)
    (base / "tokenizer.json").write_text(json.dumps(parsed, ensure_ascii=False), "utf-8")
    if source.source is not None and SENTENCEPIECE in source.source.files:
        (base / SENTENCEPIECE).write_bytes(source.source.read(SENTENCEPIECE))


def read_here(folder: Path, tokenizer: dict[str, Any], lines: Sequence[str]) -> dict[str, Any]:
    """Lines to which llama.cpp and SentencePiece give other ids, or the reason of a refusal."""
    found: dict[str, Any] = {}
    try:
        pattern = split_patterns.choose_pattern(folder, lines)
        found["llama.cpp"] = 0
        normal, _ = split_patterns.in_form(folder, lines)
        moved = sum(a != b for a, b in zip(lines, normal, strict=True))
        found["pattern"] = (pattern or "SentencePiece") + (f", {moved} normalised" if moved else "")
    except TokengraftError as error:
        found["llama.cpp"] = f"refused: {error}"
    if (folder / SENTENCEPIECE).is_file():
        found[SENTENCEPIECE] = (
            read_otherwise((folder / SENTENCEPIECE).read_bytes(), tokenizer, lines) or 0
        )
    elif (folder / "tokengraft.json").is_file():
        notes = json.loads((folder / "tokengraft.json").read_text("utf-8"))["rows"]["notes"]
        if any(SENTENCEPIECE in note for note in notes):
            found[SENTENCEPIECE] = "refused"
    return found


def read_elsewhere(
    folder: Path, rows: int, lines: Sequence[str], readers: Mapping[str, str]
) -> dict[str, Any]:
    """The same by the programs of other environments; `rows` is the size of the vocabulary."""
    found: dict[str, Any] = {}
    own, normal = split_patterns.folder_ids(folder, lines), split_patterns.in_form(folder, lines)[0]
    for label, python in readers.items():
        program = next(name for name in _SCRIPTS if label.startswith(name))
        given = normal if program in OWN_READERS else list(lines)
        asked = {"folder": str(folder.resolve()), "lines": given, "rows": rows}
        try:
            answer = run_script(program, _SCRIPTS[program], asked, python)
        except TokengraftError as error:
            found[label] = f"refused: {error}"
            continue
        for what, ids in answer.items():
            if what != "version":
                wrong = sum(a != b for a, b in zip(ids, own, strict=True))
                found[label if what == "ids" else f"{label}, {what}"] = wrong
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The results as Markdown; the last run of a graft in a program counts."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        known = last.setdefault((row["tokenizer"], row["boundaries"]), {**row, "found": {}})
        known["found"] |= row["found"]
    programs = list(
        dict.fromkeys(p for row in last.values() for p in row["found"] if p != "pattern")
    )
    programs = [program for program in programs if program != "nothing to relax"]
    head = ["tokenizer", "boundaries", *programs]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for (name, boundaries), row in last.items():
        found, count = row["found"], row["lines"]
        cells = [name, {"auto": "relaxed"}.get(boundaries, boundaries)]
        if "nothing to relax" in found:
            cells += ["nothing to relax", *[""] * (len(programs) - 1)]
        else:
            cells += [_cell(found.get(program, ""), count) for program in programs]
            if "pattern" in found:
                cells[2] += f" (`{found['pattern']}`)"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(wrong: Any, count: int) -> str:
    if isinstance(wrong, int):
        return f"{count - wrong:,} of {count:,}" if wrong else f"all {count:,}"
    return "refused" if str(wrong).startswith(("refused", "no ")) else str(wrong)


if __name__ == "__main__":
    main()
