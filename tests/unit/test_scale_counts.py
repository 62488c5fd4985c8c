"""Counts of large corpora: equal to a slow obvious twin, in any cut, order, engine or format."""

from __future__ import annotations

import functools
import gzip
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import tokengraft as tg
from tokengraft.api.results import Audit
from tokengraft.api.verbs import count_words, survey
from tokengraft.auditing.count_corpus import CountItem, CountTask
from tokengraft.core.errors import CorpusError, MissingExtra, TokengraftError, UsageError
from tokengraft.core.progress import Progress
from tokengraft.corpus import load
from tokengraft.corpus.lines_of import count_text
from tokengraft.corpus.rows import Layout
from tokengraft.engine import local, make_engine
from tokengraft.engine.count_shards import Meter, Payload, ShardResult, Total, add
from tokengraft.engine.local import Local
from tokengraft.engine.protocol import OnFigures, Sealed, unseal
from tokengraft.tokenizer import find
from tokengraft.tokenizer import load as load_tokenizer
from tokengraft.tokenizer.packed import Packed

TOKENIZERS = ("gpt2", "t5", "bert-multilingual")  # tiktoken, SentencePiece, Hugging Face
CODES = ("eng_Latn", "shn_Mymr", "hin_Deva", "zho_Hans", "deu_Latn-1996")
ByColumn = Layout(language_column="lang")


def corpus_rows(seed: int, number: int = 120) -> list[tuple[str, str]]:
    corpus = load("udhr")
    codes = [code for code in CODES if code in corpus.texts]
    assert len(codes) >= 4
    draw = random.Random(seed)
    rows = []
    for _ in range(number):
        code = draw.choice(codes)
        rows.append((code, " ".join(draw.choices(corpus.lines(code), k=draw.randint(1, 3)))))
    return [*rows, ("eng_Latn", ""), ("und", " two  spaces\n\tand lines \U0001f600 ")]


opened = functools.cache(load_tokenizer)


def slow_twin(rows: list[tuple[str, str]], tokenizers: tuple[str, ...] = TOKENIZERS) -> Payload:
    """One row after the other, one tokenizer after the other, with plain integers."""
    text: dict[str, list[int]] = {}
    tokens: dict[str, dict[str, list[int]]] = {name: {} for name in tokenizers}
    for code, row in rows:
        sums = text.setdefault(code, [0, 0, 0])
        sums[0] += 1
        sums[1] += len(row.encode())
        sums[2] += len(row)
    for name in tokenizers:
        tokenizer = opened(name)
        pieces, unknown = tokenizer.vocabulary.pieces, tokenizer.vocabulary.unknown
        for code, row in rows:
            sums = tokens[name].setdefault(code, [0, 0, 0])
            for number in tokenizer.encode([row])[0]:
                sums[0] += 1
                sums[1] += number in unknown
                sums[2] += pieces[number][:1] != b"" and 0x80 <= pieces[number][0] < 0xC0
    return {"text": text, "tokens": tokens}


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"lang": c, "text": t}, ensure_ascii=len(t) % 2 == 0) for c, t in rows]
    data = ("\n".join(lines) + "\n").encode()
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(data))
    elif path.suffix == ".zst":
        import zstandard

        path.write_bytes(zstandard.ZstdCompressor().compress(data))
    elif path.suffix == ".parquet":
        frame = pl.DataFrame({"text": [t for _, t in rows], "lang": [c for c, _ in rows]})
        frame.write_parquet(path, row_group_size=50)
    else:
        path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def rows() -> dict[str, list[tuple[str, str]]]:
    kinds = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")
    return {kind: corpus_rows(n) for n, kind in enumerate(kinds)}


@pytest.fixture(scope="module")
def expected(rows: dict[str, list[tuple[str, str]]]) -> Payload:
    return slow_twin([row for part in rows.values() for row in part])


@pytest.fixture
def folder(tmp_path: Path, rows: dict[str, list[tuple[str, str]]]) -> Path:
    for kind, part in rows.items():
        write(tmp_path / "corpus" / f"part.{kind}", part)
    return tmp_path / "corpus"


