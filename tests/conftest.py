"""Fixtures every test may use: a private cache, the shared material if it is there."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"

# Several workers share the cores, and models this small gain nothing from threads of their own.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"  # before a library reads it once and for all

# Vocabularies are millions of small objects, which Python would look through again and again.
gc.set_threshold(100_000, 50, 100)

# A busy machine is not a wrong result.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


# What starts first, so that no long one is left running alone at the end. Files that share
# something costly, a browser or a cluster, stay together on one worker.
LONGEST = ("browser", "property/test_insert_promises.py", "ray", "unit/test_graft_verify.py")
RAY = ("contract/test_engines.py", "e2e/test_scale_ray.py")


def unit_of_work(nodeid: str) -> str:
    """What one test worker runs as a whole: a file, or files that share something costly."""
    file = nodeid.split("::", 1)[0].removeprefix("tests/")
    if file.startswith("browser/"):
        return "browser"
    return "ray" if file in RAY else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(unit_of_work(item.nodeid), len(first)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of_work(nodeid)

    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests off the user's cache and settings; counts are shared between tests."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # whose folder lies in that of the whole run
        place = place.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENGRAFT_CACHE", str(place / "tokengraft-cache"))
        patch.delenv("TOKENGRAFT_TOKENIZERS", raising=False)
        patch.delenv("TOKENGRAFT_CORPORA", raising=False)
        yield


@pytest.fixture
def tokengraft(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., CompletedProcess[str]]:
    """The command line with exit code and messages, in this process: another takes a second."""
    from tokengraft.cli import main

    def call(*arguments: object) -> CompletedProcess[str]:
        words = ["tokengraft", *map(str, arguments)]
        capfd.readouterr()
        code: int | str | None = 0
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", words)
            patch.setenv("COLUMNS", "160")
            try:
                main.run()
            except SystemExit as end:
                code = end.code
        said = capfd.readouterr()
        return CompletedProcess(words, int(code or 0), said.out, said.err)

    return call


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """Ray on two nodes of one core each, with this process connected to it.

    For a module only: Ray ends the process of a driver whose node it has lost.
    """
    ray = pytest.importorskip("ray", reason="the extra `scale` is not installed")
    psutil = pytest.importorskip("psutil", reason="the extra `dev` is not installed")
    from ray.cluster_utils import Cluster

    about = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=about)
    made.add_node(num_cpus=1, object_store_memory=100 << 20)
    made.wait_for_nodes()
    ray.init(made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    started = [node.all_processes["raylet"][0] for node in made.list_all_nodes()]
    nodes = [psutil.Process(raylet.process.pid) for raylet in started]
    children = [child for node in nodes for child in node.children(recursive=True)]
    made.shutdown()
    _, left = psutil.wait_procs(children, timeout=5)
    for child in left:  # now and then a worker outlives its node
        child.kill()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Models this small gain nothing from threads and lose much on a busy machine."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def shared(path: str) -> Path:
    """A file of the development material, or a skip that says why."""
    found = SHARED / path
    if not found.exists():
        pytest.skip(f"needs ../shared/{path}, which is not part of the repository")
    return found


@pytest.fixture
def flores() -> Path:
    return shared("data/flores200.tar.xz")


@pytest.fixture
def paper_tokenizers() -> Path:
    return shared("tokenizers/paper-ten.tar.xz")
