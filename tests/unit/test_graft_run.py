"""The whole graft: card, manifest, and nothing left behind when something goes wrong."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import tokengraft.paper  # noqa: F401 - adds its methods
from helpers.tiny_models import edit, make, new_rows, plan, texts, tokenizer_json, torch
from tokengraft.api.verbs import verify as prove
from tokengraft.core.errors import (
    GraftError,
    ModelError,
    TokengraftError,
    TokenizerError,
    UsageError,
)
from tokengraft.deriving.derive import Derived
from tokengraft.deriving.distil.recipe import HeldOut
from tokengraft.deriving.known_methods import METHODS
from tokengraft.grafting import graft as run
from tokengraft.grafting.graft import Derivation, Finishing, graft
from tokengraft.grafting.manifest import shown_command
from tokengraft.grafting.verify import tokens as verify_tokens
from tokengraft.model import checkpoint as weights
from tokengraft.model.folder import resolve
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Planning, with_plan
from tokengraft.planning.plan_files import read_plan

LINES = [line for lines in texts().values() for line in lines]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("run") / "base", "llama-tied")


ROWS = Derived(new_rows(), "random", {"seed": 1}, ("for tests only",))


def do(base: Path, out: Path, rows: Any = ROWS, **options: Any) -> Any:
    return graft(base, plan(), out, rows, options=Finishing(**{"check": LINES, **options}))


def test_card_and_manifest(base: Path, tmp_path: Path) -> None:
    judged = HeldOut(0.19, 0.86, 0.9, 100)
    rows = replace(ROWS, held_out=judged, floor=HeldOut(2.0, 0.1, 0.1, 100))
    command = ["tokengraft", "graft", str(base), "plan.json", f"--out={tmp_path / 'out'}"]
    done = do(base, tmp_path / "out", rows, command=command)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(card.split("---")[1])
    assert front["base_model"] == "base"
    assert front["language"] == ["amh", "tam"]
    assert front["license"] == "mit"
    assert front["library_name"] == "transformers"
    for words in (
        "Amharic",
        "premium before",
        "`random`",
        "0.860",
        "input-only",
        "## Limits",
        "KL: how far the guess",
        "its base: it reads it in fewer tokens",
        "**This graft works",
    ):
        assert words in card
    do(base, tmp_path / "bare", verified=False)
    assert "**Not judged" in (tmp_path / "bare" / "README.md").read_text(encoding="utf-8")
    manifest = json.loads((tmp_path / "out" / "tokengraft.json").read_text())
    assert manifest["command"] == "tokengraft graft base plan.json --out=out"
    assert set(manifest["files"]) == {
        p.name for p in (tmp_path / "out").iterdir() if p.name != "tokengraft.json"
    }
    assert done.report.passed


def test_a_card_prints_names_and_notes_as_they_are(base: Path, tmp_path: Path) -> None:
    hostile = "x](http://evil) <img src=x> `# |"
    steps = replace(plan(), notes=(hostile,))

    class Hostile(Derived):
        scores = property(lambda self: {hostile: 0.5})
        verdict = property(lambda self: "It works: <b>")

    rows = Hostile(new_rows(), hostile, {"seed": hostile}, (hostile,))
    given = Finishing(LINES, verified=False, license=hostile)
    graft(base, steps, tmp_path / 'o](u) <b>"', rows, options=given)
    _, _, card = (tmp_path / 'o](u) <b>"' / "README.md").read_text(encoding="utf-8").split("---", 2)
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", card.replace("\\`", ""), flags=re.DOTALL)
    for markup in ("](", "<img", "<b>"):
        assert not re.search(rf"(?<!\\){re.escape(markup)}", prose), markup
    assert "on the UDHR before" in card
    assert "**It works: \\<b>**" in card
    measured = verify_tokens.Pair(json.loads(tokenizer_json()), with_plan(base_json(), plan()))
    before, after = measured.premiums(["amh_Ethi"])["amh_Ethi"]
    assert f"| {before:.2f} | {after:.2f} |" in card
    assert after < before


def test_a_saving_that_is_not_measured_is_told_on_the_card(base: Path, tmp_path: Path) -> None:
    assert "far greater saving" not in card_of(base, plan(), tmp_path / "true")
    stated = plan()
    effects = {
        code: replace(one, premium_before=20.0, premium_after=1.01, curve=())
        for code, one in stated.languages.items()
    }
    false = replace(stated, languages=effects)
    assert "Amharic (amh_Ethi): the plan states a far greater saving than was measured" in card_of(
        base, false, tmp_path / "false"
    )


def card_of(base: Path, steps: Plan, out: Path) -> str:
    graft(base, steps, out, ROWS, options=Finishing(LINES, verified=False))
    return (out / "README.md").read_text(encoding="utf-8")


def base_json() -> dict[str, Any]:
    return dict(json.loads(tokenizer_json()))


def spoil(tokens: list[dict[str, Any]]) -> None:
    for token in tokens:
        token["parts"] = [65, 66]


def test_an_edited_plan_is_refused_before_anything_is_written(base: Path, tmp_path: Path) -> None:
    plan().write(tmp_path / "plan.json")
    edit(tmp_path / "plan.json", lambda d: spoil(d["tokens"]))
    with pytest.raises(TokenizerError, match="edited or damaged"):
        graft(base, read_plan(tmp_path / "plan.json"), tmp_path / "out", rows=new_rows())
    assert not (tmp_path / "out").exists()


def test_equal_inputs_give_equal_folders_without_a_path_in_them(base: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        do(base, tmp_path / name / "grafted", verified=False)
    one, two = (sorted((tmp_path / n / "grafted").iterdir()) for n in ("one", "two"))
    assert [p.name for p in one] == [p.name for p in two]
    for left, right in zip(one, two, strict=True):
        assert left.read_bytes() == right.read_bytes(), left.name
        assert str(tmp_path).encode() not in left.read_bytes()
        assert str(base.parent).encode() not in left.read_bytes()


def test_a_graft_is_replaced_and_anything_else_left_alone(base: Path, tmp_path: Path) -> None:
    do(base, tmp_path / "out", verified=False)
    do(base, tmp_path / "out", verified=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="left alone"):
        do(base, tmp_path / "mine")
    with pytest.raises(UsageError, match="is or holds the base"):
        do(base, base)


def test_force_replaces_any_other_folder_but_the_base(base: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "notes.txt").write_text("no longer wanted")
    do(base, tmp_path / "old", verified=False, force=True)
    assert (tmp_path / "old" / "tokengraft.json").is_file()
    assert not (tmp_path / "old" / "notes.txt").exists()
    with pytest.raises(UsageError, match="is or holds the base"):
        do(base, base, force=True)


def test_paths_may_be_strings(base: Path, tmp_path: Path) -> None:
    done = graft(
        str(base),
        plan(),
        str(tmp_path / "out"),
        rows=new_rows(),
        options=Finishing(check=LINES),
    )
    assert (done.folder / "tokengraft.json").is_file()
    assert prove(str(tmp_path / "out"), str(base), LINES).passed


def nothing_left(folder: Path) -> bool:
    return not list(folder.iterdir())


def test_a_failed_verification_leaves_nothing(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = new_rows()
    dead[3] = 0
    with pytest.raises(GraftError, match="no dead rows") as caught:
        do(base, tmp_path / "out", rows=Derived(dead, "broken"))
    assert caught.value.exit_code == 3
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_damaged_base_is_told_from_a_bad_graft(tmp_path: Path, value: float) -> None:
    from safetensors.numpy import load_file, save_file

    base = make(tmp_path / "base", "llama-untied")
    weights = load_file(base / "model.safetensors")
    weights["lm_head.weight"][7, 3] = value
    save_file(weights, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"base is damaged: row 7 of lm_head\.weight") as caught:
        do(base, tmp_path / "out")
    assert caught.value.exit_code == 1 and not (tmp_path / "out").exists()


def test_a_full_disk(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(target: int, data: bytes, at: int) -> None:
        os.pwrite(target, data[:10], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tokengraft.grafting.write_folder.write_at", full)
    with pytest.raises(TokengraftError, match="No space left on device") as caught:
        do(base, tmp_path / "out")
    assert caught.value.exit_code == 1
    assert nothing_left(tmp_path)


def test_a_limit_of_the_system_on_file_size(base: Path, tmp_path: Path) -> None:
    """The kernel itself refuses to go on in the middle of a weight file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(TokengraftError, match="could not be written"):
            do(base, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert nothing_left(tmp_path)


def test_too_little_room_is_seen_before_anything_is_written(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("tokengraft.grafting.write_folder.shutil.disk_usage", lambda _: usage)
    with pytest.raises(TokengraftError, match="are free: nothing written"):
        do(base, tmp_path / "out")
    assert nothing_left(tmp_path)


def test_an_interrupted_run_keeps_the_graft_that_was_there(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(base, tmp_path / "out", verified=False)
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "write_manifest", interrupt)
    with pytest.raises(KeyboardInterrupt):
        do(base, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert before == {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}


def test_a_plan_for_another_tokenizer(base: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "other", "llama-tied")
    edit(other / "tokenizer.json", lambda value: {**value, "truncation": {"max_length": 8,
         "strategy": "LongestFirst", "stride": 0, "direction": "Right"}})  # fmt: skip
    with pytest.raises(TokenizerError, match="this plan is for the tokenizer"):
        do(other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_plans_that_cannot_be_read(tmp_path: Path) -> None:
    for text in ("{", "[]", "{}", '{"schema": 99}'):
        (tmp_path / "plan.json").write_text(text)
        with pytest.raises(TokengraftError, match="plan"):
            read_plan(tmp_path / "plan.json")
    with pytest.raises(TokengraftError, match="cannot read this plan"):
        read_plan(tmp_path / "none.json")


def test_a_plan_survives_its_file(base: Path, tmp_path: Path) -> None:
    plan().write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan()


def test_models_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (resolve("rootstock").path / "model.safetensors").is_file()
    with pytest.raises(ModelError, match="Did you mean rootstock"):
        resolve("rootstok")
    with pytest.raises(ModelError, match="not a model folder"):
        resolve(tmp_path)

    from huggingface_hub import errors

    def offline(*_: Any, **__: Any) -> str:
        raise errors.LocalEntryNotFoundError("offline")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(ModelError, match="cannot be reached"):
        resolve("org/name")


def test_a_command_tells_nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_command(["tokengraft", "/home/me/x y/plan.json", "--out=/srv/out", "-k", "5"])
    assert shown == "tokengraft plan.json --out=out -k 5"
    assert shown_command([str(Path.cwd() / "a" / "b")]) == "a/b"
    words = ["-o/home/me/out", "--text", "shn=/home/me/a.txt", "--x=shn=/a/b=c/d", "~no-one/a"]
    words += ["../../up/x", "file:///home/me/y", f"-o{Path.cwd()}/z", "-k.5", "--lr=1e-3"]
    assert shown_command(words) == "-oout --text shn=a.txt --x=shn=d a x y -oz -k.5 --lr=1e-3"


def test_rows_may_be_derived(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokengraft.deriving")
    done = do(base, tmp_path / "out", Derivation("mean"))
    table = weights.read_checkpoint(base)
    tensor = table.tensors["model.embed_tokens.weight"]
    old = table.rows(tensor, 0, tensor.shape[0])
    expected = np.stack([old[list(token.parts)].mean(0) for token in plan().tokens])
    assert np.allclose(done.rows.rows, expected, atol=1e-5)
    assert done.rows.method == "mean"


# The tiny vocabulary has no anchor that split-anchor could learn from.
@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"paper.split-anchor"}))
def test_the_rows_of_every_method_pass_verification(
    method: str, base: Path, tmp_path: Path
) -> None:
    """None of them is refused as outsized."""
    options = {"steps": 3} if method == "distil" else {}
    text = LINES if METHODS[method].needs == "text" else None
    done = do(base, tmp_path / "out", Derivation(method, text, options))
    assert done.report.passed


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """As Gemma 3's text models: a special token whose id, 320, lies behind the table's rows."""
    base = make(tmp_path_factory.mktemp("image") / "base", "llama-untied")

    def add(value: dict[str, Any]) -> None:
        value["added_tokens"].append({**value["added_tokens"][0], "id": 320, "content": "<image>"})

    edit(base / "tokenizer.json", add)
    given = {code: lines for code, lines in texts().items() if code != "eng_Latn"}
    parsed = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    return base, plan_tokens(parsed, given, Planning(budget=24))


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"paper.split-anchor"}))
def test_every_method_with_a_token_behind_the_table(
    method: str, image: tuple[Path, Any], tmp_path: Path
) -> None:
    base, chosen = image
    options = {"steps": 3} if method == "distil" else {}
    text = None
    if METHODS[method].needs == "text":
        text = [*LINES, f"{LINES[-1][:40]} <image>"]  # which the base itself could not read
    done = graft(
        base,
        chosen,
        tmp_path / "out",
        rows=Derivation(method=method, text=text, options=options),
        options=Finishing(check=LINES),
    )
    assert done.report is not None
    assert done.report.passed
    assert done.written.new == range(321, 321 + len(chosen.tokens))


