"""The corpus type and the language table."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace

import pytest

from tokengraft.core.errors import CorpusError
from tokengraft.corpus import ParallelCorpus
from tokengraft.languages.codes import known, language, resolve

CORPUS = ParallelCorpus(
    "mine",
    "made up",
    ("1", "2"),
    {
        "zho_Hant": ("一", "二"),
        "eng_Latn": ("one", None),
        "zho_Hans": ("一", "二"),
        "eng_Latn-GB": ("one", "two"),
        "shn_Mymr": (None, "သွင်"),
    },
)


def test_languages_are_sorted_and_lines_are_the_present_ones() -> None:
    assert CORPUS.languages == ("eng_Latn", "eng_Latn-GB", "shn_Mymr", "zho_Hans", "zho_Hant")
    assert CORPUS.lines("eng_Latn") == ["one"]
    assert CORPUS.lines("eng_Latn-GB") == ["one", "two"]


def test_select_takes_full_and_bare_codes() -> None:
    chosen = CORPUS.select(["shn", "eng", "eng_Latn"])
    assert chosen.languages == ("eng_Latn", "shn_Mymr")
    assert chosen.texts["shn_Mymr"] == (None, "သွင်")
    assert (chosen.units, chosen.name) == (CORPUS.units, "mine")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("zho", r"'zho' is ambiguous; .*: zho_Hans \(.*\), zho_Hant \(.*\)\. The most .*Hans\.$"),
        ("shn_Mynr", r"'shn_Mynr' in mine, which has eng_.*Hant\. Did you mean shn_Mymr"),
        ("Shann", r"Did you mean shn_Mymr \(Shan\)"),
        ("qqq", "No language 'qqq' in mine"),
    ],
)
def test_select_what_is_not_there(code: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        CORPUS.select([code])


def test_select_nothing() -> None:
    with pytest.raises(CorpusError, match="No language chosen; mine has 5"):
        CORPUS.select([])


def test_digest_is_of_the_texts_and_the_gaps() -> None:
    assert CORPUS.digest("zho_Hans") == CORPUS.digest("zho_Hant")
    entries = [("a", "b"), ("b", "a"), ("ab", None), (None, "ab"), ("a", None)]
    digests = {
        ParallelCorpus("x", "y", ("1", "2"), {"eng_Latn": entry}).digest("eng_Latn")
        for entry in entries
    }
    assert len(digests) == len(entries)
    # The definition itself, since caches on disk may be keyed by it.
    data = b"\x03\0\0\0\0\0\0\0one" + bytes(8)
    assert CORPUS.digest("eng_Latn") == hashlib.sha256(data).hexdigest()


def test_require() -> None:
    assert CORPUS.require("eng_Latn") == CORPUS.require("eng") == "eng_Latn"
    with pytest.raises(CorpusError, match=r"pivot fra_Latn: No language .* mine, which has eng_"):
        CORPUS.require("fra_Latn")
    with pytest.raises(CorpusError, match=r"fewer than two languages \(eng_Latn\)"):
        CORPUS.select(["eng_Latn"]).require("eng_Latn")


def test_no_corpus_is_misaligned_or_has_empty_entries() -> None:
    with pytest.raises(CorpusError, match="eng_Latn has 1 entries for 2 units"):
        replace(CORPUS, texts={"eng_Latn": ("one",)})
    with pytest.raises(CorpusError, match="eng_Latn, unit 2, is empty"):
        replace(CORPUS, texts={"eng_Latn": ("one", "")})
    with pytest.raises(CorpusError, match="a unit id occurs twice"):
        replace(CORPUS, units=("1", "1"))


def test_language_of_the_table() -> None:
    shan = language("shn_Mymr")
    assert (shan.name, shan.script, shan.direction) == ("Shan", "Mymr", "ltr")
    assert known()["shn_Mymr"] is shan
    english = language("eng_Latn")
    assert english.speakers_total is not None
    assert english.speakers_total > 10**8


def test_a_variety_has_the_base_row_but_not_its_speakers() -> None:
    british = language("eng_Latn-GB")
    assert (british.code, british.name) == ("eng_Latn-GB", "English (GB)")
    assert british.family == language("eng_Latn").family
    assert british.speakers_total is None


def test_a_language_outside_the_table_is_named_by_its_code() -> None:
    unknown = language("qaa_Zsye-x")
    assert (unknown.name, unknown.script, unknown.family) == ("qaa_Zsye-x", "Zsye", None)
    with pytest.raises(CorpusError, match=r"'english' is not a language code.*eng_Latn"):
        language("english")


def test_resolve_in_the_table() -> None:
    assert resolve("shn") == "shn_Mymr"
    assert resolve("qaa_Latn") == "qaa_Latn"
    with pytest.raises(CorpusError, match="ambiguous"):
        resolve("zho")
    with pytest.raises(CorpusError, match=r"not a language code; .* mean mya_Mymr \(Burmese\)"):
        resolve("Burmes")


def test_import_is_light() -> None:
    code = (
        "import sys, tokengraft.corpus; print([m for m in ('polars', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
