"""How the command line ends when a GPU has no more memory."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokengraft.cli import main  # noqa: E402
from tokengraft.corpus import udhr  # noqa: E402
from tokengraft.grafting.resolve import resolve  # noqa: E402
from tokengraft.grafting.tokenizer_files import base_tokenizer  # noqa: E402
from tokengraft.planning import plan_tokens  # noqa: E402

FULL = (
    "CUDA out of memory. Tried to allocate 446.00 MiB. GPU 1 has a total capacity of 139.81 GiB of "
    "which 120.00 MiB is free."
)


@pytest.fixture
def fails(monkeypatch):
    """Raise an error where a model goes to its device: no test machine has a card to fill."""

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
    made = plan_tokens(source, {"shn_Mymr": lines}, budget=5)
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


def test_other_errors_of_a_model_keep_their_traceback(fails, monkeypatch, tmp_path, plan):
    fails(RuntimeError("a shape is wrong"))
    with pytest.raises(RuntimeError, match="a shape is wrong"):
        call(monkeypatch, "graft", "rootstock", plan, "-o", tmp_path / "out", "--device", "cpu")
