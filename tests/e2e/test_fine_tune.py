"""The check of a graft that others trained further and saved; test_graft_rootstock trains one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("peft")
pytest.importorskip("trl")
import fine_tune
from helpers import tiny_models as tiny
from tokengraft.grafting.graft import Finishing, graft


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
