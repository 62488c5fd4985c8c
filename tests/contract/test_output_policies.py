"""One suite over every output policy: a new row is tested by being there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))
from test_graft_tiny import BUDGET, load, make, new_rows, plan, texts, torch

from tokengraft.core.errors import UsageError
from tokengraft.deriving.derive import Derived
from tokengraft.grafting.graft import Finishing, Output, graft, logits_processor
from tokengraft.grafting.manifest import read_manifest
from tokengraft.grafting.output_policies import DEFAULT, POLICIES, OutputPolicy, named

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
    assert policy.removes or barred <= NEW
    assert len(logits_processor(folder)) == policy.pools + policy.trains
    assert len(logits_processor(folder, greedy=False)) == policy.pools
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
        "output": Output(policy.name, bias=1.0), "options": Finishing(LINES, verified=False),
    }  # fmt: skip
    if policy.pools:
        graft(base, plan(), tmp_path / "graft", rows=rows, **given)
        assert logits_processor(tmp_path / "graft")[0].bias == 1.0
    else:
        with pytest.raises(UsageError, match="bias belongs to"):
            graft(base, plan(), tmp_path / "graft", rows=rows, **given)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no output policy 'share'.*Did you mean.*shared"):
        named("share")
