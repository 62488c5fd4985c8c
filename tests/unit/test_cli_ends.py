"""How the command line ends: full GPUs and disks, damaged models, Ctrl-C."""

from __future__ import annotations

import errno
import io
import json
import shutil
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokengraft.cli import main  # noqa: E402
from tokengraft.core.errors import (  # noqa: E402
    ModelError,
    TokengraftError,
    TokenizerError,
    UsageError,
)
from tokengraft.corpus import udhr  # noqa: E402
from tokengraft.deriving.derive import derive_rows  # noqa: E402
from tokengraft.model.checkpoint import read_checkpoint  # noqa: E402
from tokengraft.model.folder import resolve  # noqa: E402
from tokengraft.model.frozen import FrozenModel, Reading  # noqa: E402
from tokengraft.model.tokenizer_files import base_tokenizer  # noqa: E402
from tokengraft.planning.choose import plan_tokens  # noqa: E402
from tokengraft.planning.plan import Planning  # noqa: E402
from tokengraft.planning.plan_files import read_plan  # noqa: E402
from tokengraft.tokenizer import load  # noqa: E402

FULL = (
    "CUDA out of memory. Tried to allocate 446.00 MiB. GPU 1 has a total capacity of 139.81 GiB of "
    "which 120.00 MiB is free."
)


@pytest.fixture
def fails(monkeypatch):
    """Raise an error when a model moves to its device: no test machine has a GPU to fill."""

    def raising(error):
        def to(*_args, **_named):
            raise error

        monkeypatch.setattr(transformers.PreTrainedModel, "to", to)

    return raising


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["tokengraft", *map(str, arguments)])
    main.run()


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    lines = udhr.load(["shn", "eng"]).lines("shn_Mymr")
    source = base_tokenizer(resolve("rootstock").path)
    made = plan_tokens(source, {"shn_Mymr": lines}, Planning(budget=5))
    return made.write(tmp_path_factory.mktemp("plan") / "plan.json").parent


@pytest.mark.parametrize("verb", ["graft", "evaluate"])
def test_a_full_card_is_one_message(fails, monkeypatch, capfd, tmp_path, plan, verb):
    fails(torch.cuda.OutOfMemoryError(FULL))
    out = tmp_path / "out"
    arguments = {
        "graft": ("graft", "rootstock", plan, "-o", out, "--device", "cpu"),
        "evaluate": ("evaluate", "rootstock", "rootstock", "-o", out, "--device", "cpu"),
    }[verb]
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, *arguments)
    assert end.value.code == 1
    said = " ".join(capfd.readouterr().err.split())
    assert "GPU cuda:1" in said
    assert "--device cpu" in said
    assert "Traceback" not in said
    assert not out.exists()
    assert not list(tmp_path.iterdir())


def test_a_card_says_how_much_could_be_had():
    class Card:
        class cuda:  # noqa: N801
            @staticmethod
            def mem_get_info(device):
                return (2 << 30, (80 + device) << 30)

            @staticmethod
            def memory_reserved(_device):
                return 3 << 30

    assert "5.0 of its 81.0 GiB" in main._full_card(Card, FULL)
    assert "5.0 of its 80.0 GiB" in main._full_card(Card, "CUDA out of memory")


@pytest.fixture
def truncated(tmp_path):
    folder = shutil.copytree(resolve("rootstock").path, tmp_path / "base")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1_000_000])
    return folder


@pytest.mark.parametrize("verb", ["graft", "evaluate", "evaluate the graft"])
def test_truncated_weights_are_one_message(truncated, monkeypatch, capfd, tmp_path, plan, verb):
    out = tmp_path / "out"
    arguments = {
        "graft": ("graft", truncated, plan, "-o", out),
        "evaluate": ("evaluate", truncated, "rootstock", "-l", "shn", "-o", out),
        "evaluate the graft": ("evaluate", "rootstock", truncated, "-l", "shn", "-o", out),
    }[verb]
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, *arguments)
    assert end.value.code == 1
    said = capfd.readouterr().err
    size = (resolve("rootstock").path / "model.safetensors").stat().st_size
    assert f"base: model.safetensors is truncated: 1,000,000 bytes instead of {size:,}" in said
    assert not out.exists()


@pytest.mark.parametrize(
    ("head", "said"),
    [(b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
     (b"\n<!DOCTYPE html><html>404", "it is a web page")],
)  # fmt: skip
def test_what_stands_in_for_a_file_is_named(truncated, head, said):
    for name in ("model.safetensors", "tokenizer.json"):
        (truncated / name).write_bytes(head)
    with pytest.raises(ModelError, match=said):
        read_checkpoint(truncated)
    with pytest.raises(TokenizerError, match=said):
        load(truncated)


def test_a_folder_is_named_once(truncated):
    (truncated / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"^base holds no model\.safetensors"):
        derive_rows(truncated, [[1, 2]], "mean")


@pytest.mark.parametrize(
    "wrong", [{"vocab_size": "many"}, {"vocab_size": -5}, {"hidden_size": 333}, {"model_type": 7}]
)
def test_a_config_with_wrong_values_is_a_model_error(truncated, wrong):
    shutil.copy(resolve("rootstock").path / "model.safetensors", truncated)
    config = truncated / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | wrong), "utf-8")
    with pytest.raises(ModelError, match=r"^base: "):
        FrozenModel.load(truncated)


