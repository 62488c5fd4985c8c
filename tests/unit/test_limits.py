"""Limits on what a file can make the machine do; one process at a time in a folder."""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, pre_tokenizers
from typer.testing import CliRunner

from tokengraft.cli.app import app
from tokengraft.core import lock, untrusted
from tokengraft.core.errors import CorpusError, ModelError, TokengraftError, TokenizerError
from tokengraft.corpus import load as load_corpus
from tokengraft.model.checkpoint import read_checkpoint
from tokengraft.model.folder import resolve
from tokengraft.model.tokenizer_files import base_tokenizer
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning
from tokengraft.planning.plan_files import read_plan
from tokengraft.tokenizer import sources
from tokengraft.tokenizer.catalog import as_json, find, load

DEEP = "[" * 100_000
LETTERS = {chr(ord("a") + n): n for n in range(26)}


def tokenizer_json(**changes: Any) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": LETTERS, "merges": []}
    return {"version": "1.0", "added_tokens": [], "model": model, **changes}


def huge_id() -> dict[str, Any]:
    return tokenizer_json(
        model={"type": "BPE", "vocab": {**LETTERS, "zz": 10**9}, "merges": [["z", "z"]]}
    )


def test_an_id_of_a_billion_is_refused_before_it_costs_memory(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(huge_id()))
    tracemalloc.start()
    try:
        for use in (
            lambda: load(tmp_path).vocabulary,
            lambda: as_json(find(str(tmp_path))),
            lambda: base_tokenizer(tmp_path),
        ):
            with pytest.raises(TokenizerError, match="cannot name as many"):
                use()
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["gpt2.tiktoken", "vocab.json"])
def test_ranks_of_a_billion_are_refused(name: str, tmp_path: Path) -> None:
    ranks = {"vocab.json": json.dumps({"a": 0, "b": 10**9}), "gpt2.tiktoken": "YQ== 1000000000"}
    (tmp_path / name).write_text(ranks[name])
    with pytest.raises(TokenizerError, match="cannot name as many"):
        load(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": "0"}, "merges": []}},
        {"model": {"type": "Unigram", "vocab": ["a"]}},
        {"model": []},
        {"added_tokens": [{"content": "x"}]},
        {"added_tokens": {"x": 1}},
        {"pre_tokenizer": ["ByteLevel"]},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [None, 3]}},
    ],
)
def test_files_that_are_no_tokenizer(changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json(**changes)))
    with pytest.raises(TokenizerError):
        as_json(find(str(tmp_path)))
    with pytest.raises(TokenizerError):
        base_tokenizer(tmp_path)


CONTRADICTIONS = {
    "a prefix that no merge has": {"model": {"continuing_subword_prefix": "abc"}},
    "a table of characters that is none": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    },
    "nothing put in front": {"normalizer": {"type": "Prepend", "prepend": ""}},
    "nothing replaced": {
        "normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"}
    },
    "words of no length": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_panic_of_the_library_is_an_error_like_any_other(what: str, tmp_path: Path) -> None:
    """Files on which Rust code panics, which Python sees as no `Exception` at all."""
    parsed = byte_level_json()
    for key, value in CONTRADICTIONS[what].items():
        parsed[key] = {**parsed[key], **value} if key == "model" else value
    with pytest.raises(BaseException) as raw:
        pipeline = Tokenizer.from_str(json.dumps(parsed))
        pipeline.encode_batch_fast(["ab c", "a" * 9], add_special_tokens=False)
    assert type(raw.value).__name__ == "PanicException"
    (tmp_path / "tokenizer.json").write_text(json.dumps(parsed))
    with pytest.raises(TokenizerError):
        load(tmp_path).encode(["ab c", "a" * 9])
    with pytest.raises(TokengraftError):
        plan_tokens(parsed, {"hin_Deva": ["क का कि की"] * 9}, Planning(budget=3))
    ran = CliRunner().invoke(app, ["audit", "udhr", "-t", str(tmp_path), "-l", "fra"])
    assert isinstance(ran.exception, TokengraftError | SystemExit)
    assert ran.exit_code == 1


