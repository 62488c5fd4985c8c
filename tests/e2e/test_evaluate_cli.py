"""`tokengraft evaluate` on the embedded model, and downstream tasks from local files."""

import importlib.util
import json

import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("torch", reason="evaluating needs the model extra")
pytest.importorskip("transformers", reason="evaluating needs the model extra")

from tokengraft.cli.evaluate import evaluate
from tokengraft.paper.commands import fidelity

app = typer.Typer()
app.command("evaluate")(evaluate)
app.command("fidelity")(fidelity)


def test_rootstock_against_itself_is_exact(tmp_path):
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app,
        ["evaluate", "rootstock", "rootstock", "-l", "hin", "--lines", "3", "--positions", "60",
         "--resamples", "50", "-o", str(out), "--json"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout[done.stdout.index("{") :])
    values = {row["metric"]: row["value"] for row in found["scores"]}
    assert (values["aligned_cosine"], values["kl"], values["top1"]) == (1.0, 0.0, 1.0)
    assert (values["pooled_cosine"], values["mutual_rank"]) == (1.0, 1.0)
    assert values["continuation_excess"] == 0.0
    assert found["base"] == "rootstock" and found["settings"]["window"] == 512
    assert {"scores.csv", "evaluation.json", "fidelity.svg"} <= {p.name for p in out.iterdir()}
    told = (out / "README.md").read_text(encoding="utf-8")
    assert told.startswith("# How much of rootstock was kept in rootstock")
    assert "## How far the next guess moved (KL) (`kl`)" in told
    assert "| hin_Deva Hindi | 0 |" in told and "None" not in told and "nan" not in told


needs_harness = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None,
    reason="lm-evaluation-harness is not installed (pip install 'tokengraft[tasks]')",
)


@pytest.fixture
def own_tasks(tmp_path):
    """A folder with a task of one's own, and a group of it and one of the harness's tasks."""
    capitals, arc = tmp_path / "capitals.jsonl", tmp_path / "arc.jsonl"
    questions = [
        {"question": "The capital of France is", "choices": ["Paris", "bread"], "answer": 0},
        {"question": "Water is", "choices": ["a stone", "wet"], "answer": 1},
        {"question": "हिन्दी एक", "choices": ["भाषा है", "पत्थर है"], "answer": 0},
    ]
    capitals.write_text("".join(json.dumps(q) + "\n" for q in questions), encoding="utf-8")
    choices = {"text": ["Paris", "bread"], "label": ["A", "B"]}
    question = {"question": "The capital of France?", "choices": choices, "answerKey": "A"}
    arc.write_text(json.dumps(question) + "\n", encoding="utf-8")
    (tmp_path / "capitals.yaml").write_text(
        "task: tokengraft_capitals\n"
        "dataset_path: json\n"
        "dataset_kwargs:\n"
        f"  data_files: {{test: {capitals}}}\n"
        "test_split: test\n"
        "output_type: multiple_choice\n"
        "doc_to_text: '{{question}}'\n"
        "doc_to_choice: '{{choices}}'\n"
        "doc_to_target: '{{answer}}'\n"
        "metric_list:\n"
        "  - {metric: acc, aggregation: mean, higher_is_better: true}\n",
        encoding="utf-8",
    )
    (tmp_path / "mine.yaml").write_text(
        "group: mine\n"
        "task:\n"
        "  - tokengraft_capitals\n"
        "  - task: arc_easy\n"
        "    dataset_path: json\n"
        "    dataset_name: null\n"
        "    dataset_kwargs:\n"
        f"      data_files: {{train: {arc}, validation: {arc}, test: {arc}}}\n",
        encoding="utf-8",
    )
    return tmp_path


@needs_harness
def test_own_tasks_and_those_of_the_harness(own_tasks):
    """Asked for through `evaluate`, which runs tasks where the models are."""
    from tokengraft.api.verbs import evaluate as measure
    from tokengraft.core.errors import UsageError

    def run(*names):
        return measure(
            "rootstock", "rootstock", "udhr", ["hin"], 1, against=False, continuation=False,
            resamples=0, tasks=names, tasks_include=own_tasks,
        )  # fmt: skip

    rows = run("mine").tasks.to_dicts()
    assert {"tokengraft_capitals", "arc_easy"} <= {row["task"] for row in rows}
    own = [row for row in rows if (row["task"], row["metric"]) == ("tokengraft_capitals", "acc")]
    base, graft = (row for name in ("base", "graft") for row in own if row["model"] == name)
    assert base["value"] == graft["value"] and 0 <= base["value"] <= 1
    assert base["n"] == 3
    with pytest.raises(UsageError, match="no task 'nonsense'"):
        run("nonsense")


def test_without_the_harness_the_message_says_what_to_do(monkeypatch):
    import sys

    from tokengraft.core.errors import MissingExtra
    from tokengraft.evaluating.harness_tasks import Tasks, run_tasks

    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(MissingExtra, match=r"tokengraft\[tasks\]"):
        run_tasks("rootstock", "rootstock", Tasks(["x"]))


def test_fidelity_explains_itself_and_refuses_what_is_not_there():
    done = CliRunner().invoke(app, ["fidelity", "--help"])
    assert done.exit_code == 0 and "--corpus" in done.output
    done = CliRunner().invoke(
        app, ["fidelity", "--model", "rootstock", "--corpus", "udhr", "-l", "x"]
    )
    assert done.exit_code == 1


def test_a_sample_never_ends_inside_a_character():
    from tokengraft.evaluating.generation import write_samples
    from tokengraft.model.frozen import FrozenModel, Reading

    model = FrozenModel.load("rootstock", Reading("cpu"))
    written = [write_samples(model, model, "amh_Ethi", ["የሰው፡ልጅ፡ሁሉ፡"], tokens=n) for n in (1, 3)]
    assert not [s for cut in written for s in cut if s["base"].endswith("\ufffd")]
    assert written[0][0]["base"] == "" and written[1][0]["base"] == "፡"  # three byte tokens
