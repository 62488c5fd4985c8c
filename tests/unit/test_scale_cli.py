"""`tokengraft audit` on large corpora: what it takes, prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tokengraft.api.verbs import count_words
from tokengraft.cli.app import app
from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.corpus import load
from tokengraft.tokenizer import load as load_tokenizer


def audit(*arguments: object, state: Path) -> str:
    full = [
        "audit",
        *map(str, arguments),
        "-t",
        "rootstock",
        "--workers",
        "1",
        "--state",
        str(state),
    ]
    result = CliRunner().invoke(app, full)
    if isinstance(result.exception, TokengraftError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def web(tmp_path: Path) -> Path:
    corpus = load("udhr")
    folder = tmp_path / "web"
    folder.mkdir()
    for code in ("eng_Latn", "shn_Mymr"):
        records = [json.dumps({"text": line, "lang": code}) for line in corpus.lines(code)[:30]]
        (folder / f"{code}.jsonl").write_text("\n".join(records) + "\n")
    return folder


def test_counts_by_language_column(web: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed = audit(web / "*.jsonl", "--language-column", "lang", "-o", out, state=tmp_path)
    assert "not parallel, so no premium" in " ".join(printed.split())
    assert "shn_Mymr │ Shan" in printed
    assert "60 lines in 2 shards" in printed
    written = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
    assert written == [
        "README.md",
        "manifest.json",
        *(
            f"tables/{name}.{kind}"
            for name in ("bad_rows", "counts", "shards")
            for kind in ("csv", "json", "parquet")
        ),
    ]
    rows = json.loads(
        audit(web, "--language-column", "lang", "-l", "shn_Mymr", "--json", state=tmp_path)
    )
    lines = load("udhr").lines("shn_Mymr")[:30]
    assert [row["language"] for row in rows] == ["shn_Mymr"]
    assert rows[0]["tokens"] == sum(map(len, load_tokenizer("rootstock").encode(lines)))
    assert rows[0]["relative_tokens_per_byte"] is None  # the pivot is not among the languages


def test_one_fixed_language_or_one_from_the_path(web: Path, tmp_path: Path) -> None:
    fixed = audit(web / "eng*", "--monolingual", "-l", "eng_Latn", "--json", state=tmp_path)
    by_path = audit(web, "--language-from-path", r"/(\w{3}_\w{4})\.jsonl", "--json", state=tmp_path)
    assert [row["language"] for row in json.loads(fixed)] == ["eng_Latn"]
    assert [row["language"] for row in json.loads(by_path)] == ["eng_Latn", "shn_Mymr"]
    assert json.loads(fixed)[0]["tokens"] == json.loads(by_path)[0]["tokens"]


def test_words_for_a_plan_are_counted_in_the_same_pass(web: Path, tmp_path: Path) -> None:
    ways = ("--language-from-path", r"/(\w{3}_\w{4})\.jsonl", "--skip-bad", "--json")
    (web / "tam_Taml.jsonl").write_text('{"text": "தமிழ்"}\nnot JSON\n')
    alone = audit(web, *ways, state=tmp_path / "alone")
    assert audit(web, *ways, "--words", state=tmp_path / "both") == alone
    assert audit(web, *ways, "--words", state=tmp_path / "both") == alone
    for code, kept in (("eng_Latn", 1), ("shn_Mymr", 1), ("tam_Taml", 0)):
        files = {code: web / f"{code}.jsonl"}
        own = count_words(files, skip_bad=True, state=tmp_path / "own")
        both = count_words(files, skip_bad=True, state=tmp_path / "both")
        assert both == own and both.total.payload == own.total.payload
        assert (own.total.resumed, both.total.resumed) == (0, kept)  # no file with a bad row
    fixed = (web / "eng*", "-l", "en", "--monolingual", "--json")
    before = audit(*fixed, state=tmp_path / "later")  # which has no words yet
    assert audit(*fixed, "--words", state=tmp_path / "later") == before
    english = count_words({"eng": web / "eng_Latn.jsonl"}, state=tmp_path / "later")
    assert english.total.resumed == 1


@pytest.mark.parametrize("said", ["eng_Latn", "en", "English"])
def test_languages_are_named_as_everywhere(web: Path, tmp_path: Path, said: str) -> None:
    for way in ("--monolingual", "--language-column=lang"):
        printed = audit(web / "eng*", way, "-l", said, "--json", state=tmp_path)
        assert [(r["language"], r["name"]) for r in json.loads(printed)] == [
            ("eng_Latn", "English")
        ]


def test_a_language_that_is_none_is_refused(web: Path, tmp_path: Path) -> None:
    with pytest.raises(TokengraftError, match=r"'Kurdish' is not a language code.*kmr_Latn"):
        audit(web, "--monolingual", "-l", "Kurdish", state=tmp_path)
    with pytest.raises(TokengraftError, match="'nonsense' is not a language code"):
        audit(web, "--monolingual", "-l", "nonsense", state=tmp_path)
    column = ("--language-column", "lang", "-l")
    with pytest.raises(TokengraftError, match=r"No row .*'nonsense'"):
        audit(web, *column, "nonsense", "-l", "shn", state=tmp_path)
    with pytest.raises(TokengraftError, match=r"No row .*'tam'"):
        audit(web, *column, "tam", state=tmp_path)
    # One of several that the corpus does not have is only not in the table.
    rows = json.loads(audit(web, *column, "tam", "-l", "shn", "--json", state=tmp_path))
    assert [row["language"] for row in rows] == ["shn_Mymr"]
    rows = json.loads(audit(web, "--monolingual", "-l", "tlh_Latn", "--json", state=tmp_path))
    assert [row["language"] for row in rows] == ["tlh_Latn"]  # well formed, not in the table


def test_labels_of_the_data_meet_the_pivot(web: Path, tmp_path: Path) -> None:
    short = (web / "eng_Latn.jsonl").read_text().replace('"eng_Latn"', '"en"')
    (web / "eng_Latn.jsonl").write_text(short)
    rows = json.loads(audit(web, "--language-column", "lang", "--json", state=tmp_path))
    assert [row["language"] for row in rows] == ["eng_Latn", "shn_Mymr"]
    assert all(row["relative_tokens_per_byte"] is not None for row in rows)


def test_headers_of_streamed_tables_name_languages(tmp_path: Path) -> None:
    rows = [{"id": f"u{n}", "source": "web", "en": "One two.", "Shan": "ၵူၼ်း"} for n in range(3)]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for chosen in ([], ["-l", "shn"], ["-l", "Shan"]):
        found = json.loads(audit(path, "--stream", "--json", *chosen, state=tmp_path))
        assert [(row["language"], row["rows"]) for row in found] == [
            ("eng_Latn", 3),
            ("shn_Mymr", 3),
        ]
    in_memory = CliRunner().invoke(app, ["audit", str(path), "-t", "rootstock", "--json"])
    assert "column 'source'" in str(in_memory.exception)
    path.write_text("".join(json.dumps({**row, "zh": "一"}) + "\n" for row in rows))
    with pytest.raises(TokengraftError, match=r"column 'zh'.*ambiguous"):
        audit(path, "--stream", state=tmp_path)
    found = json.loads(audit(path, "--stream", "-l", "shn", "--json", state=tmp_path))
    assert [row["language"] for row in found] == ["eng_Latn", "shn_Mymr"]


@pytest.mark.parametrize("name", ["t.tsv", "t.csv.gz"])
@pytest.mark.parametrize("way", ["--stream", "--monolingual"])
def test_tsv_is_not_streamed_and_that_is_said(tmp_path: Path, name: str, way: str) -> None:
    (tmp_path / name).write_bytes(b"eng_Latn\tdeu_Latn\na\tb\n")
    with pytest.raises(
        UsageError, match="TSV and CSV cannot be streamed; JSONL, Parquet and plain"
    ):
        audit(tmp_path / name, way, state=tmp_path)


def test_parallel_text_is_streamed_to_premiums(tmp_path: Path) -> None:
    corpus = load("udhr", languages=["eng_Latn", "shn_Mymr"])
    pairs = []
    units = [n for n, _ in enumerate(corpus.units) if all(t[n] for t in corpus.texts.values())]
    for code, texts in corpus.texts.items():
        path = tmp_path / f"{code}.txt"
        path.write_text("".join(f"{texts[n]}\n" for n in units))
        pairs.append(f"{code}={path}")
    rows = json.loads(audit(*pairs, "--stream", "--json", state=tmp_path))
    assert [row["language"] for row in rows] == ["eng_Latn", "shn_Mymr"]
    assert rows[0]["premium"] == 1.0
    assert rows[1]["premium"] > 10
    assert rows[1]["n"] == len(units)
    assert "Premium over English" in audit(*pairs, "--stream", state=tmp_path)


def test_skipped_rows_are_told(web: Path, tmp_path: Path) -> None:
    with (web / "eng_Latn.jsonl").open("a") as file:
        file.write("broken\n")
    with pytest.raises(TokengraftError, match=r"eng_Latn\.jsonl, line 31: not JSON"):
        audit(web, "--language-column", "lang", state=tmp_path)
    out = tmp_path / "out"
    audit(web, "--language-column", "lang", "--skip-bad", "-o", out, state=tmp_path)
    listed = json.loads((out / "tables" / "bad_rows.json").read_text())
    assert [(row["line"], row["reason"][:8]) for row in listed] == [(31, "not JSON")]
    assert listed[0]["file"] == "eng_Latn.jsonl"
    written = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    assert written and not any(str(web).encode() in data for data in written)
    assert json.loads((out / "manifest.json").read_text())["bad_rows"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--monolingual"], "Name the files"),
        (["x.jsonl", "--stream", "--monolingual"], "keep one"),
        (["udhr"], "--state goes with --monolingual"),
        (["x.jsonl", "--language-column", "a", "--detector", "b:c"], "both say the language"),
        (["x.jsonl", "--monolingual", "--words"], "one language each"),
        (["x.jsonl", "--language-column", "a", "--words"], "one language each"),
        (["x.jsonl", "--language-from-path", "(x)", "-l", "en", "-l", "shn", "--words"], "no rows"),
        (["x.jsonl", "-l", "en", "--stream", "--words"], "one language each"),
        (["x.jsonl", "--monolingual", "-l", "en", "--words", "--shard-bytes", 9], "--shard-bytes"),
    ],
)
def test_contradictions_are_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        audit(*arguments, state=tmp_path)


def test_ray_that_is_not_installed_is_named(
    web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TokengraftError, match=r"--engine ray needs more .*tokengraft\[scale\]"):
        audit(web, "--language-column", "lang", "--engine", "ray", state=tmp_path)


def test_nothing_of_scale_is_imported_for_an_audit_in_memory() -> None:
    import subprocess
    import sys

    code = (
        "import sys, tokengraft as tg; tg.audit('udhr', ['gpt2'], ['shn']);"
        "print([m for m in ('ray', 'pyarrow', 'zstandard', 'fsspec', 'tokengraft.scaling')"
        " if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
