"""A page built from a small real run, opened in Debian's Chromium; console errors fail the test."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tokengraft.api.compare import compare
from tokengraft.api.report import collect
from tokengraft.api.report import report as build_page
from tokengraft.api.verbs import audit
from tokengraft.render.page.playground import make_server

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LANGUAGES = [
    *("shn_Mymr", "tam_Taml", "amh_Ethi", "hin_Deva", "arb_Arab", "ydd_Hebr", "zho_Hans"),
    *("jpn_Jpan", "kor_Hang", "rus_Cyrl", "ell_Grek", "vie_Latn", "fra_Latn", "swh_Latn"),
    *("khm_Khmr", "bod_Tibt", "zgh_Tfng", "vai_Vaii", "kat_Geor", "hye_Armn"),
]
TOKENIZERS = ["gpt2", "mistral-v0.3", "o200k_base", "bert-multilingual"]
Open = Callable[..., Page]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium: apt-get install -y chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def watching(chromium: Browser) -> Iterator[Open]:
    """Open addresses; fails at the end if the console complained or the network was used."""
    problems: list[str] = []
    contexts = []

    def opened(
        address: str, *, requests: str | None = None, expected: str | None = None, **settings: Any
    ) -> Page:
        options: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, **settings}
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()

        def seen(request: Any) -> None:
            allowed = ("data:", "blob:", requests or address.partition("#")[0])
            if not request.url.startswith(allowed):
                problems.append(f"request for {request.url[:200]}")

        page.on("request", seen)

        def logged(message: Any) -> None:
            wanted = expected is not None and expected in message.text
            if message.type in ("error", "warning") and not wanted:
                problems.append(message.text)

        page.on("console", logged)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Open]:
    """Open an address in a window of this test's own."""
    with watching(chromium) as opened:
        yield opened


@pytest.fixture(scope="session")
def still(chromium: Browser, address: str) -> Iterator[Page]:
    """The page opened once, for tests that only look and change nothing that another test sees."""
    with watching(chromium) as opened:
        yield opened(address)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    found = audit("udhr", TOKENIZERS, LANGUAGES, resamples=20)
    found.save(folder / "audit", figures=False)
    compared = compare("gpt2", "o200k_base", languages=LANGUAGES, resamples=0)
    compared.save(folder / "compared", figures=False)
    (folder / "plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
    (folder / "evaluation.json").write_text(json.dumps(EVALUATION), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def address(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_page([run_folder], tmp_path_factory.mktemp("site")).as_uri()


@pytest.fixture(scope="session")
def playground(run_folder: Path) -> Iterator[str]:
    server = make_server(
        collect([run_folder]), own=["olmo-2"], bundled=["gpt2", "o200k_base"], port=0
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.address
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, fetched from the npm registry."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm to fetch axe-core")
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "pack", "axe-core@4", "--silent"]
    fetched = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"npm could not fetch axe-core: {fetched.stderr.strip()[-200:]}")
    archive = next(folder.glob("axe-core-*.tgz"))
    shutil.unpack_archive(archive, folder)
    return (folder / "package" / "axe.min.js").read_text(encoding="utf-8")


def _outcome(before: float, after: float) -> dict[str, Any]:
    points = [(0, before), (50, (before + after) / 2), (200, after)]
    return {
        "planning_before": 1000,
        "planning_after": 200,
        "premium_before": before,
        "premium_after": after,
        "floor_before": None,
        "floor_after": 1.1,
        "unknown_before": 0,
        "unknown_after": 0,
        "curve": [{"tokens": n, "planning_tokens": 1000 - n, "premium": v} for n, v in points],
    }


PLAN = {
    "schema": 1,
    "tokenizer": "0" * 64,
    "family": "byte-level",
    "mode": "merges",
    "objective": "total",
    "budget": 500,  # more than the text gave
    "cut": {"scripts": ["Mymr"], "old_pattern": None, "new_pattern": None},
    "tokens": [
        {"id": 9, "token": "x", "bytes": "e181b5", "text": "ၵ", "parts": [1, 2], "count": 7},
        {"id": 10, "token": "y", "bytes": "e181", "text": None, "parts": [1, 2], "count": 5},
    ],
    "merges": [],
    "languages": {"shn_Mymr": _outcome(16.0, 2.0), "amh_Ethi": _outcome(8.0, 1.5)},
    "pivot": "eng_Latn",
    "check": {"pieces": 10, "longer": 0, "repairs": 0},
    "notes": [],
}
EVALUATION = {
    "base": "rootstock",
    "scores": [
        {"language": "shn_Mymr", "method": method, "metric": metric, "value": value}
        | {"floor": 0.2, "ceiling": 0.95, "n": 100, "low": value - 0.02, "high": value + 0.02}
        for method, shift in (("mean", 0.0), ("distil", 0.3))
        for metric, value in (("top1", 0.5 + shift), ("aligned_cosine", 0.4 + shift))
    ],
    "generation": [
        {"language": "shn_Mymr", "model": model, "prompts": 2, "tokens_per_prompt": tokens}
        | {"prefill_ms_per_character": 0.5, "decode_ms_per_character": None}
        | {"cache_bytes_per_character": 1234.5}
        for model, tokens in (("base", 120.0), ("graft", 30.0))
    ],
    "samples": [{"language": "shn_Mymr", "prompt": "ၵူၼ်း", "base": "a", "graft": "b"}],
}
