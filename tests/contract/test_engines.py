"""One suite over every engine, made from the registry; one whose library is missing is skipped."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tokengraft.core.errors import CorpusError, TokengraftError, UsageError
from tokengraft.engine import ENGINES, make_engine
from tokengraft.engine.protocol import Engine, Report


@dataclass(frozen=True)
class Item:
    name: str
    size: int


@dataclass(frozen=True)
class Doubling:
    """A task: twice the size of an item; `bad` is an error of ours, `deadly` ends the worker."""

    def open(self, threads: int) -> Callable[[Item, Report], bytes]:
        assert threads >= 1

        def count(item: Item, report: Report) -> bytes:
            if item.name == "bad":
                raise CorpusError(f"{item.name} cannot be counted")
            if item.name == "deadly":
                os._exit(1)
            report(1, item.size, 0, 1.0)
            return str(2 * item.size).encode()

        return count


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "ray":  # two of its workers count in `e2e/test_scale_ray.py`
        request.getfixturevalue("ray_cluster")
        return make_engine("ray", 1)
    return make_engine(request.param, 2)


def test_every_item_comes_back_once(engine: Engine) -> None:
    items = [Item(f"item {n}", n) for n in (3, 1, 4, 1, 5)]
    results = list(engine.map(Doubling(), items, lambda *figures: None))
    assert sorted(results) == [(n, str(2 * item.size).encode()) for n, item in enumerate(items)]


def test_nothing_gives_nothing(engine: Engine) -> None:
    assert list(engine.map(Doubling(), [], lambda *figures: None)) == []


def test_an_error_of_ours_comes_back_as_itself(engine: Engine) -> None:
    items = [Item("good", 1), Item("bad", 2)]
    with pytest.raises(CorpusError, match="bad cannot be counted"):
        list(engine.map(Doubling(), items, lambda *figures: None))


def test_an_item_that_ends_its_worker_again_and_again_is_named(engine: Engine) -> None:
    items = [Item("deadly", 2), Item("good", 1)]
    with pytest.raises(TokengraftError, match="died 3 times while deadly was"):
        list(engine.map(Doubling(), items, lambda *figures: None))


@pytest.mark.parametrize("name", ENGINES)
def test_a_row_says_what_it_is_and_refuses_no_workers(name: str) -> None:
    assert ENGINES[name].name == name and ENGINES[name].help
    with pytest.raises(UsageError, match="at least one"):
        make_engine(name, 0)


def test_the_command_line_offers_every_row() -> None:
    from typer.testing import CliRunner

    from tokengraft.cli.app import app

    refused = CliRunner().invoke(app, ["plan", "gpt2", "-l", "shn", "--engine", "none"])
    assert refused.exit_code == 2
    assert all(repr(name) in refused.output for name in ENGINES)


def test_an_unknown_engine_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"known: local, ray\. Did you mean local"):
        make_engine("locall")
