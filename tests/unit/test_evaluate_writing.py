"""What a graft writes and what English keeps: exact where nothing was grafted."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.tiny_models import make, new_rows, plan, texts
from tokengraft.deriving.derive import Derived
from tokengraft.evaluating.lines import prepare
from tokengraft.evaluating.protected import protected_scores
from tokengraft.evaluating.score import Bootstrap
from tokengraft.evaluating.writing import english_greedy, written_scores
from tokengraft.grafting.graft import Finishing, Output, graft
from tokengraft.model.frozen import FrozenModel


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> FrozenModel:
    return FrozenModel.load(make(tmp_path_factory.mktemp("writing") / "base", "llama-tied"))


def test_a_graft_of_nothing_keeps_english_exactly(base: FrozenModel) -> None:
    lines = texts()["eng_Latn"]
    kept = protected_scores(base, base, {"English": lines}, Bootstrap(0))
    assert kept["english_top1"].value == 1
    assert english_greedy(base, base, lines, Bootstrap(0))["english_greedy"].value == 1


def test_loud_output_rows_are_seen_in_english(base: FrozenModel, tmp_path: Path) -> None:
    made = Derived(new_rows(), "given", head=40 * new_rows(seed=2))
    graft(
        base.folder,
        plan(),
        tmp_path / "out",
        rows=made,
        output=Output(policy="write"),
        options=Finishing(verified=False),
    )
    loud = FrozenModel.load(tmp_path / "out")
    lines = texts()["eng_Latn"]
    kept = protected_scores(base, loud, {"English": lines}, Bootstrap(0))
    assert kept["english_stray"].value > 0.5
    assert kept["english_top1"].value < 0.5
    assert english_greedy(base, loud, lines, Bootstrap(0))["english_greedy"].value < 0.5
    lines = texts()["amh_Ethi"]
    case = prepare("amh_Ethi", lines, base, loud.tokenizer, 200)
    written = written_scores(base, loud, case, Bootstrap(0))
    assert written["written_worth"].value > 1.5  # new tokens are several old ones
