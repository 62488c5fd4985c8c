"""One suite over every tokenizer adapter, made from the registry: a new row is tested by its
example."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokengraft.core.errors import TokenizerError
from tokengraft.corpus import udhr
from tokengraft.tokenizer import file_kinds
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.catalog import Located, as_json, find
from tokengraft.tokenizer.file_kinds import ADAPTERS, Adapter, adapter_of, choose_file, used_files
from tokengraft.tokenizer.huggingface import HuggingFace
from tokengraft.tokenizer.packed import Packed
from tokengraft.tokenizer.rows import Rows
from tokengraft.tokenizer.sources import Source
from tokengraft.tokenizer.vocabulary import Vocabulary


def lines() -> list[str]:
    corpus = udhr.load(["eng", "hin", "shn", "amh", "zho_Hans"])
    return [line for code in corpus.languages for line in corpus.lines(code)[:6]]


class Toy(Tokenizer):
    """What a newcomer might add: each letter is a token, and `?` stands for all else."""

    def __init__(self, name: str, fingerprint: str, letters: str) -> None:
        super().__init__(name, fingerprint)
        self._letters = "?" + letters

    family = "letters"
    lossless = False

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[max(0, self._letters.find(letter)) for letter in text] for text in texts]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return ["".join(self._letters[number] for number in row) for row in ids]

    def pretokens(self, texts: Sequence[str], rows: Rows | None = None) -> None:
        return None

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(letter.encode() for letter in self._letters), frozenset([0]))

    def clean_vocabulary(self) -> frozenset[bytes]:
        return frozenset(self.vocabulary.pieces)


def _open_toy(name: str, fingerprint: str, source: Source, kind: str) -> Tokenizer:
    try:
        return Toy(name, fingerprint, source.read(kind).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{name}: {kind} is not UTF-8") from error


TOY = Adapter(
    "toy", "letters",
    _open_toy, lambda: Source("toy", {"letters.toy": partial(bytes, b"abcdefghij ")}),
    patterns=("*.toy",),
)  # fmt: skip


@pytest.fixture(params=[*ADAPTERS, TOY], ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Adapter:
    """Each row of the registry, and one that a newcomer would add."""
    monkeypatch.setattr(file_kinds, "ADAPTERS", (*ADAPTERS, TOY))
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def found(adapter: Adapter, tmp_path: Path) -> Located:
    """The example as a user has it: a folder with its files, found by its path."""
    source = adapter.example()
    for name in source.files:
        (tmp_path / name).write_bytes(source.read(name))
    return find(str(tmp_path))


@pytest.fixture
def tokenizer(adapter: Adapter, found: Located) -> Tokenizer:
    """The example opened: once, since no test changes it and some take a second."""
    if adapter.name not in OPENED:
        OPENED[adapter.name] = found.open()
    return OPENED[adapter.name]


OPENED: dict[str, Tokenizer] = {}


def test_a_row_says_what_it_is(adapter: Adapter) -> None:
    assert adapter.name and adapter.help and (adapter.names or adapter.patterns)
    assert len({one.name for one in file_kinds.ADAPTERS}) == len(file_kinds.ADAPTERS)


def test_its_files_are_recognised(adapter: Adapter, found: Located, tokenizer: Tokenizer) -> None:
    assert found.source is not None and found.kind is not None
    assert adapter_of(found.kind) is adapter
    assert choose_file(found.source) == found.kind
    used = used_files(found.source, found.kind)
    assert used[0] == found.kind and set(used) <= set(found.source.files)
    again = find(str(Path(found.source.where) / found.kind))
    assert again.open().encode(lines()) == tokenizer.encode(lines())


def test_ids_are_stable_and_inside_the_vocabulary(tokenizer: Tokenizer) -> None:
    texts = lines()
    ids = tokenizer.encode(texts)
    assert tokenizer.encode([]) == [] and tokenizer.encode([""]) == [[]]
    assert ids == [tokenizer.encode([text])[0] for text in texts]
    assert all(ids) and all(0 <= n < len(tokenizer.vocabulary) for row in ids for n in row)
    for alone in (True, False):
        rows = tokenizer.encode_texts(texts, alone)
        assert [row.tolist() for row in rows.arrays()] == ids


def test_text_comes_back_where_that_is_said(tokenizer: Tokenizer) -> None:
    texts = [*lines(), "  two  spaces\tand\nlines ", "abc \U0001f389"]
    decoded = tokenizer.decode(tokenizer.encode(texts))
    assert len(decoded) == len(texts)
    if tokenizer.lossless:
        assert decoded == texts
        assert not tokenizer.vocabulary.unknown


def test_no_text_takes_fewer_tokens_than_it_is_cut_into(tokenizer: Tokenizer) -> None:
    texts = lines()
    cut = tokenizer.pretokens(texts)
    if cut is not None:
        assert (cut <= np.array([len(row) for row in tokenizer.encode(texts)])).all()
        assert (cut > 0).all()


def test_the_vocabulary_is_bytes(tokenizer: Tokenizer) -> None:
    pieces = tokenizer.vocabulary.pieces
    assert all(isinstance(piece, bytes) for piece in pieces)
    assert max(tokenizer.vocabulary.special | tokenizer.vocabulary.unknown, default=0) < len(pieces)
    clean = tokenizer.clean_vocabulary()
    assert clean and all(isinstance(piece, bytes) for piece in clean)
    assert tokenizer.name in repr(tokenizer) and tokenizer.family in repr(tokenizer)


def test_it_travels_with_the_files_it_uses_alone(found: Located, tokenizer: Tokenizer) -> None:
    packed = pickle.loads(pickle.dumps(Packed.of(found)))
    assert packed.open().encode(lines()) == tokenizer.encode(lines())
    assert packed.fingerprint == tokenizer.fingerprint


def test_its_fingerprint_follows_its_files(found: Located) -> None:
    assert found.source is not None and found.kind is not None
    folder = Path(found.source.where)
    before = find(str(folder)).fingerprint
    assert before == found.fingerprint
    (folder / "NOTES.md").write_text("not part of it", "utf-8")
    assert find(str(folder)).fingerprint == before
    path = folder / found.kind
    path.write_bytes(path.read_bytes() + b"\n")
    assert find(str(folder)).fingerprint != before


def test_as_json_it_gives_the_same_ids(
    adapter: Adapter, found: Located, tokenizer: Tokenizer
) -> None:
    if adapter.parses is None:
        with pytest.raises(TokenizerError, match="no way to make one"):
            as_json(found)
        return
    parsed = as_json(found)
    again = HuggingFace.from_parsed("again", json.loads(json.dumps(parsed)))
    assert again.encode(lines()) == tokenizer.encode(lines())


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00garbage", b"[1, 2]"])
def test_garbage_is_an_error_of_ours(adapter: Adapter, found: Located, data: bytes) -> None:
    assert found.source is not None and found.kind is not None
    path = Path(found.source.where) / found.kind
    path.write_bytes(data)
    uses: list[Any] = [lambda: find(str(path)).open().encode(lines())]
    uses += [lambda: as_json(find(str(path)))]
    for use in uses:
        try:
            use()
        except TokenizerError as error:
            assert str(error)


def test_help_names_every_row(adapter: Adapter) -> None:
    from tokengraft.cli.listings import files_read

    assert f"{adapter.name}: {adapter.help}" in files_read()
