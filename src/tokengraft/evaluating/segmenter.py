"""Another valid segmentation of a text by the same vocabulary: the ceiling of every figure.

Each token is cut in two with probability `share` where the vocabulary holds both halves; which cut,
if there are several, is drawn too. This is what BPE-dropout (Provilkov et al. 2020,
https://arxiv.org/abs/1910.13267) does to a text, done on the finished tokenization: it serves every
family, needs no merges, and is a function of the seed and the ids alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from tokengraft.core.errors import TokenizerError
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.align import Ints
from tokengraft.tokenizer.vocabulary import CONTINUATION_MARK

SHARE = 0.1


class Segmenter:
    """Cuts tokens of one tokenizer in two; the bytes they spell stay the same."""

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
        """The same text in more tokens, at most `room` more, and where each old token now ends.

        The ids stay as they are where nothing was drawn or can be cut.
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
        """Whether a tenth of the tokens that should have been cut were.

        Tokens of one byte cannot be cut. Where a text is all but made of them, it stays as it was,
        and the model against itself says nothing about another segmentation.
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
            # `<0xE0>` and the like: string halves that are not the bytes' halves.
            if (
                left is not None
                and right is not None
                and (self._pieces[left] + self._pieces[right] == self._pieces[number])
            ):
                pairs.append((left, right))
        return tuple(pairs)
