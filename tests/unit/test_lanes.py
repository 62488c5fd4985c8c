"""Lanes: a body that learns for new tokens and cannot change for anything else."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

import tokengraft as tg  # noqa: E402
from helpers import tiny_models as test_graft_tiny  # noqa: E402
from helpers.tiny_models import copy, edit, load, make, parts, plan, texts  # noqa: E402
from tokengraft.core.errors import ModelError, TokengraftError, UsageError  # noqa: E402
from tokengraft.corpus.parallel import ParallelCorpus  # noqa: E402
from tokengraft.deriving.derive import derive_rows  # noqa: E402
from tokengraft.deriving.distil import as_method, distiller, lanes, silent_text  # noqa: E402
from tokengraft.deriving.distil import student as distil_student  # noqa: E402
from tokengraft.deriving.distil.lanes import with_lanes  # noqa: E402
from tokengraft.deriving.distil.recipe import Adapting, Recipe, Writing  # noqa: E402
from tokengraft.deriving.distil.student import halved, memory_needed, twin  # noqa: E402
from tokengraft.deriving.task import Deriving  # noqa: E402
from tokengraft.evaluating.evaluate import Measuring, evaluate  # noqa: E402
from tokengraft.evaluating.protected import protected_scores  # noqa: E402
from tokengraft.evaluating.score import Bootstrap  # noqa: E402
from tokengraft.grafting.graft import Derivation, Finishing, Output, graft  # noqa: E402
from tokengraft.grafting.verify.invariants import Verification  # noqa: E402
from tokengraft.grafting.write_folder import Learned, check_room, write_model  # noqa: E402
from tokengraft.model.checkpoint import read_checkpoint  # noqa: E402
from tokengraft.model.frozen import FrozenModel, NewRows, Reading  # noqa: E402
from tokengraft.planning.choose import plan_tokens  # noqa: E402
from tokengraft.planning.plan import Planning, with_plan  # noqa: E402
from tokengraft.serving import gguf_file, llama_cpp  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = ("llama-tied", "llama-untied", "mistral", "qwen2", "qwen3")
RECIPE = {"steps": 10, "passages": 8, "check_every": 2, "warmup": 2, "patience": 0}
LANES = Adapting(train="lanes", lanes=5, neurons=6, lanes_rate=0.32)
FIRST = 320


def text() -> list[str]:
    return texts()["amh_Ethi"] + texts()["tam_Taml"]


def extended(folder: Path) -> dict:
    return with_plan(json.loads((folder / "tokenizer.json").read_text("utf-8")), plan())


def grafted(base: Path, out: Path, *, output=None, verified=True, **how):
    how = {"train": "lanes", "text": text(), "options": {**RECIPE, "adapting": LANES}, **how}
    finishing = Finishing(verified=verified, check=texts()["eng_Latn"])
    return graft(base, plan(), out, Derivation(**how), output=output or Output(), options=finishing)


def taught(base: FrozenModel) -> FrozenModel:
    """A student in which every weight has learned something."""
    student = with_lanes(base, LANES)
    torch.manual_seed(0)
    for held in student.learning.values():
        held.data.add_(0.3 * torch.randn_like(held))
    return student


def passages(new: bool):
    torch.manual_seed(1)
    return torch.randint(0, FIRST + len(plan().tokens) if new else FIRST, (3, 20))


def rows(model: FrozenModel) -> NewRows:
    """Rows at random; those of a student have lanes."""
    torch.manual_seed(2)
    narrow = torch.randn(len(plan().tokens), model.dimensions)
    more = model.lanes if isinstance(model, lanes.Laned) else 0
    return NewRows(FIRST, torch.cat([narrow, torch.randn(len(narrow), more)], 1))


@pytest.fixture(autouse=True, scope="module")
def few_lines():
    """Less of Python's library is parsed to judge by, and less to be silent in."""
    silent_text.untrained.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokengraft.grafting.verify.protected._LINES", 5)
        patch.setattr(silent_text, "_JUDGED_BY", ("bisect", "heapq", "textwrap"))
        patch.setattr(as_method, "_quiet", partial(as_method._quiet, most=60))
        yield
    silent_text.untrained.cache_clear()


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("base") / request.param, request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("base") / "llama", "llama-tied")


@pytest.fixture(scope="module")
def made(llama, tmp_path_factory):
    return grafted(llama, tmp_path_factory.mktemp("graft") / "lanes")


