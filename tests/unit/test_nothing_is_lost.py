"""What was learned outlives whatever ends a graft, and the same call finishes it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("torch")

from test_adapt import RECIPE, text

from helpers.tiny_models import make, plan
from tokengraft.core.errors import GraftError
from tokengraft.core.progress import Progress
from tokengraft.deriving.distil import distiller
from tokengraft.grafting.graft import Derivation, Finishing, Output, graft
from tokengraft.grafting.verify.invariants import Check, Report
from tokengraft.model.checkpoint import read_checkpoint

WAYS = [("rows", "input-only"), ("lanes", "write")]


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("base") / "llama", "llama-untied")


def run(base: Path, out: Path, way: tuple[str, str], progress=None) -> Path:
    train, policy = way
    rows = Derivation(text=text(), train=train, options={**RECIPE, "progress": progress})
    return graft(
        base, plan(), out, rows, output=Output(policy), options=Finishing(progress=progress)
    ).folder


def weights(folder: Path) -> dict[str, bytes]:
    return {shard.path.name: shard.path.read_bytes() for shard in read_checkpoint(folder).shards}


@pytest.fixture(scope="module", params=WAYS, ids=["rows", "lanes that write"])
def whole(request, base, tmp_path_factory):
    """An undisturbed graft, how it was made, and what it said on the way."""
    said: list[Progress] = []
    folder = run(base, tmp_path_factory.mktemp("whole") / "out", request.param, said.append)
    assert not folder.with_name("out.training").exists()
    return folder, request.param, said


def count_steps(monkeypatch) -> list[int]:
    taken: list[int] = []
    step = distiller.Distiller._step

    def counted(self, ends, out, begun):
        taken.append(out.steps)
        step(self, ends, out, begun)

    monkeypatch.setattr(distiller.Distiller, "_step", counted)
    return taken


def faults(base, whole, tmp_path, monkeypatch, seeds) -> None:
    """End a graft at drawn moments; run it again; it is the undisturbed one."""
    folder, way, said = whole
    monkeypatch.setattr(distiller, "_SAVED", 0.0)
    for seed in seeds:
        draw = random.Random(seed)
        moment, out = draw.randrange(len(said)), tmp_path / str(seed) / "out"
        error = draw.choice((KeyboardInterrupt(), OSError(28, "No space left"), MemoryError()))
        seen: list[Progress] = []

        def stop(now: Progress, seen=seen, moment=moment, error=error) -> None:
            seen.append(now)
            if len(seen) > moment:
                raise error

        with monkeypatch.context() as patch:
            before = count_steps(patch)
            with pytest.raises(BaseException) as caught:
                run(base, out, way, stop)
        assert caught.value is error or "No space left" in str(caught.value)
        assert not out.exists()
        with monkeypatch.context() as patch:
            after = count_steps(patch)
            assert weights(run(base, out, way)) == weights(folder), (seed, seen[-1])
        # At most the step under way is taken again, and none once training is over.
        assert len(before) + len(after) <= RECIPE["steps"] + 1
        assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_graft_that_was_ended_anywhere_is_finished_by_the_same_call(
    base, whole, tmp_path, monkeypatch
) -> None:
    faults(base, whole, tmp_path, monkeypatch, range(2))


@pytest.mark.slow
def test_thirty_moments(base, whole, tmp_path, monkeypatch) -> None:
    faults(base, whole, tmp_path, monkeypatch, range(2, 32))


def test_a_graft_that_fails_its_verification_stays_under_another_name(
    base, tmp_path, monkeypatch
) -> None:
    out, way = tmp_path / "out", WAYS[0]
    with monkeypatch.context() as patch:
        failing = Report((Check("loads", False, "this transformers reads it otherwise"),))
        patch.setattr("tokengraft.grafting.graft.verify", lambda *_, **__: failing)
        with pytest.raises(GraftError, match=r"out-unverified[\s\S]*reads it otherwise"):
            run(base, out, way)
    assert not out.exists()
    left = tmp_path / "out-unverified"
    assert "FAIL  loads: this transformers" in (left / "VERIFICATION.txt").read_text("utf-8")
    assert read_checkpoint(left).size and (tmp_path / "out.training").is_dir()
    taken = count_steps(monkeypatch)
    run(base, out, way)
    assert not taken and not (tmp_path / "out.training").exists()
