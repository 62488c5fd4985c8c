"""The Ray engine on a real cluster of two nodes: exact counts whoever is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tokengraft.api.results import Audit
from tokengraft.api.verbs import survey
from tokengraft.core.errors import TokengraftError
from tokengraft.core.progress import Progress
from tokengraft.corpus import load
from tokengraft.corpus.rows import Layout

ray = pytest.importorskip("ray", reason="the extra `scale` is not installed")
psutil = pytest.importorskip("psutil", reason="the extra `dev` is not installed")

TOKENIZER = "t5"  # encodes every line whole, so that there is time to kill
SHARDS = 24


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    udhr = load("udhr")
    folder = tmp_path_factory.mktemp("corpus")
    lines = [(code, line) for code in udhr.languages[::25] for line in udhr.lines(code)]
    for number in range(3):
        records = [json.dumps({"lang": code, "text": text}) for code, text in lines]
        (folder / f"{number}.jsonl").write_text("\n".join(records * 2) + "\n")
    return folder


def shard_bytes(corpus: Path) -> int:
    return sum(path.stat().st_size for path in corpus.iterdir()) // SHARDS


def count(corpus: Path, place: Path, **options: Any) -> Audit:
    """The corpus counted with its state in `place`, and written beside it."""
    layout = Layout(language_column="lang")
    counted = survey([corpus], [TOKENIZER], layout=layout, state=place / "state", **options)
    counted.save(place / "out")
    return counted


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("local")
    count(corpus, folder, workers=1)  # in one piece
    return counts(folder)


def counts(place: Path) -> bytes:
    return (place / "out" / "tables" / "counts.csv").read_bytes()


def finished(place: Path) -> int:
    """How many shards are done."""
    path = place / "state" / "shards.sqlite"
    if not path.exists():
        return 0
    try:
        with sqlite3.connect(path, timeout=5) as opened:
            return int(opened.execute("SELECT count(*) FROM entry").fetchone()[0])
    except sqlite3.OperationalError:  # the table is just being made
        return 0


def workers(cluster: Any) -> list[Any]:
    """The processes of the cluster's two nodes that count."""
    started = [node.all_processes["raylet"][0] for node in cluster.list_all_nodes()]
    nodes = [psutil.Process(raylet.process.pid) for raylet in started]
    children = [child for node in nodes for child in node.children(recursive=True)]
    return [c for c in children if c.is_running() and "CountingActor" in " ".join(c.cmdline())]


def test_an_address_without_cluster_is_an_error(tmp_path: Path) -> None:
    """Before any other test here connects this process: an open connection would be used."""
    ray.shutdown()
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n')
    with pytest.raises(TokengraftError, match=r"No Ray cluster at 127\.0\.0\.1:1 .*ray start"):
        survey([tmp_path], ["gpt2"], engine="ray", address="127.0.0.1:1", state=tmp_path / "state")


def test_counts_are_exact_when_a_worker_is_killed(
    ray_cluster: Any, corpus: Path, expected: bytes, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill(_: Progress) -> None:
        done = finished(tmp_path)
        counting = workers(ray_cluster) if not killed and done >= 2 else []
        both = len({worker.ppid() for worker in counting}) == 2  # nodes; the second may be late
        if both or (counting and done >= SHARDS // 2):
            killed.append(counting[0].pid)
            os.kill(counting[0].pid, signal.SIGKILL)

    cut = shard_bytes(corpus)
    counted = count(corpus, tmp_path, engine="ray", shard_bytes=cut, progress=kill)
    assert killed and len(counted.total.shards) >= SHARDS
    assert counts(tmp_path) == expected


def test_counts_are_exact_when_the_driver_is_killed_and_started_again(
    ray_cluster: Any, corpus: Path, expected: bytes, tmp_path: Path
) -> None:
    run = [sys.executable, "-m", "tokengraft.cli.main", "audit", str(corpus)]
    run += ["--language-column", "lang", "-t", TOKENIZER, "--shard-bytes", str(shard_bytes(corpus))]
    run += ["--state", str(tmp_path / "state"), "-o", str(tmp_path / "out")]
    run += ["--engine", "ray", "--address", ray_cluster.address]
    driver = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until = time.monotonic() + 180
    while finished(tmp_path) < 3 and time.monotonic() < until:
        assert driver.poll() is None, f"ended too early: {driver.communicate()[0]!r}"
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    assert not (tmp_path / "out").exists()
    done = finished(tmp_path)
    again = count(corpus, tmp_path, engine="ray", shard_bytes=shard_bytes(corpus))
    assert 3 <= done == again.total.resumed < SHARDS
    assert counts(tmp_path) == expected
