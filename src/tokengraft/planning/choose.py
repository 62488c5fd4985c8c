"""Choose tokens for languages: `plan_tokens`.

The steps: decide the boundaries, count words once, learn merges on the old tokenization (`learn`),
read the what-if curve off the learner's lengths, and check the result with the real encoder.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenizers import Tokenizer

from tokengraft.core.errors import TokengraftError, UsageError, panics_as_errors
from tokengraft.core.wording import counted, some_languages
from tokengraft.corpus.lines_of import CountedText, count_text
from tokengraft.languages.codes import script_of
from tokengraft.planning import mode_named
from tokengraft.planning.job import LEAST, Job, Request
from tokengraft.planning.learn import Learner, Step
from tokengraft.planning.new_tokens import NewToken
from tokengraft.planning.objectives import check_objective, target_of
from tokengraft.planning.permitted import territory
from tokengraft.planning.plan import BUDGET, Effect, Plan, PlanCut, Planning, Protection, Proven
from tokengraft.planning.protect import Protected, measure_elsewhere, newly_emitted, unrelaxed
from tokengraft.planning.prove import Proof, prove
from tokengraft.planning.relaxed_scripts import decide, floors_of, relaxes
from tokengraft.planning.same_size import give_places
from tokengraft.planning.unigram_wordpiece import plan_pieces
from tokengraft.tokenizer.file_shape import TokenizerKey
from tokengraft.tokenizer.insert import Additions, family, fingerprint, insert, vocabulary
from tokengraft.tokenizer.pipeline import lengths, load
from tokengraft.tokenizer.vocabulary import decoded

_ATTEMPTS = 4


def plan_tokens(
    tokenizer: dict[str, Any],
    texts: Mapping[str, Iterable[str] | CountedText],
    options: Planning = Planning(),  # noqa: B008 - frozen
    *,
    test: Mapping[str, Sequence[str]] | None = None,
    check: Iterable[str] = (),
    protect: Protected | None = None,
    elsewhere: Mapping[str, Sequence[str]] | None = None,
) -> Plan:
    """A plan of new tokens, within the budget, for the languages of `texts` (code to lines).

    Lines are read one by one and not kept, so a text may be larger than memory; it may also be
    counted beforehand (`CountedText`). A mode of added tokens keeps all lines.

    Guarantees: no text at all gets longer, and every new token is emitted on `texts`. The first
    follows from how merges are appended and pieces joined (`insert`, `kept_cuts`). It is checked
    with the real encoder as well: on every word of `texts` and, if boundaries are relaxed, on every
    line of `check` and of the planned scripts in `test`. Every line of `protect` keeps its ids,
    which is proved by encoding it. Unigram and WordPiece promise something else
    (`unigram_wordpiece`; the plan's notes say so).

    Raises TokengraftError if a check fails or no token at all can be planned; if only some
    languages get none, a note says so. `test` is a parallel corpus with the pivot; without it there
    are no premiums, and the objective parity is refused. `elsewhere` is unprotected text by name,
    in which the share of changed words is measured.
    """
    check_objective(options.objective)
    _try_out(TokenizerKey(tokenizer))
    mode, pivot = options.mode, options.pivot
    way = mode_named(mode)
    if way.literal and options.budget is not None:
        raise UsageError(
            f"mode {mode} adds every character the vocabulary lacks, so it takes no budget "
            "(--budget): leave it out, or use mode characters"
        )
    pieces = family(tokenizer) in ("unigram", "wordpiece")
    if options.same_size and (way.literal or pieces):
        raise UsageError(f"same size needs a BPE tokenizer and merges, not mode {mode}")
    if way.rule is not None and (pieces or options.objective != "total"):
        raise UsageError(
            f"mode {mode} is a baseline for BPE that takes all text together: leave the "
            "objective at total, or use mode merges"
        )
    budget = BUDGET if options.budget is None else options.budget
    if budget < 1:
        raise UsageError(f"the budget must be at least one token, not {budget}")
    if not texts:
        raise UsageError("no language to plan for: give at least one text")
    if test is not None and pivot not in test:
        raise UsageError(f"the test corpus has no pivot {pivot!r}; it has {', '.join(test)}")
    for text in (*texts.values(), check):
        if isinstance(text, str):
            raise UsageError("a text must be lines, not one string: split it first")
    if way.literal is not None:
        with panics_as_errors("planning"):
            return _used(way.literal(tokenizer, _whole_lines(texts), test or {}, pivot))
    words = {c: t if isinstance(t, CountedText) else count_text(t) for c, t in texts.items()}
    request = Request(tokenizer, words, options, budget, test or {}, list(check), protect)
    with panics_as_errors("planning"):
        plan = plan_pieces(request) if pieces else _plan_merges(request)
        plan = _used(_measured(tokenizer, plan, protect, elsewhere or {}), words)
        return give_places(request, plan) if options.same_size else plan


@functools.lru_cache(maxsize=1)  # plans of one tokenizer often follow each other
def _try_out(key: TokenizerKey) -> None:
    """TokenizerError if the library cannot load the tokenizer, or decode each of its tokens."""
    pipeline = load(key.tokenizer)
    with panics_as_errors("decoding its tokens one by one"):
        each = ([number] for number in vocabulary(key.tokenizer).values())
        pipeline.decode_batch([[], *each], skip_special_tokens=False)


def _measured(
    tokenizer: dict[str, Any],
    plan: Plan,
    protect: Protected | None,
    elsewhere: Mapping[str, Sequence[str]],
) -> Plan:
    """The plan with what was proved about protected text and measured on other text."""
    if protect is None:
        return plan
    extended = insert(tokenizer, plan.additions)
    measured = measure_elsewhere(tokenizer, extended, elsewhere.items())
    protection = Protection(protect.sources, protect.hash, len(protect.lines), measured)
    return replace(plan, protected=protection)


def _used(plan: Plan, texts: Mapping[str, CountedText] | None = None) -> Plan:
    """The plan, with a note for each language it does nothing for; an error if it has no token.

    A graft without a new token would be the base again.
    """
    alike: dict[str, list[str]] = {}
    for code, figures in plan.languages.items():
        before, after = figures.planning_before, figures.planning_after
        if (before, figures.unknown_before) == (after, figures.unknown_after):
            why = _foreign(code, texts) or _why_none(plan, code)
            alike.setdefault(why, []).append(code)
    idle = [
        f"{some_languages(codes)}: no new token helps, since {why}" for why, codes in alike.items()
    ]
    if not plan.tokens:
        why = "; ".join(idle) or "every pair worth joining makes a token that is there already"
        raise TokengraftError(
            f"there is no token to plan: {why}. Give more text, or plan for other languages."
        )
    return replace(plan, notes=(*plan.notes, *idle, *_why_no_more(plan)))


def _why_no_more(plan: Plan) -> list[str]:
    """A note if the budget was not used up, or ended before every language was at the target."""
    target = target_of(plan.objective)
    above = [] if target is None else _above(plan, target)
    named = f"above it still in the planning text: {some_languages(above)}"
    if len(plan.tokens) >= plan.budget:
        short = f"the budget of {plan.budget:,} tokens does not suffice for {plan.objective}"
        return [f"{short}; {named}"] if above else []
    if target is not None:
        done = "every language is at that premium in the planning text, or no further piece helps"
        done = f"no further piece helps; {named}" if above else done
        return [
            f"{counted(len(plan.tokens), 'token')} of {plan.budget:,} by {plan.objective}: {done}"
        ]
    kept = "" if plan.protected is None else " stands in protected text too,"
    why = (
        f"every further piece in a planned script occurs fewer than {LEAST} times in its text,"
        f"{kept} or would not be used in it; more text gives more tokens"
    )
    if mode_named(plan.mode).rule is not None:
        why = f"no further string that mode {plan.mode} names can be made by merges in the text"
    elif plan.family == "wordpiece" or plan.mode == "characters":
        why = "no further character of a planned script in the text lacks a token"
    return [f"{counted(len(plan.tokens), 'token')} instead of {plan.budget:,}: {why}"]


def _foreign(code: str, texts: Mapping[str, CountedText] | None) -> str:
    """What to say of a text without a single character of its language's script, else ''."""
    belongs = territory([code])
    if texts is None or belongs is None:
        return ""
    characters = set().union(*texts[code].chunks)
    if any(belongs(character.encode("utf-8")) for character in characters):
        return ""
    return f"its text (perhaps the wrong file) has no letter in its script, {script_of(code)}"


def _above(plan: Plan, target: float) -> list[str]:
    """The languages whose premium, where known, is still above `target` in the planning text."""
    return [
        code
        for code, one in plan.languages.items()
        if one.premium_before is not None
        and one.premium_before * one.planning_after > target * one.planning_before
    ]


def _why_none(plan: Plan, code: str) -> str:
    if plan.literal:
        return "the vocabulary holds every character of the text"
    target, before = target_of(plan.objective), plan.languages[code].premium_before
    if target is not None and before is not None and before <= target:
        return "the premium is not above that of the objective"
    if len(plan.languages) > 1 and len(plan.tokens) >= plan.budget:
        return "the whole budget went to others"
    if plan.protected is not None:
        return "what recurs in the text takes one token already, or stands in protected text too"
    if plan.family in ("unigram", "wordpiece"):
        return "the vocabulary holds every character of the script"
    return "nothing that recurs in the text takes several tokens"


def _whole_lines(texts: Mapping[str, Iterable[str] | CountedText]) -> dict[str, Sequence[str]]:
    lines = {}
    for code, text in texts.items():
        if isinstance(text, CountedText):
            raise UsageError("mode paper measures whole lines: give it lines, not counted text")
        lines[code] = text if isinstance(text, Sequence) else list(text)
    return lines


def _plan_merges(request: Request) -> Plan:
    base = request.tokenizer
    pivot_lines = request.test.get(request.options.pivot)
    pipeline = load(base)
    pivot_tokens = None if pivot_lines is None else lengths(pipeline, pivot_lines).tolist()
    samples = request.tested or {c: text.sample for c, text in request.texts.items()}
    floors = floors_of(base, samples, pivot_tokens if request.tested else None)
    options, boundaries = request.options, request.options.boundaries
    if options.mode == "characters":
        # Single characters never span a cut, so removing cuts would gain nothing.
        if boundaries == "relax":
            raise UsageError("mode characters cannot use relaxed boundaries: use keep, or merges")
        boundaries = "keep"
    cut, notes = decide(base, boundaries, floors)
    cut, stay = unrelaxed(base, cut, request.protected)
    if stay and boundaries == "relax":
        raise UsageError(f"{stay[0]}: use boundaries auto, or protect other text")
    notes += stay
    if loose := _loose(base, pipeline):
        notes.append(
            f"this tokenizer does not cut its added token {loose[0]!r} out of text wherever its "
            "characters stand; there it may be read as that token from now on"
            + (f", as may {len(loose) - 1} more" if loose[1:] else "")
        )
    job = Job(request, cut, pipeline)
    if job.borrowed:
        borrowed = " ".join(sorted(job.borrowed))
        notes.append(f"inside words these count as Latin letters: {borrowed}")
    for _ in range(_ATTEMPTS):
        learner, curve = job.run()
        additions = _additions_of(learner, cut)
        extended = load(insert(base, additions))
        if request.protected is None:
            break
        spoiling = newly_emitted(extended, request.protected, job.forbidden.old)
        if not spoiling:
            break
        job.banned |= {token for number, token in additions.tokens if number in spoiling}
    else:
        raise TokengraftError(
            "refused: the ids of protected text would change; please report this tokenizer"
        )
    # With the old pattern, checking the words covers the lines; joined pieces need whole lines too.
    lines = request.same_script if cut.scripts else []
    proof = prove(pipeline, extended, learner, job.words, job.pool.origins, job.old, lines)
    effects = {}
    for column, code in enumerate(request.languages):
        own = floors.get(code) if request.tested else None
        effect = Effect(
            planning_before=int(curve.totals[0][column]),
            planning_after=int(curve.totals[-1][column]),
            premium_before=job.premiums.get(code),
            first_token=curve.first_token(column),
            curve=curve.points(code, column),
            floor_before=own.before if own else None,
            floor_after=(own.after if relaxes(cut, code) else own.before) if own else None,
        )
        if effect.curve:
            effect = replace(effect, premium_after=effect.curve[-1].premium)
        effects[code] = effect
    if boundaries == "portable" and decide(base, "auto", floors)[0].scripts:
        auto = replace(options, boundaries="auto")
        notes += _cost(effects, _plan_merges(replace(request, options=auto)))
    return Plan(
        tokenizer=fingerprint(base), family=family(base), mode=options.mode,
        objective=options.objective, budget=request.budget, cut=cut,
        tokens=_tokens_of(learner, proof), merges=additions.merges, languages=effects,
        pivot=options.pivot if request.test else None,
        check=Proven(proof.pieces), notes=tuple(notes),
    )  # fmt: skip


def _loose(tokenizer: dict[str, Any], pipeline: Tokenizer) -> list[str]:
    """Added tokens that the model itself may emit, once its vocabulary holds them (`settle`).

    A model that looks up whole words (`ignore_merges`) or, with byte fallback, single characters
    may then find them. Usually the pipeline has cut them out of the text by then, but not if some
    added token must stand alone (the search then skips what overlaps it), or if the normaliser
    changes the token or turns other text into it.
    """
    known, words = vocabulary(tokenizer), tokenizer["model"].get("ignore_merges")
    added = [
        token for token in tokenizer.get("added_tokens") or () if token["content"] not in known
    ]
    alone = any(token.get("single_word") for token in tokenizer.get("added_tokens") or ())
    characters = family(tokenizer) == "byte-fallback-bpe"

    def is_loose(token: dict[str, Any]) -> bool:
        content = token["content"]
        if not words and not (characters and len(content) == 1):
            return False
        if alone or pipeline.normalizer is None:
            return alone
        return not token.get("normalized") or pipeline.normalizer.normalize_str(content) != content

    return [token["content"] for token in added if is_loose(token)]


def _cost(kept: Mapping[str, Effect], relaxed: Plan) -> list[str]:
    """Notes on what portable boundaries, by which every program can cut, cost each language."""
    notes = []
    for code, portable in kept.items():
        other = relaxed.languages[code]
        figures = (
            f"{portable.planning_after:,} tokens of its text instead of {other.planning_after:,}"
        )
        if portable.premium_after is not None and other.premium_after is not None:
            figures = f"premium {portable.premium_after:.2f} instead of {other.premium_after:.2f}"
        notes.append(f"{code}: portable boundaries cost it {figures} with relaxed ones")
    return notes


def _additions_of(learner: Learner, cut: PlanCut) -> Additions:
    """What goes into the tokenizer, in the order in which it was learned."""
    names = learner.symbols.names
    tokens = tuple((s.result, names[s.result]) for s in learner.steps if s.spends)
    merges = tuple((names[s.left], names[s.right]) for s in learner.steps if s.right >= 0)
    return Additions(tokens=tokens, merges=merges, pattern=cut.new_pattern)


def _tokens_of(learner: Learner, proof: Proof) -> tuple[NewToken, ...]:
    """Each new token with the old ids at the leaves of its merges."""
    symbols = learner.symbols
    parts: dict[int, tuple[int, ...]] = {}
    old = symbols.ids

    def leaves(symbol: int) -> tuple[int, ...]:
        return parts.get(symbol) or (symbol,)

    def of(step: Step) -> tuple[int, ...]:
        if step.right >= 0:
            return leaves(step.left) + leaves(step.right)
        if step.word:
            return tuple(part for symbol in step.word for part in leaves(symbol))
        return tuple(old[f"<0x{byte:02X}>"] for byte in symbols.names[step.result].encode())

    tokens = []
    for step in learner.steps:
        if not step.spends:
            continue
        parts[step.result] = of(step)
        name = symbols.names[step.result]
        piece = symbols.piece(name)
        tokens.append(
            NewToken(
                step.result, name, piece.hex(), decoded(piece), parts[step.result],
                proof.emitted.get(step.result, 0), example=proof.examples.get(step.result),
            )
        )  # fmt: skip
    return tuple(tokens)