def test_whatever_was_learned_old_text_is_read_bit_for_bit_as_before(case):
    base = FrozenModel.load(case)
    student = taught(base)
    with torch.no_grad():
        for new in (None, rows(base), rows(student)):
            assert torch.equal(
                student.states(passages(False), new=new), base.states(passages(False))
            )
        # After a new token it is read otherwise, before one as ever.
        mixed = torch.cat([passages(False)[:, :10], passages(True)], 1)
        ours, theirs = (one.states(mixed, new=rows(one)) for one in (student, base))
    first = int((mixed[0] >= FIRST).nonzero()[0])
    assert first >= 10 and torch.allclose(ours[0, :first], theirs[0, :first], atol=1e-5)
    assert not torch.allclose(ours[0, first:], theirs[0, first:], atol=0.1)


def test_nothing_learned_is_the_base_and_shares_its_memory(case):
    base = FrozenModel.load(case)
    student = with_lanes(base, LANES)
    with torch.no_grad():  # rows without lanes: they would count in norms
        ours, theirs = (one.states(passages(True), new=rows(base)) for one in (student, base))
    assert torch.equal(ours, theirs)
    known = {held.data_ptr() for held in base.model.parameters()}
    own = [held for held in student.model.parameters() if held.data_ptr() not in known]
    assert sum(p.numel() for p in own) == sum(p.numel() for p in student.learning.values())
    again = with_lanes(base, LANES)
    other = with_lanes(base, LANES, seed=1)
    assert all(torch.equal(again.learning[name], one) for name, one in student.learning.items())
    drawn = "model.layers.0.self_attn.v_proj.adds"
    assert not torch.equal(other.learning[drawn], student.learning[drawn])


def test_every_weight_learns_after_a_step(case):
    base = FrozenModel.load(case)
    student = with_lanes(base, LANES)
    for _ in range(3):
        new = rows(student)
        learned = [*student.learning.values(), new.rows.requires_grad_()]
        states = student.states(passages(True), new=new)
        torch.manual_seed(3)
        loss = (states * torch.randn_like(states)).sum()
        slopes = torch.autograd.grad(loss, learned)
        with torch.no_grad():
            for held, slope in zip(learned, slopes, strict=True):
                held.sub_(0.01 * slope.sign())
    assert all(slope.abs().max() > 0 for slope in slopes)


def test_one_product_has_the_gradients_of_its_parts(case):
    """What is fast with gradients against what is exact without, differentiated by autograd."""
    student = taught(FrozenModel.load(case))
    wider = [one for one in student.model.modules() if isinstance(one, lanes.Wide | lanes.WideNorm)]
    assert len(wider) == 2 * 9 + 1
    for module in wider:
        width = module.shape[-1]
        given = torch.randn(2, 5, width, requires_grad=True)
        learned = list(module.parameters(recurse=False))
        outcomes = []
        for exactly in (False, True):
            with pytest.MonkeyPatch.context() as patch:
                if exactly:
                    patch.setattr(lanes.torch, "is_grad_enabled", lambda: False)
                read = module(given)
            torch.manual_seed(4)
            loss = (read * torch.randn_like(read)).sum()
            outcomes.append([read, *torch.autograd.grad(loss, [given, *learned])])
        for ours, theirs in zip(*outcomes, strict=True):
            assert ours.shape == theirs.shape
            assert torch.allclose(ours, theirs, atol=1e-5, rtol=1e-4)


def test_lanes_begin_alike_where_tokens_are_alike():
    """Principal components: a slow twin, tokens with the same features, and too few of them."""
    numbers = np.random.default_rng(0)
    phi = numbers.normal(size=(30, 12)) * np.arange(1, 13)
    phi[7] = phi[3]
    begun = lanes.begin(30, torch.from_numpy(phi), 16).numpy()
    assert np.allclose(begun[3, :12], begun[7, :12])
    assert np.allclose(begun[:, :12].T @ begun[:, :12] / 30, np.eye(12), atol=1e-8)
    about = phi - phi.mean(0)
    _, ways = np.linalg.eigh(about.T @ about)
    slow = about @ ways[:, ::-1]
    slow /= np.sqrt(np.square(slow).mean(0))
    assert np.allclose(np.abs(slow), np.abs(begun[:, :12]), atol=1e-6)
    assert np.abs(begun[:, 12:]).min() > 0  # drawn: there are only twelve features
    assert torch.equal(lanes.begin(30, None, 4, 5), lanes.begin(30, None, 4, 5))


def test_wider_models_learn_in_smaller_steps(llama, monkeypatch):
    """With one rate for all widths, a model of 1,536 dimensions diverges."""
    rates, teach = [], distiller.Distiller.teach

    def taught_at(self, student, rate) -> None:
        rates.append(rate)
        teach(self, student, rate)

    monkeypatch.setattr(distiller.Distiller, "teach", taught_at)
    options = Deriving(recipe=Recipe(**RECIPE | {"steps": 1}), adapting=LANES)
    derive_rows(llama, parts(), "distil", text=text(), tokenizer=extended(llama), options=options)
    assert rates == [LANES.lanes_rate / FrozenModel.load(llama).dimensions]


