"""Encoders that are faster than the reference libraries, used only where both agree.

`tokenizers`, `tiktoken` and `sentencepiece` say what a tokenizer's ids are. An installed faster
library that loads the same files may encode instead, if it is proved on this very tokenizer:

- once, on a probe (`probe`): lines of the bundled Declaration of Human Rights, awkward lines,
  random Unicode and the tokenizer's own tokens. If they differ there, every character is tried by
  itself; texts with characters on which they differ (often of recent versions of Unicode) are left
  to the reference. The outcome is kept, by tokenizer and version;
- in every run, on a random sample of the real lines (`sample`), encoded by both.

At the first difference the reference encodes everything. A fault in one of 50 lines of a language
escapes the sample in fewer than one run of a hundred; one that is rarer than the sample's share of
the lines may well escape (docs/audit.md).
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import lzma
import os
import random
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from tokengraft.core.cache import Store
from tokengraft.core.errors import TokengraftError, gave_up
from tokengraft.core.files import ASSETS
from tokengraft.tokenizer.rows import Rows

#: Encodes texts, in one thread only if the second argument is true; it may raise anything.
Encode: TypeAlias = Callable[[Sequence[str], bool], Rows]
LEAST = 240  # lines of a language in a sample: a fault in one of 50 escapes with .98 ** 240
_SHARE = 0.01
WORTH = 3_000_000  # characters; fewer are encoded before a library is loaded and proved
_VERSION = "1"  # of the probe
_DIFFERS = b"\xff"  # kept for an encoder that is wrong; for others, the characters to avoid
_MOST_AVOIDED = 2000


@dataclass(frozen=True)
class Definition:
    """What a tokenizer's files say, as libraries load it.

    `data` is a `tokenizer.json`, a SentencePiece file or tiktoken's ranks, with their `pattern` and
    the name of that (gpt2, cl100k, o200k).
    `normal` is applied to text beforehand, by a normaliser that is missing in `data`.
    """

    kind: Literal["json", "sentencepiece", "ranks"]
    data: bytes
    pattern: str = ""
    scheme: str = ""
    normal: Callable[[Sequence[str]], list[str]] | None = None
    added: tuple[str, ...] = ()  # tokens that are looked for before text is normalised


def _gigatoken(definition: Definition) -> Encode:
    from gigatoken import Tokenizer

    if definition.kind == "ranks":
        with _written(definition.data) as path:
            own = Tokenizer.from_tiktoken(path, definition.scheme, {})
    elif definition.kind == "sentencepiece":
        own = Tokenizer.from_sentencepiece(definition.data)
    else:
        own = Tokenizer.from_json(definition.data)

    def encode(texts: Sequence[str], alone: bool) -> Rows:
        made = own.encode_batch(list(texts), parallel=False if alone else None).layout
        ends, ids = np.asarray(made.offsets.data), np.asarray(made.content.data)
        return Rows(np.diff(ends).astype(np.int64), ids[ends[0] : ends[-1]].astype(np.uint32))

    return encode


def _fastokens(definition: Definition) -> Encode:
    from fastokens import Tokenizer

    if definition.kind == "ranks":
        with _written(definition.data) as path:
            own = Tokenizer.from_tiktoken(path, pattern=definition.pattern, special_tokens={})
    else:
        own = Tokenizer.from_json_str(_json(definition))

    def encode(texts: Sequence[str], alone: bool) -> Rows:
        del alone
        ids, ends = own.encode_batch_flat(list(texts))
        places = np.frombuffer(ends, np.uint64).astype(np.int64)
        return Rows(places[1:] - places[:-1], np.frombuffer(ids, np.uint32))

    return encode


def _tokie(definition: Definition) -> Encode:
    from tokie import Tokenizer

    with _written(_json(definition).encode("utf-8")) as path:
        own = Tokenizer.from_json(path)

    def encode(texts: Sequence[str], alone: bool) -> Rows:
        del alone
        return Rows.of(one.ids for one in own.encode_batch(list(texts), add_special_tokens=False))

    return encode


#: Fast libraries in the order in which they are tried, and what loads a tokenizer into each.
LIBRARIES: dict[str, Callable[[Definition], Encode]] = {
    "gigatoken": _gigatoken, "fastokens": _fastokens, "tokie": _tokie,
}  # fmt: skip


@contextlib.contextmanager
def _written(data: bytes) -> Iterator[str]:
    """The path of a temporary file with this content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        yield str(path)


def _json(definition: Definition) -> str:
    if definition.kind != "json":
        raise ValueError("only a tokenizer.json")
    return definition.data.decode("utf-8")


def ranks_file(ranks: dict[bytes, int]) -> bytes:
    """Ranks as tiktoken writes them."""
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ranks.items())


#: In which process a library's threads were started: in a fork of that, they are dead.
_started: dict[str, int] = {}


def usable(name: str) -> bool:
    """Whether a library can encode in this process; gigatoken itself sees to forks."""
    library = name.partition(" ")[0]
    return _started.setdefault(library, os.getpid()) == os.getpid() or library == "gigatoken"


@dataclass(frozen=True)
class Fast:
    """A faster encoder of one tokenizer."""

    name: str  # library and version
    encode: Encode
    avoided: frozenset[str]  # characters: texts with one of them are left to the reference


def installed() -> Iterator[tuple[str, str]]:
    """The fast libraries that are here, with their versions."""
    for library in LIBRARIES:
        try:
            yield library, version(library)
        except PackageNotFoundError:
            continue


