"""Screenshots of the page for the README and docs: docs/img/page-{desktop,phone}-{light,dark}.png.

    python tools/screenshots.py RUN_DIR… [--out docs/img]

Taken of a real run in Debian's Chromium, so that the README shows the page as it is.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from tokengraft.api.report import report

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
# Width and height of the window, pixels a point, and what to show: sections from their top.
SHOTS: dict[str, tuple[int, int, float, list[str]]] = {
    "desktop": (1280, 860, 1.0, ["top", "premiums", "language", "tokens"]),
    "phone": (390, 844, 1.5, ["top", "premiums", "language", "tokens"]),
}
COLOURS = 200
LARGEST = 400_000  # bytes of a picture
GAP = 24


def shoot(browser: Any, address: str, name: str, scheme: str) -> Image.Image:
    """Take one picture: the window at each place, below one another or side by side."""
    width, height, scale, places = SHOTS[name]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        device_scale_factor=scale,
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.evaluate("document.fonts.ready")
    parts = []
    for place in places:
        page.evaluate(
            "id => window.scrollTo(0, id === 'top' ? 0 : document.getElementById(id)"
            ".getBoundingClientRect().top + window.scrollY - 52)",
            place,
        )
        page.wait_for_timeout(250)
        parts.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
    context.close()
    return join(parts, columns=2 if name == "desktop" else len(parts))


def join(parts: list[Image.Image], columns: int) -> Image.Image:
    """Join the parts in a grid on grey."""
    wide, tall = parts[0].size
    rows = -(-len(parts) // columns)
    size = (columns * (wide + GAP) - GAP, rows * (tall + GAP) - GAP)
    sheet = Image.new("RGB", size, "#8a9099")
    for number, part in enumerate(parts):
        row, column = divmod(number, columns)
        sheet.paste(part, (column * (wide + GAP), row * (tall + GAP)))
    return sheet


def main() -> None:
    """Write the four pictures."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        address = report(given.runs, folder).as_uri()
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for name in SHOTS:
            for scheme in ("light", "dark"):
                picture = shoot(browser, address, name, scheme)
                path = given.out / f"page-{name}-{scheme}.png"
                picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
                size = path.stat().st_size
                print(f"{path} {picture.width}×{picture.height}, {size / 1000:.0f} KB")
                if size > LARGEST:
                    raise SystemExit(f"{path} is larger than {LARGEST / 1000:.0f} KB")
        browser.close()


if __name__ == "__main__":
    main()