def test_a_halved_student_shares_what_is_learned(llama):
    base = FrozenModel.load(llama)
    student = taught(base)
    half = halved(student)
    assert all(half.learning[name] is held for name, held in student.learning.items())
    new = rows(student)
    ours, theirs = (one.states(passages(True), new=new) for one in (student, half))
    assert theirs.dtype == torch.bfloat16
    assert torch.cosine_similarity(ours.flatten(), theirs.float().flatten(), 0) > 0.99


def test_frozen_weights_are_in_memory_once_in_either_type(llama):
    base = FrozenModel.load(llama)
    student, halves = taught(base), {}
    models = [base, student, halved(base, halves), halved(student, halves)]
    frozen = {}
    for model in models:
        own = {id(held) for held in model.learning.values()}
        kept = [held for held in model.model.parameters() if id(held) not in own]
        frozen.setdefault(kept[0].dtype, set()).update(held.data_ptr() for held in kept)
    count = len(list(base.model.parameters()))
    assert {kind: len(places) for kind, places in frozen.items()} == {
        torch.float32: count, torch.bfloat16: count,
    }  # fmt: skip


@pytest.mark.parametrize("train", ["lanes", "lora"])
def test_the_memory_that_is_told_is_enough_for_what_is_kept(llama, train):
    """Weights in all their types, and what autograd holds for a step's tokens."""
    base, adapting = FrozenModel.load(llama), Adapting(train=train, lanes=5, neurons=6, rank=4)
    kept: dict[int, int] = {}
    student = with_lanes(base, adapting) if train == "lanes" else twin(base, adapting)
    models = [base, student, halved(base), halved(student)]

    def keep(one):
        kept[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        return one

    ids = torch.randint(0, FIRST, (4, 32))
    new = NewRows(FIRST, rows(base).rows.requires_grad_())
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
        states = models[-1].states(ids, new=new)
    assert states.requires_grad
    weights = {held.data_ptr(): held.nbytes for one in models for held in one.model.parameters()}
    step = sum(size for place, size in kept.items() if place not in weights)
    tokens = distil_student._TOKENS / ids.numel()
    besides = distil_student._BESIDES + 12 * distil_student.TRAINING["cpu"]
    told = memory_needed(base, student, adapting) - besides  # of this model's size alone
    assert sum(weights.values()) + tokens * step < told


def write(folder: Path, out: Path, values: NewRows, student: FrozenModel) -> Path:
    """The folder of a student, without the rest of a graft."""
    out.mkdir()
    narrow = lanes.settle(student, values.rows.numpy())
    learned = Learned(laned=student)
    write_model(folder, extended(folder), narrow, out, parts=parts(), learned=learned)
    return out


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_a_written_folder_is_the_student_in_plain_transformers(name, dtype, tmp_path):
    folder = make(tmp_path / "base", name, dtype=dtype, shard="6KB")
    base = FrozenModel.load(folder)
    student, kind = taught(base), getattr(torch, dtype)
    with torch.no_grad():
        for held in student.learning.values():  # as a folder holds them
            held.copy_(held.to(kind).float())
    new = NewRows(FIRST, rows(student).rows.to(kind).float())
    out = write(folder, tmp_path / "graft", new, student)
    for path in out.glob("*.safetensors"):
        assert all(one.dtype == kind for one in load_file(path).values())
    loaded, plain = load(out), load(folder)
    close = {"atol": 1e-4, "rtol": 1e-3} if dtype == "float32" else {"atol": 0.5, "rtol": 0.05}
    with torch.no_grad():
        states = student.states(passages(True), new=new)
        logits = loaded(passages(True)).logits[..., :FIRST]
        assert torch.allclose(student.head(FIRST).logits(states), logits, **close)
        English = [one(passages(False)).logits[..., :FIRST] for one in (plain, loaded)]
    assert torch.allclose(*English, **close)
    apart = (English[0] - English[1]).abs().max()
    assert apart < (2e-5 if dtype == "float32" else 0.2)
    index = json.loads((out / "model.safetensors.index.json").read_text())
    sizes = [one.numel() * one.element_size()
             for path in out.glob("*.safetensors") for one in load_file(path).values()]  # fmt: skip
    assert index["metadata"]["total_size"] == sum(sizes)


@pytest.mark.parametrize("shard", ["6KB", "1GB"])
def test_room_is_asked_for_all_that_a_model_with_lanes_holds(shard, tmp_path, monkeypatch):
    folder = make(tmp_path / "base", "llama-untied", shard=shard)
    base, out, asked = FrozenModel.load(folder), tmp_path / "graft", []

    def check(where, needed, what):
        asked.append((list(where.iterdir()), needed))
        check_room(where, needed, what)

    monkeypatch.setattr("tokengraft.grafting.write_folder.check_room", check)
    student = taught(base)
    write(folder, out, rows(student), student)
    assert asked == [([], read_checkpoint(out).size)]


def test_too_little_room_for_lanes_is_seen_before_they_are_written(llama, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tokengraft.grafting.write_folder.shutil.disk_usage",
        lambda folder: SimpleNamespace(free=1000),
    )
    with pytest.raises(TokengraftError, match=r"the model needs .* nothing written"):
        grafted(llama, tmp_path / "graft")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(llama_cpp.installed() is None, reason="needs the extra serve")
def test_llama_cpp_writes_what_transformers_writes(case, tmp_path):
    base = FrozenModel.load(case)
    student = taught(base)
    out = write(case, tmp_path / "graft", rows(student), student)
    prompt = [5, 70, FIRST, 12, FIRST + 3, 7]
    with torch.no_grad():
        expected = (
            load(out)
            .generate(
                torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None
            )[0]
            .tolist()[len(prompt) :]
        )
    if case.name == "qwen2":
        with pytest.raises(ModelError, match="without --train lanes"):
            gguf_file.write_gguf(out, tmp_path / "graft.gguf", pre="gpt-2")
        return
    gguf_file.write_gguf(out, tmp_path / "graft.gguf", pre="gpt-2")
    with llama_cpp.serving(tmp_path / "graft.gguf") as llama:
        got = llama.complete(prompt, 12)["tokens"]
    ends = expected.index(0) if 0 in expected else len(expected)  # llama.cpp stops there
    assert ends > 0 and got[:ends] == expected[:ends]


def test_several_devices_learn_what_one_does(llama, monkeypatch):
    monkeypatch.setattr(distiller, "quick_in_half", lambda _: False)  # a team is never halved
    outcomes = []
    for devices in ("cpu", "cpu,cpu"):
        options = Deriving(
            recipe=Recipe(**RECIPE | {"steps": 4}), reading=Reading(devices),
            adapting=replace(LANES, lanes_rate=0.016),
        )  # fmt: skip
        outcomes.append(
            derive_rows(
                llama, parts(), "distil", text=text(), tokenizer=extended(llama), options=options
            )
        )
    one, two = outcomes
    assert np.allclose(one.rows, two.rows, atol=1e-4)
    for name, held in one.student.learning.items():
        assert torch.allclose(held, two.student.learning[name], atol=1e-4)


def test_a_graft_with_lanes_is_verified_and_says_what_it_is(llama, made):
    assert made.report.passed
    checks = {check.name: check.detail for check in made.report.checks}
    assert "within wider ones (8 lanes), but for 5 norms" in checks["old weights"]
    assert "English: KL 0.0000, top-1 1.000" in checks["protected text"]
    card = (made.folder / "README.md").read_text("utf-8")
    assert "Its body is wider (lanes)" in card and "is unchanged" not in card
    trained = json.loads((made.folder / "tokengraft.json").read_text())["trained"]
    assert (trained["train"], trained["lanes"], trained["neurons"]) == ("lanes", 8, 6)
    assert len(trained["tensors"]) == 19  # 7 layers and 2 norms in each of two blocks, a norm
    assert made.rows.held_out.loss < made.rows.start.loss
    scores = protected_scores(
        FrozenModel.load(llama), FrozenModel.load(made.folder).narrow(16),
        {"English": texts()["eng_Latn"][:6]}, Bootstrap(0),
    )  # fmt: skip
    assert scores["english_kl"].value == pytest.approx(0, abs=1e-6)
    assert scores["english_top1"].value == 1


@pytest.mark.parametrize("name", ["llama-untied", "qwen2"])
def test_new_tokens_are_written_with_lanes(name, tmp_path):
    base = make(tmp_path / "base", name)
    made = grafted(base, tmp_path / "graft", output=Output("write"))
    assert made.report.passed
    head = load_file(made.folder / "model.safetensors")["lm_head.weight"]
    assert not head[:, 16:].any() and head[FIRST:, :16].any()


@pytest.mark.parametrize("train", ["rows", "lanes"])
def test_one_table_can_serve_both_ends(llama, train, tmp_path):
    output = Output("write", untie=False)
    options = RECIPE if train == "rows" else {**RECIPE, "adapting": LANES}
    made = grafted(llama, tmp_path / "graft", output=output, train=train, options=options)
    assert made.report.passed and made.written.tied
    tensors = load_file(made.folder / "model.safetensors")
    assert "lm_head.weight" not in tensors
    assert tensors["model.embed_tokens.weight"][FIRST:, 16:].any() == (train == "lanes")


@pytest.mark.parametrize("policy", ["input-only", "write"])
@pytest.mark.parametrize("train", ["rows", "lanes"])
def test_training_goes_on_from_an_earlier_graft(llama, train, policy, tmp_path):
    """Held-out text is read, and written, as the earlier graft did; lanes may have any size."""
    how = {"train": train, "output": Output(policy)}
    options = RECIPE if train == "rows" else {**RECIPE, "adapting": LANES}
    first = grafted(llama, tmp_path / "first", **how, options=options)
    options = {**RECIPE, "steps": 2, "warmup": 10**9}  # hardly moves
    again = grafted(llama, tmp_path / "again", **how, options=options, start=first.folder)
    old, new = (load_file(one.folder / "model.safetensors") for one in (first, again))
    assert old.keys() == new.keys()
    assert all(torch.allclose(old[name], new[name], atol=1e-5) for name in old)
    for name in ("kl", "excess" if policy == "input-only" else "writing"):
        ended, begun = getattr(first.rows.held_out, name), getattr(again.rows.start, name)
        assert begun is None or begun == pytest.approx(ended, abs=1e-4)
    assert again.rows.params["start"] == "an earlier graft" and again.report.passed


def test_what_cannot_go_on_is_left_and_said(llama, made, tmp_path):
    """Rows alone, after a graft with lanes, begin with its rows."""
    options = {**RECIPE, "steps": 2, "warmup": 10**9}
    again = grafted(llama, tmp_path / "again", train="rows", options=options, start=made.folder)
    assert "only rows are used, not its lanes (--train lanes goes on" in again.rows.notes[-1]
    table = "model.embed_tokens.weight"
    old, new = (load_file(one.folder / "model.safetensors")[table] for one in (made, again))
    assert torch.allclose(old[FIRST:, :16], new[FIRST:], atol=1e-6)


def test_the_same_work_folder_tells_starts_apart(llama, made, tmp_path):
    """Lanes of another start are not taken for a checkpoint of this one."""
    options = {**RECIPE, "steps": 2, "checkpoint_dir": tmp_path / "work"}
    for name, more in (("first", {}), ("again", {"start": made.folder})):
        grafted(llama, tmp_path / name, options=options, **more)
    assert len(list((tmp_path / "work").iterdir())) == 2


def spoiled(folder: Path, target: Path, manifest=None, tensors=None) -> Path:
    """A copy whose manifest and tensors were changed by these functions."""
    shutil.copytree(folder, target)
    if manifest:
        edit(target / "tokengraft.json", manifest)
    if tensors:
        held = load_file(target / "model.safetensors")
        tensors(held)
        save_file(held, target / "model.safetensors", metadata={"format": "pt"})
    return target


UP = "model.layers.0.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("said", "how"),
    [
        ("another plan", {"manifest": lambda v: v.update(plan="0" * 64)}),
        ("does not say which rows", {"manifest": lambda v: v["output"].update(new=[900, 924])}),
        (
            "does not say which rows",
            {"manifest": lambda v: v["output"].update(new=[320, 321], first_parts=[1])},
        ),
        ("output is damaged", {"manifest": lambda v: v["output"].update(policy=["write"])}),
        ("trained is damaged", {"manifest": lambda v: v["trained"].update(lanes="8")}),
        ("model of 24 dimensions", {"manifest": lambda v: v.update(trained=None)}),
        ("no matrix", {"tensors": lambda held: held.update({UP: torch.tensor(1.0)})}),
        ("not finite", {"tensors": lambda held: held[UP].fill_(float("nan"))}),
        (
            "row 321 .* not finite",
            {"tensors": lambda held: held["model.embed_tokens.weight"][321].fill_(float("inf"))},
        ),
        (
            "another model",
            {"tensors": lambda held: held["model.embed_tokens.weight"].normal_()},
        ),
    ],
)
def test_a_damaged_or_foreign_graft_is_no_start(llama, made, said, how, tmp_path):
    start = spoiled(made.folder, tmp_path / "start", **how)
    with pytest.raises(TokengraftError, match=said) as error:
        grafted(llama, tmp_path / "out", start=start)
    assert str(start) in str(error.value) and not (tmp_path / "out").exists()