def find_fast(
    fingerprint: str, define: Callable[[], Definition | None], reference: Callable[..., Rows],
    texts: Callable[[], list[str]],
) -> Fast | None:  # fmt: skip
    """The first installed library that loads the tokenizer and agrees with `reference` on `texts`.

    `define` and `texts` are called only if something has to be loaded or proved.
    """
    definition: Definition | None = None
    for library, number in installed():
        name = f"{library} {number}"
        key = f"{_VERSION}/{name}/{fingerprint}"
        if (known := _verdict(key)) == _DIFFERS or not usable(library):
            continue
        try:
            if definition is None and (definition := define()) is None:
                return None
            encode = _normalised(LIBRARIES[library](definition), definition)
            if known is None:
                known = _agreeing(encode, reference, texts())
                _verdict(key, known)
        except ImportError:  # of something that the library needs
            continue
        except BaseException as error:  # libraries raise anything, and Rust may panic
            if not gave_up(error):
                raise
            _verdict(key, _DIFFERS)
            continue
        return Fast(name, encode, frozenset(known.decode("utf-8")))
    return None


def _agreeing(encode: Encode, reference: Callable[..., Rows], texts: list[str]) -> bytes:
    """The characters to avoid so that both give the same ids; ValueError if that does not help."""
    if encode(texts, False).same(reference(texts)):
        return b""
    letters = _assigned()
    alone = [f"a{letter} {letter}b" for letter in letters]
    pairs = zip(letters, encode(alone, False).arrays(), reference(alone).arrays(), strict=True)
    avoided = frozenset(letter for letter, a, b in pairs if not np.array_equal(a, b))
    rest = [text for text in texts if avoided.isdisjoint(text)]
    if len(avoided) > _MOST_AVOIDED or not encode(rest, False).same(reference(rest)):
        raise ValueError("other ids on the probe")
    return "".join(sorted(avoided)).encode("utf-8")


def refute(name: str, fingerprint: str) -> None:
    """Never use this encoder for this tokenizer again."""
    _verdict(f"{_VERSION}/{name}/{fingerprint}", _DIFFERS)


def refuted(name: str, fingerprint: str) -> bool:
    """Whether this encoder turned out to be wrong for this tokenizer."""
    return is_fast(name) and _verdict(f"{_VERSION}/{name}/{fingerprint}") == _DIFFERS


def is_fast(name: str) -> bool:
    """Whether this is a fast library, with its version, and not a reference."""
    return name.partition(" ")[0] in LIBRARIES


def _normalised(encode: Encode, definition: Definition) -> Encode:
    normal, added = definition.normal, definition.added
    if normal is None:
        return encode

    def after_normalising(texts: Sequence[str], alone: bool) -> Rows:
        made = normal(texts)
        new = [now for was, now in zip(texts, made, strict=True) if now != was]
        if any(token in text for text in new for token in added):
            raise ValueError("an added token that only normalised text spells")
        return encode(made, alone)

    return after_normalising


def _verdict(key: str, value: bytes | None = None) -> bytes | None:
    """What is known of an encoder from earlier runs; or keep it."""
    try:
        store = Store(name="encoders.sqlite")
        try:
            if value is None:
                return store.get(key)
            store.put(key, value)
        finally:
            store.close()
    except TokengraftError:  # no cache here: prove it again the next time
        pass
    return None


def sample(parts: Sequence[int], chance: random.Random | None = None) -> list[int]:
    """The numbers of the texts to encode by both: of each part, one in a hundred and at least 240.

    `parts` says how many texts each language has.
    """
    chance = chance or random.SystemRandom()
    numbers: list[int] = []
    start = 0
    for size in parts:
        count = min(size, max(LEAST, int(size * _SHARE)))
        numbers += sorted(chance.sample(range(start, start + size), count))
        start += size
    return numbers


def share(lines: int) -> float:
    """The chance with which a line is in the sample of a stream that has given `lines` so far."""
    return 1.0 if lines <= LEAST else _SHARE


def probe(fingerprint: str, awkward: Sequence[str], tokens: Sequence[bytes]) -> list[str]:
    """Text that shows most differences within a second; the same for the same tokenizer."""
    chance = random.Random(fingerprint)
    texts = [*awkward, *(f"{a}{b}" for a in awkward for b in chance.sample(awkward, 4))]
    texts += [line for lines in _declaration() for line in chance.sample(lines, min(3, len(lines)))]
    letters = _assigned()
    for size in (1, 2, 5, 20, 60):
        texts += ["".join(chance.choices(letters, k=size)) for _ in range(200)]
    mixed = [*" \n\t  '.,-0123456789aAzZéßñ", *chance.choices(letters, k=99)]
    texts += ["".join(chance.choices(mixed, k=40)) for _ in range(400)]
    drawn = chance.sample(tokens, min(4000, len(tokens)))
    own = [piece.decode("utf-8", "ignore") for piece in drawn]
    texts += [f"{a}{b} {c}a{d}" for a, b, c, d in zip(*[iter(own)] * 4, strict=False)]
    return [text for text in texts if text]


@functools.cache
def _assigned() -> list[str]:
    """Every assigned character but surrogates and those for private use."""
    every = map(chr, range(0x20000))
    return [c for c in every if unicodedata.category(c) not in ("Cn", "Cs", "Co")]


@functools.cache
def _declaration() -> list[list[str]]:
    """Every fourth line of each bundled translation."""
    rows = lzma.decompress((ASSETS / "udhr.jsonl.xz").read_bytes()).splitlines()
    return [[*json.loads(row)["units"].values()][::4] for row in rows]
