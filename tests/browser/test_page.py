"""What a reader does with the page, in a real browser."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tokengraft.api.report import report as build_page
from tokengraft.api.verbs import audit, survey
from tokengraft.api.verbs import plan as make_plan
from tokengraft.corpus.parallel import ParallelCorpus

Open = Callable[..., Page]
ROWS = ".heat tbody tr"


def names(page: Page) -> list[str]:
    return page.locator(f"{ROWS} th a").all_text_contents()


def column(page: Page, number: int) -> list[float]:
    located = page.locator(f"{ROWS} td.c-cell:nth-of-type({number})")
    cells = located.evaluate_all("all => all.map((cell) => cell.firstChild.textContent)")
    return [float(text) for text in cells if text not in ("UNK", "–")]


def test_headline_is_a_finding(still: Page) -> None:
    expect(still.locator("h1")).to_contain_text(
        re.compile("times as many tokens in .+ as in English")
    )
    assert still.locator(".same li").count() > 3
    sections = still.locator("main > section").evaluate_all("all => all.map((one) => one.id)")
    wanted = ["premiums", "speakers", "scripts", "language", "tokens", "vocabularies", "cost"]
    assert sections == [*wanted, "compare", "plan", "graft", "provenance"]


def test_a_page_with_a_graft_opens_in_its_language(open_page: Open, tmp_path: Path) -> None:
    audit("udhr", ["gpt-4o"], ["shn", "tam"], resamples=0).save(tmp_path / "run", figures=False)
    plan = make_plan("gpt-4o", "tam", budget=5)
    plan.save(tmp_path / "plan")
    page = open_page(build_page([tmp_path / "run", tmp_path / "plan"], tmp_path / "site").as_uri())
    expect(page.locator("h1")).to_contain_text("in Shan as in English")
    expect(page.locator(".card-name")).to_have_text("Tamil")


def test_a_capture_of_the_whole_page_shows_its_table(still: Page) -> None:
    box = still.locator(".heat tbody").bounding_box()
    assert box is not None
    picture = Image.open(io.BytesIO(still.screenshot(full_page=True))).convert("RGB")
    left, top = int(box["x"]), int(box["y"] + still.evaluate("scrollY"))
    shown = picture.crop((left, top, left + 900, top + 16 * 32))
    # Every row has ink in it: names on the left, coloured cells on the right.
    for row in range(16):
        strip = shown.crop((0, 32 * row, 900, 32 * row + 32))
        assert len(strip.getcolors(1 << 20) or []) > 20, row


def test_two_tokenizers_stand_side_by_side(still: Page) -> None:
    section = still.locator("#compare")
    expect(section.locator("h2")).to_contain_text("GPT-2/3 → GPT-4o")
    expect(section.locator(".findings li").first).to_contain_text("fewer tokens than GPT-2/3 in")
    changes = section.locator("tbody tr td:nth-of-type(3)")
    first = changes.first.inner_text()
    assert first.startswith("−") and changes.count() == 21
    still.select_option("#compare-order", "lost")
    assert changes.last.inner_text() == first
    still.select_option("#compare-order", "spoken")
    expect(section.locator("tbody th").first).to_have_text("English")


def bytes_only(folder: Path) -> Path:
    """A tokenizer whose tokens are single bytes: cheap premiums, and the most tokens of all."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pipeline = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    folder.mkdir()
    pipeline.save(str(folder / "tokenizer.json"))
    return folder


