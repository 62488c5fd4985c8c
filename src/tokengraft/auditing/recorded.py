"""Hashes of the reference libraries' counts of the bundled text: they check every line of it."""

from __future__ import annotations

import functools

from tokengraft.auditing.count import Counts
from tokengraft.core.files import ASSETS, sha256

RECORDED = ASSETS / "udhr_counts.tsv"
_SIZE = 8  # hexadecimal digits of each hash


def short(text_digest: str, counts: Counts) -> str:
    """The hash of a language's counts; of its text too, so that it stands for no other."""
    return sha256(text_digest.encode() + counts.table[:, :3].astype("<i4").tobytes())[:_SIZE]


def text_hash(text_digest: str) -> str:
    """The hash that stands for a language's text."""
    return text_digest[:_SIZE]


class Recorded:
    """What is recorded for one tokenizer, by the hash of its files (`tools/record_counts.py`)."""

    def __init__(self, fingerprint: str) -> None:
        self._hashes = _table().get(fingerprint[:_SIZE], {})
        self._texts: dict[str, str] = {}

    def has(self, code: str, text_digest: str) -> bool:
        """Whether counts of this very text are recorded."""
        self._texts[code] = text_digest
        return text_hash(text_digest) in self._hashes

    def agrees(self, code: str, counts: Counts) -> bool:
        """Whether the counts of a text that `has` was asked about are the recorded ones."""
        digest = self._texts[code]
        return short(digest, counts) == self._hashes[text_hash(digest)]


@functools.cache
def _table() -> dict[str, dict[str, str]]:
    """By tokenizer: text → counts; the first line has the texts in order."""
    if not RECORDED.exists():
        return {}
    (_, texts), *rows = (line.split("\t") for line in RECORDED.read_text().splitlines())
    return {print_: dict(zip(_cut(texts), _cut(own), strict=True)) for print_, own in rows}


def _cut(hashes: str) -> list[str]:
    return [hashes[n : n + _SIZE] for n in range(0, len(hashes), _SIZE)]
