"""New pieces for Unigram and WordPiece, where a missing character is UNK today.

Unigram keeps the path of highest total score. A new character gets the vocabulary's lowest score:
better than UNK (lowest - 10) and hardly ever better than an old piece. A longer piece xy, learned
as in `learn`, gets log(count / tokens), at least score(x) + score(y) + 0.01, so that it beats its
parts. WordPiece takes the longest match first and gives the whole word up where none is found, so
a longer piece could turn a word into UNK; only single characters are added to it.

One UNK may have stood for a whole clause. So a text may get longer when its UNK turns into text;
what is promised, and checked on the planning text, is that never more characters are UNK.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tokengraft.errors import TokengraftError
from tokengraft.planning.curve import mean_ratio
from tokengraft.planning.learn import Learner
from tokengraft.planning.symbols import piece_reader, symbols_of
from tokengraft.planning.territory import territory
from tokengraft.planning.text import Text
from tokengraft.planning.types import Cut, Mode, NewToken, Outcome, Plan, Point
from tokengraft.planning.words import Cutter, Encoded, Encoder, Ints, Pool, lengths, load
from tokengraft.tokenizer.insert import (
    Additions,
    family,
    fingerprint,
    first_free_id,
    insert,
    vocabulary,
)
from tokengraft.tokenizer.vocabulary import CONTINUATION_MARK, SPACE_MARK

_BYTE = re.compile("<0x[0-9A-F]{2}>")
_REFILLS = 6
_POINTS = 8
NOTE = "UNK turns into text: a text can get longer than its UNK was; no more characters are UNK"


def plan_pieces(
    tokenizer: dict[str, Any],
    texts: Mapping[str, Text],
    budget: int,
    mode: Mode,
    test: Mapping[str, Sequence[str]],
    pivot: str,
) -> Plan:
    """Missing characters, and for Unigram in mode merges longer pieces, each emitted on `texts`."""
    kind = family(tokenizer)
    pool = Pool(Cutter(tokenizer), tuple(texts))
    for code, text in texts.items():
        pool.add_text(code, text)
    words, counts = list(pool.index), pool.counts()
    times = counts.sum(axis=1)
    missing = _missing(tokenizer, words, times)
    lowest = _floor_score(tokenizer)
    chosen = _emitted(tokenizer, [(piece, lowest) for piece in missing], words, budget)
    if kind == "unigram" and mode == "merges" and len(chosen) < budget:
        longer = _longer_pieces(tokenizer, tuple(texts), chosen, words, counts, budget)
        chosen = _emitted(tokenizer, chosen + longer, words, budget)
    extended = _with(tokenizer, chosen)
    emitted, before, after = _usage(tokenizer, extended, words, counts)
    if (after > before).any():
        raise TokengraftError("refused: the new pieces would leave more characters UNK than before")
    curves = _curves(tokenizer, chosen, texts, test, pivot)
    old_lengths, new_lengths = (_encode(one, words).sizes for one in (tokenizer, extended))
    outcomes = {}
    for column, code in enumerate(texts):
        curve = curves.get(code, ())
        outcomes[code] = Outcome(
            planning_before=int(counts[:, column] @ old_lengths),
            planning_after=int(counts[:, column] @ new_lengths),
            premium_before=curve[0].premium if curve else None,
            premium_after=curve[-1].premium if curve else None,
            unknown_before=int(before[column]), unknown_after=int(after[column]), curve=curve,
        )  # fmt: skip
    notes = [NOTE]
    if kind == "wordpiece" and mode == "merges":
        notes.append("WordPiece: characters only, a longer piece could turn a whole word into UNK")
    return Plan(
        tokenizer=fingerprint(tokenizer), family=kind, mode=mode, objective="total",
        budget=budget, cut=Cut(), tokens=_tokens(tokenizer, chosen, emitted), merges=(),
        languages=outcomes, pivot=pivot if test else None, notes=tuple(notes),
    )  # fmt: skip


def _unknown(tokenizer: dict[str, Any]) -> int:
    model = tokenizer["model"]
    if family(tokenizer) == "unigram":
        return int(model["unk_id"])
    return int(model["vocab"][model["unk_token"]])


def _floor_score(tokenizer: dict[str, Any]) -> float:
    vocab = tokenizer["model"]["vocab"]
    return min((score for _, score in vocab), default=0.0) if isinstance(vocab, list) else 0.0


def _missing(
    tokenizer: dict[str, Any], words: Sequence[str], times: np.ndarray[Any, np.dtype[np.int64]]
) -> list[str]:
    """Single-character pieces that words with UNK or bare bytes lack, the most frequent first."""
    known = vocabulary(tokenizer)
    lost = {_unknown(tokenizer)} | {known[name] for name in known if _BYTE.fullmatch(name)}
    wordpiece = family(tokenizer) == "wordpiece"
    found: Counter[str] = Counter()
    for word, ids, count in zip(words, _encode(tokenizer, words), times.tolist(), strict=True):
        if count and not lost.isdisjoint(ids):
            for place, character in enumerate(word):
                mark = CONTINUATION_MARK if wordpiece and place else ""
                if mark + character not in known:
                    found[mark + character] += count
    return sorted(found, key=lambda piece: (-found[piece], piece))


def _with(tokenizer: dict[str, Any], chosen: Sequence[tuple[str, float]]) -> dict[str, Any]:
    start = first_free_id(tokenizer)
    scores = tuple(score for _, score in chosen) if family(tokenizer) == "unigram" else ()
    tokens = tuple((start + i, piece) for i, (piece, _) in enumerate(chosen))
    return insert(tokenizer, Additions(tokens=tokens, scores=scores))


def _emitted(
    tokenizer: dict[str, Any],
    wanted: Sequence[tuple[str, float]],
    words: Sequence[str],
    budget: int,
) -> list[tuple[str, float]]:
    """The first `budget` of the wanted pieces that the words really emit, refilled as some fall."""
    start = first_free_id(tokenizer)
    chosen, waiting = list(wanted[:budget]), list(wanted[budget:])
    refills = _REFILLS
    while True:
        used = set(_encode(_with(tokenizer, chosen), words).ids.tolist())
        kept = [piece for i, piece in enumerate(chosen) if start + i in used]
        if len(kept) == len(chosen):
            return kept
        room = budget - len(kept) if refills else 0
        refills -= 1 if refills else 0
        chosen, waiting = kept + waiting[:room], waiting[room:]


def _encode(tokenizer: dict[str, Any], words: Sequence[str]) -> Encoded:
    return Encoder(load(tokenizer)).ids(words)


def _longer_pieces(
    tokenizer: dict[str, Any],
    languages: Sequence[str],
    chosen: Sequence[tuple[str, float]],
    words: Sequence[str],
    counts: np.ndarray[Any, np.dtype[np.int64]],
    budget: int,
) -> list[tuple[str, float]]:
    extended = _with(tokenizer, chosen)
    symbols = symbols_of(extended, merges=False)
    unknown = symbols.names[_unknown(tokenizer)]
    belongs = territory(languages) or (lambda _piece: True)
    symbols.refuses = lambda left, right: (
        unknown in (left, right) or SPACE_MARK in right or not belongs(symbols.piece(left + right))
    )
    scores = {number: score for number, (_, score) in enumerate(extended["model"]["vocab"])}
    learner = Learner(_encode(extended, words), counts, counts.sum(axis=1)[:, None], symbols)
    while learner.spent < budget - len(chosen):
        key = learner.best()
        if key is None:
            break
        step = learner.take(key)
        total = int(learner.totals.sum())
        count = max(1, learner.frequency(step.result))
        if step.spends:
            parts = scores[step.left] + scores[step.right]
            scores[step.result] = min(-0.01, max(math.log(count / total), parts + 0.01))
    spent = [s.result for s in learner.steps if s.spends]
    return [(symbols.names[symbol], round(scores[symbol], 6)) for symbol in spent]


def _usage(
    tokenizer: dict[str, Any],
    extended: dict[str, Any],
    words: Sequence[str],
    counts: np.ndarray[Any, np.dtype[np.int64]],
) -> tuple[Counter[int], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """How often each new piece is emitted; characters that are UNK per language, before, after."""
    unknown, start = _unknown(tokenizer), first_free_id(tokenizer)
    emitted: Counter[int] = Counter()
    for word, times in zip(_encode(extended, words), counts.sum(axis=1).tolist(), strict=True):
        for number in word:
            if number >= start:
                emitted[number] += times
    before, after = (counts.T @ _lost(one, words, unknown) for one in (tokenizer, extended))
    return emitted, before, after


def _lost(tokenizer: dict[str, Any], words: Sequence[str], unknown: int) -> Ints:
    """Characters of each word that are UNK. Tokens would not do: one UNK may cover several."""
    encoded = _encode(tokenizer, words)
    word_of = np.repeat(np.arange(len(words)), encoded.sizes)
    bare = Tokenizer(load(tokenizer).model)
    found = np.zeros(len(words), np.int64)
    for number in np.unique(word_of[encoded.ids == unknown]).tolist():
        one = bare.encode(words[number], add_special_tokens=False)
        found[number] = sum(
            end - start
            for id_, (start, end) in zip(one.ids, one.offsets, strict=True)
            if id_ == unknown
        )
    return found


def _curves(
    tokenizer: dict[str, Any],
    chosen: Sequence[tuple[str, float]],
    languages: Iterable[str],
    test: Mapping[str, Sequence[str]],
    pivot: str,
) -> dict[str, tuple[Point, ...]]:
    """Premiums at a few sizes, by encoding the test corpus with that many pieces."""
    codes = [code for code in languages if code in test]
    found: dict[str, list[Point]] = {code: [] for code in codes}
    sizes = sorted({round(len(chosen) * (i / _POINTS) ** 2) for i in range(_POINTS + 1)})
    for size in sizes if codes else ():
        extended = load(_with(tokenizer, chosen[:size]))
        unit = lengths(extended, test[pivot])
        for code in codes:
            tokens = lengths(extended, test[code])
            found[code].append(Point(size, int(tokens.sum()), mean_ratio(tokens, unit)))
    return {code: tuple(points) for code, points in found.items()}


def _tokens(
    tokenizer: dict[str, Any], chosen: Sequence[tuple[str, float]], emitted: Counter[int]
) -> tuple[NewToken, ...]:
    start, read = first_free_id(tokenizer), piece_reader(family(tokenizer))
    olds = Encoder(load(tokenizer)).ids(
        [piece.removeprefix(CONTINUATION_MARK) for piece, _ in chosen]
    )
    return tuple(
        NewToken(
            start + i, piece, read(piece).hex(), read(piece).decode(), tuple(parts),
            emitted[start + i], score if family(tokenizer) == "unigram" else None,
        )
        for i, ((piece, score), parts) in enumerate(zip(chosen, olds, strict=True))
    )  # fmt: skip
