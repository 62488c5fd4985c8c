"""The work for one plan: count words once, and learn from them until every token is used."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tokenizers import Tokenizer

from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.corpus.lines_of import CountedText
from tokengraft.languages.codes import script_of
from tokengraft.planning import mode_named
from tokengraft.planning.chain import Ints
from tokengraft.planning.curve import Curve, mean_ratio
from tokengraft.planning.learn import Learner
from tokengraft.planning.objectives import chooser, factors_for, weights_for
from tokengraft.planning.permitted import accents_alone, borrowed_letters, keeps_names, territory
from tokengraft.planning.plan import PlanCut, Planning
from tokengraft.planning.protect import Forbidden, Protected, forbidden
from tokengraft.planning.relaxed_scripts import digits_as_letters
from tokengraft.planning.symbols import Symbols, symbols_of, within_character
from tokengraft.planning.word_pool import Cutter, Pool, join_bytes
from tokengraft.tokenizer.insert import added_ids, family, settle, vocabulary
from tokengraft.tokenizer.pipeline import Encoder, lengths, load
from tokengraft.tokenizer.pre_tokenizer import DIGITS, LATIN, any_of, with_pattern
from tokengraft.tokenizer.vocabulary import byte_alphabet

_ATTEMPTS = 4
LEAST = 2  # a piece that occurs fewer times is not worth a token


@dataclass(frozen=True)
class Request:
    """What is asked of a plan; see `choose.plan_tokens`."""

    tokenizer: dict[str, Any]
    texts: Mapping[str, CountedText]
    options: Planning
    budget: int
    test: Mapping[str, Sequence[str]]
    check: Sequence[str]
    protected: Protected | None = None

    @property
    def languages(self) -> tuple[str, ...]:
        """The planned languages, in the order given."""
        return tuple(self.texts)

    @property
    def tested(self) -> dict[str, Sequence[str]]:
        """The planned languages that the test corpus holds."""
        return {code: self.test[code] for code in self.texts if code in self.test}

    @property
    def same_script(self) -> list[str]:
        """Every distinct line of `check`, and of `test` in a planned script."""
        scripts = set(map(script_of, self.texts))
        tested = (self.test[code] for code in self.test if script_of(code) in scripts)
        samples = (text.sample for text in self.texts.values())
        return list(dict.fromkeys(chain(self.check, *tested, *samples)))


class Job:
    """Words counted once, and learners made from them."""

    def __init__(self, request: Request, cut: PlanCut, pipeline: Tokenizer) -> None:
        self.request, self.cut = request, cut
        options = request.options
        base = request.tokenizer
        used = base if cut.new_pattern is None else with_pattern(base, cut.new_pattern)
        self.pool = Pool(Cutter(used), request.languages)
        for code, text in request.texts.items():
            self.pool.add_text(code, text)
        sentences = {code: self.pool.add_sentences(lines) for code, lines in request.tested.items()}
        if sentences:
            pivot = options.pivot
            sentences.setdefault(pivot, self.pool.add_sentences(request.test[pivot]))
        self.words = list(self.pool.index)
        self.counts = self.pool.counts()
        self.settled = settle(base)
        self.ids = Encoder(pipeline).ids(self.words)
        sizes = self.ids.sizes
        if self._words_hold_added():
            # New merges start from these ids: a lookup may now find the added token (`settle`).
            self.ids = Encoder(load(self.settled)).ids(self.words)
        self.matrices = {code: self.pool.matrix(rows) for code, rows in sentences.items()}
        self.old = self._old_lengths(pipeline, sizes)
        self.old_totals: Ints = self.counts.T @ self.old
        self.premiums = self._premiums()
        self._known = self.premiums if options.premiums is None else options.premiums
        chunks = {code: text.chunks for code, text in request.texts.items()}
        self.borrowed = borrowed_letters(chunks) | set(DIGITS if self._digits_count() else "")
        self.forbidden = forbidden(base, pipeline, request.protected)
        self.banned: frozenset[str] = frozenset()  # strings that may not become tokens

    def _digits_count(self) -> bool:
        """Whether a text writes letters as digits that the tokenizer does not cut off."""
        if LATIN in self.cut.scripts or self.cut.old_pattern is not None:
            return LATIN in self.cut.scripts
        texts = self.request.texts.items()
        return any(digits_as_letters(text.sample) for c, text in texts if script_of(c) == "Latn")

    def _words_hold_added(self) -> bool:
        """Whether an added token that the model did not know stands inside a word."""
        known = vocabulary(self.request.tokenizer)
        hidden = any_of(c for c in added_ids(self.request.tokenizer) if c not in known)
        texts = (word for word in self.words if isinstance(word, str))
        return hidden is not None and any(map(hidden.search, texts))

    def _old_lengths(self, pipeline: Tokenizer, sizes: Ints) -> Ints:
        """Each word's number of tokens under the old tokenizer, old cuts included.

        `sizes` are those by its model alone.
        """
        old: Ints = sizes.copy()
        if self.cut.scripts:
            # A relaxed pattern means a byte-level tokenizer: others have no pattern to relax.
            table = str.maketrans({letter: chr(byte) for letter, byte in byte_alphabet().items()})
            torn = {}
            for number, word in enumerate(self.words):
                if isinstance(word, str):
                    text = word.translate(table).encode("latin-1").decode("utf-8")
                    # A relaxed pattern joins at marks and digits; letters alone were never cut.
                    if not (text.isalpha() or (text[1:].isalpha() and not text[0].isdigit())):
                        torn[number] = text
            old[list(torn)] = lengths(pipeline, list(torn.values()))
        return old

    def _premiums(self) -> dict[str, float]:
        if not self.matrices:
            return {}
        pivot = self.matrices[self.request.options.pivot] @ self.old
        return {
            code: mean_ratio(self.matrices[code] @ self.old, pivot) for code in self.request.tested
        }

    def _learner(self, banned: frozenset[str]) -> Learner:
        request, options = self.request, self.request.options
        symbols = symbols_of(self.settled)
        words = self.ids
        if family(request.tokenizer) == "byte-fallback-bpe":
            words = join_bytes(words, symbols)
        # A merge that spells an added token would turn text into it.
        banned |= added_ids(request.tokenizer).keys()
        belongs = territory(request.languages, self.borrowed)
        alone = accents_alone(request.languages)
        looked_up = bool(request.tokenizer["model"].get("ignore_merges"))
        banned |= self.banned
        _restrict(symbols, options.mode, banned, belongs, alone, self.forbidden, looked_up)
        factors = factors_for(
            options.objective, request.languages, self.old_totals, self._known, options.speakers
        )
        used = factors[factors > 0]
        if not len(used):
            raise UsageError(f"every language is already below the premium of {options.objective}")
        self._least = (1 if options.mode == "characters" else LEAST) * int(used.min())
        weights = weights_for(options.objective, self.counts, factors)
        penalty = options.border_penalty
        whole = self.pool.index if looked_up else {}
        # Whole words are offered as tokens only if there is protected text.
        pairs = self.forbidden.pairs if request.protected else None
        return Learner(words, self.counts, weights, symbols, penalty, self._least, whole, pairs)

    def run(self) -> tuple[Learner, Curve]:
        """Learn within the budget; if a token is unused in the end, ban it and learn again."""
        request, options = self.request, self.request.options
        banned: frozenset[str] = frozenset()
        for _ in range(_ATTEMPTS):
            learner = self._learner(banned)
            curve = Curve(request.budget, self.matrices, options.pivot, self.old, self.old_totals)
            if rule := mode_named(options.mode).rule:
                choose = rule(learner, request.budget, self._least)
            else:
                choose = chooser(
                    options.objective, request.languages, self._known, self._least, self.old_totals
                )
            curve.follow(learner, choose, request.budget)
            made = {step.result for step in learner.steps if step.spends}
            dead = {symbol for symbol in made if learner.frequency(symbol) <= 0}
            if not dead:
                return learner, curve
            banned |= {learner.symbols.names[symbol] for symbol in dead}
        raise TokengraftError(
            f"in {_ATTEMPTS} attempts no plan was found whose every token is used in the text: "
            "choose another budget, or give more text"
        )


def _restrict(
    symbols: Symbols,
    mode: str,
    banned: frozenset[str],
    belongs: Callable[[bytes], bool] | None,
    alone: Callable[[str], bool],
    protected: Forbidden,
    looked_up: bool,
) -> None:
    def refuses(left: str, right: str) -> bool:
        string = left + right
        if string in banned or (not right and left in protected.characters):
            return True
        piece = symbols.piece(string)
        if string not in symbols.ids and piece.decode("utf-8", "ignore") in protected.words:
            return True
        if belongs is not None and not belongs(piece) and (right or not alone(left)):
            return True
        if protected.keep_names and not keeps_names(piece, not right, looked_up):
            return True
        return mode == "characters" and not within_character(piece)

    symbols.refuses = functools.cache(refuses)
