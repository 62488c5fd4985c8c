"""One language's lines under both tokenizers, cut to what both models can read.

Rows must not have been trained on the text they are judged by (`assert_disjoint`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokengraft.core.errors import CorpusError
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.deriving.distil.passages import shorten
from tokengraft.model.frozen import FrozenModel
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.align import Aligner, Alignment, Ints

_SHORT = 24  # characters; shorter lines ("Yes.", a name, a date) are no sign of a leak


@dataclass(frozen=True)
class Case:
    """Lines to be read; `same` marks those that the new tokenizer leaves as they were.

    `lengths` are the bytes of each old token, `inside` whether it continues a character begun by
    another, `whole` whether a line was read to its end. `rows` are the old tokens that the base has
    rows for: an added token may lie beyond its table (Gemma 3's image token). No line is longer
    than `room` under either tokenizer, special tokens left out.
    """

    language: str
    pairs: tuple[Alignment, ...]
    same: tuple[bool, ...]
    lengths: Ints
    inside: npt.NDArray[np.bool_]
    first_new: int
    rows: int
    room: int
    whole: tuple[bool, ...]

    @property
    def old(self) -> list[Ints]:
        """Old ids, line by line."""
        return [pair.old for pair in self.pairs]

    @property
    def new(self) -> list[Ints]:
        """New ids, line by line."""
        return [pair.new for pair in self.pairs]

    def sizes(self, specials: int = 0) -> dict[str, float | int | str]:
        """Tokens before and after, and the share of new ones as the paper counts it (with BOS)."""
        before = sum(len(pair.old) for pair in self.pairs)
        after = sum(len(pair.new) for pair in self.pairs)
        added = sum(int((pair.new >= self.first_new).sum()) for pair in self.pairs)
        return {
            "language": self.language,
            "lines": len(self.pairs),
            "cut_short": len(self.whole) - sum(self.whole),
            "tokens_before": before,
            "tokens_after": after,
            "new_token_share": added / max(1, after + specials * len(self.pairs)),
            "aligned_positions": sum(len(pair) for pair in self.pairs),
        }


def prepare(
    language: str,
    lines: Sequence[str],
    base: FrozenModel,
    new: Tokenizer,
    window: int | None = None,
) -> Case:
    """Encode, align and cut; CorpusError where no line has a common position."""
    room = (window or base.window) - len(base.prefix) - len(base.suffix)
    alignments = Aligner(base.tokenizer, new)(list(lines))
    pairs, whole = [], []
    for one in alignments:
        short = shorten(one, room)
        if len(short):
            pairs.append(short)
            whole.append(len(short.old) == len(one.old))
    if not pairs:
        raise CorpusError(f"{language}: no line to evaluate on")
    pieces = base.tokenizer.vocabulary.pieces
    return Case(
        language, tuple(pairs), tuple(np.array_equal(p.old, p.new) for p in pairs),
        np.fromiter(map(len, pieces), np.int64), base.tokenizer.vocabulary.starts_inside,
        len(pieces), min(len(pieces), len(base.weight)), room, tuple(whole),
    )  # fmt: skip


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