def run(folder: Path, state: Path, **options: object) -> Audit:
    options = {"layout": ByColumn, "workers": 1} | options
    return survey([folder], TOKENIZERS, state=state, **options)  # type: ignore[arg-type]


def test_equal_to_the_slow_twin_in_any_cut(folder: Path, tmp_path: Path, expected: Payload) -> None:
    pytest.importorskip("pyarrow", reason="the extra `scale` is not installed")
    pytest.importorskip("zstandard", reason="the extra `scale` is not installed")
    files = []
    for size in (3_000, 1 << 24):
        result = run(folder, tmp_path / str(size), shard_bytes=size)
        assert result.total.payload == expected
        assert result.total.bad == 0
        result.save(tmp_path / "out")
        files.append((tmp_path / "out" / "tables" / "counts.csv").read_bytes())
    assert files[0] == files[1]
    cell = result.counts.filter(tokenizer="gpt2", language="shn_Mymr").row(0, named=True)
    tokens, unks, _ = expected["tokens"]["gpt2"]["shn_Mymr"]
    assert (cell["tokens"], unks) == (tokens, 0)
    assert cell["bytes_per_token"] == cell["bytes"] / tokens
    english = expected["tokens"]["gpt2"]["eng_Latn"][0] / expected["text"]["eng_Latn"][1]
    assert cell["relative_tokens_per_byte"] == cell["tokens_per_byte"] / english
    assert result.counts.filter(tokenizer="t5", language="zho_Hans")["meaningless"].item()


def test_processes_give_the_same_and_replace_one_that_dies(
    folder: Path, tmp_path: Path, expected: Payload
) -> None:
    import multiprocessing
    import os
    import signal

    killed = []

    def kill(progress: tg.Progress) -> None:
        del progress
        if not killed:
            victim = multiprocessing.active_children()[0].pid
            assert victim is not None
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    result = run(folder, tmp_path / "s", workers=2, shard_bytes=9_000, progress=kill)
    assert killed
    assert result.total.payload == expected
    assert multiprocessing.active_children() == []


class Dies:
    """A task that takes its worker down."""

    def open(self, threads: int) -> object:
        return lambda item, report: __import__("os")._exit(1)


def test_an_item_that_always_kills_its_worker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "TRIES", 2)
    cells = [CountItem("gpt2", code, ("x",)) for code in ("eng_Latn", "deu_Latn")]
    with pytest.raises(TokengraftError, match=r"died 2 times while \w+ with gpt2"):
        list(Local(2).map(Dies(), cells, lambda *_: None))  # type: ignore[arg-type]


