"""Text in which new tokens have no business: English, code, and what the user gives.

At hand on every machine: the Universal Declaration in English and a few languages of other scripts
(bundled), the help pages that come with Python (English about code), and the source of this
package. Passages in which the new tokenizer emits a new token are left out: there it belongs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from itertools import zip_longest

import numpy as np

from tokengraft.corpus import udhr
from tokengraft.deriving.distil.passages import cut
from tokengraft.tokenizer.align import Aligner, Ints

_ENGLISH = "eng_Latn"
_OTHERS = ("fra_Latn", "rus_Cyrl", "arb_Arab", "hin_Deva", "zho_Hans", "jpn_Jpan")
_MOST = 1200  # passages


def bundled() -> Iterator[str]:
    """Lines that are here, kinds in turn, so that a limit leaves some of each."""
    corpus = udhr.load([_ENGLISH, *_OTHERS])
    english = list(corpus.lines(_ENGLISH))
    others = [line for code in _OTHERS for line in corpus.lines(code)[::6]]
    kinds = (english, _help_pages(), _source(), others)
    for group in zip_longest(*kinds):
        yield from (line for line in group if line)


def silent_passages(
    given: Iterable[str], aligner: Aligner, rows: int, characters: int, seed: int
) -> list[Ints]:
    """Old ids of passages without a new token, the given lines' and the bundled ones' in turn."""
    generator = np.random.default_rng([seed, 3])
    lots = [_passages(lines, characters) for lines in (given, bundled())]
    lots[0] = [lots[0][n] for n in generator.permutation(len(lots[0]))[:_MOST]]
    passages = []
    for pair in zip_longest(*lots):
        passages += [one for one in pair if one]
    kept = []
    for one in aligner(passages[: 2 * _MOST]):
        if len(one.old) > 2 and np.array_equal(one.old, one.new) and (one.old < rows).all():
            kept.append(one.old[:256])
    return kept[:_MOST]


def _passages(lines: Iterable[str], characters: int) -> list[str]:
    distinct = dict.fromkeys(line.strip() for line in lines)
    return [piece for line in distinct if line for piece in cut(line, characters)]


def _help_pages() -> list[str]:
    """Paragraphs of Python's help, one in some; none where this Python comes without them."""
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except (ImportError, AttributeError):
        return []
    paragraphs = [" ".join(p.split()) for _, t in sorted(topics.items()) for p in t.split("\n\n")]
    return _spaced([p for p in paragraphs if len(p) > 60], 600)


def _source() -> list[str]:
    """Blocks of code of this package."""
    blocks: list[str] = []
    for folder in ("planning", "tokenizer", "auditing"):
        for file in sorted(resources.files("tokengraft").joinpath(folder).iterdir(), key=str):
            if file.name.endswith(".py"):
                blocks += file.read_text(encoding="utf-8").split("\n\n")
    return _spaced([block for block in blocks if len(block) > 60], 300)


def _spaced(lines: Sequence[str], most: int) -> list[str]:
    return list(lines[:: -(-len(lines) // most) or 1])
