"""Adapters, catalog and vocabularies, on the bundled tokenizers."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Pipeline

from tokengraft.core.errors import TokenizerError, Unavailable
from tokengraft.corpus import udhr
from tokengraft.tokenizer import catalog, find, load, sources
from tokengraft.tokenizer.adapters import for_oniguruma
from tokengraft.tokenizer.catalog import BUNDLED, BY_NAME, ENTRIES, LISTED, PAPER, as_json, status
from tokengraft.tokenizer.packed import Packed
from tokengraft.tokenizer.vocabulary import (
    byte_alphabet,
    byte_level_piece,
    recovered_text,
    sentencepiece_piece,
    wordpiece_piece,
)


def test_nine_of_the_papers_ten_are_bundled():
    assert len(PAPER) == 10
    assert set(PAPER) - set(BUNDLED) == {"m2m100"}


def test_every_modern_tokenizer_of_the_catalog_has_a_hub_id():
    assert all(entry.hub_id for entry in ENTRIES if not entry.paper)
    assert len([entry for entry in ENTRIES if not entry.paper]) == 12


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_files_have_the_recorded_hashes(name):
    source = sources.bundled(name)
    assert source.files
    for file in source.files:
        assert hashlib.sha256(source.read(file)).hexdigest() == source.digest(file)


def test_a_folder_and_the_package_give_the_same_fingerprint(tmp_path):
    source = sources.bundled("t5")
    for file in source.files:
        (tmp_path / file).write_bytes(source.read(file))
    assert find(str(tmp_path)).fingerprint == find("t5").fingerprint


def test_special_files_choose_the_adapter(tmp_path):
    vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##s\n"
    (tmp_path / "vocab.txt").write_text(vocab)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    tokenizer = load(tmp_path)
    assert tokenizer.family == "WordPiece"
    assert tokenizer.encode(["Hellos ကူ"]) == [[5, 6, 1]]
    assert tokenizer.vocabulary.unknown == {1}


def test_an_empty_line_of_a_vocab_file_has_an_id(tmp_path):
    """As transformers counts: audit and plan must see the same tokenizer."""
    vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n\nb\r\nc\n"
    (tmp_path / "vocab.txt").write_bytes(vocab.encode())
    found = find(str(tmp_path))
    assert found.open().encode(["a b c"]) == [[5, 7, 8]]
    pipeline = Pipeline.from_str(json.dumps(as_json(found)))
    assert pipeline.encode("a b c", add_special_tokens=False).ids == [5, 7, 8]


@pytest.fixture
def shuffled(tmp_path):
    """GPT-2's files with other ids, as RoBERTa and others have them."""
    source = sources.bundled("gpt2")
    vocab = json.loads(source.read("vocab.json"))
    size = len(vocab)
    vocab = {token: number * 7919 % size for token, number in vocab.items()}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_bytes(source.read("merges.txt"))
    return tmp_path


def test_merges_are_read_where_ids_are_no_ranks(shuffled):
    lines = udhr.load(["fin_Latn"]).lines("fin_Latn")[:20]
    found = find(str(shuffled))
    pipeline = Pipeline.from_str(json.dumps(as_json(found)))
    encoded = pipeline.encode_batch(lines, add_special_tokens=False)
    assert found.open().encode(lines) == [one.ids for one in encoded]
    sizes = [len(row) for row in load("gpt2").encode(lines)]
    assert [len(row) for row in found.open().encode(lines)] == sizes
    assert find(str(shuffled / "vocab.json")).open().encode(lines) == found.open().encode(lines)
    assert Packed.of(found).open().encode(lines) == found.open().encode(lines)


def test_merges_belong_to_the_fingerprint(shuffled):
    before = find(str(shuffled)).fingerprint
    (shuffled / "merges.txt").write_text("#version: 0.2\n")
    assert find(str(shuffled)).fingerprint != before


def test_gpt2_is_read_by_its_ids(tmp_path):
    """Its published numbers are under this fingerprint (`reproduce/premiums.yaml`)."""
    found = find("gpt2")
    assert type(found.open()).__name__ == "TikToken"
    assert found.fingerprint.startswith("b8926f06")
    source = sources.bundled("gpt2")
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes(source.read(name))
    assert find(str(tmp_path)).fingerprint == found.fingerprint
    merges = source.read("merges.txt").splitlines(keepends=True)
    (tmp_path / "merges.txt").write_bytes(
        b"".join([*merges[:5], merges[6], merges[5], *merges[7:]])
    )
    assert find(str(tmp_path)).fingerprint != found.fingerprint
    assert type(find(str(tmp_path)).open()).__name__ == "HuggingFace"