@pytest.mark.parametrize("content, text", [(" ", ""), ("a", "a")])
def test_no_plan_for_a_decoder_that_panics(content: str, text: str, tmp_path: Path) -> None:
    """It strips more from the end than there is: what the new tokenizer writes could not be read.

    Found by the fuzzer, which had a plan made for it.
    """
    strip = {"type": "Strip", "content": content, "start": 0, "stop": 448}
    parsed = byte_level_json()
    steps = [strip] if text else [parsed["decoder"], strip]
    parsed["decoder"] = {"type": "Sequence", "decoders": steps}
    pipeline = Tokenizer.from_str(json.dumps(parsed))
    with pytest.raises(BaseException) as raw:
        pipeline.decode(pipeline.encode(text, add_special_tokens=False).ids)
    assert type(raw.value).__name__ == "PanicException"
    with pytest.raises(TokenizerError, match="while decoding its tokens one by one"):
        plan_tokens(parsed, {"hin_Deva": ["क का कि की"] * 9}, Planning(budget=3))
    (tmp_path / "tokenizer.json").write_text(json.dumps(parsed))
    with pytest.raises(TokenizerError, match="while decoding"):
        load(tmp_path).decode(load(tmp_path).encode([text]))


def byte_level_json() -> dict[str, Any]:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocab = {letter: n for n, letter in enumerate(alphabet)} | {"ab": 256}
    model = {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]}
    return tokenizer_json(pre_tokenizer=step, decoder=step, model=model, normalizer=None)


def bomb(path: Path, name: str, size: int) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(name, bytes(size))
    else:
        with tarfile.open(path, "w:gz") as tar:
            info = tarfile.TarInfo(name)
            info.size = size
            tar.addfile(info, io.BytesIO(bytes(size)))
    return path


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.tar.gz"])
def test_an_archive_that_unpacks_to_far_more_than_its_size(name: str, tmp_path: Path) -> None:
    text = bomb(tmp_path / name, "dev/eng_Latn.dev", 70 << 20)
    assert text.stat().st_size < 1 << 20
    with pytest.raises(CorpusError, match="unpacks to more than 64 MiB"):
        load_corpus(str(text))
    files = bomb(tmp_path / f"t-{name}", "mine/tokenizer.json", 70 << 20)
    with pytest.raises(TokenizerError, match="unpacks to more than 64 MiB"):
        sources.archive(files)


def test_a_damaged_name_in_an_archive_is_no_missing_language(tmp_path: Path) -> None:
    """Found by the fuzzer: what could not be named was left out, and the rest read as a corpus."""
    path = tmp_path / "corpus.zip"
    with zipfile.ZipFile(path, "w") as file:
        for code in ("eng_Latn", "hin_Deva", "fra_Latn"):
            file.writestr(f"dev/{code}.dev", "one\ntwo\n")
    assert len(load_corpus(str(path)).texts) == 3
    data = path.read_bytes()
    place = data.rindex(b"dev/fra_Latn.dev")  # in the directory at the end
    path.write_bytes(data[:place] + b"\0" + data[place + 1 :])
    with pytest.raises(CorpusError, match="damaged"):
        load_corpus(str(path))


def test_a_name_in_a_zip_that_is_no_text_is_damage(tmp_path: Path) -> None:
    """Found by the fuzzer: said to be UTF-8 in the file's own header, and not."""
    path = tmp_path / "corpus.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("eng_Latn.txt", "one\n")
    data = bytearray(path.read_bytes())
    data[7] |= 8
    data[data.index(b"eng_Latn")] = 0xFF
    path.write_bytes(data)
    with pytest.raises(CorpusError, match="damaged"):
        load_corpus(str(path))
    path.write_bytes(data.replace(b"ng_Latn.txt", b"/vocab.json"))
    with pytest.raises(TokenizerError, match="cannot read this archive"):
        sources.archive(path)


def test_an_unknown_token_that_is_no_token(tmp_path: Path) -> None:
    """Found by the fuzzer. Text that it knows is read; other text is refused by the library."""
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "<unk>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_json(model=model)))
    opened = load(tmp_path)
    assert opened.vocabulary.unknown == frozenset()
    with pytest.raises(TokenizerError, match="cannot encode"):
        opened.encode_texts(["b"])


