"""Edit grafted folders at random: what `verify` still passes, transformers must load as proved.

    python tools/fuzz_folders.py --minutes 10 --out folders.json

Every seed makes a tiny random model and grafts it (grown, of several shards or with a head of its
own). Then bytes, JSON values, names of tensors and files are changed, files are added, removed,
renamed, linked and replaced by pipes; the manifest's hashes are left, written anew or removed. If
`verify` passes, plain transformers must load the folder, with the base's old rows and every other
tensor, config, template and special token as they were, the ids that tokenizer.json gives, and the
same ids barred. A failing case is told by its seed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer

from fuzz import LINES, PLAN, damaged, edited
from fuzz_lanes import make
from tokengraft.core.errors import TokengraftError
from tokengraft.deriving.derive import Derived
from tokengraft.grafting.graft import Finishing, graft
from tokengraft.grafting.manifest import file_hashes
from tokengraft.grafting.verify.invariants import verify
from tokengraft.model.checkpoint import read_checkpoint
from tokengraft.model.libraries import quiet

OLD = 258
CASES_A_MODEL = 40
MANIFEST = "tokengraft.json"
#: Names that transformers, peft or a server looks for.
NAMES = (
    "model.safetensors", "model.safetensors.index.json", "model.fp16.safetensors",
    "model-00001-of-00002.safetensors", "pytorch_model.bin", "tf_model.h5", "adapter_config.json",
    "adapter_model.safetensors", "config.json", "config.4.0.0.json", "generation_config.json",
    "tokenizer.json", "tokenizer.4.0.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja",
    "chat_template.json", "additional_chat_templates/x.jinja", "custom_generate/generate.py",
    "preprocessor_config.json", "processor_config.json", "Modelfile", "x.py", ".hidden/x.json",
    ".gitattributes", "README.md", "LICENSE", "sub/model.safetensors", "tekken.json", MANIFEST,
)  # fmt: skip
#: Keys that change what is loaded or written, with values that do.
KEYS: tuple[tuple[str, str, Any], ...] = (
    ("config.json", "transformers_weights", "model.fp16.safetensors"),
    ("config.json", "configuration_files", ["config.4.0.0.json"]),
    ("config.json", "quantization_config", {"quant_method": "fp8"}),
    ("config.json", "tie_word_embeddings", None),
    ("config.json", "rms_norm_eps", 0.1),
    ("config.json", "hidden_act", "relu"),
    ("config.json", "dtype", "float16"),
    ("config.json", "torch_dtype", "float16"),
    ("config.json", "rope_theta", 5),
    ("config.json", "auto_map", {"AutoConfig": "x.X"}),
    ("config.json", "architectures", ["GPT2LMHeadModel"]),
    ("config.json", "bos_token_id", 257.0),
    ("tokenizer_config.json", "chat_template", "{{ 1 }}"),
    ("tokenizer_config.json", "fast_tokenizer_files", ["tokenizer.4.0.json"]),
    ("tokenizer_config.json", "added_tokens_decoder", {"0": {"content": "<x>"}}),
    ("tokenizer_config.json", "extra_special_tokens", {"x": "<x>"}),
    ("tokenizer_config.json", "add_bos_token", True),
    ("tokenizer_config.json", "tokenizer_class", "LlamaTokenizer"),
    ("tokenizer_config.json", "clean_up_tokenization_spaces", True),
    ("tokenizer_config.json", "model_input_names", ["input_ids"]),
    ("generation_config.json", "suppress_tokens", [OLD + 0.5, *range(OLD + 1, OLD + 9)]),
    ("generation_config.json", "begin_suppress_tokens", [5]),
    ("generation_config.json", "forced_bos_token_id", 5),
    ("generation_config.json", "temperature", 0.5),
    ("generation_config.json", "eos_token_id", [257, 5]),
)


def json_value(draw: random.Random) -> Any:
    """Something that JSON can hold, of any type."""
    return draw.choice(
        (None, True, False, 0, 1, -1, 1.0, 0.5, 10**9, "", "x", "<s>", "../x", [], {}, [0], [257.0],
         {"x": 1}, ["x"])
    )  # fmt: skip


def change_bytes(folder: Path, draw: random.Random) -> str:
    """Some bytes of a file, its end, or more behind it."""
    path = draw.choice([path for path in sorted(folder.iterdir()) if path.is_file()])
    data = path.read_bytes() or b"x"
    near = draw.choice((len(data), 200))
    cuts = [(draw.randrange(near), draw.randrange(256)) for _ in range(draw.randrange(1, 5))]
    data = damaged(data, cuts, draw.choice((1, 1, 1, 5 * draw.randrange(len(data)))))
    path.write_bytes(data + draw.choice((b"", b"", b"\n", b"x")))
    return f"bytes of {path.name}"


def change_json(folder: Path, draw: random.Random) -> str:
    """A value of a JSON file: any of them, or one that transformers acts upon."""
    if draw.random() < 0.5:
        name, key, new = draw.choice(KEYS)
        if (folder / name).is_file():
            value = json.loads((folder / name).read_text("utf-8"))
            value[key] = not value.get(key) if new is None else new
            (folder / name).write_text(json.dumps(value), encoding="utf-8")
        return f"{key} in {name}"
    path = draw.choice([path for path in sorted(folder.glob("*.json")) if path.is_file()])
    value = json.loads(path.read_text("utf-8"))
    steps = [draw.randrange(2**16) for _ in range(draw.randrange(1, 6))]
    how = draw.choice(("set", "drop", "twice", "number"))
    path.write_text(json.dumps(edited(value, [(steps, how, json_value(draw))])), encoding="utf-8")
    return f"{how} in {path.name}"


def change_tensors(folder: Path, draw: random.Random) -> str:
    """Tensors that change places, names, rows or files."""
    from safetensors.torch import load_file, save_file

    files = [path for path in sorted(folder.glob("*.safetensors")) if path.is_file()]
    path = draw.choice(files)
    held = load_file(path)
    name = draw.choice(sorted(held))
    how = draw.choice(("swap", "rename", "row", "number", "move", "type", "format"))
    kind = "pt"
    if how == "swap":
        other = draw.choice([one for one in held if held[one].shape == held[name].shape])
        held[name], held[other] = held[other], held[name]
    elif how == "rename":
        held[draw.choice((f"{name}x", f"model.{name}", name.removeprefix("model.")))] = held[name]
        if draw.random() < 0.5:
            held.pop(name)
    elif how == "row":
        held[name][draw.randrange(len(held[name]))] *= 1.5
    elif how == "number":
        flat = held[name].reshape(-1)
        flat[draw.randrange(len(flat))] += draw.choice((1e-3, 1.0, float("nan")))
    elif how == "move":
        target = draw.choice([*files, folder / "model-z.safetensors"])
        there = load_file(target) if target.is_file() else {}
        save_file({**there, name: held[name] * 2}, target, {"format": "pt"})
        held = load_file(path)
    elif how == "type":
        held[name] = held[name].to(draw.choice((torch.float16, torch.bfloat16, torch.float64)))
    else:
        kind = draw.choice(("tf", "flax", "mlx", "np"))
    save_file({key: value.contiguous() for key, value in held.items()}, path, {"format": kind})
    return f"{how} {name} in {path.name}"


def change_files(folder: Path, draw: random.Random) -> str:
    """A file that is added, removed, renamed, linked, or is none."""
    name, target = draw.choice(sorted(folder.iterdir())).name, folder / draw.choice(NAMES)
    how = draw.choice(("remove", "rename", "copy", "text", "link in", "link out", "pipe", "folder"))
    if how == "remove":
        target = folder / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        return f"remove {name}"
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and how != "copy":
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    source = folder / name
    if how == "text":
        target.write_text(draw.choice(("{}", "", "{{ 1 }}", "x", '{"a": 1}')), encoding="utf-8")
    elif how == "pipe":
        os.mkfifo(target)
    elif how == "folder":
        target.mkdir()
    elif source.is_file() and source != target:
        if how == "rename":
            source.rename(target)
        elif how == "copy":
            shutil.copyfile(source, target)
        else:
            place = folder / ".more" if how == "link in" else folder.parent / "more"
            place.mkdir(exist_ok=True)
            shutil.copyfile(source, place / "x")
            target.symlink_to(place / "x")
    return f"{how} {target.name}"


CHANGES: tuple[Callable[[Path, random.Random], str], ...] = (
    change_bytes, change_json, change_json, change_tensors, change_files, change_files,
)  # fmt: skip


def loaded(folder: Path, lines: Sequence[str]) -> dict[str, Any]:
    """All that plain transformers takes from a folder, in a form that can be compared."""
    kinds: Any = transformers.AutoModelForCausalLM, transformers.AutoTokenizer
    model, tokenizer = (kind.from_pretrained(str(folder), local_files_only=True) for kind in kinds)
    templates = tokenizer.chat_template
    if templates is not None:
        chat = [{"role": "user", "content": "hello"}]
        names = list(templates) if isinstance(templates, dict) else [None]
        templates = {
            str(name): tokenizer.apply_chat_template(chat, chat_template=name, tokenize=False)
            for name in names
        }
    config = model.config.to_dict()
    with torch.no_grad():
        scores = model.eval()(input_ids=torch.tensor([[1, 2, 3]])).logits.float()
    return {
        **{f"tensor {name}": value.clone() for name, value in model.state_dict().items()},
        "scores": scores,
        "config": {key: value for key, value in config.items() if key[0] != "_"},
        "templates": templates,
        "ids": [tokenizer(line)["input_ids"] for line in lines],
        "bare ids": [tokenizer(line, add_special_tokens=False)["input_ids"] for line in lines],
        "special": {key: str(value) for key, value in tokenizer.special_tokens_map.items()},
        "barred": sorted(set(model.generation_config.suppress_tokens or ())),
        "generation": {
            key: value
            for key, value in model.generation_config.to_dict().items()
            if key not in ("transformers_version", "suppress_tokens")
        },
    }


def difference(sound: dict[str, Any], found: dict[str, Any], old: int | None = None) -> str | None:
    """The first part of what was loaded that differs; of tables, only `old` rows are compared."""
    if sound.keys() != found.keys():
        return f"{sorted(sound.keys() ^ found.keys())[0]} is there once"
    for name, value in sound.items():
        other = found[name]
        if isinstance(value, torch.Tensor):
            table = old is not None and (name == "scores" or "embed" in name or "head" in name)
            one, two = value, other
            if table:
                one, two = (t[..., :old] if name == "scores" else t[:old] for t in (value, other))
            if one.dtype != two.dtype or not torch.equal(one, two):
                return f"{name} differs"
        elif json.dumps(value, sort_keys=True) != json.dumps(other, sort_keys=True):
            return f"{name} differs: {str(value)[:200]} and {str(other)[:200]}"
    return None


def attack(place: Path, draw: random.Random) -> Counter[str]:
    """One model, grafted once and edited many times."""
    base, ends = place / "base", Counter[str]()
    make(base, draw)
    if draw.random() < 0.5:
        settings = json.loads((base / "tokenizer_config.json").read_text("utf-8"))
        settings["chat_template"] = "{{ messages[0]['content'] }}"
        (base / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    width = json.loads((base / "config.json").read_text("utf-8"))["hidden_size"]
    numbers = np.random.default_rng(draw.randrange(2**32)).normal(0, 0.3, (len(PLAN.tokens), width))
    rows = Derived(numbers.astype(np.float32), "random")
    sound = graft(base, PLAN, place / "sound", rows=rows, options=Finishing(check=LINES)).folder
    expected = loaded(sound, LINES)
    for number in range(CASES_A_MODEL):
        folder = place / str(number)
        shutil.copytree(sound, folder)
        made = []
        for _ in range(draw.choice((1, 1, 2, 3))):
            try:
                made.append(draw.choice(CHANGES)(folder, draw))
            except (OSError, ValueError, IndexError, KeyError, TypeError, TokengraftError):
                continue  # the change before left nothing to change in this way
            except Exception as error:
                if type(error).__module__.split(".")[0] not in ("safetensors", "builtins"):
                    raise
        signed = draw.choice(("as it was", "anew", "anew", "removed"))
        sign(folder, signed)
        ends[judge(base, folder, expected, f"{made}, signed {signed}")] += 1
        shutil.rmtree(folder)
        shutil.rmtree(place / "more", ignore_errors=True)
    return ends


def sign(folder: Path, how: str) -> None:
    """Leave the manifest, write its hashes anew or remove it."""
    path = folder / MANIFEST
    if how == "as it was" or not path.is_file():
        return
    try:
        value = {**json.loads(path.read_text("utf-8")), "files": file_hashes(folder)}
        path.write_text(json.dumps(value), encoding="utf-8")
    except (ValueError, TypeError):
        return
    if how == "removed":
        path.unlink()


def judge(base: Path, folder: Path, expected: dict[str, Any], said: str) -> str:
    """How the case ended; AssertionError if proof and load disagree."""
    try:
        passed = verify(folder, base, LINES).passed
    except TokengraftError:
        return "refused"
    if not passed:
        return "failed"
    try:
        found = loaded(folder, LINES)
    except Exception as error:
        raise AssertionError(f"{said}: verified, and does not load: {error}") from error
    wrong = difference(expected, found, OLD)
    pipeline = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [pipeline.encode(line, add_special_tokens=False).ids for line in LINES]
    if wrong is None and ids != found["bare ids"]:
        wrong = "the ids differ"
    assert wrong is None, f"{said}: verified, and {wrong}"
    read_checkpoint(folder)
    return "passed"


def main() -> int:
    """Attack until time is up; exit 1 if something was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to go on")
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--out", type=Path, help="counts and findings as JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    ends: Counter[str] = Counter()
    findings: list[dict[str, Any]] = []
    until, number = time.monotonic() + 60 * given.minutes, given.start
    with quiet(warnings=False):
        while time.monotonic() < until:
            with tempfile.TemporaryDirectory() as place:
                try:
                    ends += attack(Path(place), random.Random(number))
                except Exception as error:
                    found = "".join(traceback.format_exception(error))
                    findings.append({"seed": number, "traceback": found})
                    print(f"seed {number}: {found[-900:]}", flush=True)
            number += 1
    told = {
        "transformers": transformers.__version__, "start": given.start,
        "seeds": number - given.start, "cpu_seconds": round(time.process_time(), 1),
        "ends": dict(sorted(ends.items())), "findings": findings,
    }  # fmt: skip
    if given.out:
        given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({**told, "findings": len(findings)}))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
