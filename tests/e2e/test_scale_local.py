"""The local engine from outside: what a killed or interrupted driver leaves behind."""

from __future__ import annotations

import functools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tokengraft.api.verbs import survey
from tokengraft.corpus import load
from tokengraft.corpus.rows import Layout

psutil = pytest.importorskip("psutil", reason="the extra `dev` is not installed")

SHARDS = 40


def finished(state: Path) -> int:
    try:
        with sqlite3.connect(f"file:{state / 'shards.sqlite'}?mode=ro", uri=True) as opened:
            return int(opened.execute("SELECT count(*) FROM entry").fetchone()[0])
    except sqlite3.OperationalError:  # not made yet
        return 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_driver_leaves_no_worker_and_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    udhr = load("udhr")
    lines = [(code, line) for code in udhr.languages[::20] for line in udhr.lines(code)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"lang": c, "text": t}) + "\n" for c, t in lines * 2))
    state, out = tmp_path / "state", tmp_path / "out"
    run = [sys.executable, "-m", "tokengraft.cli.main", "audit", str(path)]
    run += ["--language-column", "lang", "-t", "bert-multilingual", "--workers", "2"]
    run += ["--shard-bytes", str(path.stat().st_size // SHARDS), "--state", str(state)]
    run += ["-o", str(out)]
    # A shell's background job starts with SIGINT ignored, and so would the driver.
    default = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    driver = subprocess.Popen(
        run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=default
    )
    until = time.monotonic() + 120
    while finished(state) < 3 and time.monotonic() < until:
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.02)
    workers = psutil.Process(driver.pid).children(recursive=True)
    assert len(workers) >= 2
    driver.send_signal(how)
    _, told = driver.communicate(timeout=60)
    assert driver.returncode == (130 if how == signal.SIGINT else -how)
    assert how == signal.SIGKILL or "What was counted is kept" in told
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert alive == []
    assert not out.exists()
    before = finished(state)
    assert 3 <= before < SHARDS
    ended = subprocess.run(run, capture_output=True, text=True, check=False, env=os.environ)
    assert ended.returncode == 0, ended.stderr
    assert f"{before} of them from an earlier run" in ended.stdout
    layout = Layout(language_column="lang")
    whole = survey([path], ["bert-multilingual"], layout=layout, state=tmp_path / "2")
    whole.save(tmp_path / "whole")
    name = Path("tables") / "counts.csv"
    assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
