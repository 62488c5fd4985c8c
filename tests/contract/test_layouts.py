"""One suite over every layout of parallel text, made from the registry: a new row is tested by its
example."""

from __future__ import annotations

import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tokengraft.core.errors import CorpusError
from tokengraft.corpus.catalog import LAYOUTS, described, load, open_files
from tokengraft.corpus.layout import CorpusLayout


@pytest.fixture(params=LAYOUTS, ids=lambda layout: layout.name)
def layout(request: pytest.FixtureRequest) -> CorpusLayout:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def folder(layout: CorpusLayout, tmp_path: Path) -> Path:
    for name, text in layout.example.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="\n")
    return tmp_path / "corpus"


def test_a_row_says_what_it_is(layout: CorpusLayout) -> None:
    assert layout.name in described() and layout.help.split("\n")[0] in described()
    assert sum(one.name == layout.name for one in LAYOUTS) == 1


def test_the_first_to_recognise_its_files_is_itself(layout: CorpusLayout, folder: Path) -> None:
    with open_files(folder) as bundle:
        assert next(one for one in LAYOUTS if one.recognise(bundle)) is layout


def test_what_is_loaded_is_parallel_and_whole(folder: Path) -> None:
    corpus = load(folder)
    assert corpus.languages == ("eng_Latn", "fra_Latn")
    assert corpus.lines("eng_Latn")[:2] == ["One.", "Two."]
    assert corpus.lines("fra_Latn")[:2] == ["Un.", "Deux."]
    assert len(set(corpus.units)) == len(corpus.units) == len(corpus.lines("eng_Latn"))
    assert corpus.name and str(folder.parent) not in corpus.source
    assert load(folder) == corpus


def test_archives_hold_the_same(folder: Path, tmp_path: Path) -> None:
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with zipfile.ZipFile(tmp_path / "corpus.zip", "w") as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    with tarfile.open(tmp_path / "corpus.tar.xz", "w:xz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    for archive in ("corpus.zip", "corpus.tar.xz"):
        assert load(tmp_path / archive).texts == load(folder).texts


def test_languages_are_chosen_by_any_name(folder: Path) -> None:
    assert load(folder, languages=["French"]).texts == load(folder).select(["fra"]).texts
    with pytest.raises(CorpusError, match="shn"):
        load(folder, languages=["shn"])


def test_a_split_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(CorpusError, match="split"):
        load(folder, split="nowhere")


@pytest.mark.parametrize("damage", [b"\xff", b"\x00"], ids=["no UTF-8", "NUL"])
def test_damage_names_its_file(layout: CorpusLayout, folder: Path, damage: bytes) -> None:
    last = folder / list(layout.example)[-1]
    last.write_bytes(last.read_bytes()[:-2] + damage + b"\n")
    with pytest.raises(CorpusError, match=last.name):
        load(folder)


def test_a_new_layout_is_one_row(
    layout: CorpusLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file ending that no other layout has is read as soon as a row names it."""
    if layout.name != "text files":
        pytest.skip("tried with one layout")
    (tmp_path / "eng_Latn.verse").write_text("One.\n", encoding="utf-8")
    with open_files(tmp_path) as bundle:
        assert bundle.names == ()
    new = replace(layout, name="verses", suffixes=(".verse",))
    monkeypatch.setattr("tokengraft.corpus.catalog.LAYOUTS", (*LAYOUTS, new))
    with open_files(tmp_path) as bundle:
        assert bundle.names == ("eng_Latn.verse",)