def test_absolute_cost_stands_beside_each_premium_and_a_note_where_they_disagree(
    open_page: Open, tmp_path: Path
) -> None:
    """GPT-2 needs fewer tokens than bytes in every language, and its premiums are higher."""
    plain = str(bytes_only(tmp_path / "bytes"))
    found = audit("udhr", [plain, "gpt2"], ["shn", "fra"], resamples=9)
    found.save(tmp_path / "run", figures=False)
    cells = {(row["tokenizer"], row["language"]): row for row in found.premiums.to_dicts()}
    page = open_page(
        f"{build_page([tmp_path / 'run'], tmp_path / 'site').as_uri()}#lang=fra_Latn",
        viewport={"width": 1280, "height": 900},
    )
    expect(page.locator("#premiums .notice")).to_contain_text("needs fewer tokens than")
    own = cells["gpt2", "fra_Latn"]
    change = 100 * own["tokens_change"]
    assert change < -50
    cell = page.locator(f"{ROWS}:has(a[href='#lang=fra_Latn']) td[data-t]").last
    small = f"{own['tokens_per_unit']:.0f} −{abs(change):.0f}%"
    expect(cell.locator("small")).to_have_text(small)
    beside = [
        f"{own['tokens_per_unit']:.0f} tokens per passage",
        f"{own['bytes_per_token']:.1f} bytes per token",
        f"{abs(change):.0f}% fewer tokens than",
    ]
    cell.hover()
    for words in beside:
        expect(page.locator("#tip")).to_contain_text(words)
        expect(page.locator("#language .bar").last).to_contain_text(words)
    expect(page.locator("#language .facts")).to_contain_text("though its premium is higher")
    # Compared with GPT-2 instead, bytes are what needs more.
    page.select_option("#reference", label="GPT-2/3")
    more = 100 * (cells[plain_name(cells), "fra_Latn"]["tokens"] / own["tokens"] - 1)
    expect(page.locator("#language .bar").first).to_contain_text(f"{more:.0f}% more tokens than")
    for measure, text in (("perUnit", f"{own['tokens_per_unit']:.0f}"), ("change", "±0%")):
        page.select_option("#measure", measure)
        expect(cell).to_have_text(text)


def plain_name(cells: dict[tuple[str, str], object]) -> str:
    return next(name for name, _ in cells if name != "gpt2")


def test_a_language_without_a_line_in_common_is_named_as_such(
    open_page: Open, tmp_path: Path
) -> None:
    texts = {
        "eng_Latn": ("hello world", "a cat sat", None),
        "deu_Latn": ("hallo Welt, wie geht es", "die Katze", None),
        "shn_Mymr": (None, None, "ၵူၼ်းၵူႈၵေႃႉ"),
    }
    corpus = ParallelCorpus("apart", "made for this test", ("1", "2", "3"), texts)
    found = audit(corpus, ["o200k_base", "gpt2"], resamples=20)
    found.save(tmp_path / "run", figures=False)
    site = build_page([tmp_path / "run"], tmp_path / "site", corpus=corpus)
    page = open_page(f"{site.as_uri()}#lang=shn_Mymr")
    expect(page.locator("h1")).to_contain_text("in German as in English")
    expect(page.locator("#premiums .key-row")).to_contain_text(
        "No lines in common with English: Shan."
    )
    expect(page.locator("#language .facts")).to_contain_text("no lines in both Shan and English")
    assert "NaN" not in page.locator("body").inner_text()


def test_a_handful_of_languages_supports_no_claim(open_page: Open, tmp_path: Path) -> None:
    found = audit("udhr", ["gpt2"], ["shn", "tam"], resamples=0)
    found.save(tmp_path / "run", figures=False)
    page = open_page(build_page([tmp_path / "run"], tmp_path / "site").as_uri())
    expect(page.locator(".kicker")).to_contain_text("1 tokenizer · 3 languages")
    expect(page.locator("#speakers h2")).to_contain_text("Premium and number of speakers")
    expect(page.locator("#speakers .intro")).to_contain_text("2 besides English")
    assert "Latin letters" not in page.locator("#speakers").inner_text()


def test_sorting(open_page: Open, address: str) -> None:
    page = open_page(address)
    heads = page.locator(".heat thead th")
    assert heads.nth(3).get_attribute("aria-sort") == "descending"  # the median, to begin with
    for number in (3, 4, 5):
        head = heads.nth(number)
        head.locator("button").click()
        if head.get_attribute("aria-sort") == "ascending":
            head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        values = column(page, number)
        assert len(values) == 21 and values == sorted(values, reverse=True)
        head.locator("button").click()
        assert column(page, number) == sorted(values)
    heads.nth(0).locator("button").click()
    assert names(page) == sorted(names(page))


