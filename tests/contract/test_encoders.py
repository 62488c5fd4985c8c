"""One suite over every served encoder: BERT, RoBERTa, XLM-R; with a head, without, as sentences."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="a model is read with torch")
transformers = pytest.importorskip("transformers")

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402

import tokengraft as tg  # noqa: E402
from tokengraft.core.errors import CorpusError, ModelError, UsageError  # noqa: E402
from tokengraft.corpus import udhr  # noqa: E402
from tokengraft.deriving.derive import transliterate  # noqa: E402
from tokengraft.grafting.graft import Derivation, Finishing, graft  # noqa: E402
from tokengraft.grafting.verify.invariants import verify  # noqa: E402
from tokengraft.grafting.verify.tokens import _only_found  # noqa: E402
from tokengraft.model.checkpoint import read_checkpoint  # noqa: E402
from tokengraft.model.embedding_tables import ENCODERS  # noqa: E402
from tokengraft.planning.choose import plan_tokens  # noqa: E402
from tokengraft.planning.plan import Planning  # noqa: E402

TEXTS = {code: udhr.load([code]).lines(code)[:40] for code in ("eng_Latn", "amh_Ethi")}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 24, "max_position_embeddings": 130}  # fmt: skip


def framed(tokenizer: Tokenizer, first: str, last: str) -> dict[str, Any]:
    ends = [(name, tokenizer.token_to_id(name)) for name in (first, last)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {last} $B {last}", special_tokens=ends
    )
    return json.loads(tokenizer.to_str())


def word_piece() -> dict[str, Any]:
    letters = sorted({c for line in TEXTS["eng_Latn"] for c in line.lower() if not c.isspace()})
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*marks, *letters, *("##" + letter for letter in letters), "the", "##ing", "right"]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(marks)
    return framed(made, "[CLS]", "[SEP]")


def byte_level() -> dict[str, Any]:
    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: number for number, piece in enumerate([*marks, *letters, "th", "the"])}
    made = Tokenizer(models.BPE(vocab, [("t", "h"), ("th", "e")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(marks)
    return framed(made, "<s>", "</s>")


def unigram() -> dict[str, Any]:
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    letters = sorted({c for line in TEXTS["eng_Latn"] for c in line if not c.isspace()})
    scored = [(mark, 0.0) for mark in marks] + [(c, -5.0) for c in ["▁", *letters, "▁the"]]
    made = Tokenizer(models.Unigram(scored, unk_id=3, byte_fallback=False))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.add_special_tokens([*marks, "<mask>"])
    return framed(made, "<s>", "</s>")


KINDS = {"Bert": word_piece, "Roberta": byte_level, "XLMRoberta": unigram}


def make(folder: Path, architecture: str) -> Path:
    kind = next(name for name in ("XLMRoberta", "Roberta", "Bert") if architecture.startswith(name))
    spec = KINDS[kind]()
    count = max(t["id"] for t in spec["added_tokens"]) + 1
    vocab = spec["model"]["vocab"]
    count = max(count, len(vocab))
    config = getattr(transformers, f"{kind}Config")(vocab_size=count, pad_token_id=1, **SIZES)
    torch.manual_seed(0)
    model = getattr(transformers, architecture)(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.3)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 128}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def planned(folder: Path) -> Any:
    spec = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    return plan_tokens(spec, {"amh_Ethi": TEXTS["amh_Ethi"]}, Planning(budget=400))


@pytest.mark.parametrize("architecture", ENCODERS)
def test_a_graft_of_an_encoder_is_verified(architecture: str, tmp_path: Path) -> None:
    base = make(tmp_path / "base", architecture)
    done = graft(base, planned(base), tmp_path / "graft", options=Finishing(TEXTS["amh_Ethi"]))
    assert done.report is not None and done.report.passed, done.report
    assert not (tmp_path / "graft" / "generation_config.json").is_file()
    old, new = (read_checkpoint(tmp_path / name).tensors for name in ("base", "graft"))
    grown = {name for name in old if old[name].shape != new[name].shape}
    assert grown and all("word_embeddings" in n or "decoder" in n or "bias" in n for n in grown)
    loaded = getattr(transformers, architecture).from_pretrained(tmp_path / "graft")
    assert loaded.config.vocab_size == done.written.rows_after
    head = loaded.get_output_embeddings()
    if head is not None:  # a new token is never the guess for a masked word
        scores = loaded(input_ids=torch.tensor([[2, 5, 6, 3]]))[0]
        assert int(scores.argmax(-1).max()) < done.written.new.start


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("bert") / "base", "BertModel")


def test_what_was_unk_learns_from_a_translation(bert: Path, tmp_path: Path) -> None:
    plan, options = planned(bert), Finishing(TEXTS["amh_Ethi"], verified=False)
    assert any(len(token.text) > 1 for token in plan.tokens)
    unread = Derivation("distil", TEXTS["amh_Ethi"])
    with pytest.raises(CorpusError, match="--translation"):
        graft(bert, plan, tmp_path / "graft", unread, options=options)
    given = {"translation": TEXTS["eng_Latn"], "steps": 30, "passages": 16, "check_every": 10}
    taught = Derivation("distil", TEXTS["amh_Ethi"], given)
    made = graft(bert, plan, tmp_path / "graft", taught, options=options)
    said = next(note for note in made.rows.notes if note.startswith("held-out loss"))
    after, before, _ = map(float, re.findall(r"\d\.\d+", said))
    assert after < before
    with pytest.raises(UsageError, match="line by line"):
        few = Derivation("distil", TEXTS["amh_Ethi"], {"translation": TEXTS["eng_Latn"][:3]})
        graft(bert, plan, tmp_path / "other", few, options=options)


def test_evaluate_says_whether_sentences_find_their_translation(bert: Path, tmp_path: Path) -> None:
    graft(bert, planned(bert), tmp_path / "graft", options=Finishing(TEXTS["amh_Ethi"]))
    scores = tg.evaluate(bert, tmp_path / "graft", "udhr", ["amh"], resamples=20, lines=20)
    before = scores.score("amh", "base_translation_retrieval")
    after = scores.score("amh", "translation_retrieval")
    assert before.floor == after.floor == 0.05 and 0 <= after.value <= 1 and after.n == 20


def test_an_encoder_writes_nothing_and_is_trained_by_rows_alone(bert: Path, tmp_path: Path) -> None:
    for more in ({"policy": "paper.shared"}, {"train": "lora", "text": TEXTS["amh_Ethi"]}):
        with pytest.raises(UsageError, match="is an encoder"):
            tg.graft(bert, planned(bert), tmp_path / "graft", **more)
    for name, value in (("by_text", 0.5), ("own", 5)):
        with pytest.raises(UsageError, match="an encoder"):
            tg.derive(bert, planned(bert), text=TEXTS["amh_Ethi"], derive_options={name: value})


def test_a_folder_of_sentence_transformers_keeps_its_modules(bert: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(bert, base)
    (base / "modules.json").write_text(
        json.dumps([{"path": "", "type": "x"}, {"path": "1_Pooling", "type": "y"}])
    )
    (base / "1_Pooling").mkdir()
    (base / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    plan = planned(base)
    graft(base, plan, tmp_path / "graft", options=Finishing(TEXTS["amh_Ethi"]))
    kept = tmp_path / "graft" / "1_Pooling" / "config.json"
    assert kept.read_bytes() == (base / "1_Pooling" / "config.json").read_bytes()
    kept.write_text("{}")
    failed = [check.name for check in verify(tmp_path / "graft", base).checks if not check.passed]
    assert "preserved" in failed
    (base / "1_Pooling" / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(ModelError, match="pickled"):
        graft(base, plan, tmp_path / "other", options=Finishing(TEXTS["amh_Ethi"]))


def test_a_changed_body_is_seen(bert: Path, tmp_path: Path) -> None:
    graft(bert, planned(bert), tmp_path / "graft", options=Finishing(TEXTS["amh_Ethi"]))
    file = tmp_path / "graft" / "model.safetensors"
    data = bytearray(file.read_bytes())
    tensor = read_checkpoint(tmp_path / "graft").tensors["embeddings.position_embeddings.weight"]
    at = len(data) - read_checkpoint(tmp_path / "graft").size + tensor.begin
    data[at : at + 4] = np.float32(7).tobytes()
    file.write_bytes(bytes(data))
    failed = {c.name for c in verify(tmp_path / "graft", bert).checks if not c.passed}
    assert {"old weights", "output policy"} <= failed


def test_text_that_was_unk_may_only_turn_into_text() -> None:
    assert _only_found("the [UNK] ran [UNK]", "the dog ran a way", "[UNK]")
    assert not _only_found("the [UNK] ran", "the dog sat", "[UNK]")
    assert not _only_found("the [UNK] ran", "a dog ran", "[UNK]")
    assert not _only_found("the ran", "the dog ran", "[UNK]")


def test_transliteration_by_names() -> None:
    assert transliterate("ሰላም") == "salaame"
    assert transliterate("இந்தியா") == "intiyaa"
    assert transliterate("भारत") == "bhaarata"
    assert transliterate("၁၂ a") == "12 a"