def test_the_bound_follows_from_the_size() -> None:
    assert untrusted.most_unpacked(1000) == 64 << 20
    assert untrusted.most_unpacked(5_000_000) == 500_000_000
    assert untrusted.most_unpacked(10**10) == 1 << 30


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "inside.json").symlink_to("config.json")
    assert resolve(folder).path == folder
    (folder / "tokenizer_config.json").symlink_to(secret)
    with pytest.raises(ModelError, match="leads out"):
        resolve(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    with pytest.raises(TokenizerError, match="leads out"):
        load(folder)
    linked = tmp_path / "by-another-name"
    linked.symlink_to(folder)
    (folder / "tokenizer_config.json").unlink()
    assert resolve(linked).path == linked  # the folder itself may be a link


def test_the_cache_of_the_hub_may_link_to_its_own_blobs(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0"
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "1").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/1")
    assert resolve(snapshot).path == snapshot
    (snapshot / "other.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="leads out"):
        resolve(snapshot)


def test_json_that_is_nested_deeply_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"schema": ' + DEEP)
    with pytest.raises(TokengraftError, match="nested too deeply"):
        read_plan(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": ' + DEEP)
    for use in (lambda: as_json(find(str(tmp_path))), lambda: load(tmp_path)):
        with pytest.raises(TokenizerError):
            use()
    (tmp_path / "table.jsonl").write_text('{"eng_Latn": ' + DEEP + "\n")
    with pytest.raises(CorpusError, match="nested too deeply"):
        load_corpus(str(tmp_path / "table.jsonl"))
    ran = CliRunner().invoke(app, ["insert", "gpt2", str(tmp_path), "-o", str(tmp_path / "out")])
    assert ran.exit_code == 1
    assert not (tmp_path / "out").exists()


HOLD = """
import sys
from pathlib import Path
from tokengraft.core.lock import hold
kept = hold(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_cannot_work_in_one_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(TokengraftError, match=f"process {other.pid}.*wait until it has ended"):
            lock.hold(out)
        arguments = ["audit", "udhr", "-t", "gpt2", "-l", "fra", "-o", str(out)]
        ran = CliRunner().invoke(app, arguments)
        assert ran.exit_code == 1
        assert not out.exists()
        lock.hold(tmp_path / "another")
        other.stdin.close()
        other.wait()
    first = lock.hold(out)
    assert lock.hold(out) is first  # one process may hold it twice


def test_a_folder_for_locks_that_is_not_ours_is_not_used_but_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("TOKENGRAFT_CACHE", str(tmp_path / "cache"))
    (tmp_path / f"tokengraft-{os.getuid()}").symlink_to(tmp_path)  # as if someone else had made it
    held = lock.hold(tmp_path / "out")
    (file,) = (tmp_path / "cache" / "locks").glob("*.lock")
    with file.open() as again, pytest.raises(BlockingIOError):
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    del held


def test_a_corpus_folder_may_not_link_out_and_special_files_are_skipped(tmp_path: Path) -> None:
    folder, secret = tmp_path / "corpus", tmp_path / "secret.txt"
    folder.mkdir()
    for code in ("eng_Latn", "fra_Latn"):
        (folder / f"{code}.txt").write_text("one\ntwo\n")
    os.mkfifo(folder / "deu_Latn.txt")
    assert load_corpus(folder).languages == ("eng_Latn", "fra_Latn")
    secret.write_text("three\nfour\n")
    (folder / "spa_Latn.txt").symlink_to(secret)
    with pytest.raises(CorpusError, match="leads out of the folder"):
        load_corpus(folder)


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path) -> None:
    """Polars has an error of its own for it, which ended `plan` in a traceback."""
    code = f"""
import resource, signal, polars
from pathlib import Path
from tokengraft.render.tables import write_data
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
try:
    write_data(polars.DataFrame({{"a": [1]}}), Path({str(tmp_path / "table")!r}))
except OSError as error:
    print(error.strerror)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "File too large\n"
    assert (tmp_path / "table.csv").is_file()  # so it was Parquet that did not fit


@pytest.mark.parametrize(
    "header",
    [
        {"__metadata__": []},
        {"__metadata__": {"a": 1}},
        {"__metadata__": {"a": "\ud800"}},
        {"a": {"dtype": "F32", "shape": [None], "data_offsets": [0, 0]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}},
        {"a": {"dtype": [], "shape": [0], "data_offsets": [0, 0]}},
        {"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}},
    ],
)
def test_headers_that_the_fuzzer_found(header: dict[str, Any], tmp_path: Path) -> None:
    raw = json.dumps(header).encode()
    data = len(raw).to_bytes(8, "little") + raw
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelError, match="broken safetensors header"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("file", [["x"], {}, 1, None, "../x", "a\0b", "\ud800"])
def test_an_index_that_names_no_file_of_its_folder(file: Any, tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": file}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"outside the folder|the checkpoint lacks"):
        read_checkpoint(tmp_path)
