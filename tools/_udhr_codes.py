"""Which language code each UDHR translation carries, and which one is a language's primary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fontTools.unicodedata import script as char_script

#: ISO 639-3 code in the source -> the ISO 639-3 code FLORES-200 uses for that language.
#: ``pbu``: FLORES calls its Pashto ``pbt``; both are the one written standard.
FLORES_LANGUAGE = {
    "cmn": "zho",
    "ekk": "est",
    "gug": "grn",
    "kng": "kon",
    "pbu": "pbt",
    "src": "srd",
    "zlm": "zsm",
}

#: Translations whose source metadata has no language, where the name settles it.
LANGUAGE_OF_SOURCE = {"023": "zho", "026": "kor"}

#: Translations that hold another language's text, by the sentences they share with it.
MISLABELLED = {
    "ckb": "the text is the Northern Kurdish one (50 of 51 units equal to kmr)",
    "kng": "the text is the Kituba one (33 units equal to ktu)",
}

#: Translations that are not the primary one of their language and script -> variant suffix.
#: Whatever is not named here takes the plain code. The primary is the current standard
#: orthography; failing that the one free of editorial marks; failing that the more complete.
VARIANT = {
    "008": "008",
    "023": "jinan",
    "026": "yeonbyeon",
    "030": "030",
    "041": "041",
    "042": "resolution",
    "048": "048",
    "053": "053",
    "054": "054",
    "058": "marka",
    "059": "059",
    "062": "chimwiini",
    "063": "kibajuni",
    "067": "067",
    "068": "welche",
    "acu_1": "1",
    "aka_asante": "asante",
    "auv": "auvergnat",
    "chr_cased": "cased",
    "cjk_AO": "angola",
    "cmn_hans_beijing": "beijing",
    "cmn_hans_guiyang": "guiyang",
    "cmn_hans_harbin": "harbin",
    "cmn_hans_nanjing": "nanjing",
    "cmn_hans_tianjin": "tianjin",
    "deu_1901": "1901",
    "ell_polytonic": "polytonic",
    "fuv2": "2",
    "hat_popular": "popular",
    "hau_3": "3",
    "hau_NE": "niger",
    "hsf": "otontepec",
    "hva": "potosi",
    "jpn_osaka": "osaka",
    "jpn_tokyo": "tokyo",
    "kmb": "kmb",
    "lat_1": "1",
    "lin_tones": "tones",
    "mal": "zwj",
    "mri": "1",
    "nya_chinyanja": "chinyanja",
    "oci_1": "fribourg",
    "oci_3": "vaud",
    "oci_4": "valais",
    "por_PT": "portugal",
    "prv": "provencal",
    "rmn_1": "1",
    "roh": "1",
    "roh_puter": "puter",
    "roh_surmiran": "surmiran",
    "roh_sursilv": "sursilvan",
    "roh_sutsilv": "sutsilvan",
    "roh_vallader": "vallader",
    "ron_1953": "1953",
    "ron_1993": "1993",
    "tam_LK": "srilanka",
    "tha": "1",
    "tso_MZ": "mozambique",
    "urd_2": "2",
    "ven2": "2",
}

_SIMPLIFIED = frozenset("国权际对这为个们财产业会应时义务须护")
_TRADITIONAL = frozenset("國權際對這為個們財產業會應時義務須護")


def text_script(texts: Iterable[str], language: str) -> str:
    """Return the ISO 15924 code of the script most letters of ``texts`` are in.

    Han text gets FLORES's codes: ``Jpan`` for Japanese, ``Hani`` for Vietnamese, else ``Hans``
    or ``Hant`` by which form of the commonest reformed characters occurs more.
    """
    letters = Counter(char for text in texts for char in text if char.isalpha())
    scripts: Counter[str] = Counter()
    for char, count in letters.items():
        name = char_script(char)
        if name not in {"Zyyy", "Zinh", "Zzzz"}:
            scripts[name] += count
    if not scripts:
        raise ValueError("no letter of any script")
    top = scripts.most_common(1)[0][0]
    if language == "jpn" and top in {"Hani", "Hira", "Kana"}:
        return "Jpan"
    if top != "Hani" or language == "vie":
        return top
    simplified = sum(letters[char] for char in _SIMPLIFIED - _TRADITIONAL)
    traditional = sum(letters[char] for char in _TRADITIONAL - _SIMPLIFIED)
    return "Hans" if simplified >= traditional else "Hant"


def language_of(source: str, iso639_3: str) -> str | None:
    """Return the ISO 639-3 code for a translation, ``None`` where the source names none."""
    language = LANGUAGE_OF_SOURCE.get(source, iso639_3)
    return None if language == "und" else FLORES_LANGUAGE.get(language, language)
