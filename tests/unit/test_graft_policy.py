"""Output policies: what plain `generate` emits, and what the pooling processor does."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.tiny_models import (
    BUDGET,
    CASES,
    edit,
    load,
    make,
    new_rows,
    parts,
    plan,
    texts,
    torch,
)
from helpers.tiny_models import grow as write
from tokengraft.core.errors import ModelError, TokengraftError, UsageError
from tokengraft.corpus import udhr
from tokengraft.deriving.derive import Derived
from tokengraft.grafting.graft import Derivation, Finishing, Output, graft, logits_processor
from tokengraft.grafting.output_policies import generation_config, named
from tokengraft.grafting.verify.invariants import verify
from tokengraft.grafting.write_folder import Learned, second_table
from tokengraft.model.checkpoint import read_json
from tokengraft.paper.policies import removable, removal
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning

OLD = 320
NEW = range(OLD, OLD + BUDGET)
LINES = [line for lines in texts().values() for line in lines]


def loud_rows() -> Any:
    """New rows that would win nearly every step of a tied model."""
    return new_rows() * 40


def generated(folder: Path, **options: Any) -> list[int]:
    inputs = torch.tensor([[5, 77, 130, 41]])
    mask = torch.ones_like(inputs)
    settings = {"max_new_tokens": 40, "do_sample": False, **options}
    ids: list[int] = load(folder).generate(inputs, attention_mask=mask, **settings)[0, 4:].tolist()
    return ids


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("policy") / "base", "llama-tied")


def grow(base: Path, out: Path, rows: Any, policy: str, **options: Any) -> Path:
    write(base, out, rows, policy=policy, **options)
    return out


def test_input_only_generates_as_the_base_does(tied: Path, tmp_path: Path) -> None:
    out = grow(tied, tmp_path / "out", loud_rows(), "input-only")
    shared = grow(tied, tmp_path / "shared", loud_rows(), "paper.shared")
    assert any(i in NEW for i in generated(shared)), "the rows are loud enough to show a leak"
    assert generated(out) == generated(tied)
    assert generated(out, num_beams=3) == generated(tied, num_beams=3)


def test_input_only_samples_from_the_bases_distribution(tied: Path, tmp_path: Path) -> None:
    out = grow(tied, tmp_path / "out", loud_rows(), "input-only")
    found = []
    for folder in (tied, out):
        torch.manual_seed(3)
        inputs = torch.tensor([[5, 77]])
        result = load(folder).generate(
            inputs, attention_mask=torch.ones_like(inputs), do_sample=True, max_new_tokens=1,
            return_dict_in_generate=True, output_scores=True, top_k=0,
        )  # fmt: skip
        found.append(torch.softmax(result.scores[0][0], -1))
    assert torch.allclose(found[0], found[1][:OLD], atol=1e-6)
    assert float(found[1][OLD:].sum()) == 0


def test_settings_of_the_base_survive(tied: Path, tmp_path: Path) -> None:
    """A base without a generation config keeps its settings in config.json."""
    base = make(tmp_path / "base", "llama-tied")
    (base / "generation_config.json").unlink()
    out = grow(base, tmp_path / "out", loud_rows(), "input-only")
    settings = json.loads((out / "generation_config.json").read_text())
    assert settings["eos_token_id"] == 0
    assert settings["suppress_tokens"] == list(NEW)
    assert generated(out) == generated(base)


def test_a_generation_config_made_from_the_model_is_not_thrown_away(tmp_path: Path) -> None:
    """`_from_model_config` lets transformers 4 rebuild it, and so lose the barred ids."""
    base = make(tmp_path / "base", "llama-tied")
    edit(base / "config.json", lambda value: {**value, "temperature": 0.7})
    edit(base / "generation_config.json", lambda value: {**value, "_from_model_config": True})
    out = grow(base, tmp_path / "out", loud_rows(), "input-only")
    assert not any(i in NEW for i in generated(out))


def test_barred_ids_join_those_of_the_base() -> None:
    new = generation_config({"suppress_tokens": [7], "eos_token_id": 0}, {}, [9, 8])
    assert new == {"suppress_tokens": [7, 8, 9], "renormalize_logits": True, "eos_token_id": 0}
    assert generation_config(None, {}, []) is None
    for wrong in ("all", [7, "8"], {"7": 8}, [True]):
        with pytest.raises(ModelError, match="no list of ids"):
            generation_config({"suppress_tokens": wrong}, {}, [9])


def test_an_untied_head_never_prefers_a_new_token_even_without_generate(tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-untied")
    out = grow(base, tmp_path / "out", loud_rows(), "input-only")
    with torch.no_grad():
        logits = load(out)(input_ids=torch.randint(0, OLD, (8, 50))).logits
    assert not (logits.argmax(-1) >= OLD).any()
    share = torch.softmax(logits, -1)[..., OLD:].sum(-1)
    assert float(share.max()) <= BUDGET / (OLD + BUDGET) + 1e-6


def test_a_biased_head_puts_new_tokens_out_of_reach(tmp_path: Path) -> None:
    base = make(tmp_path / "base", "phi-biased")
    out = grow(base, tmp_path / "out", loud_rows(), "input-only")
    with torch.no_grad():
        logits = load(out)(input_ids=torch.randint(0, OLD, (2, 30))).logits
    assert float(torch.softmax(logits, -1)[..., OLD:].max()) == 0


def test_shared_takes_the_mean_of_the_parts_or_the_rows_given(tmp_path: Path) -> None:
    base = make(tmp_path / "base", "llama-untied")
    head = load(base).lm_head.weight.detach().numpy()
    out = grow(base, tmp_path / "mean", new_rows(), "paper.shared")
    expected = np.stack([head[list(group)].mean(0) for group in parts()])
    assert np.allclose(load(out).lm_head.weight[OLD:].detach().numpy(), expected, atol=1e-6)
    out = grow(
        base, tmp_path / "given", new_rows(), "paper.shared", learned=Learned(new_rows(seed=5))
    )
    assert np.array_equal(load(out).lm_head.weight[OLD:].detach().numpy(), new_rows(seed=5))
    assert "suppress_tokens" not in json.loads((out / "generation_config.json").read_text())


def test_only_unused_pieces_of_several_bytes_inside_characters_are_removable() -> None:
    pieces = [b"\xe1", b"\xe1\x80", b"\x80\x81", b"ab", "é".encode(), b" \xe1"]
    groups = [(0, 1), (2, 3, 4), (5,)]
    assert removable(groups, pieces, emitted=()) == (1, 2, 5)
    assert removable(groups, pieces, emitted=(2,)) == (1, 5)
    assert removal(groups, pieces, 2).startswith("remove bars 2 of the ")
    bytes_only = removal([(3, 4), (4,)], [b"", b"", b"", b"\xe1", b"\x80"], 0)
    assert bytes_only.startswith("remove bars nothing")
    assert "of the 2 old pieces" in bytes_only and "2 are single bytes" in bytes_only


def test_remove_says_in_the_folder_what_it_bars(tied: Path, tmp_path: Path) -> None:
    done = graft(
        tied, plan(), tmp_path / "out", Derived(new_rows(), "given"),
        output=Output(policy="paper.remove"), options=Finishing(check=LINES, verified=False),
    )  # fmt: skip
    barred = len(done.written.barred)
    wanted = f"remove bars {barred} of" if barred else "remove bars nothing"
    assert any(note.startswith(wanted) for note in done.rows.notes)
    assert wanted in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_removed_pieces_are_barred_and_new_tokens_are_not(tied: Path, tmp_path: Path) -> None:
    out = grow(tied, tmp_path / "out", loud_rows(), "paper.remove", removed=(300, 301))
    settings = json.loads((out / "generation_config.json").read_text())
    assert settings["suppress_tokens"] == [300, 301]


def test_unknown_policies_and_stray_biases(tied: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean input-only"):
        named("inputonly")
    with pytest.raises(UsageError, match="has no option 'bias'"):
        graft(tied, plan(), tmp_path / "out", rows=new_rows(), output=Output(more={"bias": 1.0}))


def pooled(
    probabilities: list[float], new: list[int], first: list[int], bias: float
) -> list[float]:
    from tokengraft.paper.winner_takes_all import WinnerTakesAll

    scores = torch.log(torch.tensor([probabilities]))
    result = WinnerTakesAll(new, first, bias)(torch.zeros(1, 1, dtype=torch.long), scores)
    return [round(value, 6) for value in result.exp()[0].tolist()]


def test_the_larger_of_a_part_and_its_tokens_takes_all() -> None:
    # ids: 0 and 1 old parts, 2 other; 3 and 4 new from part 0, 5 new from part 1
    new, first = [3, 4, 5], [0, 0, 1]
    part_wins = pooled([0.3, 0.1, 0.1, 0.2, 0.1, 0.2], new, first, 0.0)
    assert part_wins == [0.6, 0.0, 0.1, 0.0, 0.0, 0.3]
    token_wins = pooled([0.1, 0.2, 0.1, 0.3, 0.2, 0.1], new, first, 0.0)
    assert token_wins == [0.0, 0.3, 0.1, 0.4, 0.2, 0.0]
    biased = pooled([0.3, 0.1, 0.1, 0.2, 0.1, 0.2], new, first, math.log(2))
    assert biased == [0.0, 0.0, 0.1, 0.5, 0.1, 0.3]
    equal = pooled([0.1, 0.2, 0.1, 0.2, 0.2, 0.2], new, first, 0.0)
    assert equal == [0.0, 0.4, 0.1, 0.3, 0.2, 0.0]


def test_pooling_keeps_the_mass_and_survives_minus_infinity() -> None:
    from tokengraft.paper.winner_takes_all import WinnerTakesAll

    torch.manual_seed(0)
    scores = torch.randn(4, 60)
    scores[1, 40:] = -torch.inf
    scores[2, :30] = -torch.inf
    processor = WinnerTakesAll(range(40, 60), [i % 7 for i in range(20)], 0.5)
    result = processor(torch.zeros(4, 1, dtype=torch.long), scores)
    assert torch.allclose(result.exp().sum(-1), torch.ones(4), atol=1e-5)
    assert not torch.isnan(result).any()


def test_one_line_switches_winner_takes_all_on(tied: Path, tmp_path: Path) -> None:
    out = graft(
        tied,
        plan(),
        tmp_path / "out",
        rows=Derived(loud_rows(), "loud"),
        options=Finishing(verified=False),
        output=Output(policy="paper.winner-takes-all", more={"bias": -1e9}),
    ).folder
    assert any(i in NEW for i in generated(out))
    never = generated(out, logits_processor=logits_processor(out))
    assert not any(i in NEW for i in never)
    pooling = logits_processor(out)
    pooling[0].bias = 0.0
    always = generated(out, logits_processor=pooling)
    assert any(i in NEW for i in always)


def test_a_graft_of_a_graft_keeps_what_both_may_write(tied: Path, tmp_path: Path) -> None:
    taught = Derived(new_rows(), "given", head=new_rows(seed=2))
    quick = Finishing(check=LINES, verified=False)
    graft(tied, plan(), tmp_path / "one", taught, output=Output(policy="write"), options=quick)
    old = read_json(tmp_path / "one" / "tokenizer.json")
    second = plan_tokens(old, {"shn_Mymr": udhr.load(["shn"]).lines("shn_Mymr")}, Planning(24))
    more = new_rows(seed=3)[: len(second.tokens)]
    for policy in ("input-only", "write"):
        made = graft(
            tmp_path / "one", second, tmp_path / policy, replace(taught, rows=more, head=more),
            output=Output(policy=policy), options=Finishing(check=LINES),
        )  # fmt: skip
        assert any("logits_processor" in note for note in made.rows.notes)
        (greedy,) = logits_processor(tmp_path / policy)
        new = range(OLD, OLD + BUDGET + (len(second.tokens) if policy == "write" else 0))
        assert sorted(greedy._new.tolist()) == list(new)
        assert max(greedy._first.tolist()) < OLD
    edit(tmp_path / "write" / "tokengraft.json", lambda value: value.update(earlier=[]))
    checks = verify(tmp_path / "write", tmp_path / "one", LINES).checks
    assert [check.name for check in checks if not check.passed] == ["output policy"]


def test_a_plan_of_the_same_size_may_not_take_the_tokens_of_an_earlier_graft(
    tied: Path, tmp_path: Path
) -> None:
    graft(tied, plan(), tmp_path / "one", new_rows(), options=Finishing(verified=False))
    old = read_json(tmp_path / "one" / "tokenizer.json")
    second = plan_tokens(old, {"shn_Mymr": udhr.load(["shn"]).lines("shn_Mymr")}, Planning(24))
    second = replace(second, places=tuple(range(OLD, OLD + len(second.tokens))))
    with pytest.raises(UsageError, match="plan without --same-size"):
        graft(tmp_path / "one", second, tmp_path / "two", new_rows()[: len(second.tokens)])


def test_a_processor_needs_a_grafted_model(tied: Path) -> None:
    with pytest.raises(TokengraftError, match="not a grafted model"):
        logits_processor(tied)


@pytest.mark.parametrize("case", CASES)
def test_write_gives_every_architecture_output_rows_of_its_own(case: str, tmp_path: Path) -> None:
    base = make(tmp_path / "base", case, rows=OLD + 5)  # five spare rows
    rows, head = new_rows(), new_rows(seed=2)
    made = Derived(rows, "given", head=head)
    found = graft(
        base,
        plan(),
        tmp_path / "out",
        rows=made,
        output=Output(policy="write"),
        options=Finishing(check=LINES, verified=False),
    )
    assert not found.written.tied
    assert verify(tmp_path / "out", base, LINES).passed
    old, new = load(base), load(tmp_path / "out")
    inputs, outputs = (m.get_input_embeddings().weight for m in (old, new))
    assert torch.equal(outputs[:OLD], inputs[:OLD])
    heads = old.get_output_embeddings(), new.get_output_embeddings()
    assert torch.equal(heads[1].weight[:OLD], heads[0].weight[:OLD])
    assert np.allclose(outputs[OLD:].detach().numpy(), rows, atol=1e-6)
    assert np.allclose(heads[1].weight[OLD:].detach().numpy(), head, atol=1e-6)
    assert heads[1].weight.data_ptr() != outputs.data_ptr()
    if heads[0].bias is not None:
        expected = [heads[0].bias[list(one)].mean().item() for one in parts()]
        assert np.allclose(heads[1].bias[OLD:].detach().numpy(), expected, atol=1e-6)
    text = torch.tensor([[5, 77, 130, 41]])
    with torch.no_grad():
        assert torch.allclose(new(text).logits[..., :OLD], old(text).logits[..., :OLD], atol=1e-5)


def test_write_may_keep_one_table_for_both_ends(tied: Path, tmp_path: Path) -> None:
    found = graft(
        tied,
        plan(),
        tmp_path / "out",
        rows=new_rows(),
        output=Output(policy="write"),
        options=Finishing(check=LINES),
    )
    assert found.written.tied
    model = load(tmp_path / "out")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_a_head_that_lost_an_old_row_is_seen(tied: Path, tmp_path: Path) -> None:
    made = Derived(new_rows(), "given", head=new_rows(seed=2))
    graft(
        tied,
        plan(),
        tmp_path / "out",
        rows=made,
        output=Output(policy="write"),
        options=Finishing(check=LINES),
    )
    assert second_table(tied) == OLD * 16 * 4
    from safetensors.torch import load_file, save_file

    file = tmp_path / "out" / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"][7] += 1
    save_file(tensors, file, metadata={"format": "pt"})
    report = verify(tmp_path / "out", tied, LINES)
    failed = {check.name: check.detail for check in report.checks if not check.passed}
    assert "old row 7 of lm_head.weight" in failed["old weights"]


@pytest.mark.parametrize(
    ("row", "value", "check", "said"),
    [
        (OLD, 1e6, "no dead rows", "1 new rows of lm_head.weight are over 10 times as long"),
        (OLD + 1, float("nan"), "no dead rows", f"no usable row, first id {OLD + 1}"),
        (OLD + 2, 0.0, "no dead rows", f"no usable row, first id {OLD + 2}"),
        (OLD + BUDGET, 1.0, "preserved", f"padding row {OLD + BUDGET} of lm_head.weight differs"),
    ],
)
def test_a_head_that_only_the_graft_has_is_checked_beyond_its_old_rows(
    row: int, value: float, check: str, said: str, tmp_path: Path
) -> None:
    base = make(tmp_path / "base", "llama-tied", rows=OLD + BUDGET + 8)
    made = Derived(new_rows(), "given", head=new_rows(seed=2))
    finishing = Finishing(check=LINES, verified=False)
    graft(base, plan(), tmp_path / "out", made, output=Output("write"), options=finishing)
    assert verify(tmp_path / "out", base, LINES).passed
    from safetensors.torch import load_file, save_file

    file = tmp_path / "out" / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"][row] = value
    save_file(tensors, file, metadata={"format": "pt"})
    report = verify(tmp_path / "out", base, LINES)
    failed = {check.name: check.detail for check in report.checks if not check.passed}
    assert said in failed[check]


@pytest.mark.parametrize("policy", ["input-only", "paper.shared"])
def test_a_bias_that_would_write_a_new_token_everywhere_is_seen(
    policy: str, tmp_path: Path
) -> None:
    base = make(tmp_path / "base", "phi-biased")
    finishing = Finishing(check=LINES, verified=False)
    graft(base, plan(), tmp_path / "out", new_rows(), output=Output(policy), options=finishing)
    assert verify(tmp_path / "out", base, LINES).passed
    from safetensors.torch import load_file, save_file

    file = tmp_path / "out" / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.bias"][OLD + 3] = 1e4
    save_file(tensors, file, metadata={"format": "pt"})
    report = verify(tmp_path / "out", base, LINES)
    failed = {check.name: check.detail for check in report.checks if not check.passed}
    assert "lm_head.bias of 1 new ids is above all old ones" in failed["no dead rows"]


def test_writing_needs_text(tied: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="learned from text"):
        graft(tied, plan(), tmp_path / "out", output=Output(policy="write"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", CASES)
def test_tiny_models_learn_to_write(case: str, tmp_path: Path) -> None:
    base = make(tmp_path / "base", case)
    if case == "gemma3":
        edit(base / "config.json", lambda config: config.update(final_logit_softcapping=5.0))
    options = {"steps": 4, "passages": 4, "strays": 32, "by_base": 0.5}
    done = graft(
        base, plan(), tmp_path / "out", Derivation(text=LINES, options=options),
        output=Output(policy="write"),
        options=Finishing(check=LINES, verified=case == "llama-tied"),
    )  # fmt: skip
    assert done.rows.head is not None and np.isfinite(done.rows.head).all()
    assert not np.array_equal(done.rows.head, done.rows.rows)
    assert not done.written.tied
    text = torch.tensor([[5, 77, 130, 41]])
    with torch.no_grad():
        old, new = (load(folder)(text).logits for folder in (base, tmp_path / "out"))
    assert torch.allclose(new[..., :OLD], old[..., :OLD], atol=1e-5)
