"""Ways to choose strings other than continued BPE, for comparison with it.

Each goes by the text of all languages together, makes its strings by merges that the encoder
performs, and keeps every promise of a plan. A merge joins two tokens, so a string of many old
tokens needs intermediate ones; these are tokens too and count as such.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, islice, pairwise

import numpy as np
from tokenizers import Tokenizer, models, trainers

from tokengraft.paper.tunstall import LONGEST, grow
from tokengraft.planning.learn import Choose, Learner, key_of, parts_of

_PLACES = 4  # words in which a string is looked for
_MANY = 8  # this many times the wanted strings are proposed, since some cannot be made


def by_likelihood(learner: Learner, budget: int, least: int) -> Choose:
    """WordPiece's rule: the merge after which a unigram model finds the text likeliest.

    That is the pair ab of the highest #ab log(#ab / (#a #b)) - (n - #ab) log(n - #ab), with n
    tokens in the text (Churchill and Skiena). Characters spelled in bytes come first.
    """
    del budget

    def gain(key: int, tokens: int) -> float:
        left, right = parts_of(key)
        count = learner.occurs(left, right)
        parts = learner.frequency(left) * learner.frequency(right)
        left_over = tokens - count
        return count * math.log(count / parts) - left_over * math.log(max(1, left_over))

    def choose(learner: Learner) -> int | None:
        pairs = learner.pairs()
        characters = [key for key in learner.symbols.wholes if pairs.get(key, 0) >= least]
        for key in sorted(characters, key=lambda key: (-pairs[key], key)):
            if learner.may_take(key):
                return key
        tokens = int(learner.totals.sum())
        keys, counts = (np.fromiter(each, np.int64, len(pairs)) for each in (pairs, pairs.values()))
        usual = (counts >= least) & (keys >= 1 << 32)
        keys, counts = keys[usual], counts[usual]
        order = np.lexsort((keys, -counts))
        best: list[tuple[float, int]] = []
        for key, count in zip(keys[order].tolist(), counts[order].tolist(), strict=True):
            # No part is rarer than the pair, so no pair that is rarer still gains more than this.
            often = min(count, tokens / 2)
            most = -often * math.log(often) - (tokens - often) * math.log(tokens - often)
            while best and -best[0][0] >= most:
                if learner.may_take(taken := heapq.heappop(best)[1]):
                    return taken
            heapq.heappush(best, (-gain(key, tokens), key))
        while best:
            if learner.may_take(taken := heapq.heappop(best)[1]):
                return taken
        return None

    return choose


def by_unigram(learner: Learner, budget: int, least: int) -> Choose:
    """The pieces of a Unigram model, likeliest first."""
    words = _texts(learner)
    model = Tokenizer(models.Unigram())
    trainer = trainers.UnigramTrainer(
        vocab_size=_MANY * budget + len(set("".join(words))) + 1,
        max_piece_length=16,
        special_tokens=["<unk>"],
        unk_token="<unk>",  # noqa: S106 - no password
        show_progress=False,
    )
    lines = (text for text, times in words.items() for _ in range(times))
    model.train_from_iterator(lines, trainer)
    pieces = json.loads(model.to_str())["model"]["vocab"]
    strings = (piece for piece, _ in pieces if len(piece) > 1 and piece != "<unk>")
    return _toward(learner, strings, least)


def by_prefix_free(learner: Learner, budget: int, least: int) -> Choose:
    """A complete prefix-free set of roughly equiprobable strings, as it grows (`equiprobable`)."""
    return _toward(learner, islice(grow(_texts(learner)), _MANY * budget), least)


def _texts(learner: Learner) -> Counter[str]:
    """The words of the planning text with their counts."""
    words: Counter[str] = Counter()
    for word, times in enumerate(learner.occurrences.tolist()):
        if times:
            words[_text(learner, word)] += times
    return words


def _text(learner: Learner, word: int) -> str:
    pieces = map(learner.symbols.names.__getitem__, learner.spell(word))
    return b"".join(map(learner.symbols.piece, pieces)).decode("utf-8", "replace")


def _toward(learner: Learner, strings: Iterable[str], least: int) -> Choose:
    """The rule that makes one string after the other, always by the commonest pair inside it.

    A string is looked for in the commonest words that hold it. It is given up if other tokens reach
    across its ends, or if the rest of it may not be merged.
    """
    waiting = list(strings)
    places = _places(learner, set(waiting))
    targets = (place for string in waiting for place in places[string])
    target = next(targets, None)

    def choose(learner: Learner) -> int | None:
        nonlocal target
        while target is not None:
            counts = learner.pairs()
            inside = [key for key in _inside(learner, *target) if counts.get(key, 0) >= least]
            for key in sorted(inside, key=lambda key: (-counts[key], key)):
                if learner.may_take(key):
                    return key
            target = next(targets, None)
        return None

    return choose


def _places(learner: Learner, strings: set[str]) -> Mapping[str, list[tuple[int, int, int]]]:
    """For each string, (word, start, end) in the commonest words that hold it, in bytes."""
    places: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for word in learner.occurrences.argsort(kind="stable")[::-1].tolist():
        text = _text(learner, word)
        at = [0, *accumulate(len(c.encode("utf-8")) for c in text)]
        for start in range(len(text)):
            for end in range(start + 1, min(len(text), start + LONGEST) + 1):
                string = text[start:end]
                if string in strings and len(places[string]) < _PLACES:
                    places[string].append((word, at[start], at[end]))
    return places


def _inside(learner: Learner, word: int, start: int, end: int) -> Iterator[int]:
    """Keys of what can be taken within these bytes of a word; none if a token crosses an end.

    That is pairs, and single characters spelled in bytes. If the string is already a token (made by
    other merges elsewhere), only pairs whose result is a token too, which spend none.
    """
    spelled, symbols = learner.spell(word), learner.symbols
    borders = [0, *accumulate(len(symbols.piece(symbols.names[symbol])) for symbol in spelled)]
    if start not in borders or end not in borders:
        return
    within = spelled[borders.index(start) : borders.index(end)]
    yield from (symbol for symbol in within if symbol in symbols.wholes)
    made = "".join(map(symbols.names.__getitem__, within)) in symbols.ids
    for left, right in pairwise(within):
        if not made or symbols.names[left] + symbols.names[right] in symbols.ids:
            yield key_of(left, right)
