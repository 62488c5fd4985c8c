"""Every bundled family in the programs at hand: every line encoded alike, or a refusal (slow)."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

pytest.importorskip("torch")
pytest.importorskip("gguf", reason="needs the extra serve")
import serving
from tokengraft.serving import llama_cpp

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(llama_cpp.installed() is None, reason="needs llama.cpp (the extra serve)"),
]
ELSEWHERE = {"qwen3", "qwen2", "gemma3", "llama2", "deepseek-v3", "mistral-nemo", "command-r-plus"}
#: llama.cpp knows capitals in ASCII only and cuts ESPAÑA after its Ñ, for GPT-4o's base as well.
REFUSED = {"o200k_base"}
BUNDLED = [name for name in serving.FAMILIES if name not in ELSEWHERE]


@pytest.mark.parametrize("name", BUNDLED)
def test_a_graft_is_read_alike_or_refused(name, tmp_path):
    program = f"transformers {metadata.version('transformers').rpartition('.')[0]}"
    readers, out = {program: sys.executable}, tmp_path / "ids.jsonl"
    portable, relaxed = (
        serving.outcomes(serving.tiny_graft(name, boundaries, [], tmp_path), readers, out)
        for boundaries in serving.BOUNDARIES
    )
    if name in REFUSED:
        assert "comes nearest" in str(portable.pop("llama.cpp"))
    else:
        assert portable.pop("pattern")
    assert set(portable.values()) == {0}, portable
    if "nothing to relax" not in relaxed:
        assert str(relaxed["llama.cpp"]).startswith("refused")