def test_only_a_graft_into_the_model_can_be_started_from(llama, made, tmp_path, monkeypatch):
    for start, said in ((llama, "has no tokengraft.json"), (tmp_path / "no", "there is no folder")):
        with pytest.raises(UsageError, match=said):
            grafted(llama, tmp_path / "out", train="rows", options=RECIPE, start=start)
    for how in ({"text": None}, {"method": "paper.context"}):
        with pytest.raises(UsageError, match="give text"):
            grafted(llama, tmp_path / "out", train="rows", options={}, start=made.folder, **how)
    name, sizes = test_graft_tiny.CASES["llama-tied"]
    monkeypatch.setitem(test_graft_tiny.CASES, "wider", (name, {**sizes, "hidden_size": 24}))
    wider = make(tmp_path / "wider", "wider")  # as wide as the graft with its lanes
    with pytest.raises(UsageError, match="into a model of 16 dimensions, wider has 24"):
        grafted(wider, tmp_path / "out", train="rows", options=RECIPE, start=made.folder)
    assert not (tmp_path / "out").exists()


def test_lanes_upon_lanes(made, tmp_path):
    """What the first graft reads, its new tokens included, is as safe as English."""
    known = json.loads((made.folder / "tokenizer.json").read_text("utf-8"))
    more = plan_tokens(known, {"tam_Taml": texts()["tam_Taml"]}, Planning(budget=6))
    how = Derivation(train="lanes", text=text(), options={**RECIPE, "adapting": LANES})
    again = graft(made.folder, more, tmp_path / "again", how, options=Finishing(check=text()))
    assert again.report.passed and again.written.width > made.written.width == 24
    ids = passages(True)
    with torch.no_grad():
        first, second = (load(one)(ids).logits[..., :FIRST] for one in (made.folder, again.folder))
    assert torch.allclose(first, second, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "where", "said"),
    [
        ("model.layers.1.self_attn.q_proj.weight", (0, 3), "q_proj.weight differs"),
        ("model.layers.0.mlp.down_proj.weight", (2, 2), "down_proj.weight differs"),
        ("model.embed_tokens.weight", (3, 3), "old row 3"),
        ("model.layers.0.self_attn.v_proj.weight", (-1, 0), "more than the lanes"),
        ("model.layers.1.mlp.gate_proj.weight", (-1, 15), "more than the lanes"),
        ("model.layers.1.self_attn.o_proj.weight", (-1, 0), "more than the lanes"),
        ("model.layers.0.mlp.down_proj.weight", (-8, 31), "more than the lanes"),
        ("model.embed_tokens.weight", (7, -1), "has lanes"),
        ("model.norm.weight", (-1,), "through to the head"),
        ("model.norm.weight", (0,), "scaled by the wider mean"),
        ("model.layers.1.input_layernorm.weight", (2,), "scaled by the wider mean"),
        # What may be learned, but not so large: 0 times infinity is not 0.
        ("model.layers.0.self_attn.q_proj.weight", (-1, 0), "over 10000"),
        ("model.layers.1.mlp.up_proj.weight", (-1, 5), "over 10000"),
        ("model.layers.1.mlp.up_proj.weight", (0, -1), "not finite"),
        ("model.embed_tokens.weight", (FIRST + 1, -1), "not finite"),
    ],
)
def test_verify_sees_every_leak(llama, made, name, where, said, tmp_path):
    by = {"over 10000": 1e20, "not finite": float("nan")}.get(said, 0.01)
    folder = copy(made.folder, tmp_path / "broken")
    tensors = load_file(folder / "model.safetensors")
    tensors[name][where] += by
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    passed, detail = Verification(folder, llama, text())._weights()
    assert not passed and said in detail


