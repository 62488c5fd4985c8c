"""Choose tokens for languages: `plan_tokens`.

The steps: decide the boundaries, count words once, learn merges on the old tokenization
(`learn`), mend what relaxed boundaries may have lengthened, read the what-if curve off the
learner's own lengths, and prove the result with the real encoder.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tokenizers import Tokenizer

from tokengraft.errors import TokengraftError, UsageError
from tokengraft.planning.boundaries import decide, floors_of, relaxes
from tokengraft.planning.chain import Ints
from tokengraft.planning.curve import Curve, mean_ratio
from tokengraft.planning.learn import Learner
from tokengraft.planning.mend import mend
from tokengraft.planning.objectives import chooser, factors_for, weights_for
from tokengraft.planning.paper import plan_literals
from tokengraft.planning.pieces import plan_pieces
from tokengraft.planning.prove import prove
from tokengraft.planning.symbols import Symbols, symbols_of, within_character
from tokengraft.planning.territory import territory
from tokengraft.planning.text import Text, read
from tokengraft.planning.tokens import additions_of, tokens_of
from tokengraft.planning.types import (
    Boundaries,
    Check,
    Cut,
    Mode,
    Objective,
    Outcome,
    Plan,
)
from tokengraft.planning.words import Cutter, Encoder, Pool, join_bytes, lengths, load
from tokengraft.tokenizer.boundaries import relax
from tokengraft.tokenizer.insert import family, fingerprint, insert
from tokengraft.tokenizer.vocabulary import byte_alphabet

_CHUNKS = 5_000  # pieces of planning text encoded whole, beside all its words
_ATTEMPTS = 4


@dataclass(frozen=True)
class Request:
    """What is asked of a plan; see `plan_tokens`."""

    tokenizer: dict[str, Any]
    texts: Mapping[str, Text]
    budget: int
    mode: Mode
    boundaries: Boundaries
    objective: Objective
    test: Mapping[str, Sequence[str]]
    pivot: str
    speakers: Mapping[str, float] | None
    check: Sequence[str]
    border_penalty: float

    @property
    def languages(self) -> tuple[str, ...]:
        """The planned languages, in the order given."""
        return tuple(self.texts)

    @property
    def tested(self) -> dict[str, Sequence[str]]:
        """The planned languages that the test corpus holds."""
        return {code: self.test[code] for code in self.texts if code in self.test}


def plan_tokens(
    tokenizer: dict[str, Any],
    texts: Mapping[str, Iterable[str] | Text],
    *,
    budget: int,
    mode: Mode = "merges",
    boundaries: Boundaries = "auto",
    objective: Objective = "total",
    test: Mapping[str, Sequence[str]] | None = None,
    pivot: str = "eng_Latn",
    speakers: Mapping[str, float] | None = None,
    check: Iterable[str] = (),
    border_penalty: float = 0.05,
) -> Plan:
    """A plan of at most `budget` new tokens for the languages of `texts` (code to lines).

    Lines are taken one by one and not kept, so a text may be longer than memory; a `Text` is one
    that was counted before. Mode paper keeps them all.

    Guarantees, proved with the real encoder before it returns: no word of `texts`, `check` or
    `test` takes more tokens than before; every new token is emitted on `texts` (a token that
    mends relaxed boundaries may be emitted on `check` only). With boundaries kept, no text at all
    can get longer. Raises TokengraftError where a plan cannot keep this within its budget.

    `test` is a parallel corpus with the `pivot`; without it no premium can be stated and the
    objective parity is refused. Unigram and WordPiece promise something else (`pieces`; the plan's
    notes say so).
    """
    if budget < 1:
        raise UsageError(f"the budget must be at least one token, not {budget}")
    if not texts:
        raise UsageError("no language to plan for: give at least one text")
    if test is not None and pivot not in test:
        raise UsageError(f"the test corpus has no pivot {pivot!r}; it has {', '.join(test)}")
    for text in (*texts.values(), check):
        if isinstance(text, str):
            raise UsageError("a text must be lines, not one string: split it first")
    if mode == "paper":
        return plan_literals(tokenizer, _whole_lines(texts), test or {}, pivot)
    request = Request(
        tokenizer, {c: t if isinstance(t, Text) else read(t) for c, t in texts.items()}, budget,
        mode, boundaries, objective, test or {}, pivot, speakers, list(check), border_penalty,
    )  # fmt: skip
    if family(tokenizer) in ("unigram", "wordpiece"):
        return plan_pieces(tokenizer, request.texts, budget, mode, request.test, pivot)
    return _plan_merges(request)


def _whole_lines(texts: Mapping[str, Iterable[str] | Text]) -> dict[str, Sequence[str]]:
    lines = {}
    for code, text in texts.items():
        if isinstance(text, Text):
            raise UsageError("mode paper measures whole lines: give it lines, not counted text")
        lines[code] = text if isinstance(text, Sequence) else list(text)
    return lines


def _plan_merges(request: Request) -> Plan:
    base = request.tokenizer
    pivot_lines = request.test.get(request.pivot)
    pipeline = load(base)
    pivot_tokens = None if pivot_lines is None else lengths(pipeline, pivot_lines).tolist()
    samples = request.tested or {c: text.sample for c, text in request.texts.items()}
    floors = floors_of(base, samples, pivot_tokens if request.tested else None)
    boundaries = request.boundaries
    if request.mode == "characters":
        # Single characters never span a cut, so there is nothing to win by moving it.
        if boundaries == "relax":
            raise UsageError("mode characters cannot use relaxed boundaries: use keep, or merges")
        boundaries = "keep"
    cut, notes = decide(base, boundaries, floors)
    job = _Job(request, cut, pipeline)
    learner, curve, repairs = job.run()
    additions = additions_of(learner, cut)
    extended = load(insert(base, additions))
    proof = prove(pipeline, extended, learner, job.words, cut, job.chunks)
    outcomes = {}
    for column, code in enumerate(request.languages):
        found = floors.get(code) if request.tested and cut.old_pattern else None
        outcome = Outcome(
            planning_before=int(curve.totals[0][column]),
            planning_after=int(curve.totals[-1][column]),
            premium_before=job.premiums.get(code),
            curve=curve.points(code, column),
            floor_before=found.before if found else None,
            floor_after=(found.after if relaxes(cut, code) else found.before) if found else None,
        )
        if outcome.curve:
            outcome = replace(outcome, premium_after=outcome.curve[-1].premium)
        outcomes[code] = outcome
    return Plan(
        tokenizer=fingerprint(base), family=family(base), mode=request.mode,
        objective=request.objective, budget=request.budget, cut=cut,
        tokens=tokens_of(learner, proof), merges=additions.merges, languages=outcomes,
        pivot=request.pivot if request.test else None,
        check=Check(proof.pieces, 0, repairs), notes=tuple(notes),
    )  # fmt: skip


class _Job:
    """Words counted once, and learners made afresh from them."""

    def __init__(self, request: Request, cut: Cut, pipeline: Tokenizer) -> None:
        self.request, self.cut = request, cut
        base = request.tokenizer
        used = relax(base, cut.scripts) if cut.scripts else base
        self.pool = Pool(Cutter(used), request.languages)
        chunks: dict[str, None] = {}
        for code, text in request.texts.items():
            self.pool.add_text(code, text)
            chunks.update(dict.fromkeys(text.chunks))
        sentences = {code: self.pool.add_sentences(lines) for code, lines in request.tested.items()}
        if sentences:
            pivot = request.test[request.pivot]
            sentences.setdefault(request.pivot, self.pool.add_sentences(pivot))
        self.pool.add_check(request.check)
        # Every word is proved by itself; whole lines prove that a line is the sum of its words.
        tested = (line for lines in request.tested.values() for line in lines)
        every = max(1, len(chunks) // _CHUNKS)
        self.chunks = [*list(chunks)[::every], *request.check, *tested] if cut.scripts else []
        self.words = list(self.pool.index)
        self.counts = self.pool.counts()
        self.ids = Encoder(pipeline).ids(self.words)
        self.matrices = {code: self.pool.matrix(rows) for code, rows in sentences.items()}
        self.old = self._old_lengths(pipeline)
        self.premiums = self._premiums()

    def _old_lengths(self, pipeline: Tokenizer) -> Ints:
        """Tokens of each word as the old tokenizer cuts it."""
        found: Ints = self.ids.sizes.copy()
        if self.cut.scripts:
            # Only byte-level tokenizers have a pattern to relax.
            table = str.maketrans({letter: chr(byte) for letter, byte in byte_alphabet().items()})
            raw = (word.translate(table).encode("latin-1") for word in self.words)
            texts = [word.decode("utf-8") for word in raw]
            # A relaxed pattern joins at marks only: letters alone were never cut.
            torn = [n for n, t in enumerate(texts) if not (t.isalpha() or t[1:].isalpha())]
            found[torn] = lengths(pipeline, [texts[n] for n in torn])
        return found

    def _premiums(self) -> dict[str, float]:
        if not self.matrices:
            return {}
        pivot = self.matrices[self.request.pivot] @ self.old
        return {
            code: mean_ratio(self.matrices[code] @ self.old, pivot) for code in self.request.tested
        }

    def _learner(self, banned: frozenset[str]) -> Learner:
        request = self.request
        symbols = symbols_of(request.tokenizer)
        words = self.ids
        if family(request.tokenizer) == "byte-fallback-bpe":
            words = join_bytes(words, symbols)
        _restrict(symbols, request.mode, banned, territory(request.languages))
        base_tokens = self.counts.T @ self.old
        factors = factors_for(
            request.objective, request.languages, base_tokens, self.premiums, request.speakers
        )
        self._least = (1 if request.mode == "characters" else 2) * int(factors.min())
        weights = weights_for(request.objective, self.counts, factors)
        penalty = request.border_penalty
        return Learner(words, self.counts, weights, symbols, penalty, self._least)

    def run(self) -> tuple[Learner, Curve, int]:
        """Learn within the budget, with room for the merges that mend relaxed boundaries."""
        request = self.request
        reserve = max(2, request.budget // 50) if self.cut.scripts else 0
        banned: frozenset[str] = frozenset()
        for _ in range(_ATTEMPTS):
            learner = self._learner(banned)
            curve = Curve(request.budget, self.matrices, request.pivot)
            choose = chooser(request.objective, request.languages, self.premiums, self._least)
            curve.follow(learner, choose, request.budget - reserve)
            before = learner.spent
            if mend(learner, self.old, request.budget):
                if learner.spent < request.budget or reserve >= request.budget:
                    break
                reserve = min(4 * reserve, request.budget)
                continue
            repairs = learner.spent - before
            curve.follow(learner, choose, request.budget)
            dead = {s.result for s in learner.steps if s.spends} - _alive(learner)
            if dead and not repairs:
                banned |= {learner.symbols.names[symbol] for symbol in dead}
                continue
            return learner, curve, repairs
        raise TokengraftError(
            "no plan within this budget keeps every given line from getting longer: "
            "raise the budget, or use boundaries keep"
        )


def _alive(learner: Learner) -> set[int]:
    return {s.result for s in learner.steps if learner.frequency(s.result) > 0}


def _restrict(
    symbols: Symbols,
    mode: Mode,
    banned: frozenset[str],
    belongs: Callable[[bytes], bool] | None,
) -> None:
    def refuses(left: str, right: str) -> bool:
        string = left + right
        if string in banned:
            return True
        piece = symbols.piece(string)
        if belongs is not None and not belongs(piece):
            return True
        return mode == "characters" and not within_character(piece)

    symbols.refuses = functools.cache(refuses)
