"""Feed damaged and hostile files to every reader: no traceback, bounded memory, no false success.

    python tools/fuzz.py --minutes 60 --seeds fuzz-seeds/ --out fuzz.json

Hypothesis changes sound files (values of their JSON, bytes, lengths, members), which are then read.
A case passes if it ends in a `TokengraftError`, or in a result confirmed by a reader that shares
nothing with ours: safetensors' own for headers, `json` for JSONL, `tarfile` and `zipfile` for
archives, the `gguf` package for GGUF, and GPT-2's byte table and plain `tokenizers` for the
tokenizers that plans make, including plans for changed tokenizers. Memory is measured after every
case. Failing cases are kept in `--seeds` and tried first the next time; `--out` gets the counts of
each target, the peak memory, every seed and every finding.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import gzip
import importlib.util
import io
import json
import lzma
import random
import re
import resource
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase
from tokenizers import Tokenizer

from tokengraft.core.errors import TokengraftError
from tokengraft.corpus import load as load_corpus
from tokengraft.corpus.lines_of import lines_of
from tokengraft.model.checkpoint import read_checkpoint
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning
from tokengraft.planning.plan_files import read_plan
from tokengraft.planning.protect import Protected, insert_proved
from tokengraft.serving.gguf_file import read_gguf
from tokengraft.tokenizer.catalog import as_json, find, load
from tokengraft.tokenizer.sources import archive as tokenizers_in

MOST = 2 << 30  # bytes of memory
LINES = ["क का कि की", "a b c", "ၵူၼ်း ၵူႈ", "", "x" * 50]

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**10), 10**10), st.floats(), st.text(max_size=8),
    st.sampled_from(["", "\ud800", "BPE", "Unigram", "WordPiece", "ByteLevel", "<0xE0>", "../x"]),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
places = st.lists(st.integers(0, 2**32), min_size=1, max_size=6)
edits = st.lists(
    st.tuples(places, st.sampled_from(["set", "drop", "twice", "number"]), values), max_size=4
)
cuts: st.SearchStrategy[list[tuple[int, int]]] = st.just([]) | st.lists(
    st.tuples(st.integers(0, 2**32), st.integers(0, 255)), max_size=8
)


def edited(value: Any, changes: list[tuple[list[int], str, Any]]) -> Any:
    """`value` with some of its inner values replaced, removed or repeated."""
    value = json.loads(json.dumps(value))
    for path, how, new in changes:
        at: Any = value
        for step in path:
            keys = list(at) if isinstance(at, dict) else range(len(at))
            if not keys:
                break
            key = keys[step % len(keys)]
            if step == path[-1] or not isinstance(at[key], dict | list) or not at[key]:
                if how == "drop":
                    del at[key]
                elif how == "twice" and isinstance(at, list):
                    at.append(at[key])
                elif how == "number":
                    at[key] = path[0] % 1000 if isinstance(at[key], int) else new
                else:
                    at[key] = new
                break
            at = at[key]
    return value


def damaged(data: bytes, changes: list[tuple[int, int]], keep: int) -> bytes:
    """`data` with some bytes replaced and, now and then, its end cut off."""
    found = bytearray(data)
    for place, byte in changes:
        found[place % len(found)] = byte
    return bytes(found[: keep % len(found)]) if keep % 5 == 0 else bytes(found)


def byte_level() -> dict[str, Any]:
    """A small byte-level tokenizer with a few merges."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = [chr(b) for b in printable] + [chr(0x100 + n) for n in range(256 - len(printable))]
    vocab = {letter: n for n, letter in enumerate(letters)} | {"ab": 256}
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"id": 257, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}  # fmt: skip
    model = {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
             "byte_fallback": False, "vocab": vocab, "merges": [["a", "b"]]}  # fmt: skip
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special],
            "normalizer": None, "pre_tokenizer": step, "post_processor": None, "decoder": step,
            "model": model}  # fmt: skip


def byte_fallback() -> dict[str, Any]:
    """A tokenizer like SentencePiece's BPE: unknown characters in bytes, a mark for every space."""
    letters = ["▁", *"abcdex", "ab", "▁a", "क"]
    names = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    steps = [{"type": "Prepend", "prepend": "▁"},
             {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]  # fmt: skip
    back = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]  # fmt: skip
    model = {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
             "vocab": {name: n for n, name in enumerate(names)},
             "merges": [["a", "b"], ["▁", "a"]]}  # fmt: skip
    return {**byte_level(), "added_tokens": _specials("<unk>", "<s>"), "pre_tokenizer": None,
            "normalizer": {"type": "Sequence", "normalizers": steps},
            "decoder": {"type": "Sequence", "decoders": back}, "model": model}  # fmt: skip


