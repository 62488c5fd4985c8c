"""`tokenizer.model` of grafts, read by SentencePiece itself."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import Tokenizer

from tokengraft.corpus import udhr
from tokengraft.grafting.graft import Finishing
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Planning, with_plan
from tokengraft.planning.plan_files import insert_plan
from tokengraft.tokenizer.catalog import as_json, find
from tokengraft.tokenizer.insert import Additions, first_free_id
from tokengraft.tokenizer.insert import insert as put
from tokengraft.tokenizer.sentence_piece import checked_file


@functools.cache
def mistral() -> tuple[dict[str, Any], bytes]:
    found = find("mistral-v0.3")
    assert found.source is not None
    return as_json(found), found.source.read("tokenizer.model")


@functools.cache
def lines(code: str) -> list[str]:
    return udhr.load([code]).lines(code)


@functools.cache
def plan() -> Plan:
    chosen = plan_tokens(mistral()[0], {"shn_Mymr": lines("shn_Mymr")[::2]}, Planning(budget=120))
    assert len(chosen.tokens) == 120
    return chosen


def as_sentencepiece_reads(model: bytes, texts: list[str]) -> list[list[int]]:
    return sentencepiece.SentencePieceProcessor(model_proto=model).encode(texts)


@pytest.mark.parametrize("from_base", [True, False])
def test_sentencepiece_reads_the_graft_as_its_json(from_base):
    """On lines that neither the plan nor the check saw."""
    old, base = mistral()
    new = with_plan(old, plan())
    model, said = checked_file(new, lines("eng_Latn"), base if from_base else None)
    assert (model is not None, said) == (True, "")
    shan = lines("shn_Mymr")[1::2]
    spaced = [line.replace(" ", "   ") for line in shan]  # runs of spaces score lowest of all
    unseen = [*shan, *spaced, *lines("tam_Taml"), *lines("fra_Latn")]
    real = Tokenizer.from_str(json.dumps(new))
    ids = [one.ids for one in real.encode_batch(unseen, add_special_tokens=False)]
    first = first_free_id(old)
    assert sum(i >= first for line in ids for i in line) > 1000
    assert as_sentencepiece_reads(model, unseen) == ids


def test_the_bases_own_pieces_and_settings_stay():
    old, base = mistral()
    model, _ = checked_file(with_plan(old, plan()), [], base)
    before, after = proto.ModelProto.FromString(base), proto.ModelProto.FromString(model)
    assert list(after.pieces[: len(before.pieces)]) == list(before.pieces)
    assert len(after.pieces) == len(before.pieces) + 120
    assert after.normalizer_spec == before.normalizer_spec
    assert max(p.score for p in after.pieces[-120:]) < min(p.score for p in before.pieces)


def test_a_tokenizer_that_sentencepiece_would_read_otherwise_gets_no_file():
    """SentencePiece joins whatever makes a piece; this one's JSON has no merge that does."""
    old, base = mistral()
    new = put(old, Additions(tokens=((first_free_id(old), "▁freedomand"),)))
    model, said = checked_file(new, ["freedomand peace"], base)
    assert model is None
    assert "SentencePiece gives other ids on 1 of 30 lines" in said
    assert "freedomand peace" in said


def test_byte_level_tokenizers_get_none():
    assert checked_file(as_json(find("gpt2")), []) == (None, "")


def test_insert_writes_it_and_says_where_not(tmp_path):
    plan().write(tmp_path / "plan.json")
    folder = insert_plan("mistral-v0.3", tmp_path / "plan.json", tmp_path / "out")
    model = (folder / "tokenizer.model").read_bytes()
    real = Tokenizer.from_file(str(folder / "tokenizer.json"))
    unseen = lines("tam_Taml")
    ids = [one.ids for one in real.encode_batch(unseen, add_special_tokens=False)]
    assert as_sentencepiece_reads(model, unseen) == ids
    assert "note" not in json.loads((folder / "tokengraft_insert.json").read_text("utf-8"))


def test_a_graft_brings_it_and_verify_reads_it(tmp_path):
    pytest.importorskip("torch")
    from helpers import tiny_models as tiny
    from tokengraft.grafting.graft import graft
    from tokengraft.grafting.verify.invariants import verify

    base = tiny.make(tmp_path / "base", "mistral", rows=32768)
    settings = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>",
                "unk_token": "<unk>", "legacy": False, "add_bos_token": True}  # fmt: skip
    (base / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    (base / "tokenizer.json").write_text(json.dumps(mistral()[0]), "utf-8")
    (base / "tokenizer.model").write_bytes(mistral()[1])
    rows = np.random.default_rng(0).normal(0, 0.5, (120, tiny.WIDTH)).astype(np.float32)
    made = graft(
        base, plan(), tmp_path / "graft", rows=rows, options=Finishing(check=lines("shn_Mymr"))
    )
    assert made.report is not None
    assert "ok    tokenizer.model: SentencePiece gives" in "\n".join(made.report.lines())
    (made.folder / "tokenizer.model").write_bytes(mistral()[1])
    report = verify(made.folder, base, lines("shn_Mymr"))
    failed = {check.name for check in report.checks if not check.passed}
    assert failed == {"tokenizer.model", "manifest"}
