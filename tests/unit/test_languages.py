"""A language by any of the names people know it by."""

import pytest

from tokengraft.corpus.languages import known, resolve
from tokengraft.errors import CorpusError


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("shn_Mymr", "shn_Mymr"),
        ("shn", "shn_Mymr"),
        ("de", "deu_Latn"),
        ("de-DE", "deu_Latn"),
        ("de_DE", "deu_Latn"),
        ("zh-Hant", "zho_Hant"),
        ("zh-Hant-TW", "zho_Hant"),
        ("sw", "swh_Latn"),  # a macrolanguage's code for its one member here
        ("Shan", "shn_Mymr"),
        ("burmese", "mya_Mymr"),
        ("Deutsch", "deu_Latn"),
        ("xyz_Latn", "xyz_Latn"),  # well formed, not in the table
    ],
)
def test_resolve(said, meant):
    assert resolve(said) == meant


def test_a_region_prefers_its_own_variety():
    assert resolve("pt-BR", ["por_Latn", "por_Latn-BR"]) == "por_Latn-BR"
    assert resolve("pt-BR", ["por_Latn", "por_Latn-PT"]) == "por_Latn"


@pytest.mark.parametrize("said", ["zh", "sr"])
def test_several_are_listed(said):
    with pytest.raises(CorpusError, match=r"is ambiguous; say which one: .*, "):
        resolve(said)


@pytest.mark.parametrize("said", ["eng_Lat", "de-Cyrl", "xx", "", "-", "de-DE-x-y"])
def test_nothing_meant(said):
    with pytest.raises(CorpusError, match="is not a language code"):
        resolve(said)


def test_every_code_and_name_of_the_table_means_its_own_row():
    names = {}
    for row in known().values():
        assert resolve(row.code) == row.code
        names.setdefault(row.name.casefold(), []).append(row.code)
    for name, codes in names.items():
        if len(codes) == 1 and len(name) > 3:
            assert resolve(name) == codes[0]
