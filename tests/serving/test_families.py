"""Every bundled family in the programs at hand: each line alike, or a refusal (slow)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gguf", reason="needs the extra serve")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import serving
from tokengraft.serving import llama_cpp

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(llama_cpp.installed() is None, reason="needs llama.cpp (the extra serve)"),
]
ELSEWHERE = {"qwen3", "qwen2", "gemma3", "llama2", "deepseek-v3", "mistral-nemo", "command-r-plus"}
BUNDLED = [name for name in serving.FAMILIES if name not in ELSEWHERE]
#: By llama.cpp; others may be refused, as rootstock is for one line of code (`'Storage`).
SERVED = {"gpt2", "llama-3", "o200k_base", "cl100k_base", "olmo-2", "mistral-v0.3"}


@pytest.mark.parametrize("name", BUNDLED)
def test_a_graft_is_read_alike_or_refused(name, tmp_path):
    out = tmp_path / "ids.jsonl"
    assert serving.ids(name, [], {"transformers": sys.executable}, out)
    rows = [serving.json.loads(line) for line in out.read_text("utf-8").splitlines()]
    portable, relaxed = (row["found"] for row in rows)
    assert portable["transformers, loaded"] == portable["transformers, saved"] == 0
    assert portable.get("tokenizer.model", 0) == 0
    if name in SERVED:
        assert portable["llama.cpp"] == 0
    if "nothing to relax" not in relaxed:
        assert str(relaxed["llama.cpp"]).startswith("refused")