@pytest.mark.parametrize("dtype", ["int8", "nn", "float64", ""])
def test_a_type_that_is_not_read_in_is_refused(dtype):
    with pytest.raises(UsageError, match="known: auto, float32, bfloat16, float16"):
        FrozenModel.load("rootstock", Reading(dtype=dtype))


def test_truncated_weights_are_a_model_error(truncated):
    with pytest.raises(ModelError, match="truncated"):
        derive_rows(truncated, [[1, 2]], "mean")


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["audit"], "What was counted is kept"),
        (["graft", "rootstock", "plan", "-o", "g"], "Nothing was written"),
        (["graft", "rootstock", "plan", "--text", "t", "-o", "g"], "What was learned is kept"),
        (["report", "audit"], ""),
    ],
)
def test_an_interrupt_says_what_is_kept(monkeypatch, capfd, arguments, kept):
    def interrupted():
        raise SystemExit(130)  # as typer ends on Ctrl-C

    monkeypatch.setattr("tokengraft.cli.app.app", interrupted)
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, *arguments)
    assert end.value.code == 130
    said = capfd.readouterr().err
    assert said.startswith("Interrupted.")
    assert kept in said
    assert ("go on" in said) == ("kept" in said)


def test_what_the_system_refuses_is_told_without_false_promises(monkeypatch, capfd):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device", "out/grid.csv")

    monkeypatch.setattr("tokengraft.cli.app.app", full)
    for verb, promise in (("graft", "Nothing half-written"), ("reproduce", "may be missing")):
        with pytest.raises(SystemExit) as end:
            call(monkeypatch, verb)
        said = capfd.readouterr().err
        assert end.value.code == 1
        assert "out/grid.csv: No space left on device" in said
        assert promise in said


def test_the_base_itself_is_called_no_graft(monkeypatch, capfd):
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, "verify", resolve("rootstock").path, "--base", "rootstock")
    assert end.value.code == 3
    said = capfd.readouterr().out
    assert "there is no new token" in said and "Not sound: " in said
    assert "IndexError" not in said


def test_other_errors_of_a_model_keep_their_traceback(fails, monkeypatch, tmp_path, plan):
    fails(RuntimeError("a shape is wrong"))
    with pytest.raises(RuntimeError, match="a shape is wrong"):
        call(monkeypatch, "graft", "rootstock", plan, "-o", tmp_path / "out", "--device", "cpu")


def test_a_layer_is_a_number_or_norm() -> None:
    from tokengraft.core.errors import UsageError
    from tokengraft.paper.deriver import layer_of

    given = ({}, {"layer": "norm"}, {"layer": "0"}, {"layer": 12})
    assert [layer_of(more) for more in given] == [0, "norm", 0, 12]
    for said in ("-1", "last", "1.5", ""):
        with pytest.raises(UsageError, match="or norm"):
            layer_of({"layer": said})


def test_a_grid_says_its_split_its_last_layer_and_what_was_never_run() -> None:
    from tokengraft.paper.fidelity import paper_row, read_with

    said = {last: read_with("devtest", last) for last in ("norm", "block")}
    assert read_with("devtest") == said["norm"]
    for last, where in (("norm", "Layer n is after the final norm"), ("block", "before the final")):
        for words in ("FLORES devtest", where, "never run Llama 3.2 1B"):
            assert words in said[last]
    assert paper_row("knn k=2 layer norm", [0, 1, 7, 8]) == "knn k=2 layer 16"
    assert paper_row("knn k=2 layer 8", [0, 1, 7, 8]) == "knn k=2 layer 16"
    assert paper_row("linear layer 7", [0, 1, 7, 8]) == "linear layer 15"


def test_a_log_sees_that_a_long_run_goes_on(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    from tokengraft.cli import console
    from tokengraft.core.progress import Progress

    for every, lines in ((60.0, 0), (0.0, 2)):
        monkeypatch.setattr(console, "EVERY", every)
        with console.drawing() as on_progress:
            on_progress(Progress("distil", 30, 120))
            on_progress(Progress("GPT-2", 5, 2000, "lines"))
        said = capfd.readouterr().err.splitlines()
        assert len(said) == lines
    assert said[0].startswith("distil: 25%, after") and said[1].startswith(
        "GPT-2: 5 of 2,000 lines"
    )


def test_a_bar_forgets_the_total_of_the_work_before(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokengraft.cli import console
    from tokengraft.core.progress import Progress

    bars, bar = [], console.Bar

    def made(*columns, **how):
        bars.append(bar(*columns, **how))
        return bars[0]

    on_screen = console.HarmlessConsole(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(console, "stderr", on_screen)
    monkeypatch.setattr(console, "Bar", made)
    with console.drawing() as on_progress:
        for total in (9, None, 504):
            on_progress(Progress("a site", 0, total, "languages"))
            assert bars[0].tasks[0].total == total


def test_a_bundled_tokenizer_is_no_bundled_model():
    with pytest.raises(ModelError, match="Only its tokenizer is bundled"):
        resolve("llama3")
    with pytest.raises(ModelError, match="Did you mean rootstock"):
        resolve("rootstok")


def test_a_damaged_plan_says_what_to_do(tmp_path):
    (tmp_path / "plan.json").write_text("<html>404", encoding="utf-8")
    with pytest.raises(TokengraftError, match=r"plan\.json cannot be read .*it is a web page"):
        read_plan(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text('{"schema": 1, "tok', encoding="utf-8")
    with pytest.raises(TokengraftError, match="it is damaged: make or fetch it again"):
        read_plan(tmp_path / "plan.json")
