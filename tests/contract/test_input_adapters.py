"""One suite over every adapter in front of a model (`paper.input_adapter.KINDS`)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

import tokengraft as tg  # noqa: E402
from helpers.tiny_models import make, plan, texts  # noqa: E402
from tokengraft.core.errors import CorpusError, GraftError, UsageError  # noqa: E402
from tokengraft.paper import adapting as module  # noqa: E402
from tokengraft.paper import commands  # noqa: E402
from tokengraft.paper.input_adapter import FILE, KINDS  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
OPTIONS = {"steps": 12, "passages": 8, "check_every": 4, "warmup": 2, "device": "cpu"}
ENGLISH, AMHARIC = texts()["eng_Latn"][3], texts()["amh_Ethi"][3]
#: What a user writes who has the folders and transformers, and no tokengraft.
USER = """
import json, sys
import torch
torch.set_num_threads(1)
texts, pairs = json.loads(sys.argv[1])
said = {}
for folder, base in pairs:
    sys.path.insert(0, folder)
    sys.modules.pop("input_adapter", None)
    from input_adapter import load
    assert sys.modules["input_adapter"].__file__.startswith(folder)
    model, tokenizer = load(folder, base)
    said[folder] = {}
    for name, text in texts.items():
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            logits = model(ids).logits[0].tolist()
            written = model.generate(ids, max_new_tokens=4, do_sample=False)[0].tolist()
        said[folder][name] = [ids[0].tolist(), logits, written]
assert not [name for name in sys.modules if name.startswith("tokengraft")]
print(json.dumps(said))
"""
CASES = [("llama-tied", kind) for kind in KINDS] + [("gemma3", "attention")]  # it scales its rows


def adapted(base: Path, out: Path, kind: str = "tag", **more: Any) -> module.InputAdapted:
    text = more.pop("text", texts()["amh_Ethi"] + texts()["tam_Taml"])
    return module.adapt_input(
        base, more.pop("plan", plan()), out, text, kind, derive_options=OPTIONS, **more
    )


class Read(NamedTuple):
    """An adapter, its base, and what a fresh process made of them."""

    made: module.InputAdapted
    base: Path
    said: dict[str, list[Any]]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Read]:
    """Every kind, and one whose adapter does nothing, read by a process without tokengraft."""
    place = tmp_path_factory.mktemp("adapters")
    bases = {name: make(place / name, name) for name, _ in CASES}
    made = {case: adapted(bases[case[0]], place / "-".join(case), case[1]) for case in CASES}
    tagged = made["llama-tied", "tag"]
    folder = Path(shutil.copytree(tagged.folder, place / "nothing"))
    made["llama-tied", "nothing"] = replace(tagged, folder=folder)
    file = folder / FILE
    with safe_open(file, "pt") as opened:
        about = opened.metadata()
    tensors = load_file(file)
    save_file({name: one * (name == "rows") for name, one in tensors.items()}, file, about)
    pairs = [(str(one.folder), str(bases[name])) for (name, _), one in made.items()]
    given = json.dumps([{"english": ENGLISH, "amharic": AMHARIC}, pairs])
    ran = subprocess.run([sys.executable, "-c", USER, given], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    return {case: Read(one, bases[case[0]], said[str(one.folder)]) for case, one in made.items()}


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_what_was_trained_loads_in_a_fresh_process(case: Any, read: Any) -> None:
    made, base, said = read[case]
    assert made.rows.held_out.loss < made.rows.start.loss
    student, plain = made.rows.student, AutoModelForCausalLM.from_pretrained(base).eval()
    learned = student.front.state_dict()
    assert made.weights == sum(one.numel() for one in learned.values())
    first = len(student.tokenizer.vocabulary)
    with torch.no_grad():
        ids, logits, _ = said["english"]
        assert max(ids) < first
        assert np.array_equal(np.float32(logits), plain(torch.tensor([ids])).logits[0].numpy())
        ids, logits, written = said["amharic"]
        assert max(ids) >= first
        # By hand: rows, then the adapter, then the base's own body.
        rows = [
            torch.from_numpy(made.rows.rows[one - first]) * student.scale
            if one >= first
            else plain.get_input_embeddings()(torch.tensor(one))
            for one in ids
        ]
        before = torch.stack(rows)[None]
        begun = next(n for n, one in enumerate(ids) if one >= first)
        after = before + student.front(before)
        assert not torch.equal(after, before)
        after[:, :begun] = before[:, :begun]
        there = plain(inputs_embeds=after).logits[0].numpy()
    assert np.allclose(np.float32(logits), there, atol=1e-4)
    assert written[len(ids)] == int(there[-1].argmax())


def test_an_adapter_of_nothing_is_the_graft_of_its_rows(read: Any, tmp_path: Path) -> None:
    made, base, said = read["llama-tied", "nothing"]
    tg.graft(base, plan(), tmp_path / "graft", rows=made.rows.rows, verified=False)
    graft = AutoModelForCausalLM.from_pretrained(tmp_path / "graft").eval()
    ids, logits, _ = said["amharic"]
    with torch.no_grad():
        there = graft(torch.tensor([ids])).logits[0]
    assert np.allclose(np.float32(logits), there[:, : len(logits[0])].numpy(), atol=1e-5)


def test_what_cannot_be_is_said_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make(tmp_path / "base", "llama-tied")
    for more, error, said in (
        ({"kind": "attenton"}, UsageError, "Did you mean attention"),
        ({"plan": replace(plan(), places=tuple(range(len(plan().tokens))))}, UsageError, "same-si"),
        ({"text": texts()["eng_Latn"]}, CorpusError, "new token"),
    ):
        with pytest.raises(error, match=said):
            adapted(base, tmp_path / "out", **more)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    with pytest.raises(UsageError, match="left alone"):
        adapted(base, tmp_path / "mine")
    config = json.loads((base / "config.json").read_text("utf-8"))
    write = module._write

    def damaged(folder: Path, student: Any, rows: Any, about: dict[str, str]) -> None:
        write(folder, student, rows, about)
        tensors = load_file(folder / FILE)
        save_file({name: one + 0.5 for name, one in tensors.items()}, folder / FILE, about)

    monkeypatch.setattr(module, "_write", damaged)
    with pytest.raises(GraftError, match="loaded afresh"):
        adapted(base, tmp_path / "out")
    (base / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    with pytest.raises(UsageError, match="is an encoder"):
        adapted(base, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_offers_every_kind() -> None:
    assert set(get_args(get_type_hints(commands.adapt_input)["kind"])) == set(KINDS)
