"""The Ray engine on a real cluster of two nodes: exact counts whoever is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tokengraft.api.verbs import survey
from tokengraft.corpus import load
from tokengraft.corpus.rows import Layout

ray = pytest.importorskip("ray", reason="the extra `scale` is not installed")
psutil = pytest.importorskip("psutil", reason="the extra `dev` is not installed")

TOKENIZER = "bert-multilingual"
SHARDS = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    about = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=about)
    made.add_node(num_cpus=1, object_store_memory=100 << 20)
    made.wait_for_nodes()
    yield made
    started = [node.all_processes["raylet"][0] for node in made.list_all_nodes()]
    nodes = [psutil.Process(raylet.process.pid) for raylet in started]
    children = [child for node in nodes for child in node.children(recursive=True)]
    made.shutdown()
    _, left = psutil.wait_procs(children, timeout=5)
    for child in left:  # now and then a worker outlives its node
        child.kill()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    udhr = load("udhr")
    folder = tmp_path_factory.mktemp("corpus")
    lines = [(code, line) for code in udhr.languages[::25] for line in udhr.lines(code)]
    for number in range(3):
        records = [json.dumps({"lang": code, "text": text}) for code, text in lines]
        (folder / f"{number}.jsonl").write_text("\n".join(records * 2) + "\n")
    return folder


def command(corpus: Path, state: Path, out: Path, *more: str) -> list[str]:
    size = sum(path.stat().st_size for path in corpus.iterdir())
    shard = ("--shard-bytes", str(size // SHARDS), "--state", str(state), "-o", str(out))
    audit = ("audit", str(corpus), "--language-column", "lang", "-t", TOKENIZER, *shard, *more)
    return [sys.executable, "-m", "tokengraft.cli.main", *audit]


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("local")
    layout = Layout(language_column="lang")
    survey([corpus], [TOKENIZER], layout=layout, state=folder).save(folder / "out")
    return counts(folder / "out")


def counts(out: Path) -> bytes:
    return (out / "tables" / "counts.csv").read_bytes()


def start(cluster: Any, corpus: Path, state: Path, out: Path) -> subprocess.Popen[str]:
    on_ray = ("--engine", "ray", "--address", cluster.address)
    run = command(corpus, state, out, *on_ray)
    return subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_shards(state: Path, number: int, driver: subprocess.Popen[str]) -> int:
    """Wait until so many shards are finished; how many there are then."""
    until = time.monotonic() + 180
    while time.monotonic() < until:
        assert driver.poll() is None, f"ended too early: {driver.communicate()[0]}"
        done = finished(state)
        if done >= number:
            return done
        time.sleep(0.02)
    raise AssertionError(f"{finished(state)} shards after three minutes")


def finished(state: Path) -> int:
    path = state / "shards.sqlite"
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
    return [c for c in children if c.is_running() and "MapWorker" in " ".join(c.cmdline())]


def test_counts_are_exact_when_a_worker_is_killed(
    cluster: Any, corpus: Path, expected: bytes, tmp_path: Path
) -> None:
    driver = start(cluster, corpus, tmp_path / "state", tmp_path / "out")
    wait_for_shards(tmp_path / "state", 2, driver)
    found = workers(cluster)
    assert len({worker.ppid() for worker in found}) == 2, "both nodes should count"
    os.kill(found[0].pid, signal.SIGKILL)
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    assert counts(tmp_path / "out") == expected


def test_counts_are_exact_when_the_driver_is_killed_and_started_again(
    cluster: Any, corpus: Path, expected: bytes, tmp_path: Path
) -> None:
    driver = start(cluster, corpus, tmp_path / "state", tmp_path / "out")
    done = wait_for_shards(tmp_path / "state", 3, driver)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert not (tmp_path / "out").exists()
    driver = start(cluster, corpus, tmp_path / "state", tmp_path / "out")
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, output
    resumed = int(output.split("from an earlier run")[0].rsplit(",", 1)[1].split()[0])
    assert done <= resumed < SHARDS
    assert counts(tmp_path / "out") == expected


def test_errors_of_workers_arrive_as_they_were(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "no JSON itself"}\n')
    on_ray = ("--engine", "ray", "--address", cluster.address, "--state", str(tmp_path))
    run = ("audit", str(path), "--detector", "json:loads", "-t", "gpt2", *on_ray)
    full = [sys.executable, "-m", "tokengraft.cli.main", *run]
    ended = subprocess.run(full, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 2, ended.stderr
    assert "--detector json:loads failed: JSONDecodeError" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_an_address_without_cluster_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n')
    run = ["audit", str(tmp_path / "a.jsonl"), "--monolingual", "-t", "gpt2", "--engine", "ray"]
    full = [sys.executable, "-m", "tokengraft.cli.main", *run, "--address", "127.0.0.1:1"]
    ended = subprocess.run(full, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 1
    assert "No Ray cluster at 127.0.0.1:1" in ended.stderr
