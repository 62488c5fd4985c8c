"""The page as a file: self-contained, escaped, honest, free of this machine's paths."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from tokengraft.api.compare import compare
from tokengraft.api.report import collect, page_of
from tokengraft.api.report import report as build_page
from tokengraft.api.verbs import audit, plan, survey
from tokengraft.auditing.frames import summary
from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.corpus import load_pairs
from tokengraft.corpus.rows import Layout
from tokengraft.evaluating.measures import PLAIN, described
from tokengraft.languages.codes import SCRIPT_GROUPS
from tokengraft.planning.plan_files import read_plan
from tokengraft.render.colours import (
    GROUND,
    LINES,
    PREMIUM,
    READABLE,
    SCRIPTS,
    STEPS,
    colour_css,
    contrast,
    mix,
    rgb,
)
from tokengraft.render.page import browser_tokenizers
from tokengraft.render.page.audits import _reference, downloads, headline
from tokengraft.render.page.build import LIMIT, readme
from tokengraft.render.page.document import font_css, safe_json, without_paths
from tokengraft.render.page.runs import (
    evaluation_data,
    graft_data,
    grafted_premiums,
    plan_data,
)
from tokengraft.render.page.samples import choose_units, segment
from tokengraft.render.page.site import language_title
from tokengraft.render.selection import lead
from tokengraft.tokenizer import load

LANGUAGES = ["shn_Mymr", "hin_Deva", "arb_Arab", "fra_Latn"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    found = audit("udhr", ["gpt2", "bert-multilingual"], LANGUAGES, resamples=20)
    found.save(folder, figures=False)
    return folder


@pytest.fixture(scope="module")
def html(run: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = build_page([run], tmp_path_factory.mktemp("site"))
    assert path.stat().st_size < LIMIT
    readme = (path.parent / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(readme.split("---")[1])
    assert front["sdk"] == "static" and front["app_file"] == "index.html"
    return path.read_text(encoding="utf-8")


def test_the_same_run_gives_the_same_page(run: Path, html: str) -> None:
    assert page_of([run]).html == html


def test_a_site_tells_how_far_it_is(
    run: Path, tmp_path: Path, tokengraft: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = functools.partial(browser_tokenizers.offered, ("gpt2",))
    monkeypatch.setattr(browser_tokenizers, "offered", offered)
    monkeypatch.setattr("tokengraft.cli.console.EVERY", 0.0)
    said = tokengraft("report", run, "--site", "-o", tmp_path / "site").stderr.splitlines()
    assert said[0].startswith("Tokenizers for the browser: 0 of 1 tokenizers, after")
    assert said[1].startswith("Making the page, after ")
    told = [line.partition(",")[0] for line in said[2:7]]
    assert told == [f"Pages of languages: {done} of 5 languages" for done in range(5)]


def test_nothing_is_loaded_from_anywhere(html: str) -> None:
    without_data = re.sub(r'<script type="application/json".*?</script>', "", html, flags=re.S)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", without_data)
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", without_data))
    assert addresses == {"http://www.w3.org/2000/svg"}


def test_policy_names_exactly_what_is_inside(html: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    rules = policy[1].replace("&#x27;", "'")
    assert rules.startswith("default-src 'none'") and "unsafe" not in rules
    for element in ("script", "style"):
        inside = re.search(rf"<{element}>(.*?)</{element}>", html, flags=re.S)
        assert inside is not None
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in rules


def test_no_path_of_this_machine(run: Path, html: str, tmp_path: Path) -> None:
    assert str(run) not in html and str(Path.home()) not in html
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    manifest["corpus"]["source"] = "FLORES-200, dev, from /home/someone/flores"
    manifest["tokenizers"]["gpt2"]["from"] = "/home/someone/tokenizers/gpt2"
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "tables").symlink_to(run / "tables")
    (moved / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    page = page_of([moved]).html
    assert "someone" not in page and "FLORES-200, dev" in page


def test_downloads_hold_the_files(run: Path) -> None:
    packed = {entry["file"]: entry for entry in downloads(run)}
    for path in (run / "tables").iterdir():
        if path.suffix in (".csv", ".tex"):
            entry = packed.pop(path.name)
            assert gzip.decompress(base64.b64decode(entry["data"])) == path.read_bytes()
            assert entry["size"] == path.stat().st_size
    assert packed == {}


@pytest.mark.parametrize(
    "text",
    ["</script><script>", "<!--", "]]>", "&lt;", "\u2028\u2029", "\ud800", "a\x00b", '"\\'],
)
def test_json_is_inert_and_true(text: str) -> None:
    found = safe_json({text: [text, float("nan"), 1.5]})
    assert not set(found) & set("<>&\u2028\u2029")
    found.encode("utf-8")
    assert json.loads(found) == {text: [text, None, 1.5]}


def test_paths_are_cut() -> None:
    assert without_paths("from /a/b/c.txt, ok") == "from c.txt, ok"
    assert without_paths(" /a;" * 2000) == " a;" * 2000
    assert without_paths({"k": ["/x/y", 1, "a/b", "GPT-3.5/4", r"C:\a\b"]}) == {
        "k": ["y", 1, "a/b", "GPT-3.5/4", "b"]
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/John Doe/clients/acme/x.txt", "x.txt"),
        ("(/home/me/x)", "(x)"),
        ("shn=/home/me/x", "shn=x"),
        ('"/home/me/x"', '"x"'),
        ("['/home/me/x', '/srv/y']", "['x', 'y']"),
        ("file:///home/me/x", "x"),
        ("cannot read:/home/me/x", "cannot read:x"),
        ("/home/O'Brien (2)/x is", "x is"),
        ("/home/Doe, John/x, ok", "Doe, x, ok"),
        ("own text files: /a/b/en.txt, /c d/shn.txt", "own text files: en.txt, shn.txt"),
        (r"C:\Users\Jo Do\x", "x"),
        ("~/x/y", "y"),
        ("../up/x", "x"),
        ("<b>bold</b> <br/>", "<b>bold</b> <br/>"),
        ("https://example.org/a/b and/or n / a", "https://example.org/a/b and/or n / a"),
    ],
)
def test_paths_are_cut_wherever_they_begin(text: str, shown: str) -> None:
    assert without_paths(text) == shown


def test_a_page_of_own_files_names_no_folder(tmp_path: Path) -> None:
    secret = tmp_path / "secret dir"
    secret.mkdir()
    for name, text in (("en.txt", "hello there"), ("de.txt", "hallo du")):
        (secret / name).write_text(f"{text}\n{text} again\n", encoding="utf-8")
    corpus = load_pairs([f"eng_Latn={secret}/en.txt", f"deu_Latn={secret}/de.txt"])
    assert corpus.source == "own text files: en.txt, de.txt"
    found = audit(corpus, ["gpt2"], resamples=0)
    found.save(tmp_path / "run", figures=False)
    assert "secret dir" not in page_of([tmp_path / "run"]).html
    # A run of an older version still has the paths in its manifest.
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["corpus"]["source"] = "own text files: secret dir/en.txt, secret dir/de.txt"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    page = page_of([tmp_path / "run"])
    assert "secret dir" not in page.html
    assert "own text files: en.txt, de.txt" in page.html


def test_every_cell_colour_can_be_read() -> None:
    rules = re.findall(
        r"background: light-dark\((.{7}), (.{7})\); color: light-dark\((.{7}), (.{7})\)",
        colour_css(),
    )
    assert len(rules) == 2 * STEPS
    for day, night, ink_day, ink_night in rules:
        assert contrast(day, ink_day) >= READABLE and contrast(night, ink_night) >= READABLE


def test_a_premium_of_one_is_neither_blue_nor_red() -> None:
    for stops in PREMIUM:
        below, one, above = (rgb(mix(stops, at)) for at in (0.45, 0.5, 0.55))
        assert max(one) - min(one) < 0.04
        assert below[2] > below[0] and above[0] > above[2]


def test_marks_stand_out_and_names_of_lines_can_be_read_by_day_and_by_night() -> None:
    css = colour_css()
    for contrast_needed, pairs in ((3.0, SCRIPTS.values()), (READABLE, LINES)):
        for pair in pairs:
            assert f"light-dark({pair[0]}, {pair[1]})" in css
            for colour, paper in zip(pair, GROUND["paper"], strict=True):
                assert contrast(colour, paper) >= contrast_needed, pair


def test_the_page_colours_scripts_and_parts_as_figures_print_them() -> None:
    from tokengraft.render.figures.bars import PARTS
    from tokengraft.render.figures.curves import COLOURS
    from tokengraft.render.figures.speakers import MARKS

    css = colour_css()
    for n, (group, (colour, _)) in enumerate(MARKS.items()):
        assert SCRIPT_GROUPS[n] == group and f".g{n} {{ --group: light-dark({colour}, " in css
    for name, (colour, *_) in zip(("floor", "longer", "split"), PARTS.values(), strict=True):
        assert f".{name} {{ background: light-dark({colour}, " in css
    assert [f"--c{n}: light-dark({c}, " in css for n, c in enumerate(COLOURS)] == [True] * 12
    # Nothing but that palette paints charts: no colour of their own in style or script.
    static = files("tokengraft.render.page") / "static"
    for name in ("charts.css", "charts.js", "scatter.js", "plan.js", "frontier.js", "share.js"):
        own = set(re.findall(r"#[0-9a-f]{6}", (static / name).read_text(encoding="utf-8")))
        assert own <= ({"#43919f", "#3f8f96"} if name == "charts.css" else {"#ffffff"}), name


def test_fonts_only_for_scripts_on_the_page() -> None:
    css = font_css(["Latn", "Mymr", "Hant"])
    assert css.count("@font-face") == 2
    assert '[data-script="Hant"]' in css and "tg-Olck" not in css
    assert "U+1000-" in css


def test_headline_leaves_unk_out(run: Path) -> None:
    data = page_of([run]).data["audits"][0]
    assert data["headline"]["title"] == headline(data)["title"]
    assert "in Shan as in English" in data["headline"]["title"]
    assert "(a tokenizer of 20" in data["headline"]["lead"]
    labels = [t["label"] for t in data["tokenizers"]]
    shan = [entry["code"] for entry in data["languages"]].index("shn_Mymr")
    assert data["bad"][labels.index("BERT")][shan] == "1"  # cheap, but thrown away


def _measured(
    bad: list[str], premiums: list[list[float | None]], unk: float = 0.5
) -> dict[str, object]:
    names = ["English", *(chr(65 + n) for n in range(len(bad[0]) - 1))]
    tokenizers = ["T1", "T2"][: len(bad)]
    frame = pl.DataFrame(
        [
            {
                "tokenizer": tokenizer,
                "label": tokenizer,
                "language": name,
                "premium": value,
                "ratio_of_sums": value,
                "meaningless": mark == "1",
            }
            for tokenizer, marks, values in zip(tokenizers, bad, premiums, strict=True)
            for name, mark, value in zip(names, marks, values, strict=True)
        ],
        schema_overrides={"premium": pl.Float64, "ratio_of_sums": pl.Float64},
    )
    led = lead(frame, "English")
    return {
        "pivot": 0,
        "lead": None if led is None else asdict(led),
        "summary": summary(frame, "English").to_dicts(),
        "languages": [{"code": name, "name": name} for name in names],
        "tokenizers": [{"name": name, "label": name} for name in tokenizers],
        "cells": {
            "premium": premiums,
            "unk": [[unk if mark == "1" else 0.0 for mark in row] for row in bad],
        },
        "bad": bad,
        "unkLimit": 0.01,
        "unkMost": 0.4,
    }


def test_headline_figures_are_of_what_their_words_say() -> None:
    premiums: list[list[float | None]] = [[1, 3.0, 1.5, 0.3], [1, 2.5, 1.2, 0.2]]
    lost = headline(_measured(["0001", "0001"], premiums))
    share = lost["figures"][1]
    # A pays double, B does not, C is lost to UNK, English is what they are measured against.
    assert share["number"] == "1 of 2"
    assert share["words"].startswith("languages pay more than double what English pays")
    assert "can write every language, makes" not in lost["lead"]
    assert "Every tokenizer measured here loses text to UNK in some language." in lost["lead"]
    assert "does so in the fewest (1), makes 1 of the other 2" in lost["lead"]
    one = headline(_measured(["0001", "0000"], premiums))
    assert "Even T2, the fairest of the tokenizers measured here that can write" in one["lead"]
    assert one["figures"][1]["number"].endswith(" of 3")
    alone = headline(_measured(["00", "00"], [[1, 3.0], [1, 2.5]]))
    assert [figure["number"] for figure in alone["figures"]] == ["3.0×"]
    assert alone["lead"].endswith("On all that write A it is 2.5 to 3.0 times.")
    world = headline(_measured(["0" * 21] * 2, [[1, *[3.0] * 20]] * 2))
    assert world["figures"][1]["number"] == "100%"
    nothing = headline(_measured(["0000", "0000"], [[1, None, None, None]] * 2))
    assert nothing["title"] == "No language shares a line of text with English"


def test_headline_is_of_what_is_in_use_today() -> None:
    """Whatever was named first: the tokenizer used most, and a script that people read."""
    codes = ["eng_Latn", "shn_Mymr", "vie_Hani", "deu_Latn"]
    found = audit("udhr", ["gpt2", "llama-3", "gpt-4o"], codes[1:], resamples=0)
    led = lead(found.premiums, found.pivot)
    assert led is not None and (led.tokenizer, led.language) == ("o200k_base", "shn_Mymr")
    shan = found.premiums.filter(language="shn_Mymr")["premium"]
    assert (led.low, led.high) == (shan.min(), shan.max()) and led.premium == led.low
    unread = found.premiums.filter(pl.col("language").is_in(["eng_Latn", "vie_Hani"]))
    only = lead(unread, found.pivot)
    assert only is not None and only.language == "vie_Hani"
    lost = found.premiums.with_columns(meaningless=pl.col("tokenizer") == "o200k_base")
    other = lead(lost, found.pivot)
    assert other is not None and other.tokenizer == "llama-3"
    assert lead(found.premiums.filter(language="eng_Latn"), found.pivot) is None


def test_headline_tells_text_lost_in_part_from_text_lost() -> None:
    premiums: list[list[float | None]] = [[1, 3.0, 1.5, 0.3], [1, 2.5, 1.2, 0.2]]
    part = _measured(["0001", "0001"], premiums, unk=0.0115)
    assert "where part of the text is not encoded" in headline(part)["figures"][2]["words"]
    most = _measured(["0001", "0001"], premiums)
    assert "where most of the text is not encoded" in headline(most)["figures"][2]["words"]
    mixed = _measured(["0001", "0001"], premiums)
    mixed["cells"]["unk"][1][3] = 0.0115  # type: ignore[index]
    assert headline(mixed)["figures"][2]["words"].endswith("in 1 of them most of it")
    assert headline(_measured(["0111"], premiums[:1]))["title"].endswith("is lost to UNK")
    some = headline(_measured(["0111"], premiums[:1], unk=0.02))
    assert some["title"] == "Every language but English loses text to UNK"
    pivot = headline(_measured(["1111"], premiums[:1]))
    assert pivot["title"] == "No premiums: text of English itself is lost to UNK"


def test_a_pivot_lost_to_unk_leaves_no_premium(tmp_path: Path) -> None:
    """T5 throws Chinese away, so that English would seem to cost seven times as much."""
    spoilt = audit("udhr", ["t5"], ["eng", "hin"], pivot="zho_Hans", resamples=0)
    assert spoilt.premiums["meaningless"].all() and spoilt.summary["compared"].to_list() == [0]
    assert "50% UNK" in str(spoilt.premium("t5", "eng"))
    checked = spoilt.check({"eng": 99}).findings
    assert [f.passed for f in checked] == [False] and "text of zho_Hans" in checked[0].detail
    spoilt.save(tmp_path / "run")
    said = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "- No premiums: text of Chinese (Simplified) itself is lost to UNK." in said
    page = page_of([tmp_path / "run"])
    assert page.title == "No premiums: text of Chinese (Simplified) itself is lost to UNK"
    # Tokens can still be compared: those of English lose nothing.
    both = compare(spoilt, audit("udhr", ["gpt2"], ["eng", "hin"], pivot="zho_Hans", resamples=0))
    assert dict(both.languages.select("language", "outcome").rows()) == {
        "zho_Hans": "regained",
        "eng_Latn": "better",
        "hin_Deva": "regained",
    }


@pytest.mark.parametrize(
    ("premium", "unk", "said"),
    [
        ([None, None], [0.0, 0.0], "No text here is in both French and English"),
        ([2.0, 3.0], [0.5, 0.5], "No tokenizer measured here writes all of French"),
        ([2.0, 3.0], [0.0, 0.0], "No tokenizer measured here writes all of English"),
        (
            [2.0, 3.0],
            [0.0, 0.5],
            "No tokenizer measured here writes all of both French and English",
        ),
    ],
)
def test_a_language_without_a_premium_says_whose_text_is_missing(premium, unk, said) -> None:
    audit = {"languages": [{"code": "eng_Latn", "name": "English"}], "pivot": 0, "unkLimit": 0.01}
    rows = [{"premium": p, "unk": u, "bad": True} for p, u in zip(premium, unk, strict=True)]
    assert language_title(audit, {"code": "fra_Latn", "name": "French"}, rows) == said


def test_the_readme_beside_a_page_holds_text_not_markup() -> None:
    assert "# \\[a\\](b) and c, side by side\n" in readme("[a](b) and c, side by side")


@pytest.mark.parametrize(("bad", "count"), [(["0000"], 2), (["0001"], 3), (["0000", "0000"], 3)])
def test_headline_says_nothing_twice(bad: list[str], count: int) -> None:
    premiums: list[list[float | None]] = [[1, 3.0, 1.5, 2.2], [1, 2.5, 1.2, 2.1]]
    found = headline(_measured(bad, premiums[: len(bad)]))
    words = [figure["words"] for figure in found["figures"]]
    assert len(words) == count
    assert not any("above 2×" in text for text in words)  # the lead says how many
    if len(bad) == 1:
        assert not any("typical" in text or "pair" in text for text in words)


def test_every_measure_has_a_plain_name_and_sentence() -> None:
    from tokengraft.evaluating import both_spellings as shared
    from tokengraft.evaluating import (
        continuation,
        fidelity,
        probe,
        protected,
        question,
        translations,
        writing,
    )

    measured = {*fidelity.METRICS, *protected.METRICS}
    for module in (continuation, shared, writing, probe, question, translations):
        measured |= {m.name for m in vars(module).values() if isinstance(m, fidelity.Metric)}
    assert PLAIN.keys() == measured
    assert len({name for name, _ in PLAIN.values()}) == len(PLAIN)
    jargon = re.compile(r"_|\bbpb\b|‖|\bnats\b|distribution|hidden|vector", re.I)
    for name, words in PLAIN.values():
        assert words.endswith(".") and not jargon.search(name + words), name
    assert described("my_own") == ("my own", "")


def test_an_evaluation_is_called_by_its_graft_and_names_languages(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    score = {"language": "shn_Mymr", "metric": "kl", "value": 0.1}
    note = "no ceiling for shn_Mymr, tam_Taml-srilanka: cannot be cut"
    path.write_text(
        json.dumps({"base": "/models/b", "graft": "g", "scores": [score], "notes": [note, 3]})
    )
    found = evaluation_data(path)
    assert (found["base"], found["graft"], found["name"]) == ("b", "g", tmp_path.name)
    assert found["measures"] == {"kl": PLAIN["kl"]}
    assert found["notes"][0].startswith("no ceiling for Shan, Tamil") and len(found["notes"]) == 1
    path.write_text(json.dumps({"scores": [score], "notes": "none", "graft": 7}))
    assert (evaluation_data(path)["graft"], evaluation_data(path)["notes"]) == (None, [])


def test_a_graft_that_writes_says_in_how_many_fewer_steps(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    worth = [
        {"language": code, "metric": "written_worth", "value": value}
        for code, value in (("shn_Mymr", 9.0), ("tam_Taml", 7.5), ("hin_Deva", 1.01))
    ]
    costs = [
        {"language": "shn_Mymr", "model": model, "characters_per_token_out": written}
        for model, written in (("base", 0.5), ("graft", 4.0))
    ]
    path.write_text(json.dumps({"scores": worth, "generation": costs}))
    assert evaluation_data(path)["writing"] == [
        "Writes Shan in 8.0 times fewer steps (greedily)",
        "Writes Tamil in 7.5 times fewer steps (sampled)",
    ]
    path.write_text(json.dumps({"scores": [], "generation": costs}))  # one that only reads
    assert evaluation_data(path)["writing"] == []


def test_segments() -> None:
    gpt2, bert = load("gpt2"), load("bert-multilingual")
    assert segment(gpt2, ["Hi ၵ"]) == [["Hi", ["20e1"], ["81"], ["b5"]]]
    shown = segment(bert, ["All human beings ၵူၼ်း"])[0]
    assert "".join(t for t in shown if isinstance(t, str)) == "All human beings"
    assert 0 in shown


def test_samples_are_units_that_most_languages_have() -> None:
    from tokengraft.corpus import load as load_corpus

    corpus = load_corpus("udhr")
    chosen = choose_units(corpus, "eng_Latn", 2)
    texts = [corpus.texts["eng_Latn"][n] or "" for n in chosen]
    assert all(40 <= len(text) <= 100 for text in texts)
    assert all(corpus.texts["shn_Mymr"][n] for n in chosen)


def test_plan_and_evaluation_are_read_tolerantly(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"languages": {"shn_Mymr": {}}, "tokens": [{}]}')
    plan = plan_data(tmp_path / "plan.json")
    assert plan["languages"][0]["name"] == "Shan" and plan["count"] == 1
    row = {"language": "shn_Mymr", "method": "distil", "metric": "kl", "value": 0.1, "floor": "?"}
    task = {"task": "belebele", "model": "graft", "metric": "acc", "value": 0.5}
    path = tmp_path / "evaluation.json"
    path.write_text(json.dumps({"scores": [row, {}, 3], "tasks": [task]}), encoding="utf-8")
    score, done = evaluation_data(path)["scores"]
    said = (score["language"], score["method"], score["measure"])
    assert said == ("shn_Mymr", "distil", "kl")
    assert score["value"] == 0.1 and score["floor"] is None
    assert (done["method"], done["measure"], done["value"]) == ("belebele, graft", "acc", 0.5)
    (tmp_path / "evaluation.json").write_text("[]")
    with pytest.raises(TokengraftError, match="JSON object"):
        evaluation_data(tmp_path / "evaluation.json")


def test_what_cannot_be_shown_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to show"):
        collect([tmp_path])
    with pytest.raises(TokengraftError, match="no such"):
        collect([tmp_path / "absent"])


def test_a_streamed_corpus_has_a_page(tmp_path: Path) -> None:
    files = []
    for code, text in {"eng_Latn": "one\ntwo\n", "deu_Latn": "eins\nzwei\n"}.items():
        (tmp_path / f"{code}.txt").write_text(text)
        files.append(f"{code}={tmp_path / code}.txt")
    found = survey(files, ["gpt2"], parallel=True, state=tmp_path / "state", pivot="de")
    assert found.pivot == "deu_Latn"
    found.save(tmp_path / "web")
    shown = page_of([tmp_path]).data["audits"][0]
    assert shown["corpus"] == "deu_Latn.txt, eng_Latn.txt"
    assert [entry["code"] for entry in shown["languages"]] == ["deu_Latn", "eng_Latn"]
    assert shown["cells"]["premium"] == [[1, found.premium("gpt2", "en").value]]
    assert page_of(found).data["audits"][0]["cells"] == shown["cells"]


def test_text_that_is_not_parallel_has_a_page_without_premiums(tmp_path: Path) -> None:
    text = '{"text": "one two", "lang": "eng_Latn"}\n{"text": "<b>", "lang": "<img src=x>"}\n{"te'
    (tmp_path / "web.jsonl").write_text(text)
    layout = Layout(language_column="lang")
    options = {"layout": layout, "state": tmp_path / "state", "skip_bad": True}
    found = survey(tmp_path / "web.jsonl", ["gpt2", "t5"], **options)
    page = page_of(found)
    assert page.title == "Tokens per byte: web.jsonl" and page.data["audits"] == []
    shown = page.data["counted"][0]
    assert shown["left"] == "Left out: 1 bad row."
    rows = {row["code"]: row for row in shown["rows"]}
    assert set(rows) == {"eng_Latn", "<img src=x>"}
    cells = found.counts.filter(pl.col("language") == "eng_Latn")["tokens_per_byte"].to_list()
    assert rows["eng_Latn"]["values"] == [float(f"{value:.6g}") for value in cells]
    assert "<img src=x>" not in page.html


def test_the_headline_counts_what_the_summary_counts(run: Path) -> None:
    data = page_of([run]).data["audits"][0]
    summary = pl.read_parquet(run / "tables" / "summary.parquet").to_dicts()
    fair = next(row for row in summary if row["tokenizer"] == "gpt2")  # the one without UNK
    assert f"makes {fair['above_2x']} of {fair['compared']} languages" in data["headline"]["lead"]


def test_one_of_a_kind_is_no_plural(tmp_path: Path) -> None:
    audit("udhr", ["gpt2"], ["shn"], resamples=0).save(tmp_path, figures=False)
    found = json.dumps(page_of([tmp_path]).data["audits"][0]["headline"])
    assert "1 language" not in found and "of 1 " not in found


def test_text_that_is_not_the_runs_own_is_said_to_be_so(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "eng_Latn.txt").write_text("All are born free.\nEveryone has rights.\n")
    (folder / "ita_Latn.txt").write_text("Tutti nascono liberi.\nOgnuno ha diritti.\n")
    pairs = [f"{code}={folder / code}.txt" for code in ("eng_Latn", "ita_Latn")]
    audit(pairs, ["gpt2"], resamples=0).save(tmp_path / "run", figures=False)
    page = page_of([tmp_path / "run"])
    declaration = "Universal Declaration of Human Rights"
    assert page.data["audits"][0]["same"]["elsewhere"] == declaration
    assert any("--corpus" in note and declaration in note for note in page.notes)
    page = page_of([tmp_path / "run"], corpus=folder)
    assert page.data["audits"][0]["same"]["elsewhere"] is None and not page.notes


def test_a_plan_names_its_tokenizer(tmp_path: Path) -> None:
    planned = plan("gpt2", ["shn"], budget=5)
    planned.save(tmp_path, figures=False)
    assert page_of([tmp_path]).title == "5 new tokens for GPT-2/3"
    data = plan_data(tmp_path / "plan.json")
    assert (data["label"], data["pivotName"]) == ("GPT-2/3", "English")
    assert read_plan(tmp_path) == planned.plan


def test_runs_are_found_two_levels_down(run: Path, tmp_path: Path) -> None:
    outer = tmp_path / "demo"
    (outer / "grafts").mkdir(parents=True)
    (outer / "audit").symlink_to(run)
    (outer / "grafts" / "plan.json").write_text("{}")
    found = collect([outer, outer / "audit"])
    assert found.audits == (outer / "audit",)
    assert found.plans == (outer / "grafts" / "plan.json",)


def test_samples_are_shown_letter_by_letter(tmp_path: Path) -> None:
    """They are to be compared: what looks like a path in them is text."""
    said = " home /and slept in C:\\ peace, quiet/loud"
    sample = {"language": "shn_Mymr", "prompt": "60 km /h; then", "base": said, "graft": said}
    path = tmp_path / "evaluation.json"
    path.write_text(json.dumps({"base": "a", "scores": [], "samples": [sample]}))
    (shown,) = evaluation_data(path)["samples"]
    assert {shown["prompt"], shown["base"], shown["graft"]} == {"60 km /h; then", said}


def test_changes_are_first_shown_against_a_tokenizer_that_loses_no_text() -> None:
    names = ["t5", "t5", "gpt2", "gpt2", "llama-3", "llama-3"]
    lost = [True, False, False, False, False, False]
    premiums = pl.DataFrame({"tokenizer": names, "meaningless": lost})
    assert _reference(premiums) == "gpt2"


def test_a_graft_shows_its_own_premiums_and_verdict(run: Path, tmp_path: Path) -> None:
    """Plans of other tokenizers may stand on the same page."""
    graft = {
        "tokenizer": "a" * 64,
        "languages": ["shn_Mymr"],
        "premiums": {"shn_Mymr": [16.6, 1.9]},
        "verdict": "This graft works: it does.",
        "files": {},
        "schema": 1,
    }
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "tokengraft.json").write_text(json.dumps(graft))
    (tmp_path / "old").mkdir()
    earlier = {**graft, "premiums": None, "verdict": None, "tokenizer": "b" * 64}
    (tmp_path / "old" / "tokengraft.json").write_text(json.dumps(earlier))
    for place, tokenizer, before in (("p", "b" * 64, 9.4), ("q", "c" * 64, 7.0)):
        outcome = {"premium_before": before, "premium_after": 2.3, "curve": []}
        made = {"tokenizer": tokenizer, "tokens": [], "languages": {"shn_Mymr": outcome}}
        (tmp_path / place).mkdir()
        (tmp_path / place / "plan.json").write_text(json.dumps(made))
    plans = [plan_data(tmp_path / place / "plan.json") for place in "pq"]
    shown = []
    for name in ("new", "old"):
        found = graft_data(tmp_path / name)
        grafted_premiums(found, plans)
        shown.append([(one["premium_before"], one["premium_after"]) for one in found["premiums"]])
    assert shown == [[(16.6, 1.9)], [(9.4, 2.3)]]
    assert graft_data(tmp_path / "new")["verdict"] == graft["verdict"]
    assert graft_data(tmp_path / "old")["verdict"] is None