def unigram() -> dict[str, Any]:
    """A tokenizer like T5's: pieces with scores, UNK for everything else."""
    step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    pieces = [["<unk>", 0.0], ["<s>", 0.0], ["▁", -2.0], ["▁a", -2.5], ["ab", -3.0],
              *([letter, -4.0 - n / 8] for n, letter in enumerate("abcdexक"))]  # fmt: skip
    return {**byte_level(), "added_tokens": _specials("<unk>", "<s>"), "pre_tokenizer": step,
            "decoder": step, "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces,
            "byte_fallback": False}}  # fmt: skip


def word_piece() -> dict[str, Any]:
    """A tokenizer like BERT's: pieces that begin a word and pieces that continue it."""
    letters = [*"abcdex12", "क", "ा"]
    names = ["[UNK]", "[CLS]", *letters, *(f"##{one}" for one in letters), "ab"]
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 100,
             "vocab": {name: n for n, name in enumerate(names)}}  # fmt: skip
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                  "strip_accents": False, "lowercase": False}  # fmt: skip
    return {**byte_level(), "added_tokens": _specials("[UNK]", "[CLS]"), "normalizer": normalizer,
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": model}  # fmt: skip


def _specials(*names: str) -> list[dict[str, Any]]:
    plain = byte_level()["added_tokens"][0]
    return [{**plain, "id": n, "content": name} for n, name in enumerate(names)]


BASE = byte_level()
BASES = {one.__name__: one() for one in (byte_level, byte_fallback, unigram, word_piece)}
PLAN = plan_tokens(
    BASE,
    {"hin_Deva": ["क का कि की"] * 9},
    Planning(budget=6, boundaries="keep"),
    test={"hin_Deva": ["का"], "eng_Latn": ["ab"]},
    protect=Protected(("a.txt",), ["ab ba"]),
    elsewhere={"b": ["abc"]},
)
_TABLE = {i: t for t, i in BASE["model"]["vocab"].items()}
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTES = {chr(b): b for b in _PRINTABLE} | {
    chr(0x100 + n): b for n, b in enumerate(b for b in range(256) if b not in _PRINTABLE)
}


def tokenizer_file(folder: Path, draw: Callable[[Any], Any]) -> None:
    """`tokenizer.json`: opened, encoded and decoded with."""
    text = json.dumps(edited(draw(st.sampled_from(list(BASES.values()))), draw(edits)))
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    opened = load(folder)
    ids = opened.encode(LINES)
    size = len(opened.vocabulary)
    assert all(0 <= i < size for row in ids for i in row), "an id outside the vocabulary"
    opened.decode(ids)
    opened.pretokens(LINES)
    opened.dropped(LINES)


def none_longer(old: dict[str, Any], new: dict[str, Any]) -> None:
    """In plain `tokenizers`: no line is longer, text without Devanagari keeps its ids, and every
    line decodes as before.

    Unigram and WordPiece do not promise the length, only that no more characters are UNK; a
    character that was UNK may now decode as itself.
    """
    before, after = (Tokenizer.from_str(json.dumps(one)) for one in (old, new))
    unknown = json.loads(before.to_str())["model"]["type"] in ("Unigram", "WordPiece")
    for line in [*LINES, "कि कीका x का\u200d", "ab<s>ab\r\n 12३"]:
        ids = [t.encode(line, add_special_tokens=False).ids for t in (before, after)]
        if unknown:
            lost = [_lost(one, t, line) for one, t in ((old, before), (new, after))]
            assert lost[1] <= lost[0], f"{line!r} loses {lost[1]} characters, lost {lost[0]}"
        else:
            assert len(ids[1]) <= len(ids[0]), f"{line!r} became longer"
        if not any("\u0900" <= c <= "\u097f" for c in line):
            assert ids[0] == ids[1], f"{line!r} has other ids"
        texts = [
            t.decode(i, skip_special_tokens=False)
            for t, i in zip((before, after), ids, strict=True)
        ]
        kept = "".join(texts[0].split()) == "".join(line.split())  # decoded at all
        if kept and (not unknown or lost[0] == lost[1]):
            assert texts[0] == texts[1], f"{line!r} comes back as {texts[1]!r}, was {texts[0]!r}"


def _lost(tokenizer: dict[str, Any], pipeline: Tokenizer, line: str) -> int:
    """The number of characters of the line that are UNK."""
    model = tokenizer["model"]
    name = model.get("unk_token")
    number = model.get("unk_id") if name is None else pipeline.token_to_id(name)
    encoded = pipeline.encode(line, add_special_tokens=False)
    spans = [span for i, span in zip(encoded.ids, encoded.offsets, strict=True) if i == number]
    return sum(stop - start for start, stop in spans)


def planned(folder: Path, draw: Callable[[Any], Any]) -> None:
    """A plan for a changed tokenizer: it keeps its promises, or is refused."""
    base = edited(draw(st.sampled_from(list(BASES.values()))), draw(edits))
    (folder / "tokenizer.json").write_text(json.dumps(base), encoding="utf-8")
    parsed = as_json(find(str(folder)))
    options = Planning(
        budget=draw(st.integers(1, 9)),
        mode=draw(st.sampled_from(["merges", "merges", "characters"])),
        boundaries=draw(st.sampled_from(["auto", "keep", "relax", "portable"])),
    )
    plan = plan_tokens(parsed, {"hin_Deva": ["क का कि की", "कीका काकि का"] * 9}, options)
    (folder / "plan.json").write_text(json.dumps(plan.to_json()), encoding="utf-8")
    again = read_plan(folder)
    assert again == plan, "the plan reads otherwise than it was written"
    none_longer(parsed, insert_proved(parsed, again))


def plan_file(folder: Path, draw: Callable[[Any], Any]) -> None:
    """`plan.json`: what is inserted must be spelled by its parts."""
    changed = edited(PLAN.to_json(), draw(edits))
    (folder / "plan.json").write_text(json.dumps(changed), encoding="utf-8")
    plan = read_plan(folder)
    made = insert_proved(BASE, plan)
    for token in plan.tokens:
        spelled = bytes(_BYTES[c] for part in token.parts for c in _TABLE[part])
        assert spelled.hex() == token.bytes, f"{token} is not spelled by its parts"
        assert bytes(_BYTES[c] for c in token.token) == spelled, f"{token} is another string"
    old = BASE["model"]["vocab"]
    assert {t: made["model"]["vocab"][t] for t in old} == old, "an old id moved"
    merges, kept = (
        [m.split(" ") if isinstance(m, str) else m for m in one["model"]["merges"]]
        for one in (made, BASE)
    )  # of either form
    assert merges[: len(kept)] == kept, "an old merge moved"
    assert all(code == "hin_Deva" or code[3] == "_" for code in plan.languages)
    none_longer(BASE, made)


def weights(folder: Path, draw: Callable[[Any], Any]) -> None:
    """A safetensors header: what we accept, the reference reader accepts with the same shapes."""
    from safetensors import safe_open

    header: Any = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    }
    raw = json.dumps(edited(header, draw(edits))).encode()
    data = struct.pack("<Q", len(raw)) + raw + bytes(32)
    data = damaged(data, draw(cuts), draw(st.integers(1, 400)))
    path = folder / "model.safetensors"
    path.write_bytes(data)
    found = read_checkpoint(folder)
    with safe_open(path, "np") as opened:
        theirs = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    ours = {name: tensor.shape for name, tensor in found.tensors.items()}
    assert ours == theirs, f"{ours} is not {theirs}"