def test_a_vocab_file_without_unk_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(TokenizerError, match=r"no \[UNK\]"):
        load(tmp_path)


def test_unknown_name_suggests(tmp_path):
    with pytest.raises(TokenizerError, match="Did you mean llama-3"):
        find("lama-3")


def test_hub_only_entry_offline_is_unavailable():
    with pytest.raises(Unavailable, match=r"Qwen/Qwen3-0\.6B"):
        find("qwen3")


def test_empty_folder_says_what_was_expected(tmp_path):
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        find(str(tmp_path))


@pytest.mark.parametrize("content", [b"{}", b"[1]", b"no json", b'{"model": "x"}'])
def test_any_json_file_is_no_tokenizer(tmp_path, content):
    (tmp_path / "foo.json").write_bytes(content)
    (tmp_path / "config.json").write_bytes(b"{}")
    with pytest.raises(TokenizerError, match="no tokenizer file here") as caught:
        find(str(tmp_path))
    assert "plan" not in str(caught.value).removeprefix(str(tmp_path))


def test_a_tokenizer_json_of_another_name_is_found(tmp_path):
    data = find("rootstock").source.read("tokenizer.json")
    (tmp_path / "a.json").write_bytes(b"{}")
    (tmp_path / "mine.json").write_bytes(data)
    assert find(str(tmp_path)).kind == "mine.json"
    assert load(tmp_path).encode(["Hello"]) == load("rootstock").encode(["Hello"])


@pytest.mark.parametrize("path", [".", "plan.json"])
def test_a_plan_is_called_a_plan(tmp_path, path):
    (tmp_path / "plan.json").write_bytes(b'{"version": 1, "tokens": []}')
    with pytest.raises(TokenizerError, match=r"no tokenizer file here.*plan; `tokengraft insert"):
        find(str(tmp_path / path))


def test_the_rootstock_is_listed_and_stays_out_of_the_default():
    assert status(LISTED[-1]) == "bundled"
    assert LISTED[-1].name == "rootstock" == find("rootstock").name
    assert "rootstock" not in BUNDLED
    with pytest.raises(TokenizerError, match="mean rootstock"):
        find("rootstok")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", b"{}"),
        ("tokenizer.model", b"junk"),
        ("cl100k_base.tiktoken", b"!! x\n"),
        ("vocab.json", b"[1"),
        ("vocab.json", b"[]"),
        ("vocab.txt", b"\xff\n[UNK]"),
    ],
)
def test_broken_files_are_clear_errors(tmp_path, file, content):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(TokenizerError):
        load(tmp_path)


def test_search_place_comes_first_and_may_be_an_archive(tmp_path):
    source = sources.bundled("t5")
    folder = tmp_path / "places" / "mt5"
    folder.mkdir(parents=True)
    (folder / "spiece.model").write_bytes(source.read("spiece.model"))
    assert status(BY_NAME["mt5"], [tmp_path / "places"]) == str(tmp_path / "places")
    archive = Path(shutil.make_archive(str(tmp_path / "all"), "xztar", tmp_path / "places"))
    assert find("mt5", [archive]).fingerprint == find("mt5", [tmp_path / "places"]).fingerprint
    assert load("mt5", [archive]).encode(["a b"]) == load("t5").encode(["a b"])


def test_missing_search_place_is_an_error(tmp_path):
    with pytest.raises(TokenizerError, match="no such folder or archive"):
        find("m2m100", [tmp_path / "nowhere"])


def test_environment_variable_names_places(tmp_path, monkeypatch):
    folder = tmp_path / "m2m100"
    folder.mkdir()
    (folder / "sentencepiece.bpe.model").write_bytes(sources.bundled("t5").read("spiece.model"))
    monkeypatch.setenv("TOKENGRAFT_TOKENIZERS", str(tmp_path))
    assert find("m2m100").where.endswith("m2m100")


@pytest.mark.parametrize("name", BUNDLED)
def test_pieces_spell_the_text(name):
    """Where a tokenizer keeps the text, its pieces' bytes joined are the text."""
    tokenizer = load(name)
    text = "Ünïcode ၵူၼ်း தமிழ் 你好, world! 123"
    (ids,) = tokenizer.encode([text])
    joined = b"".join(tokenizer.vocabulary.pieces[n] for n in ids)
    if tokenizer.lossless or name == "mistral-v0.3":
        assert joined.removeprefix(b" ") == text.encode()
    if tokenizer.vocabulary.unknown:
        assert tokenizer.vocabulary.is_unknown.sum() == len(tokenizer.vocabulary.unknown)