def test_errors_of_workers_arrive_as_they_were(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("no JSON itself\n")
    with pytest.raises(UsageError, match="--detector json:loads failed: JSONDecodeError"):
        survey(
            [tmp_path], ["gpt2"], layout=Layout(detector="json:loads"), workers=2, state=tmp_path
        )
    with pytest.raises(MissingExtra, match="this needs more"):
        unseal(Sealed(_Fails(), 1)(CountItem("", "", ()), lambda *_: None))  # type: ignore[arg-type]


class _Fails:
    def open(self, threads: int) -> object:
        raise MissingExtra("this", "scale")


def test_sums_do_not_depend_on_order(expected: Payload) -> None:
    parts = [slow_twin(corpus_rows(n, 5), ("gpt2",)) for n in range(6)]
    sums = []
    for seed in range(3):
        order = random.Random(seed).sample(parts, len(parts))
        total: Payload = {}
        for part in order:
            add(total, ShardResult.unpack(ShardResult(part).pack()).payload)
        sums.append(total)
    assert sums[0] == sums[1] == sums[2]


def test_a_second_run_counts_only_what_is_new(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = run(folder, state, shard_bytes=9_000)
    assert first.total.resumed == 0
    again = run(folder, state, shard_bytes=9_000, workers=2)
    assert again.total.resumed == len(first.total.shards)
    assert again.total.payload == first.total.payload
    write(folder / "new.jsonl", [("eng_Latn", "one more row")])
    more = run(folder, state, shard_bytes=9_000)
    assert more.total.resumed == len(first.total.shards)
    english = first.total.payload["text"]["eng_Latn"][0]
    assert more.total.payload["text"]["eng_Latn"][0] == english + 1
    other = run(folder, state, shard_bytes=9_000, layout=Layout(language="eng_Latn"))
    assert other.total.resumed == 0  # other options, other counts
    write(folder / "new.jsonl", [("eng_Latn", "another row"), ("eng_Latn", "and one")])
    changed = run(folder, state, shard_bytes=9_000)
    assert changed.total.resumed == len(first.total.shards)
    assert changed.total.payload["text"]["eng_Latn"][0] == english + 2


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".parquet"])
def test_a_file_replaced_by_one_of_the_same_size_and_time_is_counted_again(
    tmp_path: Path, suffix: str
) -> None:
    files, state = tmp_path / "files", tmp_path / "state"
    replaced = files / f"replaced{suffix}"
    write(files / "other.jsonl", [("eng_Latn", "x")])

    def count(state: Path) -> Total:
        return survey([files], ["gpt2"], layout=ByColumn, workers=1, state=state).total

    found = []
    for text in ("a word " * 90, "some noise " * 57 + "abc"):
        assert len(text) == 630
        if suffix == ".parquet":
            frame = pl.DataFrame({"text": [text], "lang": ["eng_Latn"]})
            frame.write_parquet(replaced, compression="uncompressed", statistics=False)
        else:
            data = json.dumps({"text": text, "lang": "eng_Latn"}).encode() + b"\n"
            replaced.write_bytes(gzip.compress(data, 0, mtime=0) if suffix[-2:] == "gz" else data)
        os.utime(replaced, ns=(10**18, 10**18))
        found.append((count(state), replaced.stat().st_size))
    (first, size), (second, now) = found
    fresh = count(tmp_path / "nothing")
    assert size == now and first.payload != second.payload == fresh.payload
    assert second.resumed == 1  # the other file is as it was
    os.utime(replaced)
    assert count(state).resumed == 2  # a new time alone changes nothing


def test_progress_counts_a_shard_once_however_often_it_is_tried() -> None:
    meter = Meter([60, 40])
    meter.update(0, 10, 1000, 300, 0.5)
    meter.update(1, 4, 400, 120, 1.0)
    detail = "14 rows  0.0 MB  420 tokens"
    assert meter.read() == Progress("Counting", 70, 100, "bytes", detail)
    meter.update(0, 2, 200, 60, 0.1)  # its worker died; it is counted anew
    detail = "6 rows  0.0 MB  180 tokens"
    assert meter.read() == Progress("Counting", 46, 100, "bytes", detail)


@pytest.mark.parametrize("form", ["jsonl", "parquet", "aligned"])
def test_streamed_premiums_equal_those_of_an_audit(tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="the extra `scale` is not installed")
    corpus = load("udhr", languages=CODES[:4])
    whole = [n for n, _ in enumerate(corpus.units) if all(corpus.texts[c][n] for c in CODES[:4])]
    columns = {code: [corpus.texts[code][n] for n in whole] for code in CODES[:4]}
    frame = pl.DataFrame(columns)
    if form == "aligned":
        sources = []
        for code, lines in columns.items():
            (tmp_path / f"{code}.txt").write_text("\n".join(map(str, lines)) + "\n")
            sources.append(f"{code}={tmp_path / f'{code}.txt'}")
        table = tmp_path / "t.parquet"
        frame.write_parquet(table)
    else:
        table = tmp_path / f"t.{form}"
        if form == "jsonl":
            frame.write_ndjson(table)
        else:
            frame.write_parquet(table, row_group_size=7)
        sources = [str(table)]
    result = survey(
        sources, TOKENIZERS, parallel=True, shard_bytes=2_000, workers=1, state=tmp_path / "state"
    )
    assert len(result.total.shards) > 1
    audited = tg.audit(table, TOKENIZERS).premiums
    for row in result.premiums.to_dicts():
        cell = audited.filter(tokenizer=row["tokenizer"], language=row["language"]).row(
            0, named=True
        )
        for name in ("n", "tokens", "premium", "ratio_of_sums", "missing_characters"):
            assert row[name] == pytest.approx(cell[name], rel=1e-12), name
        assert row["meaningless"] == cell["meaningless"]
        for name in ("premium", "ratio_of_sums"):
            if row["language"] == "eng_Latn":
                assert row[f"{name}_low"] == pytest.approx(1.0)
                continue
            width = cell[f"{name}_high"] - cell[f"{name}_low"]
            for side in ("low", "high"):  # normal against bootstrap intervals
                assert row[f"{name}_{side}"] == pytest.approx(cell[f"{name}_{side}"], abs=width / 5)