def test_search_and_filters(open_page: Open, address: str) -> None:
    page = open_page(address)
    page.fill("#search", "shan")
    assert names(page) == ["Shan"]
    page.fill("#search", "ไม่มี")
    expect(page.locator("#premiums .status")).to_have_text("No language passes these filters.")
    page.fill("#search", "தமிழ்")  # by its own name
    assert names(page) == ["Tamil"]
    page.fill("#search", "")
    page.select_option("#filter-script", "Latn")
    assert set(names(page)) == {"English", "French", "Swahili", "Vietnamese"}
    page.select_option("#filter-family", "Indo-European")
    assert set(names(page)) == {"English", "French"}
    page.select_option("#filter-script", "")
    page.select_option("#filter-family", "")
    page.select_option("#filter-speakers", "-1000000")
    assert "English" not in names(page)
    page.fill("#pick", "Nosuch")
    page.keyboard.press("Enter")
    expect(page.locator("#language .problem")).to_have_text("No language Nosuch")
    page.fill("#pick", "Tamil")
    page.keyboard.press("Enter")
    expect(page.locator("#language .problem")).to_have_text("")


def test_cells_explain_themselves(open_page: Open, address: str) -> None:
    page = open_page(address)
    page.fill("#search", "shan")
    page.locator(f"{ROWS} td[data-t]").first.hover()
    expect(page.locator("#tip")).to_contain_text("95% interval")
    page.locator(f"{ROWS} td.unk").first.hover()
    expect(page.locator("#tip")).to_contain_text("of the tokens are UNK")
    page.locator("#search").blur()  # in it, Escape empties the search
    page.keyboard.press("Escape")
    expect(page.locator("#tip")).to_be_hidden()