def test_starts_inside_counts_split_characters():
    """က is three bytes; GPT-2 has no token for it, so two tokens begin inside it."""
    tokenizer = load("gpt2")
    (ids,) = tokenizer.encode(["က"])
    assert len(ids) == 3
    assert tokenizer.vocabulary.starts_inside[ids].tolist() == [False, True, True]


def test_characters_include_those_only_known_behind_a_space():
    from tokengraft.tokenizer import Vocabulary

    vocabulary = Vocabulary((b"a", " က".encode(), b"ab", b"\xe1\x80", "é".encode()))
    assert vocabulary.characters == {"a", "က", "é"}


def test_byte_alphabet_is_a_bijection():
    table = byte_alphabet()
    assert sorted(table.values()) == list(range(256))
    assert byte_level_piece("Ġhello") == b" hello"
    assert byte_level_piece("à¤ķ") == "क".encode()
    assert byte_level_piece("<|end of text|>") == b"<|end of text|>"


def test_piece_marks():
    assert sentencepiece_piece("▁the") == b" the"
    assert sentencepiece_piece("<0xE0>") == b"\xe0"
    assert sentencepiece_piece("<0xE0>x") == b"<0xE0>x"
    assert wordpiece_piece("##ing") == b"ing"
    assert wordpiece_piece("##") == b"##"


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (b"ab", "ab"),
        (b"a", ""),
        ("é".encode(), "é"),
        (b"\x80" + "क".encode() + b"\xe0", "क"),
        (b"\x80\x80\x80\x80" + "é".encode(), ""),
        (b"\xff\xfe", ""),
    ],
)
def test_recovered_text(piece, text):
    assert recovered_text(piece) == text


def test_for_oniguruma_drops_possessive_quantifiers_only():
    assert for_oniguruma(r"\p{N}{1,3}+|\s++$|x\++| ?+a*+") == r"\p{N}{1,3}|\s+\z|x\++| ?a*"


def test_repr_names_family_and_size():
    assert repr(load("t5")) == "<SentencePiece t5: SentencePiece, 32000 tokens>"


def test_m2m100_counts_pieces_its_model_lacks_as_unk(paper_tokenizers):
    tokenizer = load("m2m100", [paper_tokenizers])
    table = json.loads(sources.archive(paper_tokenizers)["m2m100"].read("vocab.json"))
    names = [tokenizer.processor.id_to_piece(n) for n in range(len(tokenizer.processor))]
    assert tokenizer.vocabulary.unknown == {
        n for n, name in enumerate(names) if name not in table or name == "<unk>"
    }


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("gpt-4o", "o200k_base"),
        ("GPT-4o", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("llama3", "llama-3"),
        ("Llama 3.2", "llama-3"),
        ("Claude 2.1", "claude-2.1"),
        ("mistral", "mistral-v0.3"),
    ],
)
def test_names_are_taken_as_people_say_them(said: str, name: str) -> None:
    assert catalog.find(said).name == name
    assert catalog.find(said).fingerprint == catalog.find(name).fingerprint


def test_aliases_lead_to_rows_of_the_catalog_and_hide_none() -> None:
    aliases = [alias for names in catalog.ALSO_CALLED.values() for alias in names]
    assert set(catalog.ALSO_CALLED) <= set(catalog.BY_NAME)
    assert len(aliases) == len(set(aliases)) and not set(aliases) & set(catalog.BY_NAME)
    assert catalog.canonical("qwen3") == "qwen3" and catalog.canonical("a/B") == "a/B"


@pytest.mark.parametrize("token", ["Ġthe", "a b", "\x7f", "é\xad", "中", "<|x y|>", "", "Ģĭł"])
def test_byte_level_pieces_are_read_letter_by_letter(token):
    table = byte_alphabet()
    known = all(letter in table for letter in token)
    expected = bytes(table[letter] for letter in token) if known else token.encode()
    assert byte_level_piece(token) == expected


@pytest.mark.parametrize("name", ["claude-4-opus", "gemini-2.5-pro"])
def test_an_unpublished_tokenizer_is_said_to_be_so(name: str) -> None:
    with pytest.raises(TokenizerError, match=r"is not published.*token-counting service"):
        find(name)
