"""A language by any of the names people know it by."""

import pytest

from tokengraft.core.errors import CorpusError
from tokengraft.languages.codes import (
    _key,
    _other_names,
    canonical,
    known,
    language,
    resolve,
    suggest,
)


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
        ("deutsch", "deu_Latn"),
        ("Farsi", "pes_Arab"),
        ("persian", "pes_Arab"),
        ("Bangla", "ben_Beng"),
        ("Filipino", "tgl_Latn"),
        ("fil-PH", "tgl_Latn"),
        ("Oriya", "ory_Orya"),
        ("Kurmanji", "kmr_Latn"),
        ("Sorani", "ckb_Arab"),
        ("zh-CN", "zho_Hans"),
        ("zh_TW", "zho_Hant"),
        ("cmn-Hans", "zho_Hans"),
        ("Ashaninka", "cni_Latn"),  # Asháninka
        ("K'iche'", "quc_Latn"),  # with other apostrophes in the table
        ("Meitei", "mni_Beng"),  # Meitei (Bengali script), the only one
        ("Serbian", "srp_Cyrl"),  # the row of that very name
        ("Vietnamese", "vie_Latn"),
        ("xyz_Latn", "xyz_Latn"),  # well formed, not in the table
    ],
)
def test_resolve(said, meant):
    assert resolve(said) == meant


def test_a_region_prefers_its_own_variety():
    assert resolve("pt-BR", ["por_Latn", "por_Latn-BR"]) == "por_Latn-BR"
    assert resolve("pt-BR", ["por_Latn", "por_Latn-PT"]) == "por_Latn"


@pytest.mark.parametrize(
    "said",
    [
        "zh",
        "sr",
        "srp",
        "Chinese",
        "Mandarin",
        "cmn",
        "Punjabi",
        "Norwegian",
        "Kashmiri",
        "Ga",
        "Fur",
    ],
)
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


def test_other_names_are_names_of_no_row_and_mean_rows():
    names = {_key(row.name) for row in known().values()}
    for name, codes in _other_names().items():
        assert name not in names
        assert codes and set(codes) <= set(known())
        assert all(resolve(name, [code]) == code for code in codes)


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("Kurdish", "kmr_Latn (Northern Kurdish), ckb_Arab (Central Kurdish)?"),
        ("Arabic", "arb_Arab (Modern Standard Arabic), "),
        ("Sotho", "sot_Latn (Southern Sotho), nso_Latn (Northern Sotho)?"),
        ("Turkis", "tur_Latn (Turkish)?"),
    ],
)
def test_whole_words_are_suggested_first(said, first):
    with pytest.raises(CorpusError, match="is not a language code") as caught:
        resolve(said)
    assert f"Did you mean {first}" in str(caught.value)
    assert "Mozarabic" not in str(caught.value)


def test_what_is_like_nothing_suggests_nothing():
    assert suggest("nonsense", known()) == ""
    with pytest.raises(CorpusError, match="tokengraft languages"):
        resolve("nonsense")


def test_a_name_means_what_a_corpus_has_of_it():
    assert resolve("Serbian", ["srp_Latn", "eng_Latn"]) == "srp_Latn"
    assert resolve("Mandarin", ["zho_Hant", "eng_Latn"]) == "zho_Hant"
    assert resolve("German", ["deu_Latn-1901", "deu_Latn"]) == "deu_Latn"


@pytest.mark.parametrize(
    ("label", "code"), [("en", "eng_Latn"), ("zh", "zh"), ("nonsense", "nonsense"), ("", "")]
)
def test_labels_of_data_stay_unless_they_mean_one_language(label, code):
    assert canonical(label) == code


def test_a_macrolanguage_named_without_a_variety_lists_them() -> None:
    with pytest.raises(CorpusError, match=r"ambiguous.*quy_Latn \(Ayacucho Quechua\).*quz_Latn"):
        resolve("Quechua")
    with pytest.raises(CorpusError, match="hnj_Latn"):
        resolve("Hmong")
    assert resolve("que_Latn") == "que_Latn"
    assert language("que_Latn").name == "Quechua (variety not stated)"
    assert resolve("Ayacucho Quechua") == "quy_Latn"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Tamazight", r"Did you mean zgh_Tfng .*, tzm_Latn .*, tzm_Tfng"),
        ("Kurdish", r"Did you mean kmr_Latn .*, ckb_Arab"),
        ("Quechua", r"quy_Latn.*quz_Latn.*The most spoken is que_Latn\.$"),
        ("Amazigh", r"kab_Latn.*tzm_Latn.*The most spoken is zgh_Tfng\.$"),
        ("vie", r"The most spoken is vie_Latn\.$"),
    ],
)
def test_a_common_name_finds_its_members_and_offers_the_most_spoken(said: str, told: str) -> None:
    with pytest.raises(CorpusError, match=told):
        resolve(said)
