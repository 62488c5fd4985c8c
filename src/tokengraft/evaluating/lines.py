"""One language's lines under both tokenizers, cut to what both models can read.

Rows must not have been trained on the text they are judged by (`assert_disjoint`).

The ceiling of every figure is what the base makes of another segmentation of the same text by its
own vocabulary (`Segmenter`). Each token is cut in two with probability `share` if the vocabulary
holds both halves; among several cuts one is drawn. BPE-dropout (Provilkov et al. 2020,
https://arxiv.org/abs/1910.13267) has a similar effect. Done on the finished tokenization, it works
for every family of tokenizer, needs no merges, and depends on the seed and the ids alone.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokengraft.core.errors import CorpusError, TokenizerError
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.deriving.distil.passages import shorten
from tokengraft.model.frozen import FrozenModel
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.align import Aligner, Alignment, Ints
from tokengraft.tokenizer.vocabulary import CONTINUATION_MARK

_SHORT = 24  # characters; a shorter line in common ("Yes.", a name, a date) is no leak


@dataclass(frozen=True)
class Case:
    """The lines of one language; `same` marks those whose ids the new tokenizer does not change.

    For each old token, `lengths` is its number of bytes and `inside` whether it starts inside a
    character. `whole` tells whether a line is read to its end, `kept` which of the given lines are
    among the `pairs`: those with a common position. `rows` is the number of old tokens that have a
    row in the base: an added token may lie beyond its table (Gemma 3's image token). No line has
    more than `room` tokens under either tokenizer, not counting special tokens.
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
    kept: npt.NDArray[np.bool_]

    @property
    def old(self) -> list[Ints]:
        """Old ids, line by line."""
        return [pair.old for pair in self.pairs]

    @property
    def new(self) -> list[Ints]:
        """New ids, line by line."""
        return [pair.new for pair in self.pairs]

    def sizes(self, specials: int = 0) -> dict[str, float | int | str]:
        """Tokens before and after, and the share of new ones, counted with BOS as in the paper."""
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
    """Encode lines, align them and cut them to `window`; CorpusError if no position is common."""
    room = (window or base.window) - len(base.prefix) - len(base.suffix)
    pairs, whole, kept = [], [], []
    for one in Aligner(base.tokenizer, new)(list(lines)):
        short = shorten(one, room)
        kept.append(len(short) > 0)
        if kept[-1]:
            pairs.append(short)
            whole.append(len(short.old) == len(one.old))
    if not pairs:
        raise CorpusError(f"{language}: no line to evaluate on")
    pieces = base.tokenizer.vocabulary.pieces
    return Case(
        language, tuple(pairs), tuple(np.array_equal(p.old, p.new) for p in pairs),
        np.fromiter(map(len, pieces), np.int64), base.tokenizer.vocabulary.starts_inside,
        len(pieces), min(len(pieces), len(base.weight)), room, tuple(whole), np.array(kept),
    )  # fmt: skip


def assert_disjoint(text: Iterable[str], corpus: ParallelCorpus | Iterable[str]) -> int:
    """Raise CorpusError if a line of `text` is or contains a line of the evaluation `corpus`.

    Case, spaces and Unicode form are ignored, as are lines below 24 characters. A corpus line that
    is spread over several lines of text is not found. Returns how many lines were looked for.
    """
    lines = corpus.lines(*corpus.languages) if isinstance(corpus, ParallelCorpus) else corpus
    wanted = {key for line in lines if len(key := _key(line)) >= _SHORT}
    # A line that contains a corpus line contains its first characters: look up by those.
    heads: dict[str, list[str]] = {}
    for key in wanted:
        heads.setdefault(key[:_SHORT], []).append(key)
    for number, line in enumerate(text, 1):
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


def _key(line: str) -> str:
    return "".join(unicodedata.normalize("NFKC", line).casefold().split())


SHARE = 0.1


class Segmenter:
    """Cuts tokens of a tokenizer in two at random; the text they spell stays the same."""

    def __init__(self, tokenizer: Tokenizer, share: float = SHARE, seed: int = 0) -> None:
        pipeline = getattr(tokenizer, "pipeline", None)
        if pipeline is None:
            raise TokenizerError(f"{tokenizer.name}: another segmentation needs a tokenizer.json")
        self.share, self.seed = share, seed
        table: dict[str, int] = pipeline.get_vocab(with_added_tokens=True)
        added = pipeline.get_added_tokens_decoder()
        self._ids = {token: number for token, number in table.items() if number not in added}
        self._names = {number: token for token, number in self._ids.items()}
        self._pieces = tokenizer.vocabulary.pieces
        self._mark = CONTINUATION_MARK if tokenizer.family == "WordPiece" else ""
        self.cuts = functools.cache(self._cuts)

    def __call__(self, ids: Sequence[int] | Ints, room: int | None = None) -> tuple[Ints, Ints]:
        """The same text in at most `room` more tokens, and the index where each old token now ends.

        Ids stay as they are if nothing is drawn or can be cut.
        """
        values = np.asarray(ids, np.int64)
        generator = np.random.default_rng([self.seed, len(values), *values[:8].tolist()])
        drawn = generator.random((len(values), 2))
        spelled: list[int] = []
        ends = np.empty(len(values), np.int64)
        left = len(values) if room is None else max(0, room)
        for place, (chance, which) in enumerate(drawn.tolist()):
            number = int(values[place])
            cuts = self.cuts(number) if chance < self.share and left else ()
            spelled.extend(cuts[int(which * len(cuts))] if cuts else (number,))
            left -= bool(cuts)
            ends[place] = len(spelled) - 1
        return np.asarray(spelled, np.int64), ends

    def enough(self, before: Sequence[Ints], after: Sequence[Ints]) -> bool:
        """Whether at least a tenth of the expected number of tokens were cut.

        Single bytes cannot be cut. A text that consists almost entirely of them stays as it was,
        and comparing the model with itself then says nothing about another segmentation.
        """
        tokens = sum(map(len, before))
        return sum(map(len, after)) - tokens >= max(1, self.share / 10 * tokens)

    def _cuts(self, number: int) -> tuple[tuple[int, int], ...]:
        token = self._names.get(number, "")
        start = len(self._mark) if self._mark and token.startswith(self._mark) else 0
        pairs = []
        for place in range(start + 1, len(token)):
            left = self._ids.get(token[:place])
            right = self._ids.get(self._mark + token[place:])
            # Halves of the string need not be halves of the bytes (`<0xE0>`).
            if (
                left is not None
                and right is not None
                and (self._pieces[left] + self._pieces[right] == self._pieces[number])
            ):
                pairs.append((left, right))
        return tuple(pairs)
