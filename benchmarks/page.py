"""How fast the page opens and sorts in Debian's Chromium.

    python benchmarks/page.py RUN_DIR [--runs 5] [--tokenizers DIR] [--corpus PATH]

RUN_DIR is an audit with ten tokenizers and 204 languages (FLORES-200). Goals: under 2 s until
everything is drawn, under 100 ms from a click on a heading until the sorted table is laid out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokengraft.api.report import report

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
SORT = """async () => {
  const times = [];
  const table = document.querySelector(".heat");
  const next = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  for (const button of document.querySelectorAll(".heat thead button")) {
    const start = performance.now();
    button.click();
    table.getBoundingClientRect();  // forces style and layout
    const sorted = performance.now() - start;
    await next();
    times.push([sorted, performance.now() - start]);
  }
  return times;
}"""


@dataclass
class Times:
    """Seconds until all is drawn and milliseconds of every sort, each with its processor time."""

    opened: list[float] = field(default_factory=list)
    opened_cpu: list[float] = field(default_factory=list)
    sorted: list[float] = field(default_factory=list)  # until the rows stand in order, laid out
    shown: list[float] = field(default_factory=list)  # until the next frame is drawn
    sort_cpu: list[float] = field(default_factory=list)  # of the page's main thread, a sort


def measure(address: str, runs: int) -> Times:
    """Open the page `runs` times and sort by each column."""
    from playwright.sync_api import sync_playwright

    found = Times()
    with sync_playwright() as play:
        path = shutil.which("chromium")
        browser: Any = play.chromium.launch(executable_path=path, args=ARGUMENTS)
        for number in range(runs + 1):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            clock = page.context.new_cdp_session(page)
            clock.send("Performance.enable", {"timeDomain": "threadTicks"})
            start, before = time.perf_counter(), busy(clock)
            page.goto(address)
            page.wait_for_selector("html[data-ready]")
            page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
            seconds, drawn = time.perf_counter() - start, busy(clock)
            if number:  # the first page also starts the browser's processes
                found.opened.append(seconds)
                found.opened_cpu.append(drawn - before)
                pairs = page.evaluate(SORT)
                found.sorted += [one for one, _ in pairs]
                found.shown += [one for _, one in pairs]
                found.sort_cpu.append(1000 * (busy(clock) - drawn) / len(pairs))
            page.close()
        browser.close()
    return found


def busy(clock: Any) -> float:
    """Seconds of processor time that the page's main thread has spent on tasks."""
    metrics = clock.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def line(name: str, values: list[float], form: str) -> str:
    """Median, best and worst of the values."""
    shown = [form.format(f(values)) for f in (statistics.median, min, max)]
    return f"{name}: {shown[0]} (median of {len(values)}, best {shown[1]}, worst {shown[2]})"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokenizers", type=Path, action="append", default=[])
    parser.add_argument("--corpus")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        path = report([given.run], folder, tokenizers=given.tokenizers, corpus=given.corpus)
        built, size = time.perf_counter() - start, path.stat().st_size
        found = measure(path.as_uri(), given.runs)
    print(f"built in {built:.1f} s, {size / 1e6:.2f} MB; load {os.getloadavg()[0]:.1f}")
    print(line("opens, goal < 2 s", found.opened, "{:.2f} s"))
    print(line("  of that processor time", found.opened_cpu, "{:.2f} s"))
    print(line("sorts and lays out, goal < 100 ms", found.sorted, "{:.0f} ms"))
    print(line("  until the next frame is drawn", found.shown, "{:.0f} ms"))
    print(line("  processor time of all of it", found.sort_cpu, "{:.0f} ms"))


if __name__ == "__main__":
    main()
