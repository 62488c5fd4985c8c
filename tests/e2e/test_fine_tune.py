"""A graft that others train further and save keeps its ids and what it bars.

Rootstock's own is in test_graft_rootstock.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("peft")
pytest.importorskip("trl")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import test_graft_tiny as tiny

import fine_tune
from tokengraft.grafting.graft import Finishing, graft
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning


def test_a_fine_tuned_graft_keeps_its_ids(tmp_path, one_thread):
    base = tiny.make(tmp_path / "base", "qwen2")
    given = {code: lines for code, lines in tiny.texts().items() if code != "eng_Latn"}
    plan = plan_tokens(
        json.loads(tiny.tokenizer_json()), given, Planning(budget=24, boundaries="portable")
    )
    lines = [line for group in tiny.texts().values() for line in group]
    graft(base, plan, tmp_path / "graft", rows=tiny.new_rows(), options=Finishing(check=lines))
    kept = fine_tune.fine_tuned(tmp_path / "graft", lines, tmp_path, steps=2)
    assert set(kept["saved"]) == {"Trainer", "TRL", "PEFT adapter", "PEFT merged"}
    for way, outcome in kept["saved"].items():
        assert (outcome["other_ids"], outcome["bars"]) == (0, True), way


def test_lost_ids_are_seen(tmp_path, one_thread):
    """Saved with another tokenizer, the script must count every line that changed."""
    base = tiny.make(tmp_path / "base", "llama-tied")
    lines = tiny.texts()["amh_Ethi"]
    graft(
        base, tiny.plan(), tmp_path / "graft", rows=tiny.new_rows(), options=Finishing(check=lines)
    )
    kept = fine_tune._kept(tmp_path / "graft", base, lines)
    assert kept["other_ids"] == len(lines)
    assert not kept["bars"]
