"""New pieces for Unigram and WordPiece, where a missing character is UNK today.

Unigram keeps the path of highest total score. A new character gets the vocabulary's lowest score:
better than UNK (lowest - 10) and hardly ever better than an old piece. A longer piece xy, learned
as in `learn`, gets score(x) + score(y) + 0.001, just enough to beat its parts: then the old path
stays the best one, with pieces joined, unless another was as good to within a thousandth for each
new piece. (A score of log(count / tokens), as a trainer gives, draws in other paths: 1,500 pieces
of T5 for Swahili made 85 of 988 lines of Indonesian longer, now 0, and saved 37 %, now 39.)
WordPiece takes the longest match first, and the whole word becomes UNK if a match fails. A
longer piece can turn no word into UNK if every character of the vocabulary is a piece both at the
start of a word and inside it, as in BERT's: then whatever is left of the word can be spelled. If
some character is not, only single characters are added.

A longer WordPiece piece could lengthen a word where an old piece reaches across its end: of `ab c`,
a new piece `abx` leaves `c`'s rest, which may take more tokens. There are two ways to rule it out.
If every rest that the reading of a word with new pieces can ever be left with is a piece too
(`Rests.lacking` names those that are not), it never falls behind: a rest is one token, or part of a
longer one. Else only pieces are taken across whose end no old piece reaches (`Rests.crossed`): new
ones then end where old ones ended. Both hold for any word without UNK, seen or not.

One UNK may have stood for a whole clause, so a text may get longer when its UNK turns into text.
The promise, checked on the planning text, is that no more characters become UNK.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from tokengraft.core.errors import TokengraftError
from tokengraft.planning.chain import Ints
from tokengraft.planning.curve import mean_ratio
from tokengraft.planning.job import Request
from tokengraft.planning.learn import Learner
from tokengraft.planning.new_tokens import NewToken
from tokengraft.planning.permitted import territory
from tokengraft.planning.plan import (
    Effect,
    Plan,
    PlanCut,
    Point,
    unknown_of,
    unknown_share,
    warnings,
)
from tokengraft.planning.protect import newly_emitted
from tokengraft.planning.prove import prove_emitted
from tokengraft.planning.symbols import symbols_of
from tokengraft.planning.word_pool import Cutter, Pool
from tokengraft.tokenizer.file_shape import TokenizerKey
from tokengraft.tokenizer.insert import (
    Additions,
    added_ids,
    family,
    fingerprint,
    first_free_id,
    insert,
    settle,
    vocabulary,
)
from tokengraft.tokenizer.pipeline import Encoded, Encoder, emitted_ids, encode, lengths, load
from tokengraft.tokenizer.pre_tokenizer import Word
from tokengraft.tokenizer.vocabulary import CONTINUATION_MARK, SPACE_MARK, piece_reader

_BYTE = re.compile("<0x[0-9A-F]{2}>")
_REFILLS = 6
_POINTS = 8
_AHEAD = 0.001  # by how much a longer Unigram piece's score beats that of its parts
_CLOSING = 0.5  # of the budget may go into pieces without which words could get longer
NOTE = "UNK turns into text: a text can get longer than its UNK was; no more characters are UNK"


def plan_pieces(request: Request) -> Plan:
    """A plan of missing characters and, in mode merges, longer pieces, each emitted on the texts.

    A piece that would be emitted on a line of protected text is left out.
    """
    tokenizer, texts, budget = request.tokenizer, request.texts, request.budget
    mode, protect = request.options.mode, request.protected
    kind, settled = family(tokenizer), settle(tokenizer)
    pool = Pool(Cutter(tokenizer), tuple(texts))
    for code, text in texts.items():
        pool.add_text(code, text)
    words, counts = list(pool.index), pool.counts()
    belongs = territory(texts) or (lambda _piece: True)
    times = counts.sum(axis=1)
    missing = _missing(settled, words, times, belongs)
    lowest = _floor_score(tokenizer)
    lines = protect.lines if protect else ()
    chosen = _emitted(settled, [(piece, lowest) for piece in missing], words, lines, budget)
    spelled = kind == "unigram" or _spells_all(settled)
    closing: list[tuple[str, float]] | None = []
    if spelled and mode == "merges" and len(chosen) < budget:
        may, refused = belongs, None
        if kind == "wordpiece":
            rests = Rests(settled)
            closing = _closing(settled, rests, belongs, lines, budget - len(chosen))
            # The closing ones are proved for pieces of these characters only.
            may, refused = (belongs, rests.crossed) if closing is None else (_only(belongs), None)
        closers = closing or []
        base = _with(settled, closers) if closers else settled
        room = budget - len(closers)
        chosen = _fill(base, may, refused, chosen, words, counts, lines, room) + closers
    old, new = load(tokenizer), load(_with(settled, chosen))
    old_ids, new_ids = Encoder(old).ids(words), Encoder(new).ids(words)
    start = first_free_id(tokenizer)
    prove_emitted(
        new, range(start, start + len(chosen) - len(closing or ())), new_ids, pool.origins
    )
    unknown = unknown_of(tokenizer)
    before = counts.T @ _lost(old, words, old_ids, unknown)
    after = counts.T @ _lost(new, words, new_ids, unknown)
    if protect and newly_emitted(new, protect, list(encode(old, protect.lines))):
        raise TokengraftError("refused: the new pieces would change the ids of protected text")
    if (after > before).any():
        raise TokengraftError("refused: the new pieces would leave more characters UNK than before")
    whole = np.ones(len(words), bool)
    whole[np.repeat(np.arange(len(words)), old_ids.sizes)[old_ids.ids == unknown]] = False
    if (
        kind == "wordpiece"
        and (longer := np.flatnonzero(whole & (new_ids.sizes > old_ids.sizes))).size
    ):
        raise TokengraftError(f"refused: {words[longer[0]]!r} would get longer; please report this")
    curves = _curves(request, old, chosen, words, counts)
    effects = {}
    for column, code in enumerate(texts):
        curve = curves.get(code, ())
        effects[code] = Effect(
            planning_before=int(counts[:, column] @ old_ids.sizes),
            planning_after=int(counts[:, column] @ new_ids.sizes),
            premium_before=curve[0].premium if curve else None,
            premium_after=curve[-1].premium if curve else None,
            unknown_before=int(before[column]), unknown_after=int(after[column]), curve=curve,
            unk_share_before=curve[0].unk_share if curve else None,
            unk_share_after=curve[-1].unk_share if curve else None,
        )  # fmt: skip
    emitted = np.zeros(start + len(chosen), np.int64)
    np.add.at(emitted, new_ids.ids, np.repeat(times, new_ids.sizes))
    notes = [NOTE]
    if closing:
        notes.append(
            f"{len(closing):,} of the tokens are there so that no word without UNK gets longer, "
            "whatever the text: rests of old pieces that new ones may leave"
        )
    elif closing is None:
        notes.append(
            "so that no word without UNK gets longer, pieces that an old one can reach across are "
            "left out, which costs savings; a larger budget may have room to keep them"
        )
    if not spelled and mode == "merges":
        notes.append("WordPiece: characters only, a longer piece could turn a whole word into UNK")
    notes += [note for code, effect in effects.items() for note in warnings(code, effect)]
    return Plan(
        tokenizer=fingerprint(tokenizer), family=kind, mode=mode, objective="total",
        budget=budget, cut=PlanCut(), tokens=_tokens(tokenizer, old, chosen, emitted), merges=(),
        languages=effects, pivot=request.options.pivot if request.test else None,
        notes=tuple(notes),
    )  # fmt: skip


def _floor_score(tokenizer: dict[str, Any]) -> float:
    vocab = tokenizer["model"]["vocab"]
    return min((score for _, score in vocab), default=0.0) if isinstance(vocab, list) else 0.0


def _missing(
    tokenizer: dict[str, Any], words: Sequence[Word], times: Ints, belongs: Callable[[bytes], bool]
) -> list[str]:
    """Single-character pieces that words with UNK or bare bytes lack, the most frequent first.

    Only those of a planned script: text in other scripts keeps its UNKs, and thus its ids.
    """
    known = vocabulary(tokenizer)
    lost = {unknown_of(tokenizer)} | {known[name] for name in known if _BYTE.fullmatch(name)}
    wordpiece = family(tokenizer) == "wordpiece"
    lacking: Counter[str] = Counter()
    encoded = Encoder(load(tokenizer)).ids(words)
    for word, ids, count in zip(words, encoded, times.tolist(), strict=True):
        if count and isinstance(word, str) and not lost.isdisjoint(ids):
            for place, character in enumerate(word):
                mark = CONTINUATION_MARK if wordpiece and place else ""
                if mark + character not in known and belongs(character.encode("utf-8")):
                    lacking[mark + character] += count
    return sorted(lacking, key=lambda piece: (-lacking[piece], piece))


def _with(tokenizer: dict[str, Any], chosen: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """The tokenizer with the chosen pieces; it is cached, so treat it as read-only."""
    return _extended(TokenizerKey(tokenizer), tuple(chosen))


@functools.lru_cache(maxsize=2)  # used several times, and the same object hits the cache of `load`
def _extended(key: TokenizerKey, chosen: Sequence[tuple[str, float]]) -> dict[str, Any]:
    tokenizer = key.tokenizer
    start = first_free_id(tokenizer)
    scores = tuple(score for _, score in chosen) if family(tokenizer) == "unigram" else ()
    tokens = tuple((start + i, piece) for i, (piece, _) in enumerate(chosen))
    return insert(tokenizer, Additions(tokens=tokens, scores=scores))


def _emitted(
    tokenizer: dict[str, Any],
    wanted: Sequence[tuple[str, float]],
    words: Sequence[Word],
    protected: Sequence[str],
    budget: int,
) -> list[tuple[str, float]]:
    """The first `budget` of the wanted pieces that the words really emit.

    Pieces that are not emitted, or that the `protected` lines would emit, make room for later ones.
    """
    start = first_free_id(tokenizer)
    chosen, waiting = list(wanted[:budget]), list(wanted[budget:])
    refills = _REFILLS
    while True:
        pipeline = load(_with(tokenizer, chosen))
        used = set(Encoder(pipeline).ids(words).ids.tolist()) - emitted_ids(pipeline, protected)
        kept = [piece for i, piece in enumerate(chosen) if start + i in used]
        if len(kept) == len(chosen):
            return kept
        room = budget - len(kept) if refills else 0
        refills -= 1 if refills else 0
        chosen, waiting = kept + waiting[:room], waiting[room:]


def _fill(
    tokenizer: dict[str, Any],
    belongs: Callable[[bytes], bool],
    refused: Callable[[str], bool] | None,
    characters: Sequence[tuple[str, float]],
    words: Sequence[Word],
    counts: Ints,
    protected: Sequence[str],
    budget: int,
) -> list[tuple[str, float]]:
    """The characters, and longer pieces; more of these are learned while some are never emitted."""
    reach = budget
    while True:
        longer = _longer_pieces(tokenizer, belongs, characters, words, counts, reach)
        usable = [(piece, score) for piece, score in longer if not (refused and refused(piece))]
        emitted = _emitted(tokenizer, [*characters, *usable], words, protected, budget)
        if len(emitted) == budget or len(characters) + len(longer) < reach:
            return emitted
        reach *= 2


def _longer_pieces(
    tokenizer: dict[str, Any],
    belongs: Callable[[bytes], bool],
    chosen: Sequence[tuple[str, float]],
    words: Sequence[Word],
    counts: Ints,
    budget: int,
) -> list[tuple[str, float]]:
    extended = _with(tokenizer, chosen)
    symbols = symbols_of(extended)
    unigram = family(tokenizer) == "unigram"
    unknown = symbols.names.get(unknown_of(tokenizer))
    added = added_ids(tokenizer)
    scores: dict[int, float] = dict.fromkeys(symbols.names, 0.0)
    if unigram:
        scores = {number: score for number, (_, score) in enumerate(extended["model"]["vocab"])}
    else:
        # Mark the start of words instead of their inside, so that a merge just joins two names.
        symbols.names = {number: _marked(name) for number, name in symbols.names.items()}
        symbols.ids = {name: number for number, name in symbols.names.items()}
        unknown, symbols.piece = SPACE_MARK + str(unknown), _word_bytes
    symbols.refuses = lambda left, right: (
        unknown in (left, right)
        or SPACE_MARK in right
        or left + right in added
        or not belongs(symbols.piece(left + right))
    )
    encoded = Encoder(load(extended)).ids(words)
    learner = Learner(encoded, counts, counts.sum(axis=1)[:, None], symbols)
    while learner.spent < budget - len(chosen):
        key = learner.best()
        if key is None:
            break
        step = learner.take(key)
        if step.spends:
            parts = scores[step.left] + scores[step.right]
            scores[step.result] = min(-_AHEAD, parts + _AHEAD)
    spent = [(symbols.names[s.result], scores[s.result]) for s in learner.steps if s.spends]
    return [(name if unigram else _unmarked(name), round(score, 6)) for name, score in spent]


def _spells_all(tokenizer: dict[str, Any]) -> bool:
    """Whether each character of a WordPiece vocabulary is a piece both with and without `##`."""
    named = set(added_ids(tokenizer))
    known = [name for name in vocabulary(tokenizer) if name not in named]
    characters = {c for name in known for c in _marked(name).removeprefix(SPACE_MARK)}
    pieces = set(known)
    return all(c in pieces and CONTINUATION_MARK + c in pieces for c in characters)


class Rests:
    """Where old pieces of a WordPiece vocabulary reach across the ends of new ones."""

    def __init__(self, tokenizer: dict[str, Any]) -> None:
        named = set(added_ids(tokenizer))
        self._names = {name for name in vocabulary(tokenizer) if name not in named}
        mark = len(CONTINUATION_MARK)
        self._inside = {n[mark:] for n in self._names if n.startswith(CONTINUATION_MARK)} - {""}
        # What follows each beginning of a piece inside a word: `ab` is followed by `c` in `##abc`.
        self._after: dict[str, list[str]] = {}
        for piece in self._inside:
            for end in range(1, len(piece)):
                self._after.setdefault(piece[:end], []).append(piece[end:])

    def crossed(self, piece: str) -> bool:
        """Whether an old piece can begin inside `piece` and reach across its end."""
        begins = not piece.startswith(CONTINUATION_MARK)
        text = piece.removeprefix(CONTINUATION_MARK)
        return any(text[at:] in self._after for at in self._cuts(text, begins) if at)

    def lacking(self, own: Callable[[str], bool]) -> list[str]:
        """The rests that are no piece, if new pieces may be any string of `own` characters.

        A new piece may end in any beginning of an old one, which leaves the rest of that one to be
        read. A piece that begins with this rest may reach further, into another old piece, which
        leaves the rest of that one, and so on.
        """
        rests: set[str] = set()
        todo = [begin for begin in self._after if all(map(own, begin))]
        seen = set(todo)
        read: set[str] = set()
        while todo:
            for rest in self._after[todo.pop()]:
                if rest in rests:
                    continue
                rests.add(rest)
                further = self._after.get(rest, [])
                # The rest itself becomes a piece if it is none, and then reaches across others.
                ends = () if rest in self._inside else (rest[n:] for n in range(1, len(rest)))
                for text in {*further, *ends} - read:
                    read.add(text)
                    for at in self._cuts(text, False):
                        begin = text[at:]
                        if begin in self._after and begin not in seen:
                            seen.add(begin)
                            todo.append(begin)
        return sorted(rests - self._inside)

    def _cuts(self, text: str, begins: bool) -> list[int]:
        """Where the old pieces of `text` begin; it begins a word, or goes on inside one."""
        cuts, at = [], 0
        while at < len(text):
            cuts.append(at)
            mark = "" if begins and not at else CONTINUATION_MARK
            ends = (end for end in range(len(text), at, -1) if mark + text[at:end] in self._names)
            at = next(ends, len(text))  # no match: the word is UNK already
        return cuts


def _only(belongs: Callable[[bytes], bool]) -> Callable[..., bool]:
    """Whether every character of a text (or of a piece's bytes) belongs to the planned scripts."""

    def own(text: str | bytes) -> bool:
        text = text.decode("utf-8", "ignore") if isinstance(text, bytes) else text
        return all(belongs(character.encode("utf-8")) for character in text)

    return own


def _closing(
    tokenizer: dict[str, Any],
    rests: Rests,
    belongs: Callable[[bytes], bool],
    protected: Sequence[str],
    budget: int,
) -> list[tuple[str, float]] | None:
    """Pieces for the rests that lack one; None if they are too many, or change protected text."""
    own = _only(belongs)
    lacking = rests.lacking(own)
    closing = [(CONTINUATION_MARK + rest, 0.0) for rest in lacking]
    if len(closing) > _CLOSING * budget or not all(map(own, lacking)):
        return None
    start = first_free_id(tokenizer)
    used = emitted_ids(load(_with(tokenizer, closing)), protected) if closing else set()
    return None if any(number >= start for number in used) else closing


def _word_bytes(name: str) -> bytes:
    """Bytes of a marked piece (`_marked`) without the mark."""
    return name.removeprefix(SPACE_MARK).encode("utf-8")


def _marked(name: str) -> str:
    """A WordPiece token with SentencePiece's mark, at the start of a word instead of inside it."""
    inside = name.startswith(CONTINUATION_MARK) and name != CONTINUATION_MARK
    return name.removeprefix(CONTINUATION_MARK) if inside else SPACE_MARK + name


def _unmarked(name: str) -> str:
    starts = name.startswith(SPACE_MARK)
    return name.removeprefix(SPACE_MARK) if starts else CONTINUATION_MARK + name


def _lost(pipeline: Tokenizer, words: Sequence[Word], encoded: Encoded, unknown: int) -> Ints:
    """How many characters of each word are UNK; one UNK token may cover several."""
    word_of = np.repeat(np.arange(len(words)), encoded.sizes)
    bare = Tokenizer(pipeline.model)
    lost = np.zeros(len(words), np.int64)
    for number in np.unique(word_of[encoded.ids == unknown]).tolist():
        word = words[number]
        if isinstance(word, int):
            continue  # the text itself spells the unknown token
        one = bare.encode(word, add_special_tokens=False)
        lost[number] = sum(
            end - start
            for id_, (start, end) in zip(one.ids, one.offsets, strict=True)
            if id_ == unknown
        )
    return lost


def _curves(
    request: Request,
    old: Tokenizer,
    chosen: Sequence[tuple[str, float]],
    words: Sequence[Word],
    counts: Ints,
) -> dict[str, tuple[Point, ...]]:
    """Lengths and premiums at a few sizes, each by encoding all text with that many pieces."""
    tokenizer, test = request.tokenizer, request.test
    codes = {code: column for column, code in enumerate(request.texts) if code in test}
    curves: dict[str, list[Point]] = {code: [] for code in codes}
    sizes = sorted({round(len(chosen) * (i / _POINTS) ** 2) for i in range(_POINTS + 1)})
    for size in sizes if codes else ():
        extended = load(_with(tokenizer, chosen[:size])) if size else old
        unit = lengths(extended, test[request.options.pivot])
        totals = counts.T @ Encoder(extended).ids(words).sizes
        for code, column in codes.items():
            premium = mean_ratio(lengths(extended, test[code]), unit)
            share = unknown_share(extended, unknown_of(tokenizer), test[code])
            curves[code].append(Point(size, int(totals[column]), premium, share))
    return {code: tuple(points) for code, points in curves.items()}


def _tokens(
    tokenizer: dict[str, Any], old: Tokenizer, chosen: Sequence[tuple[str, float]], emitted: Ints
) -> tuple[NewToken, ...]:
    start, read = first_free_id(tokenizer), piece_reader(family(tokenizer))
    olds = Encoder(old).ids([piece.removeprefix(CONTINUATION_MARK) for piece, _ in chosen])
    return tuple(
        NewToken(
            start + i, piece, read(piece).hex(), read(piece).decode(), tuple(parts),
            int(emitted[start + i]), score if family(tokenizer) == "unigram" else None,
        )
        for i, ((piece, score), parts) in enumerate(zip(chosen, olds, strict=True))
    )  # fmt: skip
