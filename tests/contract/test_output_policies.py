"""One suite over every output policy: a new row is tested by being there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tokengraft.paper  # noqa: F401 - adds its policies
from helpers.tiny_models import BUDGET, load, make, new_rows, plan, texts, torch
from tokengraft.core.errors import UsageError
from tokengraft.deriving.derive import Derived
from tokengraft.grafting.graft import Finishing, Output, graft, logits_processor
from tokengraft.grafting.manifest import read_manifest
from tokengraft.grafting.output_policies import (
    DEFAULT,
    POLICIES,
    OutputPolicy,
    is_recorded,
    named,
    recorded,
)
from tokengraft.paper.winner_takes_all import (
    BIASES,
    WinnerTakesAll,
    _prefixes,
    _right,
    _texts_after,
)

OLD = 320
NEW = set(range(OLD, OLD + BUDGET))
LINES = [line for lines in texts().values() for line in lines]
each_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


@pytest.fixture(scope="module", params=["llama-tied", "llama-untied"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("policies") / "base", request.param)


@each_policy
def test_a_row_says_what_it_is(policy: OutputPolicy) -> None:
    assert POLICIES[policy.name] is named(policy.name) is policy
    assert policy.help and not policy.help.endswith(".") and len(policy.help) < 100
    assert policy.card.startswith(f"`{policy.name}`: ") and policy.card.endswith(".")
    assert DEFAULT in POLICIES


@each_policy
def test_the_command_line_explains_it(policy: OutputPolicy) -> None:
    import typing

    from tokengraft.cli.graft import graft as verb

    if policy.name.startswith("paper."):
        return  # `tokengraft paper` lists it
    option = typing.get_type_hints(verb, include_extras=True)["policy"].__metadata__[0]
    assert f"{policy.name}: {policy.help}." in option.help


@each_policy
def test_a_graft_does_what_its_row_says(policy: OutputPolicy, base: Path, tmp_path: Path) -> None:
    # Long rows, which win many steps where they may be written.
    rows = Derived(new_rows() * 4, "loud", head=new_rows() * 4)
    folder = tmp_path / "graft"
    done = graft(
        base,
        plan(),
        folder,
        rows=rows,
        output=Output(policy=policy.name),
        options=Finishing(check=LINES),
    )
    assert done.report is not None and done.report.passed
    assert policy.card in (folder / "README.md").read_text("utf-8")
    manifest = read_manifest(folder)
    assert manifest is not None and manifest["output"]["policy"] == policy.name
    barred = set(done.written.barred)
    assert barred >= NEW if not policy.writes else not NEW & barred
    pools = policy.pools is not None
    assert policy.bars or barred <= NEW
    assert len(logits_processor(folder)) == pools + policy.trains
    assert len(logits_processor(folder, greedy=False)) == pools
    ids = torch.tensor([[5, 77, 130, 41]])
    out = load(folder).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False,
        logits_processor=logits_processor(folder),
    )  # fmt: skip
    written = set(out[0, 4:].tolist())
    assert not written & barred
    assert policy.writes or not written & NEW


@each_policy
def test_a_bias_is_for_those_that_pool(policy: OutputPolicy, base: Path, tmp_path: Path) -> None:
    rows = Derived(new_rows(), "random")
    given = {
        "output": Output(policy.name, {"bias": 1.0}), "options": Finishing(LINES, verified=False),
    }  # fmt: skip
    if policy.pools:
        graft(base, plan(), tmp_path / "graft", rows=rows, **given)
        assert logits_processor(tmp_path / "graft")[0].bias == 1.0
    else:
        with pytest.raises(UsageError, match="has no option 'bias': it takes none"):
            graft(base, plan(), tmp_path / "graft", rows=rows, **given)


@each_policy
def test_a_bias_is_chosen_on_text(policy: OutputPolicy, base: Path, tmp_path: Path) -> None:
    given = {"rows": Derived(new_rows(), "random"), "output": Output(policy.name, {"bias": "auto"})}
    with pytest.raises(UsageError, match="is chosen on text" if policy.pools else "takes none"):
        graft(base, plan(), tmp_path / "graft", **given)
    if policy.pools:
        made = graft(base, plan(), tmp_path / "graft", **given, options=Finishing(LINES))
        bias = logits_processor(tmp_path / "graft")[0].bias
        assert bias in BIASES and f"bias {bias:g} chosen on" in made.rows.notes[-1]
        assert made.rows.notes[-1] in (tmp_path / "graft" / "README.md").read_text("utf-8")


def test_a_bias_is_right_where_text_says_so() -> None:
    """Two new tokens, one always right: by hand, its first part must lose under a high bias."""
    pieces = (b"a", b"b", b"ab", b"aa")
    after = _texts_after(np.array([1, 2, 0]), pieces)
    assert after == [b"aba", b"a"]
    right = [_right(text, _prefixes(pieces), len(pieces)).tolist() for text in after]
    assert right == [[1, 0, 2, 1], [1, 0, 1, 1]]
    logits = torch.log(torch.tensor([[0.5, 0.1, 0.3, 0.1]]))
    kept, won = (WinnerTakesAll([2, 3], [0, 0], b)(None, logits).exp()[0] for b in (0.0, 1.0))
    assert kept.tolist() == pytest.approx([0.9, 0.1, 0, 0])
    assert won.tolist() == pytest.approx([0, 0.1, 0.8, 0.1])


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no output policy 'paper.share'.*Did you mean.*shared"):
        named("paper.share")
    with pytest.raises(UsageError, match=r"output policy 'shared' is called paper.shared now"):
        named("shared")
    assert recorded("shared") is named("paper.shared") and is_recorded("remove")
    assert not is_recorded("share") and not is_recorded(None)
