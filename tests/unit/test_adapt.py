"""A body that learns: it moves what it says, keeps what it promises, and resumes exactly."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from safetensors.torch import load_file, save_file  # noqa: E402
from scipy.linalg import eigh  # noqa: E402

import tokengraft  # noqa: E402
from helpers.tiny_models import make, parts, plan, texts  # noqa: E402
from tokengraft.core.errors import CorpusError, ModelError, UsageError  # noqa: E402
from tokengraft.corpus.parallel import ParallelCorpus  # noqa: E402
from tokengraft.deriving.derive import derive_rows  # noqa: E402
from tokengraft.deriving.distil import distiller as distil  # noqa: E402
from tokengraft.deriving.distil.distiller import Distiller  # noqa: E402
from tokengraft.deriving.distil.own_text import go_on  # noqa: E402
from tokengraft.deriving.distil.passages import read_lots  # noqa: E402
from tokengraft.deriving.distil.recipe import Adapting, Recipe, Writing  # noqa: E402
from tokengraft.deriving.distil.replay import Replay  # noqa: E402
from tokengraft.deriving.distil.student import (  # noqa: E402
    changes,
    directions,
    halved,
    look_apart,
    read_merged,
    twin,
)
from tokengraft.deriving.task import Deriving  # noqa: E402
from tokengraft.evaluating.evaluate import Measuring  # noqa: E402
from tokengraft.evaluating.labels import read_labels  # noqa: E402
from tokengraft.evaluating.probe import pooled_states, probe_scores  # noqa: E402
from tokengraft.evaluating.protected import protected_scores  # noqa: E402
from tokengraft.evaluating.question import asked_scores  # noqa: E402
from tokengraft.evaluating.score import Bootstrap  # noqa: E402
from tokengraft.grafting.graft import Derivation, Finishing, Output, graft  # noqa: E402
from tokengraft.grafting.verify.invariants import Verification  # noqa: E402
from tokengraft.grafting.verify.loading import PlainModels  # noqa: E402
from tokengraft.grafting.verify.protected import Moved, measure  # noqa: E402
from tokengraft.model.divergence import Head  # noqa: E402
from tokengraft.model.frozen import FrozenModel, NewRows, Reading  # noqa: E402
from tokengraft.model.head_losses import Added, kept  # noqa: E402
from tokengraft.model.reading import Reader  # noqa: E402
from tokengraft.planning.plan import with_plan  # noqa: E402
from tokengraft.tokenizer.align import Aligner  # noqa: E402
from tokengraft.tokenizer.huggingface import HuggingFace  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
RECIPE = {"steps": 12, "passages": 8, "check_every": 4, "warmup": 2, "patience": 0}
# Random models find all tokens about equally likely: another is likeliest after any step.
ADAPTING = Adapting(rank=4, rate=0.02, replayed=8, protected=60, keep_kl=0.05, keep_top1=0.1)


@pytest.fixture(scope="module", params=["llama-tied", "gpt2"])
def base(request, tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("base") / request.param, request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("llama"), "llama-tied")


def text() -> list[str]:
    return texts()["amh_Ethi"] + texts()["tam_Taml"]


def grafted(
    base: Path, out: Path, *, policy="input-only", verified=True, adapter_only=False, **how
):
    how = {"train": "lora", "text": text(), "options": {**RECIPE, "adapting": ADAPTING}, **how}
    finishing = Finishing(verified=verified, adapter_only=adapter_only)
    output = Output(policy)
    return graft(base, plan(), out, Derivation(**how), output=output, options=finishing)


@pytest.fixture(scope="module")
def verified(base, tmp_path_factory):
    """A graft of which everything was checked; the other tests leave out what is proved here."""
    with pytest.MonkeyPatch.context() as patch:  # `graft` measures for the card: once is enough
        patch.delattr("tokengraft.grafting.verify.protected.measure")
        return grafted(base, tmp_path_factory.mktemp("graft") / "whole")


def setting(folder: Path, devices: str = "cpu"):
    model = FrozenModel.load(folder, Reading(devices))
    new = HuggingFace.from_parsed("new", extended(folder))
    first = len(model.tokenizer.vocabulary)
    aligner = Aligner(model.tokenizer, new)
    lots = read_lots(text(), aligner, first, tokens=200, held_out=0.2)
    quiet = [one.old[:200] for one in aligner(texts()["eng_Latn"])]
    return Reader(model, first, model.prefix), lots, quiet


def extended(folder: Path) -> dict:
    return with_plan(json.loads((folder / "tokenizer.json").read_text("utf-8")), plan())


def test_a_student_that_learned_nothing_is_the_base(base):
    reader, lots, quiet = setting(base)
    student = twin(reader.model, Adapting(rank=4))
    rows = torch.zeros(len(plan().tokens), reader.model.dimensions)
    news = [one.new for one in lots.train]
    look_apart(student, news, NewRows(reader.first_new, rows), quiet)
    passages = lots.train[:4]
    mine = Reader(student, reader.first_new, reader.prefix)
    assert torch.equal(mine.new(passages, rows), reader.new(passages, rows))
    for name, change in changes(student).items():
        held = reader.model.model.state_dict()[name].numpy()
        assert np.array_equal(change(held), held)
    assert {p.data_ptr() for p in student.learning.values()}.isdisjoint(
        p.data_ptr() for p in reader.model.model.parameters()
    )
    # The twin has no weights of its own but the adapters.
    own = sum(p.numel() for p in student.model.parameters())
    there = sum(p.numel() for p in reader.model.model.parameters())
    assert own == there + sum(p.numel() for p in student.learning.values())


def test_a_student_reads_merged_and_in_half_as_its_adapters_do(base):
    reader, lots, _ = setting(base)
    student = twin(reader.model, Adapting(rank=4))
    torch.manual_seed(0)
    for held in student.learning.values():
        held.data.add_(0.1 * torch.randn_like(held))
    rows = torch.zeros(len(plan().tokens), reader.model.dimensions)

    def reading(model):
        states = Reader(model, reader.first_new, reader.prefix).new(lots.train[:4], rows).float()
        grads = torch.autograd.grad(states.square().sum(), list(student.learning.values()))
        return states.detach(), torch.cat([one.flatten() for one in grads])

    apart = reading(student)
    half = halved(student)
    read_merged(student.model)
    for one, other in zip(apart, reading(student), strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-4)
    assert all(half.learning[name] is held for name, held in student.learning.items())
    for one, other in zip(apart, reading(half), strict=True):
        assert not torch.equal(one, other)
        assert torch.cosine_similarity(one.flatten(), other.flatten(), 0) > 0.99


@pytest.mark.parametrize("policy", ["input-only", "write"])
def test_lora_moves_linear_layers_and_new_rows_only(base, verified, policy, tmp_path):
    made = verified
    if policy == "write":
        made = grafted(base, tmp_path / "graft", policy=policy, verified=False)
    old, new = (load_file(d / "model.safetensors") for d in (base, made.folder))
    moved = {name for name in old if not torch.equal(old[name], new[name][: len(old[name])])}
    assert moved == set(made.written.trained)
    # The lower half of two blocks is the first.
    assert moved and all(".layers.0." in name or ".h.0." in name for name in moved)
    assert all(old[name].ndim == 2 for name in moved)
    card = (made.folder / "README.md").read_text("utf-8")
    assert "Its body was trained too: adapters (LoRA)" in card and "is unchanged" not in card
    if made.report is None:
        return
    checks = {check.name: check for check in made.report.checks}
    assert f"{len(moved)} of {len(old)} tensors were trained" in checks["old weights"].detail
    assert "English: KL" in checks["protected text"].detail


def test_verify_sees_what_the_manifest_does_not_own_up_to(llama, tmp_path):
    folder = tmp_path / "graft"
    strict = {**RECIPE, "adapting": replace(ADAPTING, keep_kl=1e-3)}
    grafted(llama, folder, verified=False, options=strict)
    tensors = load_file(folder / "model.safetensors")
    for name, row in (("model.norm.weight", 0), ("model.embed_tokens.weight", 3)):
        broken = {key: value.clone() for key, value in tensors.items()}
        broken[name][row] += 1
        save_file(broken, folder / "model.safetensors", metadata={"format": "pt"})
        proof = Verification(folder, llama, text())
        passed, said = proof._weights()
        assert not passed and name in said
    save_file(
        {**tensors, "model.layers.0.mlp.down_proj.weight": torch.randn(16, 32)},
        folder / "model.safetensors", metadata={"format": "pt"},
    )  # fmt: skip
    proof = Verification(folder, llama, text())
    assert proof._weights()[0] and not proof._protected()[0]


PROMISES = {
    "as promised": (0.003, 0.97, 0.003, 0.97, True),
    "three times": (0.003, 0.97, 0.009, 0.911, True),
    "too far": (0.003, 0.97, 0.0091, 0.97, False),
    "too many other tokens": (0.003, 0.97, 0.003, 0.909, False),
    "not a number": (0.003, 0.97, math.nan, 0.97, False),
    "a loose promise": (0.3, 0.7, 0.8, 0.2, True),
    "one that excuses any body": (0.9, 0.5, 2.0, 0.5, False),
    "of nothing": (0.0, 1.0, 0.0, 1.0, False),
}


@pytest.mark.parametrize("case", PROMISES)
def test_protected_text_is_held_to_the_manifests_promise(case, llama):
    kl, top1, moved_kl, moved_top1, passes = PROMISES[case]
    promised = {"tensors": ["model.norm.weight"], "promised": {"kl": kl, "top1": top1}}
    manifest = {"trained": promised, "output": {"policy": "input-only"}}
    moved = {"English": Moved(0.0, 1.0, 0.0), "code": Moved(moved_kl, moved_top1, 0.0)}
    proof = Verification(llama, llama, text(), moved=moved)
    proof.manifest, proof.new = manifest, range(0)
    passed, said = proof._protected()
    assert passed is passes
    assert ("no promise" in said) == (kl in (0.0, 0.9))


def test_what_new_rows_say_is_not_counted_where_they_are_barred(llama, tmp_path):
    """A tied table writes with the new rows too; `input-only` bars them, and nothing has moved."""
    graft(llama, plan(), tmp_path / "graft", options=Finishing(verified=False))
    for moved in measure(PlainModels(), tmp_path / "graft", llama).values():
        assert moved.kl == pytest.approx(0, abs=1e-5)
        assert moved.top1 == 1 and moved.bits == pytest.approx(0, abs=1e-5)


def test_the_base_goes_on_from_lines_and_what_it_wrote_is_trained_on_only(llama):
    model = FrozenModel.load(llama)
    lines = texts()["amh_Ethi"]
    written = go_on(model, lines, 40, 60, seed=1)
    assert written == go_on(model, lines, 40, 60, seed=1) != go_on(model, lines, 40, 60, seed=2)
    begun = {line[:4] for line in lines}  # some have few tokens, and half of them are given
    assert sum(line[:4] in begun for line in written) > len(written) / 2
    assert not any("\ufffd" in line or "\n" in line for line in written)
    plain, more = (
        derive_rows(
            llama, parts(), "distil", text=text(), tokenizer=extended(llama),
            options=Deriving(recipe=Recipe(**RECIPE, own=own)),
        )
        for own in (0, 40)
    )  # fmt: skip
    assert more.params["training_passages"] > plain.params["training_passages"]
    assert more.start == plain.start  # judged by the same text


def test_an_adapter_on_its_base_is_the_merged_model(base, verified, tmp_path, monkeypatch):
    import transformers

    made = grafted(base, tmp_path / "adapter", adapter_only=True, verified=False)
    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= names
    assert "model.safetensors" not in names and "merged" not in names
    assert made.report.checks[-1].name == "adapter"
    with pytest.raises(ModelError, match="its README says how peft loads"):
        tokengraft.verify(tmp_path / "adapter", base)
    # The card's own code, run where it lies: loaded by peft, then made whole for other programs.
    (tmp_path / base.name).symlink_to(base)
    card = (tmp_path / "adapter" / "README.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    known: dict = {}
    for part in card.split("```python\n")[1:]:
        exec(part.partition("```")[0], known)
    merged, loaded = (
        transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        for folder in (tmp_path / "whole", verified.folder)
    )
    barred = [json.loads((d / "generation_config.json").read_text())["suppress_tokens"]
              for d in (tmp_path / "whole", verified.folder)]  # fmt: skip
    assert barred[0] == barred[1]
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "whole")
    ids = tokenizer(text()[0] + texts()["eng_Latn"][0], return_tensors="pt").input_ids[:, :200]
    assert (ids >= 320).any()
    with torch.no_grad():
        assert torch.allclose(merged(ids).logits, loaded(ids).logits, atol=1e-4)


def test_an_interrupted_training_goes_on_to_the_same_model(llama, tmp_path):
    reader, lots, quiet = setting(llama)
    start = np.zeros((len(plan().tokens), reader.model.dimensions), np.float32)
    recipe = Recipe(**RECIPE)

    class Stop(Exception):
        pass

    def stop(check) -> None:
        if check.step == 8:
            raise Stop

    def run(work, progress=None):
        distiller = Distiller(
            reader, lots, start, recipe, parts(), work, None, Replay(reader, quiet, ADAPTING)
        )
        return distiller.run(progress=progress), distiller.replay.weight

    alone, weight = run(None)
    with pytest.raises(Stop):
        run(tmp_path, stop)
    again, weight_again = run(tmp_path)
    assert weight == weight_again and len(alone.weights) == len(again.weights) > 0
    assert np.array_equal(alone.rows, again.rows)
    assert all(torch.equal(alone.weights[name], again.weights[name]) for name in alone.weights)
    assert alone.score.kept is not None and alone.score.kept > 0
    assert alone.score.loss < alone.start.loss


def test_several_devices_learn_what_one_does(llama, monkeypatch):
    monkeypatch.setattr(distil, "quick_in_half", lambda _: False)  # a team is never halved
    outcomes = []
    for devices in ("cpu", "cpu,cpu,cpu"):
        reader, lots, quiet = setting(llama, devices)
        start = np.zeros((len(plan().tokens), reader.model.dimensions), np.float32)
        replay = Replay(reader, quiet, replace(ADAPTING, rate=1e-3))
        recipe = Recipe(**RECIPE | {"steps": 4})
        outcomes.append(Distiller(reader, lots, start, recipe, parts(), replay=replay).run())
    one, three = outcomes
    assert np.allclose(one.rows, three.rows, atol=1e-4)
    assert all(torch.allclose(one.weights[n], three.weights[n], atol=1e-4) for n in one.weights)


def test_writing_is_learned_beside_the_body(llama):
    options = Deriving(recipe=Recipe(**RECIPE), writing=Writing(), adapting=ADAPTING)
    made = derive_rows(
        llama, parts(), "distil", text=text(), tokenizer=extended(llama), options=options
    )
    assert made.head is not None and made.student is not None
    assert made.held_out.writing < made.start.writing
    assert any("protected text: KL" in note for note in made.notes)


@pytest.mark.parametrize("writes", [False, True])
def test_kept_is_kl_over_all_that_can_be_written(writes):
    torch.manual_seed(0)
    head = Head(torch.randn(30, 6), torch.randn(30), cap=4.0)
    rows = torch.randn(5, 6, requires_grad=True)
    new, old = torch.randn(9, 6, requires_grad=True), torch.randn(9, 6)
    added = Added(rows, torch.arange(5), torch.randn(5)) if writes else None
    losses, same, slope, pull = kept(new.detach(), old, head, added)

    grown = added.grown(head) if added else head
    logits = new @ grown.weight.T + grown.bias
    q = (4 * torch.tanh(logits / 4)).log_softmax(-1)
    p = head.log_probabilities(old)
    slow = (p.exp() * (p - q[:, :30])).sum(-1)
    slow.sum().backward()
    assert torch.allclose(losses, slow, atol=1e-5)
    assert torch.equal(same, p.argmax(-1) == q.argmax(-1))
    assert torch.allclose(slope, new.grad, atol=1e-5)
    assert pull is None if not writes else torch.allclose(pull, rows.grad, atol=1e-5)


def test_directions_are_where_planned_text_is_and_protected_is_not():
    generator = np.random.default_rng(0)
    mixing = generator.normal(size=(2, 12, 12))
    planned, protected = (generator.normal(size=(400, 12)) @ m for m in mixing)
    found = directions(torch.tensor(planned).float(), torch.tensor(protected).float(), 3)
    here, there = (x.T @ x / len(x) for x in (planned, protected))
    there += 0.03 * np.trace(there) / 12 * np.eye(12)
    _, vectors = eigh(here, there)
    best = vectors[:, ::-1][:, :3].T
    best *= np.sqrt(np.mean(planned**2)) / np.sqrt(np.diag(best @ here @ best.T))[:, None]
    assert np.allclose(np.abs(found.numpy()), np.abs(best), atol=1e-3)


def test_the_weight_of_protected_text_follows_the_promise(llama):
    reader, _, quiet = setting(llama)
    replay = Replay(reader, quiet, ADAPTING)
    before, done = replay.weight, 0.0
    for seen, higher in ((3.0, True), (0.1, False)):
        for _ in range(60):
            replay.strain, done = seen, done + 1 / 600
            replay.control(0.0, done)
        assert (replay.weight > before) == higher
        before = replay.weight


@pytest.mark.parametrize("steps", [300, 3000])
def test_the_weight_of_protected_text_comes_to_rest(llama, steps):
    """Strain follows the weight over a sixth of a run: set by its sum alone it would swing."""
    reader, _, quiet = setting(llama)
    replay = Replay(reader, quiet, ADAPTING)
    weights = []
    for step in range(steps):
        replay.strain += 6 / steps * (60 / replay.weight - replay.strain)
        replay.control(0.0, step / steps)
        weights.append(replay.weight)
    assert weights[-1] == pytest.approx(100, rel=0.03)  # at which six tenths are used up
    assert min(weights[steps // 6 :]) > 50 and max(weights[steps // 6 :]) < 200


def test_the_weight_is_steered_by_text_that_is_neither_replayed_nor_judged(llama):
    reader, _, quiet = setting(llama)
    replay = Replay(reader, quiet, replace(ADAPTING, keep_kl=1e-4))
    three = replay.passages, replay.watched, replay.judged
    lots = [[tuple(one.old) for one in lot] for lot in three]
    assert all(lots) and sorted(one for lot in lots for one in lot) == sorted(map(tuple, quiet))
    student = twin(reader.model, replay.adapting)
    torch.manual_seed(0)
    for held in student.learning.values():
        held.data.add_(0.1 * torch.randn_like(held))
    mine = Reader(student, reader.first_new, reader.prefix)
    replay.watch(mine, None, (0, 1))  # not yet
    assert replay.strain == 0
    replay.watch(mine, None, (0, 4))
    few = Replay(reader, quiet[:4], replay.adapting)
    few.watch(mine, None, (0, 4))
    assert few.strain > 0  # else the weight of a handful of passages would only fall
    apart = []
    for ids in lots[1]:
        given = torch.tensor([[*reader.prefix, *ids]])
        old, new = (
            one(input_ids=given).logits[0, len(reader.prefix) :, : reader.first_new].log_softmax(-1)
            for one in (reader.model.model, student.model)
        )
        apart.append((old.exp() * (old - new)).sum(-1).detach())
    assert replay.strain == pytest.approx(0.2 * float(torch.cat(apart).mean()) / 1e-4, rel=0.01)


def test_one_share_names_the_whole_promise(llama, tmp_path):
    assert Adapting().keeping(0.97) == Adapting()
    looser = Adapting().keeping(0.94)
    assert looser.promise()["promised"] == pytest.approx({"kl": 0.012, "top1": 0.94})
    for share, train in ((1.0, "lora"), (0.6, "lora"), (0.9, "rows")):
        with pytest.raises(UsageError, match="keep"):
            grafted(llama, tmp_path / "out", train=train, keep=share)
    assert not (tmp_path / "out").exists()


def test_no_more_is_kept_than_was_promised(llama):
    """Without weight, replay cannot hold back a body that learns fast: only a share is kept."""
    moved, promise = [], 1e-4
    for keep_kl in (1e3, promise):
        adapting = replace(ADAPTING, keep_kl=keep_kl, keep_top1=-1e3, replay=0.0, apart=False)
        options = Deriving(recipe=Recipe(**RECIPE), adapting=adapting)
        made = derive_rows(
            llama, parts(), "distil", text=text(), tokenizer=extended(llama), options=options
        )
        moved.append([check.score.kept for check in made.curve])
    assert max(moved[0]) > promise >= max(moved[1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"train": "lore"}, "Did you mean"),
        ({"train": "all"}, "known: rows, lanes, lora"),
        ({"train": "rows", "adapter_only": True}, "--train lora"),
        ({"policy": "write", "adapter_only": True}, "--tied"),
        ({"text": None}, "learns from text"),
        ({"method": "mean"}, "only distil the body"),
    ],
)
def test_what_cannot_be_trained_is_said_before(llama, tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        grafted(llama, tmp_path / "graft", **options)
    assert not (tmp_path / "graft").exists()


def test_rows_that_are_given_leave_nothing_to_train(llama, tmp_path):
    rows = np.zeros((24, 16), np.float32)
    with pytest.raises(UsageError, match="trains rows and body together"):
        tokengraft.graft(llama, plan(), tmp_path / "graft", rows=rows, train="lora")


def test_protected_text_is_measured_before_and_after(base, verified):
    import transformers

    lines = texts()["eng_Latn"][:6]
    old, new = FrozenModel.load(base), FrozenModel.load(verified.folder)
    same = protected_scores(old, old, {"English": lines}, Bootstrap(0))
    assert [one.value for one in same.values()] == [0.0, 1.0, 0.0]
    found = protected_scores(old, new, {"code": lines}, Bootstrap(0))
    sums = np.zeros(5)
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        for folder in (base, verified.folder)
    ]
    for ids in old.tokenizer.encode(lines):
        short = torch.tensor([ids[:256]])
        with torch.no_grad():  # input-only: the new tokens are barred
            p, q = (one(short).logits[0, :, :320].log_softmax(-1) for one in models)
        after = short[0, 1:, None]
        sums += [
            float((p.exp() * (p - q)).sum()), float((p.argmax(-1) == q.argmax(-1)).sum()), len(p),
            -float(p[:-1].gather(1, after).sum()), -float(q[:-1].gather(1, after).sum()),
        ]  # fmt: skip
    assert found["code_kl"].value == pytest.approx(sums[0] / sums[2], abs=1e-5)
    assert found["code_top1"].value == pytest.approx(sums[1] / sums[2])
    assert found["code_bits"].value == pytest.approx(sums[4] / sums[3] - 1, abs=1e-5)
    assert found["code_kl"].value > 0 and found["code_kl"].n == sums[2]


def test_new_tokens_that_nobody_taught_silence_are_not_what_moved(llama, tmp_path, monkeypatch):
    """Under `shared` they take some probability, with or without training: it is left out."""
    monkeypatch.setattr("tokengraft.grafting.verify.protected._LINES", 5)
    made = grafted(llama, tmp_path / "shared", policy="paper.shared")
    assert made.report.passed
    models = PlainModels()
    left_out = measure(models, made.folder, llama, made.written.new)
    counted = measure(models, made.folder, llama)
    config = {"suppress_tokens": list(made.written.new)}
    (made.folder / "generation_config.json").write_text(json.dumps(config))
    assert left_out and left_out == measure(PlainModels(), made.folder, llama)
    assert all(counted[kind].kl > left_out[kind].kl + 0.01 for kind in left_out)


def test_a_probe_finds_labels_in_either_reading(llama, tmp_path):
    lines = tuple(f"{word} {n} {word}" for n in range(12) for word in ("ሰላም", "ቤት"))
    units = tuple(f"dev.{n + 1}" for n in range(len(lines)))
    corpus = ParallelCorpus("made", "made", units, {"amh_Ethi": lines})
    rows = [f"dev,{n + 1},{'peace' if n % 2 == 0 else 'house'}" for n in range(len(lines))]
    (tmp_path / "labels.csv").write_text("\n".join(["flores_split,line,category", *rows]))
    labels = read_labels(tmp_path / "labels.csv")
    model = FrozenModel.load(llama)
    found = probe_scores(model, model, corpus, "amh_Ethi", labels, Bootstrap(50))
    assert {one.value for one in found.values()} == {1.0}  # one reading, one probe
    assert {one.floor for one in found.values()} == {0.5}
    (tmp_path / "wrong.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="needed are category"):
        read_labels(tmp_path / "wrong.csv")
    with pytest.raises(CorpusError, match="names its lines like"):
        probe_scores(model, model, corpus, "amh_Ethi", {"devtest.1": "x"})


def test_pooled_states_say_which_lines_they_are_of(llama):
    model = FrozenModel.load(llama)
    states, kept = pooled_states(model, model, ["ሰላም", "", "ቤት"])
    assert kept.tolist() == [True, False, True]
    assert len(states["base"]) == len(states["graft"]) == 2


def test_a_question_is_answered_by_the_label_that_gains_most(llama):
    """Against transformers alone, text by text, without batches."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = ("ሰላም", "ቤት", "house", "peace ")
    lines = tuple(f"{words[n % 4]} {n} {words[n % 3]}" for n in range(24))
    units = tuple(map(str, range(24)))
    labels = {unit: ("one", "two things")[n % 2] for n, unit in enumerate(units)}
    corpus = ParallelCorpus("made", "made", units, {"amh_Ethi": lines})
    model, question = FrozenModel.load(llama), "Text: {} Topic:"
    found = asked_scores(model, model, corpus, "amh_Ethi", labels, question, Bootstrap(20))
    plain = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(llama)

    def likely(text: str, label: str) -> float:
        prompt = question.replace("{}", text)
        front = tokenizer(prompt)["input_ids"]
        ids = tokenizer(f"{prompt} {label}")["input_ids"]
        assert ids[: len(front)] == front
        with torch.no_grad():
            logs = plain(torch.tensor([ids])).logits[0].log_softmax(-1)
        return sum(float(logs[at - 1, ids[at]]) for at in range(len(front), len(ids)))

    right = 0
    for unit, line in zip(units, lines, strict=True):
        gains = {one: likely(line, one) - likely("", one) for one in ("one", "two things")}
        right += max(gains, key=gains.__getitem__) == labels[unit]
    assert 0 < right < 24
    for name in ("asked_accuracy", "base_asked_accuracy"):
        assert found[name].value == right / 24 and found[name].floor == 0.5
    with pytest.raises(UsageError, match=r"has no \{\}"):
        asked_scores(model, model, corpus, "amh_Ethi", labels, "Topic:", Bootstrap(0))
    with pytest.raises(UsageError, match="--probe"):
        Measuring(ask=question)
