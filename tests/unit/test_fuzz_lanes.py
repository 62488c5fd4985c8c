"""The promise of lanes, attacked on random models: the first seeds of `tools/fuzz_lanes.py`."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch")
pytest.importorskip("hypothesis")

import fuzz_lanes

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", fuzz_lanes.KINDS)
def test_old_text_cannot_meet_what_was_learned(kind, monkeypatch):
    monkeypatch.setattr(fuzz_lanes, "KINDS", (kind,))
    assert fuzz_lanes.read(random.Random(0))["sequences"] > 300


@pytest.mark.parametrize("seed", range(2))
def test_verify_sees_what_changes_old_text(seed, monkeypatch):
    monkeypatch.setattr("tokengraft.grafting.verify.protected._LINES", 2)
    monkeypatch.setattr(fuzz_lanes, "MUTATIONS_A_MODEL", 10)
    ends = fuzz_lanes.broken(random.Random(seed))
    assert sum(ends.values()) == 10 and any("seen by" in end for end in ends)
