"""The paper's own procedure, for reproduction.

A character is "absent" if its literal string is not a key of the vocabulary. Byte-level keys are
spelled in bytes, so there that holds for every character outside ASCII and part of Latin-1. All
absent characters become added tokens, which are cut out of the text before the model sees it.
Characters that were encoded well inside longer tokens are torn out of them, so a text can get much
longer (Hindi on Llama 3: +90%); the plan's notes say by how much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokengraft.planning.curve import mean_ratio
from tokengraft.planning.new_tokens import NewToken
from tokengraft.planning.plan import (
    Effect,
    Plan,
    PlanCut,
    lost_characters,
    unknown_of,
    unknown_share,
    warnings,
)
from tokengraft.tokenizer.insert import (
    Additions,
    family,
    fingerprint,
    first_free_id,
    insert,
    vocabulary,
)
from tokengraft.tokenizer.pipeline import Encoder, lengths, load
from tokengraft.tokenizer.pre_tokenizer import split_pattern, splitter_of


def absent_characters(tokenizer: dict[str, Any], lines: Iterable[str]) -> list[str]:
    """The absent characters of the lines, except spaces, by code point."""
    known = vocabulary(tokenizer).keys() | {t["content"] for t in tokenizer["added_tokens"]}
    characters: set[str] = set().union(*(set(line) for line in lines))
    return sorted(c for c in characters if c not in known and not c.isspace())


def plan_literals(
    tokenizer: dict[str, Any],
    texts: Mapping[str, Sequence[str]],
    test: Mapping[str, Sequence[str]],
    pivot: str,
) -> Plan:
    """A plan of all absent characters as added tokens, with how they change each length."""
    characters = absent_characters(tokenizer, (line for lines in texts.values() for line in lines))
    start = first_free_id(tokenizer)
    base = load(tokenizer)
    splitter, encoder = splitter_of(tokenizer), Encoder(base)
    counts = Counter(c for lines in texts.values() for line in lines for c in line)
    tokens = []
    for place, character in enumerate(characters):
        pieces = encoder.ids(splitter.pre_tokenize(character))
        parts = tuple(number for piece in pieces for number in piece)
        data = character.encode("utf-8").hex()
        tokens.append(
            NewToken(
                start + place,
                character,
                data,
                character,
                parts,
                counts[character],
                example=character,
            )
        )
    added = Additions(tokens=tuple((t.id, t.token) for t in tokens), literal=True)
    extended = load(insert(tokenizer, added))
    unknown = unknown_of(tokenizer)
    effects, notes = {}, []
    for code, lines in texts.items():
        before = int(lengths(base, lines).sum())
        after = int(lengths(extended, lines).sum())
        premiums: list[float | None] = [None, None]
        shares: list[float | None] = [None, None]
        if code in test:
            premiums = [
                mean_ratio(lengths(one, test[code]), lengths(one, test[pivot]))
                for one in (base, extended)
            ]
            if unknown >= 0:
                shares = [unknown_share(one, unknown, test[code]) for one in (base, extended)]
        lost = [lost_characters(one, unknown, lines) for one in (base, extended)]
        effect = Effect(
            before,
            after,
            premiums[0],
            premiums[1],
            unknown_before=lost[0],
            unknown_after=lost[1],
            unk_share_before=shares[0],
            unk_share_after=shares[1],
        )
        effects[code] = effect
        notes += warnings(code, effect)
        if after > before:
            notes.append(
                f"{code}: paper mode makes the text {after / before - 1:.0%} longer "
                f"({before:,} to {after:,} tokens); mode merges cannot"
            )
    return Plan(
        tokenizer=fingerprint(tokenizer),
        family=family(tokenizer),
        mode="paper",
        objective="total",
        budget=len(tokens),
        cut=PlanCut(old_pattern=split_pattern(tokenizer)),
        tokens=tuple(tokens),
        merges=(),
        languages=effects,
        pivot=pivot if test else None,
        notes=tuple(notes),
    )
