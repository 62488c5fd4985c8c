"""Speaker figures and language groups from CLDR, and the few figures set by hand."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

CLDR = "CLDR 48.2.0 territoryInfo"
#: ISO 639-3 -> the CLDR key that counts (nearly) the same speakers under a wider code.
CLDR_KEY = {
    "als": "sq",
    "arb": "ar",
    "ayr": "ay",
    "azb": "az_Arab",
    "azj": "az",
    "bcl": "bik",
    "gaz": "om",
    "khk": "mn",
    "kmr": "ku",
    "lvs": "lv",
    "npi": "ne",
    "ory": "or",
    "pbt": "ps",
    "pes": "fa",
    "plt": "mg",
    "prs": "fa",
    "swh": "sw",
    "tgl": "fil",
    "uzn": "uz",
    "ydd": "yi",
    "zsm": "ms",
}
#: Keys under which CLDR counts a sister language of the one the bare key stands for.
NOT_SAME = {"az_Arab", "mn_Mong", "pa_Arab", "uz_Arab"}
#: CLDR figures that are not of the language, or far from every other source.
CLDR_WRONG = {"ars", "epo", "ido", "ina", "lat"}

#: Groups of ISO 639-5 that are areas or kinds, not families; the group below one is taken.
NOT_A_FAMILY = {"art", "cai", "cau", "cpe", "cpf", "cpp", "crp", "mul", "nai", "paa", "sai", "tut"}
#: Group names where the usual name is not the one CLDR gives.
GROUP_NAME = {
    "afa": "Afro-Asiatic",
    "jpx": "Japonic",
    "map": "Austronesian",
    "myn": "Mayan",
    "nic": "Niger-Congo",
    "qwe": "Quechuan",
    "sit": "Sino-Tibetan",
    "tai": "Kra-Dai",
    "tup": "Tupian",
    "azc": "Uto-Aztecan",
    "omq": "Oto-Manguean",
    "urj": "Uralic",
    "xgn": "Mongolic",
    "tuw": "Tungusic",
    "iro": "Iroquoian",
    "aav": "Austroasiatic",
    "ccs": "Kartvelian",
    "ccn": "North Caucasian",
}
#: Families CLDR does not give, or gives as an area, which are beyond doubt.
_MEMBERS = {
    "Koreanic": "kor",
    "Sino-Tibetan": "hak hlt zho",
    "Afro-Asiatic": "acq dbr jii mlt tzm",
    "Indo-European": "als ast cnr mwl pnb rmn",
    "Aymaran": "ayr",
    "Constructed": "epo ido ina",
    "Niger-Congo": "fuf kin ndo run swb zdj",
    "Austronesian": "buc min pmy",
    "Creole": "acf bis cri crs hat jam kea kri mfe pap pcm pis pov tpi",
    "Chicham": "acu agr jiv",
    "Pano-Tacanan": "amc cbr mcd mcf shp tna",
    "Muskogean": "cic",
    "Guaicuruan": "tob",
    "Totonacan": "top",
    "Oto-Manguean": "mzi ztu",
    "Mixe-Zoquean": "mto",
    "Kra-Dai": "kkh",
    "Arawakan": "cpu",
    "Barbacoan": "cbi cof kwi",
    "Araucanian": "arn",
}
FAMILY = {code: family for family, codes in _MEMBERS.items() for code in codes.split()}


class Cldr:
    """CLDR's supplemental data: language keys, territory populations and language groups."""

    def __init__(self, supplemental: Path) -> None:
        def load(name: str) -> dict[str, object]:
            text = (supplemental / f"{name}.json").read_text(encoding="utf-8")
            data: dict[str, object] = json.loads(text)["supplemental"]
            return data

        metadata = load("aliases")["metadata"]
        assert isinstance(metadata, dict)
        aliases = metadata["alias"]["languageAlias"]
        self._alias = {code: entry["_replacement"] for code, entry in aliases.items()}
        #: The aliases that name the same language; the rest widen it to a macrolanguage.
        self._same = {
            code: entry["_replacement"]
            for code, entry in aliases.items()
            if entry["_reason"] in {"overlong", "deprecated"}
        }
        groups = load("languageGroups")["languageGroups"]
        assert isinstance(groups, dict)
        self._parent: dict[str, str] = {}
        for group, members in groups.items():
            for member in members.split():
                self._parent.setdefault(member, group)
        #: base key -> territory -> figures of the key with and without script
        self._population: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        #: key with a script -> people who use the language in it
        self._in_script: dict[str, float] = defaultdict(float)
        territories = load("territoryInfo")["territoryInfo"]
        assert isinstance(territories, dict)
        for territory, info in territories.items():
            for key, value in info.get("languagePopulation", {}).items():
                base = key if key in NOT_SAME else key.split("_")[0]
                share = float(value["_populationPercent"]) / 100
                self._population[base][territory].append(share * float(info["_population"]))
                self._in_script[key] += share * float(info["_population"])

    def key(self, language: str) -> str:
        """Return CLDR's key for an ISO 639-3 code."""
        return CLDR_KEY.get(language) or self._same.get(language, language)

    def total(self, language: str) -> int | None:
        """Return CLDR's number of people who use the language, summed over territories.

        Where a territory counts a language once per script, the largest count is taken.
        """
        if language in CLDR_WRONG:
            return None
        own = language not in CLDR_KEY and language in self._population
        territories = self._population.get(language if own else self.key(language), {})
        if language in {"pes", "prs"}:
            dari = {"AF"} & set(territories)
            territories = {
                t: v for t, v in territories.items() if (t in dari) == (language == "prs")
            }
        people = round(sum(max(counts) for counts in territories.values()))
        return people or None

    def in_script(self, language: str, script: str) -> int | None:
        """Return CLDR's number of people who use the language in a script it names, if it does."""
        if language in CLDR_WRONG:
            return None
        return round(self._in_script.get(f"{self.key(language)}_{script}", 0)) or None

    def group(self, language: str) -> str | None:
        """Return the ISO 639-5 code of the language's top-level family, if CLDR knows it."""
        wider = self._alias.get(language, language)
        names = (language, self.key(language).split("_")[0], wider)
        node = next((name for name in names if name in self._parent), "")
        path = []
        while node in self._parent:
            node = self._parent[node]
            path.append(node)
        families = [group for group in path if group not in NOT_A_FAMILY]
        return families[-1] if families else None
