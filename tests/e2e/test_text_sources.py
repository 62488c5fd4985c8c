"""Text means the same wherever it comes from: every kind of source, every verb, both ways in."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import tokengraft as tg
from helpers.tiny_models import make, plan, texts
from tokengraft.cli.app import app
from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.corpus.lines_of import count_text, lines_of

CODE = "amh_Ethi"
LINES = texts()[CODE][:12]
_TABLE = pl.DataFrame({"text": LINES, "id": range(len(LINES))})
_PLAIN = "\n".join(LINES).encode()
_JSONL = "".join(json.dumps({"id": 1, "text": line}) + "\n" for line in LINES).encode()


def _file(name: str, data: bytes) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        (folder / name).write_bytes(data)
        return str(folder / name)

    return write


def _parquet(folder: Path) -> str:
    _TABLE.write_parquet(folder / "a.parquet")
    return str(folder / "a.parquet")


def _halves(folder: Path) -> str:
    (folder / "a1.txt").write_text("\n".join(LINES[:5]), "utf-8")
    (folder / "a2.txt").write_text("\n".join(LINES[5:]), "utf-8")
    return str(folder)


#: what can be said in one string, and so on the command line
NAMED: dict[str, Callable[[Path], str]] = {
    "text": _file("a.txt", _PLAIN),
    "unknown suffix": _file("a.dev", _PLAIN),
    "compressed": _file("a.txt.gz", gzip.compress(_PLAIN)),
    "jsonl": _file("a.jsonl", _JSONL),
    "one row of several lines": _file("b.jsonl", json.dumps({"text": "\n".join(LINES)}).encode()),
    "parquet": _parquet,
    "folder": _halves,
    "glob": lambda folder: f"{_halves(folder)}/a*.txt",
    "url": lambda folder: Path(_file("a.jsonl", _JSONL)(folder)).as_uri(),
}


def _mixed(folder: Path) -> list[str]:
    """Every kind at once, each with a share of the lines."""
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b"\n".join(_JSONL.splitlines()[:3])))
    _TABLE[3:6].write_parquet(folder / "b.parquet")
    (folder / "c1.txt").write_text("\n".join(LINES[6:8]), "utf-8")
    (folder / "c2.txt").write_text("\n".join(LINES[8:9]), "utf-8")
    (folder / "d.dev").write_text("\n".join(LINES[9:]), "utf-8")
    names = ("a.jsonl.gz", "b.parquet", "c*.txt")
    return [*(str(folder / name) for name in names), (folder / "d.dev").as_uri()]


#: what only Python can say
GIVEN: dict[str, Callable[[Path], Any]] = {
    **NAMED,
    "path": lambda folder: Path(NAMED["jsonl"](folder)),
    "several kinds": _mixed,
    "list of paths": lambda folder: sorted(Path(_halves(folder)).iterdir()),
    "lines": lambda folder: LINES,
    "iterator of lines": lambda folder: iter([f"{line}\n" for line in LINES]),
    "by language": lambda folder: {CODE: NAMED["jsonl"](folder)},
    "counted words": lambda folder: tg.count_words({CODE: _mixed(folder)})[CODE],
    "counted by language": lambda folder: tg.count_words({CODE: NAMED["jsonl"](folder)}),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("text") / "base", "llama-tied")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    path.write_text(json.dumps(plan().to_json()), "utf-8")
    return path


@pytest.fixture(scope="module")
def grafted(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("grafted") / "graft"
    return tg.graft(base, plan(), out, method="mean", verified=False).folder


class Verbs:
    """The four verbs, each as a function of a text: equal texts must give equal results."""

    def __init__(self, base: Path, plan_file: Path, grafted: Path, out: Path) -> None:
        self.base, self.plan_file, self.grafted, self.out = base, plan_file, grafted, out

    def plan(self, source: Any) -> Any:
        planned = tg.plan(self.base, CODE, source, budget=6)
        return json.loads(json.dumps(planned.plan.to_json()))

    def graft(self, source: Any) -> Any:
        tg.graft(self.base, self.plan_file, self.out, method="distil", text=source, steps=1,
                 device="cpu", verified=False)  # fmt: skip
        return self.digest()

    def verify(self, source: Any) -> Any:
        return [check.detail for check in tg.verify(self.grafted, self.base, source).checks]

    def evaluate(self, source: Any) -> Any:
        with pytest.raises(CorpusError, match="line 1 of the training text") as error:
            tg.evaluate(self.base, self.grafted, text=source, device="cpu")
        return str(error.value)

    def plan_cli(self, *text: str) -> Any:
        ran = run("plan", self.base, "-l", CODE, *text, "--budget", 6, "--json")
        return json.loads(ran.stdout)

    def graft_cli(self, *text: str) -> Any:
        run("graft", self.base, self.plan_file, *text, "--method", "distil", "--steps", 1,
            "--device", "cpu", "-o", self.out)  # fmt: skip
        return self.digest()

    def verify_cli(self, *text: str) -> Any:
        ran = run("verify", self.grafted, "--base", self.base, *text, "--json")
        return [check["detail"] for check in json.loads(ran.stdout)]

    def evaluate_cli(self, *text: str) -> Any:
        ran = run("evaluate", self.base, self.grafted, *text, "--device", "cpu", code=1)
        return str(ran.exception)

    def digest(self) -> str:
        return hashlib.sha256((self.out / "model.safetensors").read_bytes()).hexdigest()


def run(*arguments: Any, code: int = 0) -> Any:
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert ran.exit_code == code, ran.output
    return ran


@pytest.fixture
def verbs(base: Path, plan_file: Path, grafted: Path, tmp_path: Path, one_thread: None) -> Verbs:
    return Verbs(base, plan_file, grafted, tmp_path / "out")


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What each verb makes of the plain lines, by its name; filled by the first that asks."""
    return {}