def test_keyboard_alone(open_page: Open, address: str) -> None:
    page = open_page(address)
    page.locator(".scroller").first.focus()
    page.keyboard.press("Tab")  # the first heading of the table
    page.keyboard.press("Enter")
    assert page.locator(".heat thead th").first.get_attribute("aria-sort") == "ascending"
    page.locator(f"{ROWS} td[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    cell = page.locator(":focus")
    assert cell.get_attribute("data-t") == "0"
    expect(page.locator("#tip")).to_be_visible()
    assert cell.get_attribute("aria-describedby") == "tip"
    page.keyboard.press("Enter")  # to the language of that row
    expect(page.locator("#language")).to_be_in_viewport()
    assert page.locator(".card-name").inner_text() == sorted(names(page))[1]


def test_theme(open_page: Open, address: str) -> None:
    page = open_page(address, color_scheme="light")

    def ground() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = ground()
    page.click("#theme")
    assert ground() != light
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("#theme")
    assert ground() == light
    assert ground() != open_page(address, color_scheme="dark").evaluate(
        "getComputedStyle(document.body).backgroundColor"
    )


def test_deep_links(open_page: Open, address: str) -> None:
    page = open_page(f"{address}#lang=amh_Ethi")
    assert page.locator(".card-name").inner_text() == "Amharic"
    expect(page.locator("#language h2")).to_be_in_viewport()
    page.fill("#pick", "Tamil")
    page.keyboard.press("Tab")
    assert page.url.endswith("#lang=tam_Taml")
    page.evaluate("location.hash = 'cost'")
    expect(page.locator("#cost h2")).to_be_in_viewport()
    page = open_page(f"{address}#vocabularies")
    expect(page.locator("#vocabularies h2")).to_be_in_viewport()


@pytest.mark.parametrize("name", ["premiums.csv", "coverage.csv", "premiums.tex", "jaccard.csv"])
def test_downloads_are_the_runs_own_bytes(still: Page, run_folder: Path, name: str) -> None:
    with still.expect_download() as download:
        still.locator(f"#provenance button[data-file='{name}']").click()
    assert download.value.suggested_filename == name
    written = run_folder / "audit" / "tables" / name
    assert Path(download.value.path()).read_bytes() == written.read_bytes()


def test_every_table_can_be_downloaded(still: Page, run_folder: Path) -> None:
    offered = still.locator("#provenance button[data-file]").evaluate_all(
        "all => all.map((one) => one.dataset.file)"
    )
    tables = (run_folder / "audit" / "tables").iterdir()
    assert set(offered) == {p.name for p in tables if p.suffix in (".csv", ".tex")}


def test_slider_moves_the_premium(still: Page) -> None:
    shown = still.locator(".before-after .to")
    assert shown.all_inner_texts() == ["2.0×", "1.5×"]
    assert still.locator(".slider output").inner_text() == "200 new tokens"
    still.locator(".budget").fill("50")
    assert shown.all_inner_texts() == ["9.0×", "4.8×"]
    assert still.locator(".slider output").inner_text() == "50 new tokens"
    still.locator(".budget").focus()
    still.keyboard.press("Home")
    assert shown.all_inner_texts() == ["16.0×", "8.0×"]


def go_to(page: Page, code: str, name: str) -> None:
    page.evaluate("hash => { location.hash = hash }", f"lang={code}")
    expect(page.locator(".card-name")).to_have_text(name)


def test_language_in_plain_words(still: Page) -> None:
    go_to(still, "shn_Mymr", "Shan")
    words = still.locator(".facts").inner_text()
    assert "What fills a page in English takes, in " in words
    assert "Best served by" in words and "GPT-4o, at" in words
    assert "pages in English" in words and "BERT: most of the text becomes UNK" in words
    assert still.locator(".glyphs li").count() > 15
    assert still.locator(".card-own").get_attribute("lang") == "shn-Mymr"


def test_text_lost_in_part_is_told_by_its_share(open_page: Open, tmp_path: Path) -> None:
    names = ["gpt2", "t5", "bert-multilingual"]
    audit("udhr", names, ["yor", "pol", "shn"], resamples=0).save(tmp_path / "run", figures=False)
    site = build_page([tmp_path / "run"], tmp_path / "site").as_uri()
    page = open_page(f"{site}#lang=yor_Latn")
    facts = page.locator(".facts").inner_text()
    assert "BERT (1.1% of the tokens are UNK) and T5 (23%)" in facts
    assert "Not written" not in facts
    assert "1.9 pages in English, 0.3 in Yoruba" in facts
    page.fill("#search", "yoruba")
    page.locator(f"{ROWS} td.unk").first.hover()
    expect(page.locator("#tip")).to_contain_text("1.1% of the tokens are UNK")
    expect(page.locator("#tip")).to_contain_text("says too little")
    expect(page.locator("#premiums .key-row")).not_to_contain_text("the text was thrown away")
    expect(page.locator("#scripts svg").nth(0)).to_contain_text("UNK above 1%")
    expect(page.locator("#scripts svg").nth(1)).to_contain_text("lost to UNK")
    # GPT-2 has no price: nothing of it is told in dollars.
    assert "$" not in page.locator("#cost").inner_text()
    expect(page.locator("#cost h2")).to_contain_text("What the same content costs")


def test_a_language_that_no_tokenizer_writes_whole(open_page: Open, tmp_path: Path) -> None:
    audit("udhr", ["t5"], ["yor", "shn"], resamples=0).save(tmp_path / "run", figures=False)
    site = build_page([tmp_path / "run"], tmp_path / "site").as_uri()
    page = open_page(f"{site}#lang=yor_Latn")
    expect(page.locator("h1")).to_contain_text("Every language but English loses text to UNK")
    expect(page.locator(".facts")).to_contain_text("T5 (23% of the tokens are UNK)")
    page = open_page(f"{site}#lang=shn_Mymr")
    expect(page.locator(".facts")).to_contain_text("T5: most of the text becomes UNK")


def test_dollars_are_for_models_with_a_price(open_page: Open, tmp_path: Path) -> None:
    names = ["llama-3", "o200k_base"]
    audit("udhr", names, ["shn"], resamples=0).save(tmp_path / "run", figures=False)
    page = open_page(build_page([tmp_path / "run"], tmp_path / "site").as_uri())
    expect(page.locator("#cost h2")).to_contain_text("What a dollar’s worth of English costs")
    models = page.locator("#cost-model option").all_inner_texts()
    assert models == ["GPT-5", "GPT-4.1", "GPT-4o", "GPT-4o mini"]


def test_tokens_are_shown(still: Page) -> None:
    go_to(still, "ydd_Hebr", "Eastern Yiddish")
    texts = still.locator(".token-text")
    expect(texts.first).to_have_attribute("dir", "rtl")
    assert still.locator(".token-row").count() == 4
    go_to(still, "shn_Mymr", "Shan")
    row = still.locator(".token-row", has_text="GPT-2/3")
    expect(row.locator(".hex").first).to_have_text("E1")
    heads = still.locator(".token-row .token-head").all_inner_texts()
    assert any("UNK" in head for head in heads)
    counted = row.locator(".hex, .tok").count()
    assert f"{counted} tokens" in row.locator(".token-head").inner_text()


def test_bundled_fonts_draw_the_rare_scripts(still: Page) -> None:
    still.evaluate("document.fonts.ready")
    for script, sample in (("Mymr", "ၵူၼ်း"), ("Ethi", "አማርኛ"), ("Tfng", "ⵜⴰⵎⴰ"), ("Vaii", "ꕙꔤ")):
        loaded = still.evaluate(
            "([font, text]) => document.fonts.load(font, text).then((all) => all.length)",
            [f"16px 'tg-{script}'", sample],
        )
        assert loaded == 1, script


def test_graft_scores(still: Page) -> None:
    assert still.locator("#graft .score").count() >= 2
    assert still.locator("#graft svg .tick-floor").count() == 2
    label = still.locator("#graft article svg").get_attribute("aria-label") or ""
    assert "Shan, distil: 0.8, floor 0.2, ceiling 0.95" in label
    assert still.locator("#score-measure option").all_inner_texts() == [
        "Same likeliest next token",
        "Same inner state",
    ]
    expect(still.locator("#graft .measure")).to_contain_text("How often both models find the same")
    still.select_option("#score-measure", "aligned_cosine")
    expect(still.locator("#graft .measure")).to_contain_text("point the same way")
    expect(still.locator("#graft .groups")).to_contain_text("ceiling")


def test_an_evaluation_says_only_what_it_has(open_page: Open, tmp_path: Path) -> None:
    score = {"language": "shn_Mymr", "metric": "kl", "value": 0.1, "floor": 2.0, "ceiling": None}
    told = {"base": "rootstock", "graft": "my-graft", "notes": ["no ceiling for shn_Mymr: bytes"]}
    made = tmp_path / "ev"
    made.mkdir()
    (made / "evaluation.json").write_text(json.dumps({**told, "scores": [score]}))
    page = open_page(build_page([made], tmp_path / "site").as_uri())
    expect(page.locator("#graft h3")).to_have_text("How much of rootstock was kept in my-graft")
    expect(page.locator("#graft .groups")).to_contain_text("floor")
    expect(page.locator("#graft .groups")).not_to_contain_text("ceiling")
    expect(page.locator("#graft")).to_contain_text("no ceiling for Shan")
    expect(page.locator("#graft .verdict")).to_have_text(re.compile("^This graft works: "))
    # Of two evaluations of one graft each goes by its folder, of two grafts by their names.
    for folder, graft in (("other", "other-graft"), ("again", "my-graft")):
        (tmp_path / folder).mkdir()
        found = json.dumps({**told, "graft": graft, "scores": [score]})
        (tmp_path / folder / "evaluation.json").write_text(found)
    for folder, title in (("other", "my-graft and other-graft"), ("again", "ev and again")):
        page = open_page(build_page([made, tmp_path / folder], tmp_path / "both").as_uri())
        expect(page.locator("#graft h3")).to_have_text(f"How much was kept: {title}")
        expect(page.locator("#graft .verdict").last).to_have_text(re.compile("works: "))


def test_a_model_that_was_trained_is_not_called_frozen(open_page: Open, tmp_path: Path) -> None:
    for added, said in (
        ({}, ["every old weight stays, byte for byte"]),
        ({"trained": {"tensors": ["a", "b"]}}, ["what else changed", "2 tensors of the body"]),
        ({"places": {"replaced": {"7": "x"}}}, ["what else changed", "1 old token"]),
    ):
        (made := tmp_path / "grafted").mkdir(exist_ok=True)
        (made / "tokengraft.json").write_text(json.dumps({"base": "rootstock", **added}))
        page = open_page(build_page([made], tmp_path / "site").as_uri())
        for words in said:
            expect(page.locator("#graft")).to_contain_text(words)


def test_a_plan_says_what_its_premiums_are_over(
    open_page: Open, run_folder: Path, tmp_path: Path
) -> None:
    found = audit("udhr", ["gpt2"], ["shn", "eng"], pivot="fra", resamples=0)
    found.save(tmp_path / "run", figures=False)
    (tmp_path / "grafted").mkdir()
    (tmp_path / "grafted" / "tokengraft.json").write_text("{}")
    (tmp_path / "plan.json").write_bytes((run_folder / "plan.json").read_bytes())
    page = open_page(build_page([tmp_path], tmp_path / "site").as_uri())
    expect(page.locator("#plan .measure").last).to_contain_text("Premium over English, before")
    expect(page.locator("#plan .measure").last).to_contain_text("of the audit are over French")
    expect(page.locator("#plan svg").last).to_contain_text("Premium over English")
    # The graft does not say whose tokenizer it has, so no plan's premiums are shown as its own.
    expect(page.locator("#graft h3").first).to_have_text("grafted")
    # No evaluation, so no word about floors.
    expect(page.locator("#graft .intro")).not_to_contain_text("floor")


def test_an_evaluation_opens_on_kl_and_a_plan_names_its_tokenizer(
    open_page: Open, run_folder: Path, tmp_path: Path
) -> None:
    plan = json.loads((run_folder / "plan.json").read_text(encoding="utf-8"))
    (tmp_path / "plan.json").write_text(json.dumps(plan | {"label": "Llama 3"}))
    scores = [
        {"language": "shn_Mymr", "metric": metric, "value": value}
        for metric, value in (("aligned_cosine", 0.5), ("kl", 0.125))
    ]
    (tmp_path / "evaluation.json").write_text(json.dumps({"scores": scores}))
    page = open_page(build_page([tmp_path], tmp_path / "site").as_uri())
    label = page.locator("#graft article svg").get_attribute("aria-label") or ""
    assert "0.125" in label
    expect(page.locator("#plan h3").last).to_contain_text("tokens for Shan and Amharic in Llama 3")


def test_a_premium_over_lost_text_is_marked(open_page: Open, tmp_path: Path) -> None:
    make_plan("bert-multilingual", "shn", budget=200).save(tmp_path, figures=False)
    page = open_page(build_page([tmp_path], tmp_path / "site").as_uri())
    expect(page.locator("#plan .before-after .from")).to_contain_text("†")
    expect(page.locator("#plan .before-after .to")).not_to_contain_text("†")
    expect(page.locator("#plan")).to_contain_text("no honest premium")
    expect(page.locator("#plan")).not_to_contain_text("can only shorten")
    make_plan("gpt2", "amh", budget=10, boundaries="keep").save(tmp_path / "kept", figures=False)
    page = open_page(build_page([tmp_path / "kept"], tmp_path / "other").as_uri())
    expect(page.locator("#plan")).to_contain_text("can only shorten")
    expect(page.locator("#plan")).not_to_contain_text("†")


def test_generation_costs(still: Page) -> None:
    cells = still.locator("#graft .costs tbody td").all_inner_texts()
    assert cells == ["120 → 30", "0.5 → 0.5", "– → –", "– → –", "1,230 → 1,230"]
    assert still.locator("#graft .costs tbody th").inner_text() == "Shan"
    assert still.locator("#graft .costs caption").inner_text().endswith("2 prompts per language")


def test_the_frontier_counts_languages_in_whole_numbers(still: Page) -> None:
    counts = still.locator("#plan .panel").last
    assert counts.locator("figcaption").inner_text().split("\n") == ["Languages above 2×", "2 → 0"]
    heights = {
        tick.text_content(): float(tick.get_attribute("y") or 0)
        for tick in counts.locator("text.tick.end").all()[:3]
    }
    assert [*heights] == ["0", "1", "2"]
    # One language is half way between none and two.
    assert heights["1"] == pytest.approx((heights["0"] + heights["2"]) / 2)


def test_several_runs_on_one_page(
    open_page: Open, run_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("second")
    codes = ["eng_Latn", "shn_Mymr", "deu_Latn"]
    audit("udhr", ["o200k_base"], codes, resamples=20).save(folder, figures=False)
    both = build_page([run_folder, folder], tmp_path_factory.mktemp("both")).as_uri()
    page = open_page(both)
    first = page.locator(ROWS).count()
    page.select_option("#run", "1")
    assert page.locator(ROWS).count() == len(codes) != first
    assert page.locator(".heat thead th").count() == 5
    page.select_option("#run", "0")
    assert page.locator(ROWS).count() == first


def test_a_streamed_corpus(open_page: Open, tmp_path: Path) -> None:
    files = []
    for code, text in {"eng_Latn": "one day\ntwo\n", "shn_Mymr": "ၵူၼ်း\nၵူႊ\n"}.items():
        (tmp_path / f"{code}.txt").write_text(text, encoding="utf-8")
        files.append(f"{code}={tmp_path / code}.txt")
    options = {"state": tmp_path / "state", "parallel": True}
    found = survey(files, ["gpt2", "o200k_base"], **options)
    page = open_page(build_page(found, tmp_path / "parallel").as_uri())
    expect(page.locator("#premiums")).to_contain_text("Shan")
    counts = survey([tmp_path / "shn_Mymr.txt"], ["gpt2"], state=tmp_path / "state")
    page = open_page(build_page(counts, tmp_path / "own").as_uri())
    expect(page.locator("#counted")).to_contain_text("there is no premium")
    expect(page.locator("#counted tbody tr")).to_have_count(1)


def test_nothing_overflows_a_phone(open_page: Open, address: str) -> None:
    page = open_page(address, viewport={"width": 375, "height": 800}, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.locator(f"{ROWS} td[data-t]").first.tap()
    expect(page.locator("#tip")).to_be_visible()


def test_prints_light_and_whole(open_page: Open, address: str) -> None:
    page = open_page(address, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(253, 252, 250)"
    assert page.locator("#bar").is_hidden()
    box = page.locator(".scroller").first
    assert box.evaluate("box => box.scrollHeight - box.clientHeight") <= 1
    printed = page.locator(
        ".heat tbody"
    ).inner_text()  # rows out of sight are left undrawn on screens
    assert all(name in printed for name in names(page)) and len(names(page)) == 21
    assert len(page.pdf()) > 20_000


def test_axe_finds_nothing_serious(open_page: Open, address: str, axe: str) -> None:
    page = open_page(address, bypass_csp=True)
    page.evaluate(axe)
    grounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        found = page.evaluate("axe.run().then((result) => result.violations)")
        grave = [
            (one["id"], [node["target"] for node in one["nodes"]][:5])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert grave == [], scheme
    assert len(grounds) == 2


def test_a_common_name_opens_the_most_spoken_of_its_languages(
    open_page: Open, tmp_path: Path
) -> None:
    codes = ["quy_Latn", "quz_Latn", "tzm_Latn", "zgh_Tfng", "kab_Latn"]
    audit("udhr", ["gpt2"], codes, resamples=0).save(tmp_path / "run", figures=False)
    page = open_page(build_page([tmp_path / "run"], tmp_path / "site").as_uri())
    for typed, shown in (
        ("Tamazight", "Standard Moroccan Tamazight"),
        ("Berber", "Standard Moroccan Tamazight"),
        ("Kabyle", "Kabyle"),
        ("Quechua", "Ayacucho Quechua"),
    ):
        page.fill("#pick", typed)
        page.keyboard.press("Tab")
        expect(page.locator(".card-name")).to_have_text(shown)
    expect(page.locator("#language .problem")).to_contain_text("Others: Cusco Quechua")
    page.fill("#pick", "Klingonese")
    page.keyboard.press("Tab")
    expect(page.locator("#language .problem")).to_have_text("No language Klingonese")
