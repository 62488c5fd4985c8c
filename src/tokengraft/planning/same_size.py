"""Places for new tokens in a vocabulary that may not grow.

A plan is made as always; then each new token gets a place: first rows that pad the model's table,
then reserved tokens, then leaves (`tokenizer.same_size`), the last learned first, since those are
the rarest. No token goes that the planning text, the test text, protected text, the bundled English
and code, or the bundled UDHR in any of its languages emits, before or after. All of that text is
then encoded with the new tokenizer: it has the same tokens as if the vocabulary had grown, so none
of it is longer than before and protected text keeps its ids. Other text may hold a token that went,
and gets longer by its parts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.corpus import load as load_corpus
from tokengraft.planning.job import Request
from tokengraft.planning.plan import Plan
from tokengraft.planning.protect import sample, unprotected_code
from tokengraft.planning.words import Cutter, emitted_ids, encode, load
from tokengraft.tokenizer.insert import first_free_id, insert
from tokengraft.tokenizer.same_size import fold, retirable


def give_places(request: Request, plan: Plan) -> Plan:
    """The plan with a place for each token; UsageError where there are too few."""
    extended = insert(request.tokenizer, plan.additions)
    lines = _text(request)
    old, new = load(request.tokenizer), load(extended)
    used = emitted_ids(old, lines) | emitted_ids(new, lines)
    used |= {part for token in plan.tokens for part in token.parts}
    first, count = first_free_id(request.tokenizer), len(plan.tokens)
    spare = range(first, min(max(first, request.options.rows or 0), first + count))
    may_go = {number: token for number, token in retirable(extended).items() if number not in used}
    if len(spare) + len(may_go) < count:
        raise UsageError(
            f"{count:,} new tokens need as many places, and there are {len(spare) + len(may_go):,}:"
            f" lower the budget (--budget {len(spare) + len(may_go)}), or let the vocabulary grow"
        )
    places = (*spare, *list(may_go)[: count - len(spare)])
    _prove(extended, fold(extended, places), places, lines)
    going = [may_go[place] for place in places[len(spare) :]]
    reserved = sum(token in {t["content"] for t in extended["added_tokens"]} for token in going)
    notes = [
        f"same size: {count:,} new tokens take {len(spare):,} free rows and the ids of {reserved:,}"
        f" reserved and {len(going) - reserved:,} other tokens ({len(may_go):,} could go), which "
        f"no line of {len(lines):,} uses; other text that did use them gets longer"
    ]
    return replace(plan, places=places, notes=(*plan.notes, *notes))


def _text(request: Request) -> list[str]:
    """Every line, or chunk of a line, whose tokens must stay."""
    udhr, cutter = load_corpus("udhr"), Cutter(request.tokenizer)
    lines = [cutter.in_text(chunk) for text in request.texts.values() for chunk in text.chunks]
    for given in (*request.test.values(), request.check, sample(), unprotected_code()):
        lines += given
    for code in udhr.languages:
        lines += udhr.lines(code)
    if request.protected is not None:
        lines += request.protected.lines
    return list(dict.fromkeys(lines))


def _prove(
    grown: dict[str, Any], folded: dict[str, Any], places: tuple[int, ...], lines: list[str]
) -> None:
    """TokengraftError unless the lines have the same tokens, new ones at their places."""
    moved = np.arange(first_free_id(grown))
    moved[len(moved) - len(places) :] = places
    for was, now in zip(encode(load(grown), lines), encode(load(folded), lines), strict=True):
        if not (np.array_equal(moved[was.ids], now.ids) and np.array_equal(was.sizes, now.sizes)):
            raise TokengraftError(
                "refused: text that must stay would change; please report this tokenizer"
            )