@pytest.fixture(scope="module")
def biased(tmp_path_factory):
    """A graft of a model with biases, and its base."""
    kind, sizes = test_graft_tiny.CASES["llama-tied"]
    sizes = {**sizes, "attention_bias": True, "mlp_bias": True}
    place = tmp_path_factory.mktemp("biased")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(test_graft_tiny.CASES, "llama-biased", (kind, sizes))
        base = make(place / "base", "llama-biased")
    return grafted(base, place / "graft", verified=False).folder, base


@pytest.mark.parametrize("name", ["v_proj", "gate_proj", "o_proj"])
def test_verify_sees_a_bias_that_leaks(biased, name, tmp_path):
    folder, base = copy(biased[0], tmp_path / "broken"), biased[1]
    where = f"model.layers.0.{'mlp' if name == 'gate_proj' else 'self_attn'}.{name}.bias"
    tensors = load_file(folder / "model.safetensors")
    assert Verification(folder, base, text())._weights()[0]
    tensors[where][-1] += 0.01
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    passed, detail = Verification(folder, base, text())._weights()
    assert not passed and "more than the lanes" in detail


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("rms_norm_eps", 1e-6, "rms_norm_eps"),
        ("head_dim", 4, "head_dim"),
        ("num_attention_heads", 3, "queries share a key"),
        ("intermediate_size", 8, "less than the base's"),
        ("rope_theta", 5.0, "rope"),
        ("hidden_act", "gelu", "hidden_act"),
    ],
)
def test_verify_sees_another_config(llama, made, key, value, said, tmp_path):
    folder = copy(made.folder, tmp_path / "broken")
    edit(folder / "config.json", lambda config: {**config, key: value})
    proof = Verification(folder, llama, text())
    outcomes = [proof._weights(), proof._preserved()]
    assert any(not passed and said in detail for passed, detail in outcomes)


