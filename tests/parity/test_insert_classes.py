"""Files older than tokenizer.json: what their class adds is still there after an insert."""

import lzma
from importlib import resources

import pytest

from tokengraft.core.files import write_json
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning
from tokengraft.planning.plan_files import insert_plan
from tokengraft.tokenizer.catalog import as_json, find

transformers = pytest.importorskip("transformers")

LINES = ["ၵူၼ်းၵူႈၵေႃႉ မီးသုၼ်ႇ", "ၵႂၢမ်းတႆး ၵူၼ်းတႆး"] * 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t5", "a <extra_id_0> b<extra_id_99></s>"),
        ("bert-multilingual", "Hello [MASK] world"),
        ("mistral-v0.3", "Hello world"),
        ("gpt2", "Hello<|endoftext|> world"),
    ],
)
def test_around_a_text(name, text, tmp_path):
    """The original loads by its class, the inserted one by its tokenizer.json alone."""
    folder = resources.files("tokengraft") / "assets" / "tokenizers" / name
    (tmp_path / "old").mkdir()
    for file in folder.iterdir():
        data = lzma.decompress(file.read_bytes())
        (tmp_path / "old" / file.name.removesuffix(".xz")).write_bytes(data)
    plan = plan_tokens(as_json(find(name)), {"shn_Mymr": LINES}, Planning(budget=20))
    write_json(tmp_path / "plan.json", plan.to_json())
    insert_plan(name, tmp_path / "plan.json", tmp_path / "new")
    auto = transformers.AutoTokenizer.from_pretrained
    old, new = auto(tmp_path / "old"), auto(tmp_path / "new")
    assert new(text).input_ids == old(text).input_ids
    assert new("a", "b").input_ids == old("a", "b").input_ids
    assert new.special_tokens_map == old.special_tokens_map
    first = min(token.id for token in plan.tokens)
    assert first > max(old.get_vocab().values())
    assert max(id for ids in new(LINES).input_ids for id in ids) >= first
