"""Planning text, read once and kept as counts.

A line is broken before each space, since split patterns never let a match run from a word into
the space behind it. What is kept are the distinct chunks and how often each occurs: their number
grows far slower than the text, and the counts of two texts add up to those of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

_SAMPLE = 500  # lines on which a floor is measured where there is no test corpus


@dataclass(frozen=True)
class Text:
    """A text's distinct chunks with their counts, and its first lines that hold anything."""

    chunks: Mapping[str, int]
    sample: tuple[str, ...]


def read(lines: Iterable[str]) -> Text:
    """The text of these lines, which are taken one by one and not kept."""
    rest = iter(lines)
    begun = list(islice(rest, _SAMPLE))
    chunks = count_chunks(begun)
    sample = [line for line in begun if line.strip()]
    while len(sample) < _SAMPLE and (more := list(islice(rest, _SAMPLE))):
        chunks.update(count_chunks(more))
        sample += [line for line in more if line.strip()]
    chunks.update(count_chunks(rest))
    return Text(chunks, tuple(sample[:_SAMPLE]))


def count_chunks(lines: Iterable[str]) -> Counter[str]:
    """Distinct chunks of the lines with their counts; all but a line's first begin with a space."""
    found: Counter[str] = Counter()
    behind: Counter[str] = Counter()
    for line in lines:
        parts = line.rstrip("\r\n").split(" ")
        found[parts[0]] += 1
        del parts[0]
        behind.update(parts)
    del behind[""]
    del found[""]
    for part, times in behind.items():
        found[" " + part] += times
    return found