def test_a_pivot_lost_to_unk_spoils_streamed_premiums_too(tmp_path: Path) -> None:
    """T5 throws Chinese away; GPT-2 does not."""
    corpus = load("udhr", languages=["eng_Latn", "zho_Hans"])
    both = [n for n, _ in enumerate(corpus.units) if all(corpus.texts[c][n] for c in corpus.texts)]
    frame = pl.DataFrame({code: [texts[n] for n in both] for code, texts in corpus.texts.items()})
    frame.write_ndjson(tmp_path / "t.jsonl")
    result = survey(
        [str(tmp_path / "t.jsonl")], ["t5", "gpt2"], parallel=True, pivot="zho_Hans", workers=1,
        state=tmp_path / "state",
    )  # fmt: skip
    spoilt = dict(
        result.premiums.filter(language="eng_Latn").select("tokenizer", "meaningless").rows()
    )
    assert spoilt == {"t5": True, "gpt2": False}
    assert dict(result.summary.select("tokenizer", "compared").rows()) == {"t5": 0, "gpt2": 1}


def test_an_audit_in_memory_is_the_same_on_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = []
    for engine in (None, make_engine("local", 2)):
        monkeypatch.setenv("TOKENGRAFT_CACHE", str(tmp_path / str(engine is None)))
        audited = tg.audit("udhr", ["gpt2", "t5"], ["shn", "hin"], engine=engine)
        tables.append(audited.premiums)
    assert tables[0].equals(tables[1])


def test_words_are_those_of_one_pass(tmp_path: Path) -> None:
    lines = [t for _, t in corpus_rows(1)] + ["", "  ", " begins", "ends ", "a  b"]
    texts = {}
    for n, code in enumerate(("eng_Latn", "shn_Mymr")):
        part = [line.replace("\n", " ") for line in lines[n::2]]
        path = tmp_path / f"{code}.txt{'.gz' * n}"
        data = ("\r\n".join(part) + "\n").encode()
        path.write_bytes(gzip.compress(data) if n else data)
        texts[code] = (path, count_text(line for line in part if line.strip()))
    sources = {code: [path] for code, (path, _) in texts.items()}
    found = []
    for size, workers in ((700, 2), (1 << 20, 1)):
        state = tmp_path / str(size)
        counted = count_words(sources, shard_bytes=size, workers=workers, state=state)
        for code, (_, one_pass) in texts.items():
            assert counted[code].chunks == one_pass.chunks
            assert counted[code].sample == one_pass.sample
        found.append([list(text.chunks) for text in counted.values()])
    assert counted.total.bad == 0
    assert found[0] == found[1]  # the order too, on which a plan's ties depend


def test_counted_words_are_what_a_plan_takes(tmp_path: Path) -> None:
    """The calls of docs/scale.md; paths may be strings, and printing shows no text."""
    lines = load("udhr").lines("shn_Mymr")
    (tmp_path / "shn").mkdir()
    (tmp_path / "shn" / "a.txt").write_text("\n".join(lines[:40]))
    words = tg.count_words({"shn": str(tmp_path / "shn")}, state=str(tmp_path / "state"))
    assert list(words) == ["shn_Mymr"] and not words.total.resumed
    kept = tg.count_words({"shn": str(tmp_path / "shn")}, state=str(tmp_path / "state"))
    assert kept == words and kept.total.resumed == len(words.total.shards)
    planned = tg.plan("gpt2", ["shn_Mymr"], text=words, budget=5)
    files = {"shn_Mymr": [tmp_path / "shn" / "a.txt"]}
    assert planned.plan == tg.plan("gpt2", ["shn_Mymr"], text=files, budget=5).plan
    found = tg.survey(
        str(tmp_path / "shn"), "gpt2", layout=Layout(language="shn_Mymr"), workers=1,
        state=str(tmp_path / "state"),
    )  # fmt: skip
    assert found.counts["tokens"].sum() > 0
    assert len(repr(words)) < 100
    assert len(repr(found)) < 200
    assert len(repr(found.tokenizers)) < 400