def test_an_interrupted_training_goes_on_to_the_same_lanes(llama, tmp_path):
    class Stop(Exception):
        pass

    def stop(now) -> None:
        if now.what == "training" and now.done >= 40:
            raise Stop

    def run(work, progress=None, adapting=LANES):
        options = Deriving(recipe=Recipe(**RECIPE), adapting=adapting, checkpoint_dir=work)
        return derive_rows(
            llama, parts(), "distil", text=text(), tokenizer=extended(llama), options=options,
            progress=progress,
        )  # fmt: skip

    alone = run(None)
    with pytest.raises(Stop):
        run(tmp_path, stop)
    again = run(tmp_path)
    assert np.array_equal(alone.rows, again.rows)
    for name, held in alone.student.learning.items():
        assert torch.equal(held, again.student.learning[name])
    fewer = run(tmp_path, adapting=replace(LANES, neurons=2))  # does not take up the others
    assert lanes.new_lanes(fewer.student).shape == lanes.new_lanes(alone.student).shape


def test_a_body_gets_as_many_lanes_as_are_asked_for(llama, made, tmp_path):
    wider = grafted(llama, tmp_path / "out", lanes=20, options=RECIPE).folder
    manifest = json.loads((wider / "tokengraft.json").read_text())
    trained = manifest["trained"]
    assert trained["lanes"] >= 20 and trained["neurons"] == 80
    old, new = (load_file(one / "model.safetensors") for one in (llama, wider))
    sizes = [sum(held[name].numel() for name in old if "_proj" in name) for held in (old, new)]
    larger = f"lanes make the blocks {sizes[1] / sizes[0] - 1:.0%} larger"
    assert any(larger in note for note in manifest["rows"]["notes"])
    for how in ({"train": "rows"}, {"train": "lora"}, {"lanes": 0}):
        with pytest.raises(UsageError, match="give 1 or more, with --train lanes"):
            grafted(llama, tmp_path / "no", **{"lanes": 20, **how})
    with pytest.raises(UsageError, match="lanes and adapting both"):
        grafted(llama, tmp_path / "no", lanes=20)
    with pytest.raises(UsageError, match="leave --lanes out"):
        grafted(llama, tmp_path / "no", lanes=20, options=RECIPE, start=made.folder)
    assert not (tmp_path / "no").exists()
    of_rows = grafted(llama, tmp_path / "rows", train="rows", options=RECIPE).folder
    again = grafted(llama, tmp_path / "again", lanes=20, options=RECIPE, start=of_rows).folder
    assert json.loads((again / "tokengraft.json").read_text())["trained"]["neurons"] == 80


