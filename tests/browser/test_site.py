"""The site that `report --site` writes, on a plain file server: pages, playground, pictures."""

from __future__ import annotations

import functools
import io
import json
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tokengraft.api.report import report
from tokengraft.corpus import udhr
from tokengraft.render.colours import GROUND
from tokengraft.render.page import browser_tokenizers
from tokengraft.tokenizer import find

Open = Callable[..., Page]
BOXED = ("gpt2", "claude-2.1", "olmo-2", "llama-3", "o200k_base")
#: Where engines of regular expressions and Unicode tables disagree.
TRICKY = [
    "",
    "  a  b \n\n c\t\r\n",
    "I'Ll DON'T we'\u017f K\u212a'\u212a",
    "a\u0085b\ufeffc\u2028d\u3000e",
    "12345 ١٢٣٤٥ Ⅻ ½",
    "<|endoftext|> <EOT> <|begin_of_text|>",
    "ﬁ ① Å e\u0301 🙂👩‍👩‍👧",
    "国" * 700,
    "a" * 2000,
    "\tif (x) {\n\t\treturn y;\n}\n",
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *about: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        offered = functools.partial(browser_tokenizers.offered, BOXED)
        patch.setattr(browser_tokenizers, "offered", offered)
        report([run_folder / "audit"], folder, site=True, address="https://example.org/t")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


def sample() -> list[str]:
    """One line each of 60 translations, in as many scripts as possible, and tricky text."""
    every = udhr.load()
    by_script: dict[str, list[str]] = {}
    for code in every.languages:
        by_script.setdefault(code[4:8], []).append(code)
    codes = [code for own in by_script.values() for code in own[:2]]
    return TRICKY + [line for code in codes for line in every.lines(code)[3:4]]


def test_the_browser_gives_the_ids_of_the_python_side(open_page: Open, site: str) -> None:
    page = open_page(site)
    expect(page.locator("#playground .token-row")).to_have_count(len(BOXED), timeout=30_000)
    lines = sample()
    for name in BOXED:
        found = page.evaluate("([file, lines]) => window.tokengraftIds(file, lines)",
                              [f"tokenizers/{name}.bin", lines])  # fmt: skip
        wanted = find(name).open().encode(lines)
        wrong = [line for line, a, b in zip(lines, found, wanted, strict=True) if a != list(b)]
        assert wrong == [], name


def test_a_text_is_shared_as_picture_and_link(open_page: Open, site: str) -> None:
    page = open_page(site)
    page.fill("#live-text", "ၵူၼ်း a&b=c #1 <b>")
    page.fill("#live-reference", "people")
    expect(page.locator("#playground .status").first).to_contain_text("Ratios are against")
    with page.expect_download() as saved:
        page.click("#playground [data-share=picture]")
    picture = Image.open(io.BytesIO(Path(saved.value.path()).read_bytes()))
    assert picture.format == "PNG" and picture.width == 1200
    assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 20
    page.click("#playground [data-share=link]")
    link = page.locator("#playground .link-box").input_value()
    again = open_page(link, requests=site)
    assert again.locator("#live-text").input_value() == "ၵူၼ်း a&b=c #1 <b>"
    assert again.locator("#live-reference").input_value() == "people"


def test_a_language_is_shared_as_picture_and_link(open_page: Open, site: str) -> None:
    page = open_page(f"{site}#lang=tam_Taml", requests=site)
    with page.expect_download() as saved:
        page.click("#language [data-share=picture]")
    assert Image.open(Path(saved.value.path())).width == 1200
    page.click("#language [data-share=link]")
    link = page.locator("#language .link-box").input_value()
    again = open_page(link, requests=site)
    expect(again.locator("#language .card-name")).to_have_text("Tamil")
    again.click("#language .share a")
    expect(again.locator("h1")).to_contain_text("Tamil takes")


def test_every_language_has_an_address_and_a_card(
    open_page: Open, site: str, chromium: object
) -> None:
    page = open_page(site)
    answer = page.request.get(f"{site}lang/shn_Mymr/")
    text = answer.text()
    assert "Shan takes" in text and 'property="og:title"' in text
    assert 'content="https://example.org/t/lang/shn_Mymr/card.png"' in text
    card = page.request.get(f"{site}lang/shn_Mymr/card.png").body()
    assert Image.open(io.BytesIO(card)).size == (1200, 630)
    whole = Image.open(io.BytesIO(page.request.get(f"{site}card.png").body())).convert("RGB")
    red = tuple(bytes.fromhex(GROUND["more"][0].removeprefix("#")))
    assert red in {colour for _, colour in whole.getcolors(1 << 20) or ()}  # it has bars too
    page.goto(f"{site}lang/")
    assert page.locator("li a").count() == 21
    page.click("text=Tamil")
    expect(page.locator("h1")).to_contain_text("Tamil takes")
    expect(page.locator("tbody tr").first).to_contain_text("(")
    page.click("text=All about it")
    expect(page.locator("#language .card-name")).to_have_text("Tamil")
    places = page.request.get(f"{site}sitemap.xml").text()
    assert places.count("<loc>") == 23 and json.dumps(places)
    head = page.request.get(site).text()
    assert 'property="og:image" content="https://example.org/t/card.png"' in head
