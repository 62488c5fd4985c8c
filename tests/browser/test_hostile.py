"""Tokens and text are data: markup in a vocabulary and bidi controls in a corpus stay inert."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tokengraft.api.report import report as build_page
from tokengraft.api.verbs import audit
from tokengraft.corpus.parallel import ParallelCorpus

Open = Callable[..., Page]
SCRIPT, IMAGE = "<script>alert(1)</script>", "<img src=x onerror=alert(2)>"
END = "</script><script>alert(3)</script><!--"
BIDI = "\u202eevil\u202c \u2066x\u2069\u200f"
LABEL = "<img src=x onerror=alert(4)>"
LINES = {
    "eng_Latn": (f"{SCRIPT} {IMAGE} {END} and some words of plain text", "second plain line here"),
    "arb_Arab": (f"{IMAGE} {BIDI} {SCRIPT} {END}", f"{BIDI} نص عادي هنا"),
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("hostile")
    alphabet = {c: n for n, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    pipeline = Tokenizer(models.BPE(alphabet, []))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_tokens([SCRIPT, IMAGE, END, BIDI])
    own = folder / LABEL
    own.mkdir()
    pipeline.save(str(own / "tokenizer.json"))
    corpus = ParallelCorpus("hostile", f"own text files {IMAGE}", ("1", "2"), LINES)
    found = audit(corpus, [str(own), "gpt2"], resamples=20)
    found.save(folder / "run", figures=False)
    plan = {"languages": {}, "tokens": [{"text": IMAGE + BIDI, "bytes": "", "parts": [1]}]}
    plan |= {"mode": SCRIPT, "objective": END, "notes": [IMAGE], "budget": 1, "check": {}}
    (folder / "run" / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    scores = [{"language": "shn_Mymr", "metric": SCRIPT, "value": 0.5}]
    samples = [{"prompt": SCRIPT, "base": END + BIDI, "graft": IMAGE}]
    evaluation = {"scores": scores, "samples": samples}
    (folder / "run" / "evaluation.json").write_text(json.dumps(evaluation), encoding="utf-8")
    page = build_page([folder / "run"], folder / "site", corpus=corpus, tokenizers=[folder])
    html = page.read_text(encoding="utf-8")
    assert SCRIPT not in html and IMAGE not in html and html.count("<script") == 2
    assert "&lt;script" not in html  # the title is a finding, not data
    return page.as_uri()


def test_markup_in_a_vocabulary_is_text(open_page: Open, hostile: str) -> None:
    page = open_page(f"{hostile}#lang=eng_Latn")
    expect(page.locator(".token-row").first).to_be_visible()
    shown = page.locator(".token-view").inner_text()
    assert SCRIPT in shown and IMAGE in shown
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    expect(page.locator(".heat thead")).to_contain_text(LABEL)
    expect(page.locator(".chips-list")).to_contain_text(IMAGE.replace(" ", "␣"))
    expect(page.locator(".samples")).to_contain_text(SCRIPT)


def test_bidi_controls_are_shown_not_obeyed(open_page: Open, hostile: str) -> None:
    page = open_page(f"{hostile}#lang=arb_Arab")
    expect(page.locator(".token-row").first).to_be_visible()
    assert "U+202E" in page.locator(".token-view").inner_text()
    everything = page.locator("body").inner_text()
    assert not set(everything) & set("\u202e\u202c\u2066\u2069\u200f")


def test_policy_stops_injected_code(open_page: Open, hostile: str) -> None:
    page = open_page(hostile, expected="Content Security Policy")
    ran = page.evaluate(
        """() => {
          window.ran = false;
          const code = document.createElement("script");
          code.textContent = "window.ran = true";
          const blocked = new Promise((done) =>
            document.addEventListener("securitypolicyviolation", () => done(true), { once: true }));
          document.body.append(code);
          return blocked.then(() => window.ran);
        }"""
    )
    assert ran is False