@pytest.mark.parametrize("how", [{"lanes": 8}, {"keep": 0.9}, {"start": "graft"}])
def test_rows_that_are_there_are_not_trained(llama, tmp_path, how):
    with pytest.raises(UsageError, match="leave them out, or rows"):
        tg.graft(llama, plan(), tmp_path / "out", rows=np.zeros((1, 16), np.float32), **how)


def test_writing_is_learned_beside_lanes(llama):
    options = Deriving(recipe=Recipe(**RECIPE), writing=Writing(), adapting=LANES)
    made = derive_rows(
        llama, parts(), "distil", text=text(), tokenizer=extended(llama), options=options
    )
    assert made.head is not None and made.held_out.stray is not None
    assert made.held_out.loss < made.start.loss


@pytest.mark.parametrize(
    ("activation", "refused", "seen"),
    [
        ("sigmoid", "new ones would change every text", "sigmoid of 0 is not 0"),
        ("foo", "no activation that transformers knows", "'foo' is no activation"),
        (["x"], "no activation that transformers knows", "is no activation"),
    ],
)
def test_an_activation_that_acts_on_nothing_is_refused_and_seen(
    llama, made, tmp_path, activation, refused, seen
):
    base, folder = copy(llama, tmp_path / "base"), copy(made.folder, tmp_path / "graft")
    for one in (base, folder):
        edit(one / "config.json", lambda config: {**config, "hidden_act": activation})
    with pytest.raises(UsageError, match=refused):
        grafted(base, tmp_path / "again")
    passed, detail = Verification(folder, base, text())._weights()
    assert not passed and seen in detail


@pytest.mark.parametrize(
    ("base", "how", "said"),
    [
        ("gpt2", {}, "only LlamaForCausalLM"),
        ("gemma3", {}, "only LlamaForCausalLM"),
        ("llama-tied", {"keep": 0.99}, "--keep has nothing to keep"),
        ("llama-tied", {"output": Output(protect=["English"])}, "--protect has nothing to keep"),
        ("llama-tied", {"text": None}, "learns from text"),
        ("llama-tied", {"method": "mean"}, "only distil the body"),
    ],
)
def test_what_lanes_cannot_do_is_said_before(base, how, said, tmp_path):
    folder = make(tmp_path / "base", base)
    with pytest.raises(UsageError, match=said):
        grafted(folder, tmp_path / "graft", **how)
    assert not (tmp_path / "graft").exists()


