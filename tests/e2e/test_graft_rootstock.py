"""The embedded model grafted for Shan and Amharic, used with transformers alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengraft.corpus import udhr
from tokengraft.deriving.derive import Derived
from tokengraft.grafting.graft import graft
from tokengraft.model.checkpoint import read_checkpoint
from tokengraft.model.folder import resolve
from tokengraft.model.tokenizer_files import base_tokenizer
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Planning

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

torch.set_num_threads(1)
PROMPTS = ["The history of the world", "def main():", "Water is made of"]


@pytest.fixture(scope="module")
def plan() -> Plan:
    corpus = udhr.load(["shn", "amh", "eng"])
    texts = {code: corpus.lines(code) for code in ("shn_Mymr", "amh_Ethi")}
    base = base_tokenizer(resolve("rootstock").path)
    return plan_tokens(base, texts, Planning(budget=120), check=corpus.lines("eng_Latn"))


@pytest.fixture(scope="module")
def grafted(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoint = read_checkpoint(resolve("rootstock").path)
    table = checkpoint.tensors["model.embed_tokens.weight"]
    old = checkpoint.rows(table, 0, table.shape[0])
    rows = np.stack([old[list(token.parts)].mean(0) for token in plan.tokens])
    out = tmp_path_factory.mktemp("rootstock") / "grafted"
    done = graft("rootstock", plan, out, rows=Derived(rows, "mean"))
    assert done.report is not None
    assert done.report.passed, done.report.lines()
    return out


def load(folder: Path) -> tuple[Any, Any]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return tokenizer, transformers.AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True
    ).eval()


def test_greedy_english_equals_the_bases(grafted: Path) -> None:
    outputs = []
    for folder in (resolve("rootstock").path, grafted):
        tokenizer, model = load(folder)
        found = []
        for prompt in PROMPTS:
            ids = torch.tensor([tokenizer(prompt)["input_ids"]])
            mask = torch.ones_like(ids)
            found.append(
                model.generate(ids, attention_mask=mask, max_new_tokens=24, do_sample=False)
            )
        outputs.append([one[0].tolist() for one in found])
    assert outputs[0] == outputs[1]


def test_a_prompt_in_shan_is_shorter_and_answered_in_old_tokens(grafted: Path, plan: Plan) -> None:
    line = udhr.load(["shn"]).lines("shn_Mymr")[1]
    new, model = load(grafted)
    old, _ = load(resolve("rootstock").path)
    inputs = new(line, return_tensors="pt")  # as the card says: no argument is left out
    assert inputs["input_ids"].shape[1] * 3 < len(old(line)["input_ids"])
    first = plan.tokens[0].id
    assert (inputs["input_ids"] >= first).any()
    torch.manual_seed(0)
    output = model.generate(**inputs, max_new_tokens=24, do_sample=True)[0]
    assert (output[inputs["input_ids"].shape[1] :] < first).all()
    assert new.decode(inputs["input_ids"][0]) == line


def test_the_card_says_how_to_use_it(grafted: Path) -> None:
    card = (grafted / "README.md").read_text(encoding="utf-8")
    code = card.split("```python\n")[1].split("```")[0].replace('"grafted"', repr(str(grafted)))
    assert len(code.strip().splitlines()) <= 7
    assert "လိၵ်ႈပိုၼ်ၽၢဝ်ႇ" in code  # a prompt that has new tokens
    exec(compile(code, "card", "exec"), {})
    assert json.loads((grafted / "tokengraft.json").read_text())["base"] == "rootstock"


def test_recipes_train_save_and_load_it(grafted: Path, tmp_path: Path) -> None:
    """Trainer, TRL and PEFT, a few steps each: ids and what is barred are the graft's own."""
    for library in ("accelerate", "peft", "trl"):
        pytest.importorskip(library)
    import fine_tune

    texts = udhr.load(["shn", "amh", "eng"]).texts.values()
    lines = [line for group in texts for line in group[:20] if line]
    kept = fine_tune.fine_tuned(grafted, lines, tmp_path, steps=3)
    assert set(kept["saved"]) == {"Trainer", "TRL", "PEFT adapter", "PEFT merged"}
    for way, outcome in kept["saved"].items():
        assert (outcome["other_ids"], outcome["bars"]) == (0, True), way