def test_words_of_an_empty_text_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n \n")
    with pytest.raises(CorpusError, match="no line of text"):
        count_words({"eng_Latn": [tmp_path / "a.txt"]}, state=tmp_path / "s", workers=1)


def test_packed_tokenizers_open_to_the_same(paper_tokenizers: Path) -> None:
    import pickle

    texts = ["Hello", "ၵူၼ်း", "नमस्ते 你好"]
    for name in ("m2m100", "gpt2", "llama-3", "mistral-v0.3"):
        found = find(name, [paper_tokenizers])
        travelled = pickle.loads(pickle.dumps(Packed.of(found)))
        opened, here = travelled.open(), found.open()
        assert opened.encode(texts) == here.encode(texts)
        assert opened.vocabulary == here.vocabulary
        assert travelled.fingerprint == found.fingerprint


def test_what_tiktoken_provides_travels_whole() -> None:
    from tokengraft.tokenizer import Located
    from tokengraft.tokenizer.openai import TikToken

    inner = load_tokenizer("gpt2")
    assert isinstance(inner, TikToken)
    found = Located("gpt2", "GPT-2", "0", "tiktoken", lambda: inner)
    assert Packed.of(found).open().encode(["Hello there"]) == inner.encode(["Hello there"])


def test_one_cell_reports_what_it_counted() -> None:
    told: list[tuple[int, int, int, float]] = []
    count = CountTask((Packed.of(find("gpt2")),)).open(1)
    count(CountItem("gpt2", "eng_Latn", ("Hello", "there")), lambda *figures: told.append(figures))
    assert told == [(2, 10, 2, 1.0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "rey"}, "Did you mean ray"),
        ({"workers": 0}, "--workers 0"),
        ({"address": "auto"}, "--engine ray"),
        ({"shard_bytes": 0}, "--shard-bytes"),
        ({"format_": "csv"}, "no format"),
        ({"layout": Layout(language_from_path="(nowhere)")}, "does not match"),
    ],
)
def test_calls_that_cannot_work_are_refused_at_once(
    options: dict[str, object], message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        run(folder, tmp_path / "state", **options)


def test_parallel_text_needs_its_pivot(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"deu_Latn": "ja"}\n')
    with pytest.raises(UsageError, match="pivot eng_Latn"):
        survey([f"deu_Latn={path}"], ["gpt2"], parallel=True, state=tmp_path)
    with pytest.raises(UsageError, match="is not code=path"):
        survey([f"deu_Latn={path}", "x"], ["gpt2"], parallel=True, state=tmp_path)
    (tmp_path / "a.txt").write_text("x\n")
    with pytest.raises(UsageError, match="CODE=FILE"):
        survey([tmp_path / "a.txt"], ["gpt2"], parallel=True, state=tmp_path)


def test_aligned_files_of_unequal_length_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("one\ntwo\n")
    (tmp_path / "d.txt").write_text("eins\n")
    pairs = [f"eng_Latn={tmp_path / 'e.txt'}", f"deu_Latn={tmp_path / 'd.txt'}"]
    with pytest.raises(CorpusError, match="deu_Latn has fewer lines"):
        survey(pairs, ["gpt2"], parallel=True, state=tmp_path, workers=1)


def test_engines_close_their_workers_when_nobody_reads_on() -> None:
    import multiprocessing

    cells = [CountItem("gpt2", str(n), ("x",)) for n in range(5)]
    results: Iterator[tuple[int, bytes]] = Local(2).map(
        CountTask((Packed.of(find("gpt2")),)), cells, _silent
    )
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


_silent: OnFigures = lambda *_: None  # noqa: E731
