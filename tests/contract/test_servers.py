"""One suite over every program that serves grafts: its row, and a real graft in it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.grafting.graft import Finishing, graft
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning
from tokengraft.serving import SERVERS, config_of, in_programs, llama_cpp, named, where_served
from tokengraft.serving.own_readers import OWN_READERS, last_error, run_script
from tokengraft.tokenizer.catalog import as_json, find
from tokengraft.tokenizer.pre_tokenizer import tells_case

pytest.importorskip("torch")
from helpers import tiny_models as tiny

ABSENT = {
    "llama.cpp": llama_cpp.installed() is None or importlib.util.find_spec("gguf") is None,
    "vllm": importlib.util.find_spec("vllm") is None,
} | {
    program: any(importlib.util.find_spec(package) is None for package in packages)
    for program, (packages, _) in OWN_READERS.items()
}


@pytest.fixture(scope="module")
def grafted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[str]]:
    """A tiny base, its graft with boundaries kept, and lines."""
    root = tmp_path_factory.mktemp("served")
    base = tiny.make(root / "base", "llama-tied")
    given = {code: lines for code, lines in tiny.texts().items() if code != "eng_Latn"}
    plan = plan_tokens(
        json.loads(tiny.tokenizer_json()), given, Planning(budget=24, boundaries="portable")
    )
    lines = [line for group in tiny.texts().values() for line in group]
    graft(base, plan, root / "graft", rows=tiny.new_rows(), options=Finishing(check=lines))
    return base, root / "graft", lines


@pytest.mark.parametrize("name", SERVERS)
def test_a_row_says_what_it_is(name):
    server = SERVERS[name]
    assert server.name == name
    assert server.summary and server.needs
    assert named(name) is server
    parsed = json.loads(tiny.tokenizer_json())
    assert name in where_served(parsed, {})
    promised = where_served(parsed, {}, relaxed=True).partition("; not by")[0]
    assert (name in promised) == bool(server.relaxed)


@pytest.mark.parametrize("name", SERVERS)
def test_a_graft_is_served_as_its_folder_says(name, grafted):
    if ABSENT.get(name):
        pytest.skip(f"{name} is not installed: needs {SERVERS[name].needs}")
    base, folder, lines = grafted
    checks = SERVERS[name].run(folder, base, lines)
    assert [check.detail for check in checks if not check.passed] == []
    assert checks[0].name == f"{name}: ids"
    assert {check.name.partition(":")[0] for check in checks} == {name}


@pytest.mark.parametrize("name", SERVERS)
def test_other_ids_are_seen(name, grafted, tmp_path, monkeypatch):
    """The folder's own reading is changed under the program's feet: it must notice."""
    if ABSENT.get(name) or name == "vllm":
        pytest.skip(f"{name} is not installed, or too slow for this")
    from tokengraft.serving import split_patterns

    base, folder, lines = grafted
    real = split_patterns.folder_ids
    wrong = lambda *given, **options: [[*ids, 1] for ids in real(*given, **options)]  # noqa: E731
    monkeypatch.setattr(split_patterns, "folder_ids", wrong)
    monkeypatch.setattr(split_patterns, "PATTERNS", ("gpt-2",))
    assert not SERVERS[name].run(folder, base, lines)[0].passed


def test_a_model_that_some_transformers_rebuild_is_not_promised_to_them():
    parsed = json.loads(tiny.tokenizer_json())
    said = where_served(parsed, {"model_type": "qwen2"}, relaxed=True)
    assert "not by 5.17 to 5.19" in said and "--boundaries portable" in said


def test_a_tokenizer_that_tells_case_is_not_promised_to_llama_cpp():
    split = {"type": "Split", "pattern": {"Regex": r"[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+|\p{N}"}}
    parsed = json.loads(tiny.tokenizer_json())
    assert not tells_case(parsed)
    steps = [split, {**parsed["pre_tokenizer"], "use_regex": False}]
    parsed["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    assert tells_case(parsed)
    said = where_served(parsed, {})
    assert "not by llama.cpp, which cuts this tokenizer's words differently" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("t5", "graft does not take a T5ForConditionalGeneration"),
        ("bert", "Served by transformers (an encoder"),
        ("llama3", "Served by transformers, llama.cpp, vllm."),
        ("claude-2.1", "Served by transformers, llama.cpp, vllm."),
        ("gpt-4o", "not by llama.cpp, which cuts"),
    ],
)
def test_a_plan_says_what_can_be_had(name, said):
    assert said in where_served(as_json(find(name)), config_of(name))


def test_a_folder_says_what_model_it_is(tmp_path):
    for architecture, said in (
        ("DeepseekV3ForCausalLM", "graft does not take a Deepseek"),
        ("GPT2LMHeadModel", "not by llama.cpp, unless you have the base's GGUF"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
        config = config_of(str(tmp_path))
        assert said in where_served(json.loads(tiny.tokenizer_json()), config)


def test_a_program_that_is_absent_or_gives_up_says_why(grafted, monkeypatch):
    """Absent: an error with what to install. Giving up: a row of the card that failed."""
    base, folder, lines = grafted
    asked = {"folder": str(folder), "lines": lines}
    with pytest.raises(TokengraftError, match=r"it ended with 1: ValueError: no such pattern$"):
        run_script("it", "raise ValueError('no such\\n   pattern')", asked)
    traced, ignored = "Traceback:\n  File x\n", "\nException ignored in: f\nTraceback:\nKeyError: 1"
    for ended, told in (
        (
            traced + "RuntimeError: no\n tensor\nError code 3",
            "RuntimeError: no tensor Error code 3",
        ),
        (traced + "openvino.Exception: no\n such op" + ignored, "openvino.Exception: no such op"),
        ("loading\nkilled", "killed"),
        ("ValueError: " + "x" * 1000, "ValueError: " + "x" * 588 + " …"),
    ):
        assert last_error(ended) == told
    broken = {"openvino-genai": (("json",), "raise ValueError('no such pattern')")}
    monkeypatch.setattr(in_programs, "OWN_READERS", broken)
    (check,) = SERVERS["openvino-genai"].run(folder, base, lines)
    assert not check.passed and check.detail.endswith("ValueError: no such pattern")
    monkeypatch.setattr(in_programs, "OWN_READERS", {"openvino-genai": (("no_such_package",), "")})
    with pytest.raises(TokengraftError, match="pip install no-such-package"):
        SERVERS["openvino-genai"].run(folder, base, lines)


def test_a_line_read_otherwise_is_counted_and_shown(grafted, monkeypatch):
    base, folder, lines = grafted
    script = "from tokenizers import Tokenizer\n"
    script += "own = Tokenizer.from_file(folder + '/tokenizer.json')\n"
    script += "ids = [own.encode(x, add_special_tokens=False).ids for x in lines]\n"
    script += "ids[2] = ids[2][:-1]\nanswer = {'ids': ids, 'version': '1.0'}"
    monkeypatch.setattr(in_programs, "OWN_READERS", {"openvino-genai": (("json",), script)})
    (check,) = SERVERS["openvino-genai"].run(folder, base, lines)
    assert not check.passed
    first = json.dumps(lines[2][:60], ensure_ascii=False)
    said = f"1 of {len(lines)} lines get other ids, first {first}; openvino-genai 1.0"
    assert check.detail == said


def test_the_package_of_vllms_processor_brings_nothing_along():
    """vLLM's environment has tokengraft without its other packages."""
    heavy = "{'numpy', 'polars', 'torch', 'tokenizers', 'transformers'}"
    code = (
        f"import sys, tokengraft.serving as s; assert s.SERVERS; print({heavy} & {{*sys.modules}})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("build 7\nload: error: unknown pre-tokenizer\nexiting: Error\n", "load: error: u"),
        ("build 7\nGGML_ASSERT(rows) failed\n\n", "GGML_ASSERT"),
        ("", "nothing"),
    ],
)
def test_a_log_is_quoted_at_its_first_error_or_its_end(log, said, tmp_path):
    (tmp_path / "log").write_text(log)
    assert llama_cpp.Llama(0, None, tmp_path / "log").said().startswith(said)


