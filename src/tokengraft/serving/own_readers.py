"""Programs with their own tokenizer, each run in a separate process on a folder's lines.

Each has a short script that is given `folder`, `lines` and everything else in `asked`, and leaves
the ids of each line in `answer["ids"]`. `run_script` can also use the Python of another
environment.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokengraft.core.errors import TokengraftError

_MOST_SAID = 600  # characters of a program's error
_RAISED = re.compile(r"[\w.]+(Error|Exception)(:|$)")
_IGNORED = "Exception ignored"
_FRAME = """
import json, os, sys, tempfile
asked = json.load(open(sys.argv[1], encoding="utf-8"))
folder, lines, answer = asked["folder"], asked["lines"], {}
%s
json.dump(answer, open(sys.argv[2], "w"))
"""
#: By program: the import names of the packages that it needs, and its script.
OWN_READERS: dict[str, tuple[tuple[str, ...], str]] = {
    "openvino-genai": (
        ("openvino_genai", "openvino_tokenizers", "transformers"),
        """
import openvino, openvino_tokenizers, openvino_genai
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
with tempfile.TemporaryDirectory() as place:
    made = openvino_tokenizers.convert_tokenizer(tokenizer, with_detokenizer=True)
    for kind, one in zip(("tokenizer", "detokenizer"), made):
        openvino.save_model(one, f"{place}/openvino_{kind}.xml")
    genai = openvino_genai.Tokenizer(place)
    read = lambda text: genai.encode(text, add_special_tokens=False).input_ids.data[0].tolist()
    answer = {"ids": [read(line) for line in lines], "version": openvino_genai.__version__}
""",
    ),
    # Its builder knows fewer models than tokenizers, so every tokenizer gets a small Llama.
    "onnxruntime-genai": (
        ("onnxruntime_genai", "onnx", "onnx_ir", "onnxruntime", "transformers"),
        """
import shutil, subprocess, onnxruntime_genai, transformers
with tempfile.TemporaryDirectory() as place:
    config = transformers.LlamaConfig(
        vocab_size=asked["rows"], hidden_size=64, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, bos_token_id=0, eos_token_id=0)
    transformers.LlamaForCausalLM(config).save_pretrained(place + "/model")
    for name in os.listdir(folder):
        if name.startswith("tokenizer"):
            shutil.copyfile(os.path.join(folder, name), os.path.join(place, "model", name))
    builder = os.path.join(os.path.dirname(onnxruntime_genai.__file__), "models", "builder.py")
    subprocess.run([sys.executable, builder, "-i", place + "/model", "-o", place + "/onnx",
                    "-p", "fp32", "-e", "cpu", "-c", place + "/cache"],
                   check=True, stdout=subprocess.DEVNULL)
    tokenizer = onnxruntime_genai.Tokenizer(onnxruntime_genai.Model(place + "/onnx"))
    frame = len(tokenizer.encode(""))
    ids = [tokenizer.encode(line)[frame:].tolist() for line in lines]
answer = {"ids": ids, "version": onnxruntime_genai.__version__}
""",
    ),
    # It takes tokens, not text: the folder's tokens are passed, and must have the same ids there.
    "ctranslate2": (
        ("ctranslate2", "transformers"),
        """
import ctranslate2
from ctranslate2.converters import TransformersConverter
from tokenizers import Tokenizer
def write(model, prompts, steps, barred, **how):
    names = json.load(open(model + "/vocabulary.json", encoding="utf-8"))
    made = ctranslate2.Generator(model).generate_batch(
        [[names[number] for number in ids] for ids in prompts], max_length=steps,
        suppress_sequences=[[names[i]] for i in barred if i < len(names)] or None,
        include_prompt_in_result=False, **how)
    return [one.sequences_ids[0] for one in made]
with tempfile.TemporaryDirectory() as place:
    model, base = place + "/model", place + "/base"
    TransformersConverter(folder).convert(model)
    names = json.load(open(model + "/vocabulary.json", encoding="utf-8"))
    there = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
    tokens = [one.tokens for one in tokenizer.encode_batch(lines, add_special_tokens=False)]
    answer = {"ids": [[there.get(token) for token in line] for line in tokens],
              "version": ctranslate2.__version__}
    if asked.get("barred"):
        barred, steps = asked["barred"], asked["steps"]
        ctranslate2.set_random_seed(0)
        TransformersConverter(asked["base"]).convert(base)
        answer["english"] = write(model, asked["english"], steps, barred)
        answer["base"] = write(base, asked["english"], steps, [])
        answer["free"] = write(model, asked["free"], steps, barred, sampling_topk=0)
""",
    ),
}


def last_error(said: str) -> str:
    """What Python's last traceback in `said` ends with, in one line; without one the last line.

    Errors that are ignored at exit are left out; of long ones the beginning is given.
    """
    lines = [line for line in said.splitlines() if line.strip()]
    end = next((n for n, line in enumerate(lines) if line.startswith(_IGNORED)), len(lines))
    lines = lines[:end] or lines
    raised = [n for n, line in enumerate(lines) if _RAISED.match(line)]
    whole = " ".join(line.strip() for line in lines[raised[-1] if raised else -1 :])
    return whole if len(whole) <= _MOST_SAID else f"{whole[:_MOST_SAID]} …"


def run_script(
    program: str, script: str, asked: Mapping[str, Any], python: str = sys.executable
) -> dict[str, Any]:
    """The script's `answer`; TokengraftError with the program's last error if it fails.

    Messages of several lines are given as one.
    """
    with tempfile.TemporaryDirectory() as scratch:
        question, answer = Path(scratch) / "asked.json", Path(scratch) / "answer.json"
        question.write_text(json.dumps(asked), encoding="utf-8")
        command = [python, "-c", _FRAME % script, str(question), str(answer)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode or not answer.is_file():
            last = last_error(ran.stderr)
            raise TokengraftError(f"{program} ended with {ran.returncode}: {last}")
        answered: dict[str, Any] = json.loads(answer.read_text("utf-8"))
        return answered