def test_rows_say_in_a_line_what_they_are() -> None:
    assert repr(Derived(new_rows(), "random")) == "Derived(24 rows of 16 by random)"


def test_outsized_rows_are_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(GraftError, match="over 10 times as long as the longest old one"):
        do(base, tmp_path / "out", rows=Derived(new_rows() * 100, "loud"))
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_shard_that_fails_in_its_thread_leaves_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make(tmp_path / "base", "llama-untied", shard="14KB")
    begun: list[str] = []

    def copy(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:9])  # half of it
        begun.append(source.name)
        raise error

    monkeypatch.setattr("tokengraft.grafting.write_folder.copy_file", copy)
    (tmp_path / "place").mkdir()
    with pytest.raises((TokengraftError, KeyboardInterrupt)) as caught:
        do(base, tmp_path / "place" / "out")
    assert begun
    assert nothing_left(tmp_path / "place")
    if isinstance(error, OSError):
        assert "Input/output error" in str(caught.value)


@pytest.mark.parametrize(
    ("case", "tokenizer_class"),
    [("qwen2", "Qwen2Tokenizer"), ("qwen3", "Qwen2TokenizerFast"), ("gpt2", "GPT2Tokenizer"),
     ("olmo2", "GPT2Tokenizer"), ("llama-tied", "PreTrainedTokenizerFast")],
)  # fmt: skip
def test_relaxed_boundaries_survive_classes_with_a_pattern_of_their_own(
    case: str, tokenizer_class: str, tmp_path: Path
) -> None:
    """transformers 5 rebuilds some tokenizers with its own pattern, Qwen 2's whatever is said."""
    base = make(tmp_path / "base", case)
    edit(base / "tokenizer_config.json", lambda v: {**v, "tokenizer_class": tokenizer_class})
    given = {"tam_Taml": texts()["tam_Taml"]}
    relaxed = plan_tokens(
        json.loads(tokenizer_json()), given, Planning(budget=30, boundaries="relax")
    )
    assert relaxed.cut.scripts
    rows = np.random.default_rng(0).normal(0, 0.5, (len(relaxed.tokens), 16)).astype(np.float32)
    done = graft(base, relaxed, tmp_path / "out", rows=rows, options=Finishing(check=LINES))
    assert done.report is not None
    assert done.report.passed