def shards(folder: Path, draw: Callable[[Any], Any]) -> None:
    """An index of shards: the reference reader finds every tensor in the file named for it."""
    from safetensors.numpy import load_file, save_file

    index: Any = {"metadata": {"total_size": 40}, "weight_map": {}}
    for name, file in (("a", "1.safetensors"), ("b", "2.safetensors"), ("c", "2.safetensors")):
        index["weight_map"][name] = file
    save_file({"a": np.zeros((2, 3), "f4")}, folder / "1.safetensors")
    save_file({"b": np.ones(4, "f2"), "c": np.ones(4, "f2")}, folder / "2.safetensors")
    text = json.dumps(edited(index, draw(edits)))
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    ours = {name: (one.file, one.shape) for name, one in read_checkpoint(folder).tensors.items()}
    for name, file in json.loads(text)["weight_map"].items():
        held = load_file(folder / file)
        assert ours[name] == (file, held[name].shape), f"{name} is {ours[name]}, not in {file}"


def archive(folder: Path, draw: Callable[[Any], Any]) -> None:
    """A corpus in an archive: damaged bytes, strange members, members far larger than the file.

    The reader of tokenizer archives must withstand it too.
    """
    texts = {"eng_Latn": "one\ntwo\n", "hin_Deva": "एक\nदो\n"}
    names = st.sampled_from(["dev/{}.dev", "../{}.dev", "/{}.dev", "{}.txt", "._{}.dev", "{}.csv"])
    form = draw(names)
    big = draw(st.sampled_from([0, 0, 0, 0, 0, 0, 80 << 20]))
    kind = draw(st.sampled_from([".zip", ".tar", ".tar.gz", ".tar.bz2", ".tar.xz"]))
    members = {form.format(code): text.encode() + bytes(big) for code, text in texts.items()}
    link = draw(st.sampled_from([None, None, "/etc/passwd", "../../x"]))
    data = _packed(members, kind, link)
    packs = draw(st.sampled_from([1, 1, 1, 60])) if big and kind == ".tar.gz" else 1
    data = data * packs  # a gzip file may hold many streams: 5 GB here
    path = folder / f"corpus{kind}"
    path.write_bytes(damaged(data, draw(cuts), draw(st.integers(1, 10**6))))
    with contextlib.suppress(TokengraftError):
        tokenizers_in(path)
    found = load_corpus(str(path))
    assert not big, "an archive that unpacks to far more than its size was read"
    assert len({len(column) for column in found.texts.values()}) == 1
    told = _unpacked(path)
    for code, column in found.texts.items():
        assert any(
            [line for line in column if line is not None]
            == [line.strip() for line in text.split("\n")[: len(column)]]
            for name, text in told.items()
            if code in name
        ), f"{code} is {column}, the archive has {told}"


