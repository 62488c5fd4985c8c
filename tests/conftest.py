"""Fixtures every test may use: a private cache, the shared material where it is at hand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"

# Several workers share the cores, and models this small gain nothing from threads of their own.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine is not a wrong result.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, session_cache: Path) -> None:
    """No test reads or writes the user's cache or settings; what is counted once serves all."""
    monkeypatch.setenv("TOKENGRAFT_CACHE", str(session_cache))
    monkeypatch.delenv("TOKENGRAFT_TOKENIZERS", raising=False)
    monkeypatch.delenv("TOKENGRAFT_CORPORA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


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