@pytest.mark.parametrize("start", [{}, {"add_bos_token": True}, {"add_bos_token": False}], ids=str)
def test_a_llama_class_over_a_byte_level_file(start: dict[str, bool], tmp_path: Path) -> None:
    """As DeepSeek has it: no post-processor, so that it depends on the class what is put around."""
    base = make(tmp_path / "base", "llama-tied")
    silent = {"tokenizer_class": "LlamaTokenizerFast", "unk_token": None, **start}
    edit(base / "tokenizer_config.json", lambda v: {**v, **silent})
    edit(base / "tokenizer.json", lambda v: {**v, "post_processor": None})
    parsed = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    chosen = plan_tokens(parsed, texts(), Planning(budget=20))
    rows = np.random.default_rng(0).normal(0, 0.5, (len(chosen.tokens), 16)).astype(np.float32)
    done = graft(base, chosen, tmp_path / "out", rows=rows, options=Finishing(check=LINES))
    assert done.report is not None
    assert done.report.passed


def test_torch_is_not_needed_to_export() -> None:
    import subprocess

    code = (
        "import sys, tokengraft.grafting.write_folder, tokengraft.grafting.graft;"
        "import tokengraft.grafting.verify.invariants;"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert torch is not None


def test_a_pattern_that_transformers_would_replace_is_refused_before_training(
    tmp_path: Path,
) -> None:
    base = make(tmp_path / "base", "llama-tied")
    edit(
        base / "tokenizer_config.json",
        lambda value: value.update(tokenizer_class="CohereTokenizerFast"),
    )
    text = Derivation(text=[line for lines in texts().values() for line in lines])
    with pytest.raises(GraftError, match=r"nothing was trained:\n  \w+: (.|\n)*portable"):
        graft(base, plan(), tmp_path / "out", text)
    assert not (tmp_path / "out").exists()
