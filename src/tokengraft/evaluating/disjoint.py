"""Rows must not have been trained on the text they are judged by."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping

from tokengraft.core.errors import CorpusError
from tokengraft.corpus.parallel import ParallelCorpus

_SHORT = 24  # characters; shorter lines ("Yes.", a name, a date) are no sign of a leak


def assert_disjoint(
    text: Iterable[str] | Mapping[str, Iterable[str]],
    corpus: ParallelCorpus | Iterable[str] | Mapping[str, Iterable[str]],
) -> int:
    """Raise a CorpusError if a line of `text` holds or is a line of the evaluation `corpus`.

    Lines are compared without case, spacing and Unicode form; lines below 24 characters are not
    looked at. A corpus line that several text lines make up together is not found. Returns how
    many corpus lines were looked for.
    """
    wanted = {key for line in _lines(corpus) if len(key := _key(line)) >= _SHORT}
    # A line that contains a corpus line contains its first characters: look up by those.
    heads: dict[str, list[str]] = {}
    for key in wanted:
        heads.setdefault(key[:_SHORT], []).append(key)
    for number, line in enumerate(_lines(text), 1):
        key = _key(line)
        for start in range(len(key) - _SHORT + 1):
            for candidate in heads.get(key[start : start + _SHORT], ()):
                if key.startswith(candidate, start):
                    raise CorpusError(
                        f"line {number} of the training text is in the evaluation corpus: "
                        f"{line.strip()[:60]!r}. Rows trained on it cannot be judged by it: take "
                        "the line out, or evaluate on another corpus."
                    )
    return len(wanted)


def _lines(text: ParallelCorpus | Iterable[str] | Mapping[str, Iterable[str]]) -> Iterator[str]:
    if isinstance(text, ParallelCorpus):
        for code in text.languages:
            yield from text.lines(code)
    elif isinstance(text, Mapping):
        for lines in text.values():
            yield from lines
    else:
        yield from text


def _key(line: str) -> str:
    return "".join(unicodedata.normalize("NFKC", line).casefold().split())
