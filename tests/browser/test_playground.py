"""The playground: type, and see the tokens of every tokenizer."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

Open = Callable[..., Page]


def test_typing(open_page: Open, playground: str) -> None:
    page = open_page(playground, requests=playground)
    rows = page.locator("#playground .token-row")
    expect(rows).to_have_count(3, timeout=20_000)
    expect(rows.first.locator(".ratio")).to_contain_text("×")  # the example has its English
    page.fill("#live-text", "hello <b>world</b>")
    expect(page.locator("#live-reference")).to_have_value("")  # of another text, so no premium
    head = page.locator("#playground .token-row", has_text="GPT-2/3").locator(".token-head")
    expect(head).to_contain_text("8 tokens")
    expect(page.locator("#playground .token-text").first).to_have_text("hello <b>world</b>")
    assert page.locator("#playground b").count() == 0
    page.fill("#live-reference", "hello")
    expect(head).to_contain_text("8.0×")
    expect(page.locator("#playground .token-row.graft")).to_contain_text("OLMo 2")
    page.fill("#live-text", "")
    expect(rows).to_have_count(0)
    expect(page.locator("#playground .status").first).to_have_text("")


def test_on_a_phone_no_figure_is_broken_over_two_lines(open_page: Open, playground: str) -> None:
    page = open_page(playground, requests=playground, viewport={"width": 375, "height": 800})
    parts = page.locator("#playground .token-head > *")
    expect(parts).to_have_count(12, timeout=20_000)  # name, tokens, ratio, per character
    assert parts.evaluate_all("all => all.filter((one) => one.offsetHeight > 35).length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_page_is_there_too(open_page: Open, playground: str) -> None:
    page = open_page(f"{playground}#lang=shn_Mymr", requests=playground)
    assert page.locator(".card-name").inner_text() == "Shan"


def test_the_hero_tells_its_sentence_from_the_mean(open_page: Open, playground: str) -> None:
    """The caption's ratio is that of the squares under it; the other figures are said to differ."""
    page = open_page(playground, requests=playground)
    names = page.locator(".same-name").all_text_contents()
    squares = page.locator(".same-dots").evaluate_all("rows => rows.map(r => r.children.length)")
    counts = dict(zip(names, squares, strict=True))
    worst = max(counts, key=lambda name: counts[name])
    assert counts[worst] > 2 * counts["English"] > 0
    times = f"{counts[worst] / counts['English']:.1f} times"
    caption = page.locator(".same figcaption")
    expect(caption).to_contain_text(f"In this one sentence {worst} takes {times} the tokens")
    expect(caption).to_contain_text("the figures above are means over all of the text")