def _packed(members: dict[str, bytes], kind: str, link: str | None) -> bytes:
    buffer = io.BytesIO()
    if kind == ".zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
            for name, data in members.items():
                zipped.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            if link:
                info = tarfile.TarInfo("dev/fra_Latn.dev")
                info.type, info.linkname = tarfile.SYMTYPE, link
                tar.addfile(info)
    raw = buffer.getvalue()
    packers: dict[str, Callable[[bytes], bytes]] = {
        ".tar.gz": lambda b: gzip.compress(b, 1),
        ".tar.bz2": lambda b: bz2.compress(b, 1),
        ".tar.xz": lambda b: lzma.compress(b, preset=0),
    }
    return packers[kind](raw) if kind in packers else raw


def _unpacked(path: Path) -> dict[str, str]:
    """Members as text, by the standard library's readers and their checks."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as zipped:
            return {n: zipped.read(n).decode("utf-8") for n in zipped.namelist()}
    with tarfile.open(path) as tar:
        files = [(m.name, tar.extractfile(m)) for m in tar if m.isfile()]
        return {name: file.read().decode("utf-8", "replace") for name, file in files if file}


def jsonl(folder: Path, draw: Callable[[Any], Any]) -> None:
    """JSONL as a parallel corpus or as text: what is read is what `json` reads."""
    parallel = draw(st.booleans())
    records = [
        {"eng_Latn": f"line {n}", "hin_Deva": f"पंक्ति {n}"} | ({} if parallel else {"text": f"t{n}"})
        for n in range(3)
    ]
    rows = [json.dumps(edited(record, draw(edits))) for record in records]
    data = damaged("\n".join(rows).encode(), draw(cuts), draw(st.integers(1, 10**4)))
    path = folder / "text.jsonl"
    path.write_bytes(data)
    read = load_corpus(str(path)).texts if parallel else list(lines_of(str(path)))
    told = [json.loads(line) for line in data.decode().split("\n") if line.strip()]
    if isinstance(read, list):
        lines = [line for one in told for line in re.split("\r?\n", one["text"])]
        assert read == [line for line in lines if line.strip()], f"{read} {told}"
    else:
        columns = [[(one.get(key) or "").strip() for one in told] for key in {*chain(*told)}]
        for column in read.values():
            assert [line or "" for line in column] in columns, f"{column} {told}"


def gguf(folder: Path, draw: Callable[[Any], Any]) -> None:
    """A GGUF header: what we accept, the `gguf` package reads with the same shapes and bytes."""
    from gguf import GGUFReader

    keys = [("general.alignment", 4, struct.pack("<I", 32)), ("n", 8, _text("x")),
            ("a", 9, struct.pack("<IQ3f", 6, 3, 1, 2, 3)),
            ("s", 9, struct.pack("<IQ", 8, 2) + _text("a") + _text("ा"))]  # fmt: skip
    tensors = [("t", (8, 2), 0, 0), ("q", (32, 2), 8, 64)]  # F32, Q8_0
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    data += b"".join(_text(name) + struct.pack("<I", kind) + raw for name, kind, raw in keys)
    for name, shape, kind, offset in tensors:
        data += _text(name) + struct.pack("<I2QIQ", len(shape), *shape, kind, offset)
    data += bytes(-len(data) % 32) + bytes(range(64)) + bytes(68)
    path = folder / "model.gguf"
    path.write_bytes(damaged(data, draw(cuts), draw(st.integers(1, 400))))
    ours = {name: (one.shape, one.data.tobytes()) for name, one in read_gguf(path).tensors.items()}
    theirs = {
        tensor.name: (tuple(int(n) for n in tensor.shape)[::-1], tensor.data.tobytes())
        for tensor in GGUFReader(path).tensors
    }
    assert ours == theirs, f"{ours} is not {theirs}"


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


READERS = (tokenizer_file, planned, plan_file, weights, shards, archive, jsonl)
TARGETS = {one.__name__: one for one in READERS}
if importlib.util.find_spec("gguf"):
    TARGETS["gguf"] = gguf


def attempt(target: Callable[..., None], data: Any) -> str:
    """Run one case: `refused` or `read`; any other exception is a finding."""
    end = "read"
    with tempfile.TemporaryDirectory() as place:
        try:
            target(Path(place), data.draw)
        except TokengraftError:
            end = "refused"
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert used < MOST, f"{used >> 20} MiB of memory"
    return end


def fuzz(name: str, count: int, start: int, database: Path) -> tuple[Counter[str], str | None]:
    """Run `count` cases of one target from one seed; return the smallest failure's traceback."""
    ends: Counter[str] = Counter()

    @seed(start)
    @settings(
        max_examples=count, deadline=None, database=DirectoryBasedExampleDatabase(database),
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
        phases=(Phase.reuse, Phase.generate, Phase.shrink),
    )  # fmt: skip
    @given(st.data())
    def cases(data: Any) -> None:
        ends[attempt(TARGETS[name], data)] += 1

    try:
        cases()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return ends, "".join(traceback.format_exception(error))
    return ends, None