def reference(verbs: Verbs, verb: str, expected: dict[str, Any]) -> Any:
    if verb not in expected:
        expected[verb] = getattr(verbs, verb)(LINES)
        other = LINES[1:] if verb != "evaluate" else [LINES[3], *LINES]
        assert getattr(verbs, verb)(other) != expected[verb], "the check sees no difference"
    return expected[verb]


#: The kinds that every verb is given in both ways; those that load a model afresh get no others.
EVERYWHERE = ("jsonl", "parquet", "glob", "url", "lines", "several kinds", "counted words")
CASES = [
    (verb, way, kind)
    for verb in ("plan", "graft", "verify", "evaluate")
    for way, kinds in (("Python", GIVEN), ("command line", NAMED | {"several kinds": _mixed}))
    for kind in kinds
    if kind in EVERYWHERE or verb in ("plan", "evaluate") or (verb, way) == ("graft", "Python")
]


@pytest.mark.parametrize(("verb", "way", "kind"), CASES)
def test_text_means_the_same(
    verb: str, way: str, kind: str, verbs: Verbs, expected: dict[str, Any], tmp_path: Path
) -> None:
    """Results are those of the plain lines, for every source, verb, and way to call it.

    On the command line `plan` counts the words of all its text (`count_words`) before it chooses.
    """
    if way == "Python":
        made = getattr(verbs, verb)(GIVEN[kind](tmp_path))
    else:
        said = _mixed(tmp_path) if kind == "several kinds" else [NAMED[kind](tmp_path)]
        code = "amh=" if kind == "several kinds" else ""
        text = [part for source in said for part in ("--text", f"{code}{source}")]
        made = getattr(verbs, f"{verb}_cli")(*text)
    assert made == reference(verbs, verb, expected)


@pytest.mark.parametrize("verb", ["graft", "verify", "evaluate"])
def test_words_that_were_not_counted_from_files_have_no_lines(verb: str, verbs: Verbs) -> None:
    with pytest.raises(UsageError, match="counted words have no lines"):
        getattr(verbs, verb)(count_text(LINES))


def test_counted_words_leave_out_what_counting_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(_JSONL + b"no JSON\n")
    words = tg.count_words({CODE: path}, skip_bad=True)
    assert list(lines_of(words)) == LINES


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("missing.txt", CorpusError, "missing.txt: no such file"),
        (Path("missing.txt"), CorpusError, "missing.txt: no such file"),
        ("two words", CorpusError, "no such file"),
        ("missing/*.txt", CorpusError, "no file matches"),
        (["missing.txt"], UsageError, "'missing.txt' looks like a file"),
        (["a line", "missing.jsonl.gz"], UsageError, "'missing.jsonl.gz' looks like a file"),
        (["a line", 3], UsageError, "must be a string, not 3"),
        (3, UsageError, "3 is not text"),
        ([], CorpusError, "holds no line"),
        ([" ", "\n"], CorpusError, "holds no line"),
        ({"amh": ["a line"], "tam": "missing.txt"}, CorpusError, "missing.txt: no such file"),
    ],
)
def test_what_is_no_text(source: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        list(lines_of(source))


def test_a_list_of_names_is_files_and_a_list_of_words_is_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words").write_text("one\ntwo\n", "utf-8")
    assert list(lines_of(["words"])) == ["one", "two"]
    assert list(lines_of(["words", "and more words"])) == ["words", "and more words"]
    assert list(lines_of(iter(["words"]))) == ["words"]


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[_PLAIN])
    writer.start()
    assert list(lines_of(str(pipe))) == LINES
    writer.join()
    with pytest.raises(UsageError, match="is a pipe, which can be read once only"):
        tg.count_words({CODE: pipe})


def test_other_columns_and_formats(tmp_path: Path) -> None:
    path = tmp_path / "a.dev"
    path.write_text('{"content": "one"}\n{"content": "two"}\n', "utf-8")
    assert list(lines_of(path, text_column="content", format_="jsonl")) == ["one", "two"]
    (tmp_path / "b.jsonl").write_text('{"content": "one"}\n', "utf-8")
    with pytest.raises(CorpusError, match=r"b.jsonl, line 1: 'text' is missing"):
        list(lines_of(tmp_path / "b.jsonl"))
    (tmp_path / "lang=xx").mkdir()
    hive = tmp_path / "lang=xx" / "a.txt"
    hive.write_text("\n".join(LINES), "utf-8")
    assert list(lines_of(str(hive))) == LINES
