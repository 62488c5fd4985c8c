"""The measures on arrays, worked by hand, and what surrounds them."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="evaluating needs the model extra")

from tokengraft.core.errors import CorpusError, ModelError  # noqa: E402
from tokengraft.evaluating.fidelity import centred, cosines, derangement, ranks  # noqa: E402
from tokengraft.evaluating.lines import assert_disjoint  # noqa: E402
from tokengraft.evaluating.score import Bootstrap, Metric, Sums, interval, score  # noqa: E402
from tokengraft.model.divergence import (  # noqa: E402
    Distributions,
    Head,
    compare,
    likelihoods,
)
from tokengraft.paper.claim_folder import Row, cosine, fidelity_table  # noqa: E402
from tokengraft.paper.grid import Cells, Key  # noqa: E402


def test_cosine_by_hand_and_exact_for_equals():
    assert cosines(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]]))[0] == pytest.approx(0.5**0.5)
    states = torch.randn(500, 33, generator=torch.Generator().manual_seed(1))
    assert (cosines(states, states) == 1.0).all()
    assert (cosines(states * 7, states * 7) == 1.0).all()


def test_divergence_by_hand():
    # Two tokens, logits = states: p = (3/4, 1/4), q = (1/2, 1/2).
    head = Head(torch.eye(2))
    old, new = torch.tensor([[math.log(3.0), 0.0]]), torch.tensor([[0.0, 0.0]])
    found = compare(Distributions(old, head), new, head)
    assert found.kl[0].item() == pytest.approx(
        0.75 * math.log(1.5) + 0.25 * math.log(0.5), rel=1e-6
    )
    assert found.top10[0] == 1.0
    kept = compare(Distributions(old, head, most_bytes=1 << 20), new, head)
    assert kept.kl[0] == found.kl[0]
    assert likelihoods(old, np.array([1]), head)[0] == pytest.approx(math.log(0.25))


def test_agreement_and_cap():
    head = Head(torch.eye(12), cap=2.0)
    old = torch.zeros(1, 12)
    old[0, 3] = 5.0
    same, other = old.clone(), torch.zeros(1, 12)
    other[0, 7] = 5.0
    found = compare(Distributions(torch.cat([old, old]), head), torch.cat([same, other]), head)
    assert found.top1.tolist() == [1.0, 0.0]
    assert found.kl[0] == 0.0
    p = np.exp(2 * math.tanh(2.5)) / (np.exp(2 * math.tanh(2.5)) + 11)
    assert likelihoods(old, np.array([3]), head)[0] == pytest.approx(math.log(p), rel=1e-5)


def test_ranks_by_hand():
    old = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    found = ranks(old, old)
    assert found.mutual.tolist() == [1.0, 1.0, 1.0]
    assert found.first.tolist() == [1.0, 1.0, 1.0]
    # The first sentence's new vector is the third's old one: two old ones lie nearer to it, and
    # both others lie nearer to its old one (cosine 0.8 and 0, against 0).
    moved = old.copy()
    moved[0] = old[2]
    found = ranks(old, moved)
    assert found.mutual[0] == 1 + (1 + 2) / 2
    assert found.first.tolist() == [0.0, 1.0, 1.0]
    gap = old.copy()
    gap[1] = np.nan
    assert np.isnan(ranks(gap, old).mutual).tolist() == [False, True, False]


@pytest.mark.parametrize("count", [2, 3, 50])
def test_derangement_moves_everything(count):
    order = derangement(count, seed=3)
    assert sorted(order.tolist()) == list(range(count))
    assert (order != np.arange(count)).all()


def test_score_is_a_ratio_of_sums_with_its_floor():
    sums = Sums.over(np.array([1.0, 0.0, 0.5]), [2, 0, 1])
    assert sums.numerator.tolist() == [1.0, 0.0, 0.5]
    found = score(Metric("m", "d", higher=False), sums, unrelated=9.0, mean_row=4.0, ceiling=0.1)
    assert (found.value, found.n, found.floor, found.ceiling) == (0.5, 3, 4.0, 0.1)
    assert found.low <= found.value <= found.high
    assert score(Metric("m", "d"), sums, unrelated=0.2, mean_row=0.1).floor == 0.2


def test_interval_is_exact_where_nothing_varies_and_absent_for_one_line():
    ones = Sums(np.array([3.0, 5.0, 7.0]), np.array([3.0, 5.0, 7.0]))
    assert interval(ones, Bootstrap()) == (1.0, 1.0)
    assert interval(Sums(np.ones(1), np.ones(1)), Bootstrap()) == (None, None)
    with pytest.raises(CorpusError, match="nothing to measure"):
        _ = Sums(np.zeros(2), np.zeros(2)).value
    with pytest.raises(ModelError, match="not a number"):
        _ = Sums(np.array([1.0, np.nan]), np.ones(2)).value


def test_interval_covers_the_truth():
    generator = np.random.default_rng(0)
    hits = 0
    for trial in range(40):
        values = generator.normal(1.0, 1.0, 60)
        low, high = interval(Sums(values, np.ones(60)), Bootstrap(300, trial))
        hits += low <= 1.0 <= high
    assert hits >= 33


class TestDisjoint:
    line = "The quick brown fox jumps over the lazy dog."

    def test_passes_other_text_and_counts(self):
        assert assert_disjoint(["Something else altogether, and rather long."], [self.line]) == 1

    @pytest.mark.parametrize(
        "text",
        [
            "The quick brown fox jumps over the lazy dog.",
            "  the quick  brown fox jumps over the LAZY dog. ",
            "Before it. The quick brown fox jumps over the lazy dog. And after.",
        ],
    )
    def test_refuses_a_corpus_line(self, text):
        with pytest.raises(CorpusError, match="line 2 of the training text"):
            assert_disjoint(["fine", text], [self.line])

    def test_short_lines_are_no_leak(self):
        assert assert_disjoint(["Yes."], ["Yes."]) == 0


def test_cells_are_kept_and_keyed_by_everything(tmp_path):
    key = Key("m", "t", "x", "shn", "d", "s")
    Cells(tmp_path).put(key, {"a": 1})
    assert Cells(tmp_path).get(key) == {"a": 1}
    for name in key.__dataclass_fields__:
        other = Key(**{**{n: getattr(key, n) for n in key.__dataclass_fields__}, name: "other"})
        assert Cells(tmp_path).get(other) is None
    (tmp_path / f"{key.digest()}.json").write_text("{")
    assert Cells(tmp_path).get(key) is None


def test_table_has_the_papers_own_colours():
    from tokengraft.paper.claim import read_claim

    paper = read_claim("fidelity")
    names = list(dict.fromkeys(row for row, _ in paper.expected))
    rows = []
    for name in names:
        method, _, layer = name.rpartition(" layer ")
        strategy, _, k = method.partition(" k=")
        values = {code: paper.expected.get((name, code)) for code in ("mean", *paper.languages)}
        rows.append(Row(int(layer), strategy, int(k) if k else None, values, {}))
    text = fidelity_table(rows, list(paper.languages), {"shn": 93.0}, "c", "l")
    # Cells of the published table, digit by digit.
    for cell in (
        r"{\cellcolor[HTML]{800610}} \color[HTML]{F1F1F1} -.026",
        r"{\cellcolor[HTML]{FCB296}} \color[HTML]{000000} .686",
        r"{\cellcolor[HTML]{FFF4EE}} \color[HTML]{000000} .974",
    ):
        assert cell in text
    assert r"\makecell{shn\\93\%}" in text
    assert r"\multirow[c]{10}{*}{16} & \multirow[c]{5}{*}{KNN} & 1 &" in text
    assert len(names) == 40
    assert (cosine(0.5), cosine(-0.026), cosine(1.0)) == (".500", "-.026", "1.000")


def test_the_command_imports_no_torch():
    import subprocess
    import sys

    code = "import sys, tokengraft.cli.evaluate as e; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_centring_takes_away_what_all_sentences_share() -> None:
    generator = np.random.default_rng(0)
    own = generator.normal(size=(40, 8))
    old = own + 50 * np.eye(8)[0]  # one large direction, as hidden states have it
    new = own + 0.1 * generator.normal(size=own.shape) + 50 * np.eye(8)[1]
    assert np.nanmean(ranks(old, new).mutual) > 10
    assert np.nanmean(ranks(centred(old), centred(new)).mutual) < 1.2
    gap = old.copy()
    gap[3] = np.nan
    assert np.isnan(centred(gap)).any(1).sum() == 1
