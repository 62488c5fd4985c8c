"""The command line as a user meets it: exit codes, messages, files.

Where the process itself matters (streams, logs, signals) a real one runs; see `process`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import tokengraft as tg


def process(*args, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tokengraft.cli.main", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "160", **environment},
    )


@pytest.fixture
def pair(tmp_path):
    (tmp_path / "en.txt").write_text("All are born free.\nEveryone has rights.\n")
    (tmp_path / "shn.txt").write_text("ၵူၼ်းၵူႈၵေႃႉ\nမီးသုၼ်ႇ\n")
    return f"eng_Latn={tmp_path / 'en.txt'}", f"shn_Mymr={tmp_path / 'shn.txt'}"


def test_help_teaches(tokengraft):
    shown = tokengraft("audit", "--help")
    assert shown.returncode == 0
    assert "tokengraft audit flores200.tar.xz" in shown.stdout
    assert "mean over passages" in shown.stdout


def test_no_arguments_show_the_verbs(tokengraft):
    shown = tokengraft()
    assert shown.returncode == 2
    assert all(verb in shown.stdout + shown.stderr for verb in ("audit", "tokenizers", "reproduce"))


def test_audit_of_two_files_as_json(tokengraft, pair):
    ran = tokengraft("audit", *pair, "-t", "gpt-3", "--json")
    assert "Note: gpt-3 has the tokenizer gpt2, shown as GPT-2/3." in ran.stderr
    ran = tokengraft("audit", *pair, "-t", "gpt2", "--json")
    assert "shown as" not in ran.stderr
    assert ran.returncode == 0, ran.stderr
    rows = {row["language"]: row for row in json.loads(ran.stdout)}
    assert rows["eng_Latn"]["premium"] == 1 and rows["shn_Mymr"]["premium"] > 5


def test_audit_writes_tables_and_figures(tokengraft, pair, tmp_path):
    ran = tokengraft("audit", *pair, "-t", "gpt2", "-t", "t5", "-o", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    for kind in ("csv", "parquet", "json", "md", "tex"):
        assert (tmp_path / "out" / "tables" / f"premiums.{kind}").stat().st_size
    assert list((tmp_path / "out" / "figures").glob("*.svg"))
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["pivot"] == "eng_Latn"
    assert "over 1% UNK" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["audit", "--no-such-option"], 2, "No such option"),
        (["audit", "nowhere/"], 1, "nowhere"),
        (["audit", "-t", "lama-3"], 1, "Did you mean llama-3"),
        (["audit", "-l", "shann"], 1, "shn_Mymr"),
        (["audit", "--pivot", "xxx_Latn", "-t", "t5"], 1, "xxx_Latn"),
        (["audit", "--prices", "none.yaml"], 1, "none.yaml"),
        (["report", "nowhere/"], 1, "nowhere"),
        (["insert", "gpt2", "nowhere/", "-o", "never"], 1, "nowhere"),
        (["verify", "nowhere/", "--base", "rootstock"], 1, "nowhere"),
        (["audit", "-t", "gemma3"], 1, "hub"),
        (["reproduce", "premiums"], 2, "--corpus"),
        (["reproduce", "premiums", "--corpus", "nowhere.tar.xz"], 1, "nowhere.tar.xz"),
    ],
)
def test_mistakes_are_explained(tokengraft, arguments, code, message):
    ran = tokengraft(*arguments)
    assert ran.returncode == code, ran.stderr
    assert message in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


def test_broken_text_names_file_and_line(tokengraft, pair, tmp_path):
    (tmp_path / "shn.txt").write_bytes("ၵူၼ်း\n".encode() + b"\xff\xfe\n")
    ran = tokengraft("audit", *pair)
    assert ran.returncode == 1
    assert "shn.txt" in ran.stderr and "2" in ran.stderr


def test_a_tokenizer_that_was_asked_for_and_is_missing_is_an_error(tokengraft, pair):
    ran = tokengraft("audit", *pair, "-t", "gpt2", "-t", "gemma3", "--json")
    assert ran.returncode == 1 and not ran.stdout
    message = " ".join(ran.stderr.split())
    assert "gemma" in message and "folder that holds it" in message
    assert len(message) < 300


@pytest.mark.parametrize("verb", ["tokenizers", "corpora", "languages"])
def test_lists(tokengraft, verb):
    rows = json.loads(tokengraft(verb, "--json").stdout)
    assert len(rows) >= 3
    assert tokengraft(verb).returncode == 0


def test_tokenizers_lists_the_rootstock(tokengraft):
    rows = json.loads(tokengraft("tokenizers", "--json").stdout)
    assert {row["name"]: row["where"] for row in rows}["rootstock"] == "bundled"


def test_corpora_lists_the_languages_of_one(tokengraft):
    codes = {row["code"] for row in json.loads(tokengraft("corpora", "udhr", "--json").stdout)}
    assert {"eng_Latn", "shn_Mymr"} <= codes


def test_version_and_completion(tokengraft):
    assert tokengraft("--version").stdout.startswith("tokengraft 0.")
    assert "--install-completion" in tokengraft("--help").stdout


def test_an_unwritable_folder_leaves_nothing(tokengraft, pair, tmp_path):
    (tmp_path / "out").write_text("a file, not a folder")
    ran = tokengraft("audit", *pair, "-t", "gpt2", "-o", tmp_path / "out")
    assert ran.returncode != 0
    assert (tmp_path / "out").read_text() == "a file, not a folder"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["en.txt", "out", "shn.txt"]


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-5"])
def test_a_pipe_of_few_characters_gets_what_it_can(pair, encoding):
    ran = process("audit", *pair, "-t", "gpt2", PYTHONIOENCODING=encoding)
    assert (ran.returncode, ran.stderr) == (0, "") and "Shan takes 6.60 times" in ran.stdout
    held = process("compare", "gpt2", "olmo-2", "-l", "shn", PYTHONIOENCODING=encoding)
    assert (held.returncode, held.stderr) == (0, "") and "GPT-2/3 > OLMo 2" in held.stdout
    assert re.search(r"Most gained: Shan, .* tokens \(-\d", held.stdout)  # a sign is not lost
    told = process("languages", "--json", PYTHONIOENCODING=encoding)
    names = {row["code"]: row["autonym"] for row in json.loads(told.stdout)}
    assert names["hin_Deva"] == "हिन्दी"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--minutes", "1"], "--minutes does nothing without --text: it is for distil"),
        (
            ["--steps", "5", "--method", "paper.knn"],
            "--steps does nothing with paper.knn: it is for distil",
        ),
        (["--layer", "3"], "--layer is called --option layer=N now"),
        (["--method", "knn"], "method 'knn' is called paper.knn now"),
        (["--option", "k"], "--option k: give NAME=VALUE"),
        (["--by-text", "1"], "--by-text does nothing without --text: it is for distil"),
        (
            ["--by-text", "1", "--method", "distil", "--policy", "write"],
            "nothing with --policy write",
        ),
        (["--by-text", "1", "--method", "distil", "--train", "lora"], "nothing with --train lora"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(tokengraft, options, message, tmp_path):
    ran = tokengraft("graft", "rootstock", tmp_path / "plan.json", "-o", tmp_path / "g", *options)
    assert ran.returncode == 2
    assert message in ran.stderr


def test_a_log_holds_each_message_on_one_line_and_nothing_else(pair, tmp_path):
    other = tmp_path / ("a-name-that-is-long-enough-to-fill-a-line" * 4)
    ran = process("audit", *pair, "-t", "gpt2", "-t", other, COLUMNS="80")
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error:")
    assert len(ran.stderr.splitlines()) == 1
    fine = process("audit", *pair, "-t", "gpt2", COLUMNS="80")
    assert (fine.returncode, fine.stderr) == (0, "")


def test_ctrl_c_while_the_program_is_being_loaded_is_quiet(tmp_path):
    """The interrupt comes during an import, as for a user who is quick."""
    (tmp_path / "typer.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    for module in ("tokengraft", "tokengraft.cli.main"):
        ran = subprocess.run(
            [sys.executable, "-m", module, "audit"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_ctrl_c_exits_130_and_the_next_run_goes_on(tmp_path):
    cache = tmp_path / "cache"
    running = subprocess.Popen(
        [sys.executable, "-m", "tokengraft.cli.main", "audit", "-t", "llama-3", "-t", "t5"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TOKENGRAFT_CACHE": str(cache)},
    )
    deadline = time.monotonic() + 60
    while not (cache / "audit.sqlite-wal").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)
    running.send_signal(signal.SIGINT)
    _, message = running.communicate(timeout=60)
    assert running.returncode == 130, message
    assert "run the command again to go on" in message
    again = process("audit", "-t", "t5", "-l", "shn", "--json", TOKENGRAFT_CACHE=str(cache))
    assert again.returncode == 0


@pytest.mark.parametrize(
    "words",
    [("audit", ""), ("audit", "-t", "", "-l", "tam"), ("plan", "gpt2", "-l", "shn", "--out=")],
)
def test_an_empty_argument_is_not_the_current_folder(tokengraft, tmp_path, monkeypatch, words):
    for code in ("eng_Latn", "shn_Mymr"):
        (tmp_path / f"{code}.txt").write_text("a\n")
    monkeypatch.chdir(tmp_path)
    ended = tokengraft(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "An argument is empty" in ended.stderr
    assert len(list(tmp_path.iterdir())) == 2


def test_an_empty_name_is_not_the_current_folder():
    with pytest.raises(tg.TokengraftError, match="corpus is empty"):
        tg.audit("", "gpt2")
    with pytest.raises(tg.TokengraftError, match="tokenizer is empty"):
        tg.audit("udhr", "")


def test_closed_streams_are_no_error():
    for stream in ("stdout", "stderr"):
        code = f"import sys; sys.{stream} = None; sys.argv[1:] = ['languages', 'Shan']"
        run = f"{code}; from tokengraft.cli.main import run; run()"
        assert subprocess.run([sys.executable, "-c", run], capture_output=True).returncode == 0