def test_an_unknown_program_is_named_with_the_known():
    with pytest.raises(UsageError, match=r"llama.cpp.*Did you mean llama.cpp"):
        named("llamacpp")


def test_the_card_says_what_served_it(grafted, tmp_path):
    """Rows of each program that was run; another run replaces its own rows only."""
    import shutil

    import tokengraft as tg
    from tokengraft.grafting.card import write_served
    from tokengraft.grafting.verify.invariants import Check

    base, folder, lines = grafted
    folder = shutil.copytree(folder, tmp_path / "served")
    before = (folder / "README.md").read_text("utf-8")
    write_served(folder, [Check("vllm: ids", False, "3 lines | differ")])
    report = tg.verify(folder, base, lines, served_by=["transformers"])
    assert report.passed, report.checks
    card = (folder / "README.md").read_text("utf-8")
    table = [line for line in card.splitlines() if line.startswith(("| vllm", "| transformers"))]
    assert table[0] == "| vllm | ids | **FAILED**: 3 lines \\| differ |"
    assert [row.split(" | ")[1] for row in table] == ["ids", "ids", "saved"]
    assert table[1].split(" | ")[2].startswith("ok: ")
    assert card.count("## Served by") == 1
    for part in before.split("\n## "):
        assert part.strip() in card
    again = tg.verify(folder, base, lines, served_by=["transformers"])
    assert (folder / "README.md").read_text("utf-8") == card
    assert "edited since" not in next(c.detail for c in again.checks if c.name == "manifest")
