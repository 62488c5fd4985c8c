"""Every option that takes a file, with every kind of file that would fill the memory."""

from __future__ import annotations

import functools
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tokengraft.core import untrusted
from tokengraft.core.errors import CorpusError
from tokengraft.corpus import load

UNPACKED = 128 << 20  # each bomb is small; unread, it costs more than `LIMIT` allows
LIMIT = 420 << 20  # of memory above what the command takes at its start


def lines() -> bytes:
    return b"ab c\n" * ((1 << 20) // 5)


def gz(path: Path, block: bytes) -> Path:
    with gzip.open(path, "wb", 9) as file:
        for _ in range(UNPACKED // len(block)):
            file.write(block)
    return path


def pax(path: Path) -> Path:
    """A tar whose first header claims seven gigabytes."""
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 7 << 30
    with gzip.open(path, "wb") as file:
        file.write(header.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(UNPACKED >> 20):
            file.write(b"0" * (1 << 20))
    return path


def packed_tar(path: Path, member: str) -> Path:
    data = lzma.compress(b"a\n" * (UNPACKED // 2), preset=1)
    with tarfile.open(path, "w:xz") as tar:
        about = tarfile.TarInfo(member)
        about.size = UNPACKED
        tar.addfile(about, io.BytesIO(lzma.decompress(data)))
    return path


def zipped(path: Path, member: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(member, b"a\n" * (UNPACKED // 2))
    return path


def parquet(path: Path) -> Path:
    pl.DataFrame({"eng_Latn": ["a" * 99] * 3_000_000, "fra_Latn": ["b"] * 3_000_000}).write_parquet(
        path
    )
    return path


def deep(path: Path) -> Path:
    path.write_text("[" * 100_000)
    return path


def aliases(path: Path) -> Path:
    """YAML in which every list holds the one before nine times: 9 to the 30th in all."""
    rows = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    path.write_text("\n".join([*rows, "as_of: *a29", "models: [*a29]"]))
    return path


BOMBS = {
    "lines.txt.gz": lambda path: gz(path, lines()),
    "one-line.txt.gz": lambda path: gz(path, b"a" * (1 << 20)),
    "zeros.jsonl.gz": lambda path: gz(path, b"\0" * (1 << 20)),
    "pax.tar.gz": pax,
    "devtest.tar.xz": lambda path: packed_tar(path, "devtest/eng_Latn.devtest"),
    "tokenizer.zip": lambda path: zipped(path, "x/tokenizer.json"),
    "text.zip": lambda path: zipped(path, "devtest/eng_Latn.devtest"),
    "parallel.parquet": parquet,
    "deep.json": deep,
    "prices.yaml": aliases,
    "endless": lambda path: Path("/dev/zero"),
}
FRENCH = ["audit", "udhr", "-t", "gpt2", "-l", "fra"]
PLAN = ["plan", "gpt2", "-l", "shn", "-o", "OUT", "--budget", "5"]
OPTIONS = {
    "a corpus": ["audit", "BOMB", "-t", "gpt2"],
    "parallel files": ["audit", "eng_Latn=BOMB", "fra_Latn=BOMB", "-t", "gpt2"],
    "a tokenizer": ["audit", "udhr", "-l", "fra", "-t", "BOMB"],
    "tokenizers": [
        "audit",
        "udhr",
        "-l",
        "fra",
        "-t",
        "m2m100",
        "--tokenizers",
        "BOMB",
    ],
    "prices": [*FRENCH, "--prices", "BOMB"],
    "protected text": [*PLAN, "--text", "shn=TEXT", "--protect", "BOMB"],
    "an earlier audit": [*FRENCH, "--baseline", "BOMB"],
    "one of two to compare": ["compare", "gpt2", "BOMB"],
    "a plan": ["graft", "rootstock", "BOMB", "-o", "OUT"],
    "text to train on": [
        "graft",
        "rootstock",
        "PLAN",
        "--method",
        "distil",
        "--text",
        "BOMB",
        "-o",
        "OUT",
    ],
    "a corpus to evaluate on": ["evaluate", "rootstock", "rootstock", "BOMB"],
    "a published corpus": ["reproduce", "new-token-share", "--corpus", "BOMB"],
}
# What used to fail; the whole product is slow.
QUICK = {
    ("parallel files", "lines.txt.gz"), ("protected text", "one-line.txt.gz"),
    ("a corpus", "pax.tar.gz"), ("prices", "prices.yaml"), ("a corpus", "parallel.parquet"),
}  # fmt: skip


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("bombs")
    return functools.cache(lambda name: BOMBS[name](folder / name))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "shn.txt"
    path.write_text("\n".join(load("udhr").lines("shn_Mymr")), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("option", "bomb"),
    [
        pytest.param(option, bomb, marks=() if (option, bomb) in QUICK else pytest.mark.slow)
        for option in OPTIONS
        for bomb in BOMBS
    ],
)
def test_no_file_fills_the_memory(
    option: str, bomb: str, bombs: Callable[[str], Path], text: Path, tmp_path: Path
) -> None:
    """Each run is a process of its own with so much memory and no more, and ends in one line."""
    plan = tmp_path / "plan.json"
    if "PLAN" in OPTIONS[option]:
        import tokengraft as tg

        tg.plan("rootstock", "shn", str(text), budget=5).save(tmp_path / "plan")
        plan = tmp_path / "plan"
    known = {"BOMB": bombs(bomb), "TEXT": text, "OUT": tmp_path / "out", "PLAN": plan}
    arguments = []
    for argument in OPTIONS[option]:
        for name, path in known.items():
            argument = argument.replace(name, str(path))
        arguments.append(argument)
    code = f"""
import resource, sys
import tokengraft.cli.main, tokengraft.cli.app, tokengraft.api.verbs, tokengraft.render.terminal
held = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + {LIMIT}, held + {LIMIT}))
sys.argv = ['tokengraft', *{arguments!r}]
sys.exit(tokengraft.cli.main.run())
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1",
             "POLARS_MAX_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert ran.returncode in (1, 2), ran.stderr
    assert "Traceback" not in ran.stderr and "MemoryError" not in ran.stderr, ran.stderr
    assert 1 <= len(ran.stderr.strip().splitlines()) <= 20


def test_a_tar_of_a_million_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted, "_MOST_MEMBERS", 50)
    with tarfile.open(tmp_path / "many.tar", "w") as tar:
        for number in range(51):
            tar.addfile(tarfile.TarInfo(f"{number}.devtest"))
    with pytest.raises(CorpusError, match="more than 50 files"):
        load(tmp_path / "many.tar")