def main() -> int:
    """Cycle through the targets until time is up; exit 1 if something was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to go on")
    parser.add_argument("--seeds", type=Path, default=Path("fuzz-seeds"), help="failing cases")
    parser.add_argument("--start", type=int, default=None, help="first seed (default: at random)")
    parser.add_argument("--only", choices=TARGETS, help="one target")
    parser.add_argument("--out", type=Path, help="counts, seeds and findings as JSON")
    given_ = parser.parse_args()
    number = random.randrange(10**9) if given_.start is None else given_.start
    told: dict[str, Any] = {"start": number, "targets": {}, "findings": []}
    names = [given_.only] if given_.only else list(TARGETS)
    totals: dict[str, Counter[str]] = {name: Counter() for name in names}
    failed: set[str] = set()
    until = time.monotonic() + 60 * given_.minutes
    while time.monotonic() < until and len(failed) < len(names):
        for name in names:
            if name in failed or time.monotonic() >= until:
                continue
            ends, found = fuzz(name, 40 if name == "archive" else 300, number, given_.seeds)
            totals[name] += ends
            if found is not None:
                failed.add(name)
                told["findings"].append({"target": name, "seed": number, "traceback": found})
                print(f"{name}, seed {number}:\n{found}", flush=True)
        number += 1
        told |= {
            "targets": {name: dict(ends) for name, ends in totals.items()},
            "seeds": number - told["start"],
            "cpu_seconds": round(time.process_time(), 1),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
        if given_.out:
            given_.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    for name, ends in totals.items():
        print(f"{name}: {dict(ends)}{' FAILED' if name in failed else ''}")
    print(f"peak memory {told['peak_mib']} MiB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
