"""Places for new tokens in a vocabulary that may not grow.

The plan is made as usual; then each new token gets a place: first padding rows of the model's
table, then reserved tokens, then leaves (`tokenizer.insert`): code before English words before
other scripts, and the last learned first, since those are the rarest. (Llama 3, 2,000 tokens,
FLORES dev: 3 of 30,907 lines of other languages get longer. By the order of learning alone 1,052
do: a vocabulary's last tokens are those of languages that came last.)

No token is given up that occurs in the planning text, the test text, protected text, the bundled
English and code, or any language of the bundled UDHR. All of that text is then encoded with the
new tokenizer: it must have the same tokens as if the vocabulary had grown, so none of it gets
longer and protected text keeps its ids. Other text may hold a token that was given up; it falls
into its parts, and that text gets longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.corpus import udhr
from tokengraft.planning.job import Request
from tokengraft.planning.plan import Plan
from tokengraft.planning.protect import sample, unprotected_code
from tokengraft.planning.word_pool import Cutter
from tokengraft.tokenizer.insert import added_ids, first_free_id, fold, insert, retirable
from tokengraft.tokenizer.pipeline import emitted_ids, encode, load
from tokengraft.tokenizer.vocabulary import piece_reader


def give_places(request: Request, plan: Plan) -> Plan:
    """The plan with a place for each token; UsageError if there are too few places."""
    extended = insert(request.tokenizer, plan.additions)
    first, count = first_free_id(request.tokenizer), len(plan.tokens)
    spare = range(first, min(max(first, request.options.rows or 0), first + count))
    read = piece_reader(plan.family)
    leaving = sorted(retirable(extended).items(), key=lambda one: _kept_longest(read(one[1])))
    may_go = {number: token for number, token in leaving if number < first}
    lines: list[str] = []
    if len(spare) < count <= len(spare) + len(may_go):
        cutter = Cutter(request.tokenizer)
        given = [cutter.in_text(chunk) for text in request.texts.values() for chunk in text.chunks]
        lines = list(dict.fromkeys([*given, *_other_text(request)]))
        encoded = list(encode(load(extended), lines))
        used = set(np.concatenate([batch.ids for batch in encoded]).tolist())
        used |= emitted_ids(load(request.tokenizer), given)
        may_go = {number: token for number, token in may_go.items() if number not in used}
    if (there := len(spare) + len(may_go)) < count:
        raise UsageError(
            f"{count:,} new tokens need as many places, but there are {there:,}: lower the budget "
            f"(--budget {there}), or let the vocabulary grow"
        )
    places = (*spare, *list(may_go)[: count - len(spare)])
    if lines:
        moved = np.arange(first + count)
        moved[first:] = places
        for was, now in zip(encoded, encode(load(fold(extended, places)), lines), strict=True):
            if (was.sizes != now.sizes).any() or not np.array_equal(moved[was.ids], now.ids):
                raise TokengraftError(
                    "refused: text that must stay would change; please report this tokenizer"
                )
    reserved = len({*added_ids(extended).values()} & {*places})
    note = (
        f"same size: {count:,} new tokens take {len(spare):,} free rows and the ids of {reserved:,}"
        f" reserved and {count - len(spare) - reserved:,} other tokens ({len(may_go):,} could go), "
        f"which no line of {len(lines):,} uses; other text that did use them gets longer"
    )
    return replace(plan, places=places, notes=(*plan.notes, note))


def _kept_longest(piece: bytes) -> tuple[bool, bool]:
    """Sort key for giving tokens up: other scripts after ASCII, words after pieces of code."""
    return not piece.isascii(), piece.strip().isalpha()


def _other_text(request: Request) -> Iterator[str]:
    """Every line besides the planning text whose tokens must not be given up."""
    for lines in (*request.test.values(), request.check, sample(), unprotected_code()):
        yield from lines
    bundled = udhr.load()
    yield from bundled.lines(*bundled.languages)
    if request.protected is not None:
        yield from request.protected.lines
