"""Groups of languages, text by folder, objectives over several languages."""

import pytest

from tokengraft.api.verbs import plan
from tokengraft.cli.options import read_text
from tokengraft.core.errors import UsageError
from tokengraft.corpus import load
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.objectives import check_objective
from tokengraft.planning.plan import Planning
from tokengraft.planning.plan_files import is_group, languages_for, texts_of_folder
from tokengraft.tokenizer.catalog import as_json, find

AVAILABLE = ["eng_Latn", "swh_Latn", "zul_Latn", "shn_Mymr", "hin_Deva"]
PREMIUMS = {"swh_Latn": 1.9, "zul_Latn": 2.2, "shn_Mymr": 15.0}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["all"], ["swh_Latn", "zul_Latn", "shn_Mymr", "hin_Deva"]),
        (["Latn"], ["swh_Latn", "zul_Latn"]),
        (["premium>2"], ["zul_Latn", "shn_Mymr"]),
        (["premium > 2.5", "swh"], ["shn_Mymr", "swh_Latn"]),
        (["Shan"], ["shn_Mymr"]),
        (["tam"], ["tam_Taml"]),
    ],
)
def test_groups(asked: list[str], expected: list[str]) -> None:
    assert languages_for(asked, AVAILABLE, "eng_Latn", PREMIUMS.get) == expected


def test_a_group_of_none_is_an_error() -> None:
    with pytest.raises(UsageError, match="Ethi"):
        languages_for(["Ethi"], AVAILABLE, "eng_Latn", PREMIUMS.get)
    with pytest.raises(UsageError, match=r"Latm: none .* Did you mean Latn\?"):
        languages_for(["Latm"], AVAILABLE, "eng_Latn", PREMIUMS.get)
    assert not is_group("Shan") and is_group("Latn")


def test_a_folder_with_a_file_a_language(tmp_path) -> None:
    udhr = load("udhr")
    for code in ("amh_Ethi", "shn_Mymr"):
        (tmp_path / f"{code}.txt").write_text("\n".join(udhr.lines(code)), encoding="utf-8")
    (tmp_path / "README.md").write_text("about")
    assert list(texts_of_folder(tmp_path)) == ["amh_Ethi", "shn_Mymr"]
    by_group = plan("rootstock", "all", tmp_path, budget=40, boundaries="keep")
    files = {code: tmp_path / f"{code}.txt" for code in ("amh_Ethi", "shn_Mymr")}
    by_name = plan("rootstock", ["amh", "shn"], files, budget=40, boundaries="keep")
    assert by_group.plan == by_name.plan


def test_minimax_stops_when_every_language_is_there() -> None:
    udhr = load("udhr")
    codes = ("hye_Armn", "amh_Ethi", "swh_Latn")
    size = min(len(udhr.lines(code)) for code in ("eng_Latn", *codes))
    test = {code: udhr.lines(code)[:size] for code in ("eng_Latn", *codes)}
    texts = {code: test[code] for code in codes}
    base = as_json(find("gpt2"))
    made = plan_tokens(base, texts, Planning(budget=1500, objective="minimax:4"), test=test)
    before = {code: made.languages[code].premium_before for code in codes}
    after = {code: made.languages[code].premium_after for code in codes}
    assert max(before.values()) > 6 and before["swh_Latn"] < 4
    assert 3.7 < max(after.values()) < 4.2 and len(made.tokens) < 1000
    # Swahili is below already: no token is spent on it.
    swahili = made.languages["swh_Latn"]
    assert swahili.planning_after >= 0.97 * swahili.planning_before
    parity = plan_tokens(
        base, texts, Planning(budget=len(made.tokens), objective="parity"), test=test
    )
    assert max(o.premium_after for o in parity.languages.values()) > 0.9 * max(after.values())
    assert "every language is at that premium" in made.notes[-1]
    short = plan_tokens(base, texts, Planning(budget=9, objective="minimax:4"), test=test)
    assert "budget of 9 tokens does not suffice for minimax:4" in short.notes[-1]
    assert short.notes[-1].endswith("hye_Armn, amh_Ethi")
    with pytest.raises(UsageError, match="below"):
        plan_tokens(base, texts, Planning(budget=9, objective="minimax:99"), test=test)


def test_languages_that_get_nothing_share_a_note_and_a_world_of_them_is_counted() -> None:
    udhr = load("udhr")
    codes = [code for code in udhr.languages if code.endswith("_Cyrl")][:30]
    made = plan_tokens(
        as_json(find("gpt2")),
        {"amh_Ethi": udhr.lines("amh_Ethi"), **{code: udhr.lines(code)[:1] for code in codes}},
        Planning(budget=2),
    )
    (note,) = [one for one in made.notes if "no new token helps" in one]
    others = [code for code in codes if code in note]
    assert len(others) == 8 and "and 22 more languages: no new token helps" in note
    assert "the whole budget went to others" in note


def test_text_of_a_folder_is_trained_on_by_language_if_every_file_names_one(tmp_path) -> None:
    for code in ("amh_Ethi", "shn_Mymr"):
        (tmp_path / f"{code}.txt").write_text(f"{code}\n")
    assert read_text([str(tmp_path)]) == {"amh_Ethi": ["amh_Ethi"], "shn_Mymr": ["shn_Mymr"]}
    (tmp_path / "more.txt").write_text("more\n")
    assert sorted(read_text([str(tmp_path)])) == ["amh_Ethi", "more", "shn_Mymr"]
    assert read_text([f"amh={tmp_path / 'more.txt'}"]) == ["more"]


@pytest.mark.parametrize("wrong", ["minimax", "minimax:x", "minimax:-1", "fair"])
def test_objectives_that_do_not_exist(wrong: str) -> None:
    with pytest.raises(UsageError, match="objective"):
        check_objective(wrong)
    check_objective("minimax:2.0")