def test_the_command_line_grafts_lanes(tokengraft, llama, tmp_path, monkeypatch):
    few = texts()["eng_Latn"]  # to verify on, instead of the UDHR in many languages
    monkeypatch.setattr("tokengraft.grafting.graft.check_lines", lambda _: few)
    for name, value in (("plan.json", plan().to_json()), ("text.txt", None)):
        written = "\n".join(text()) if value is None else json.dumps(value)
        (tmp_path / name).write_text(written, "utf-8")
    asked = ("graft", llama, tmp_path / "plan.json", "--text", tmp_path / "text.txt")
    out = tmp_path / "graft"
    lanes = ("--train", "lanes", "--lanes", 20)
    said = tokengraft(*asked, *lanes, "--steps", 2, "--by-text", 0.3, "-o", out)
    assert said.returncode == 0, said.stderr
    assert "(24 lanes)" in said.stdout and "Lanes were tried in" in said.stdout
    assert json.loads((out / "tokengraft.json").read_text())["trained"]["neurons"] == 80
    refused = tokengraft(*asked, "--train", "lanes", "--keep", 0.9, "-o", tmp_path / "other")
    assert refused.returncode == 2 and "has nothing to keep" in refused.stderr


def test_evaluation_knows_lanes(llama, made):
    both = {code: tuple(texts()[code][:4]) for code in ("amh_Ethi", "eng_Latn")}
    corpus = ParallelCorpus("made", "made", tuple("1234"), both)
    options = Measuring(resamples=0, prompts=0)
    measured = evaluate(llama, made.folder, corpus, ["amh_Ethi"], options=options)
    scores = {row["metric"]: row["value"] for row in measured.scores.to_dicts()}
    assert scores["english_kl"] == pytest.approx(0, abs=1e-6) and scores["english_top1"] == 1
    assert scores["kl"] > 0 and 0 < scores["aligned_cosine"] < 1


def test_an_adapter_cannot_hold_lanes(llama, tmp_path):
    how = Derivation(train="lanes", text=text(), options=RECIPE)
    with pytest.raises(UsageError, match="got --train lanes"):
        graft(llama, plan(), tmp_path / "graft", how, options=Finishing(adapter_only=True))


def trained_further(folder: Path, keep: bool, adapters=None):
    """The graft after three steps of Adam on old and new text, and its states of old text."""
    model = load(folder)
    if adapters is not None:
        model = pytest.importorskip("peft").get_peft_model(model, adapters)
    if keep:
        tg.keep_lanes(model, folder)
    ids = torch.tensor([[5, 70, 99, *range(320, 326), 12, 250]])
    moving = [one for one in model.parameters() if one.requires_grad]
    steps = torch.optim.AdamW(moving, lr=0.05, weight_decay=0.1)
    for _ in range(3):
        model(input_ids=ids, labels=ids).loss.backward()
        steps.step()
        steps.zero_grad()
    if adapters is not None:
        model = model.merge_and_unload()
    with torch.no_grad():
        old = model(input_ids=torch.tensor([[5, 70, 99, 12, 250]]), output_hidden_states=True)
    return model, torch.stack(old.hidden_states[:-1])


def test_lanes_stay_out_of_old_text_in_further_training(llama, made, tmp_path):
    width = json.loads((llama / "config.json").read_text())["hidden_size"]
    model, states = trained_further(made.folder, keep=True)
    assert not states[..., width:].any()
    assert not model.model.norm.weight[width:].any()
    before = load(made.folder).state_dict()
    moved = {name: value != before[name] for name, value in model.state_dict().items()}
    assert moved["model.embed_tokens.weight"][320:, width:].any()  # lanes of new tokens learn on
    assert all(change.any() for name, change in moved.items() if "proj.weight" in name)
    _, states = trained_further(made.folder, keep=False)
    assert states[..., width:].any()


def test_adapters_keep_lanes_where_they_may_lie(llama, made):
    peft = pytest.importorskip("peft")
    width = json.loads((llama / "config.json").read_text())["hidden_size"]
    how = {"r": 2, "task_type": "CAUSAL_LM", "init_lora_weights": False}
    allowed = peft.LoraConfig(target_modules=["q_proj", "k_proj", "up_proj"], **how)
    _, states = trained_further(made.folder, keep=True, adapters=allowed)
    assert not states[..., width:].any()
    with pytest.raises(UsageError, match="an adapter on v_proj would let lanes reach"):
        trained_further(
            made.folder,
            keep=True,
            adapters=peft.LoraConfig(target_modules=["q_proj", "v_proj"], **how),
        )
    with pytest.raises(UsageError, match="has no lanes"):
        tg.keep_lanes(None, llama)
