"""Output policies that lost to `write`, as further rows of `grafting.output_policies`.

`paper.shared`: new tokens may be written too. In a tied model the input rows score them; in an
untied one the mean of the parts' output rows.

`paper.remove`: as shared; besides, old pieces of several bytes that are not whole characters are
barred if the check text no longer needs them, that is, parts of new tokens that the new tokenizer
emits nowhere in it. Single bytes stay, so every text can still be written.

`paper.winner-takes-all`: as shared; `WinnerTakesAll` pools a new token with its first old part. The
option `bias` is how many nats less likely than that part a new token may be and still win: a
number, or `auto` for the best one on held-out lines of the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokengraft.core.errors import UsageError
from tokengraft.core.options import Later
from tokengraft.corpus import udhr
from tokengraft.deriving.distil.passages import is_held_out
from tokengraft.grafting.output_policies import POLICIES, OutputPolicy
from tokengraft.tokenizer.insert import family, vocabulary
from tokengraft.tokenizer.vocabulary import decoded, piece_reader


def removable(
    parts: Iterable[Sequence[int]], pieces: Sequence[bytes], emitted: Collection[int]
) -> tuple[int, ...]:
    """Old parts to bar: of several bytes, not whole characters, and not in `emitted`.

    `pieces` are the old tokens' bytes by id, `emitted` the ids of the check text under the new
    tokenizer.
    """
    seen = {part for group in parts for part in group} - set(emitted)
    return tuple(sorted(p for p in seen if len(pieces[p]) > 1 and decoded(pieces[p]) is None))


def removal(parts: Iterable[Sequence[int]], pieces: Sequence[bytes], removed: int) -> str:
    """What `removable` did, in a sentence, with the reason if it barred nothing."""
    every = {part for group in parts for part in group}
    if removed:
        return f"remove bars {removed} of the {len(every)} old pieces that new tokens are made of"
    single = sum(len(pieces[part]) <= 1 for part in every)
    whole = sum(len(pieces[part]) > 1 and decoded(pieces[part]) is not None for part in every)
    needed = len(every) - single - whole
    return (
        f"remove bars nothing, so this is as shared: of the {len(every)} old pieces that new "
        f"tokens are made of, {single} are single bytes, which stay so that every text can be "
        f"written, {whole} are whole characters, and {needed} are still needed by some text"
    )


def bars(
    old: dict[str, Any], new: dict[str, Any], parts: Sequence[Sequence[int]], lines: Sequence[str]
) -> tuple[tuple[int, ...], str]:
    """Old parts that neither `lines` nor any bundled language needs, to be barred; and a note."""
    from tokengraft.grafting.verify.tokens import Pair

    corpus = udhr.load()
    world = corpus.lines(*corpus.languages)
    read = piece_reader(family(old))
    pieces = [b""] * (max(vocabulary(old).values()) + 1)
    for token, number in vocabulary(old).items():
        pieces[number] = read(token)
    known = [[part for part in group if part < len(pieces)] for group in parts]
    removed = removable(known, pieces, Pair(old, new).emitted([*lines, *world]))
    return removed, removal(known, pieces, len(removed))


def settle(more: Mapping[str, Any], has_text: bool) -> Any:
    """The option `bias` as a number, or what chooses it on text."""
    given = more.get("bias", 0.0)
    if given == "auto":
        if not has_text:
            raise UsageError("a bias is chosen on text of the language: give some with --text FILE")
        return choose_bias
    try:
        return float(given)
    except ValueError:
        raise UsageError(f"no bias {given!r}: give a number, or auto") from None


def choose_bias(
    folder: Path, new: range, parts: Sequence[Sequence[int]], lines: Sequence[str]
) -> tuple[float, str]:
    """The best bias on the held-out lines (all lines if none is held out), and a note on it."""
    from tokengraft.model.frozen import FrozenModel
    from tokengraft.paper.winner_takes_all import best_bias, bias_curve

    held_out = [line for line in lines if is_held_out(line, 0.05)] or lines
    curve = bias_curve(FrozenModel.load(folder), new, [group[0] for group in parts], held_out)
    bias = best_bias(curve)
    worth = {one.bias: one.right for one in curve}
    return bias, (
        f"bias {bias:g} chosen on held-out text: {worth[bias]:.2f} right bytes per sampled token "
        f"(bias 0: {worth[0.0]:.2f}, not pooled: {worth[None]:.2f})"
    )


def register() -> None:
    """Add the policies to the registry."""
    for policy in (
        OutputPolicy(
            "paper.shared",
            "answers may be in new tokens, untrained for it: at least twice the base's bits",
            "`paper.shared`: `generate` may emit the new tokens as well as the old ones. No row "
            "was trained to be written: what comes out in new tokens is worse than the base's "
            "text.",
        ),
        OutputPolicy(
            "paper.remove",
            "as shared; parts of characters that no text needs now are barred, single bytes never",
            "`paper.remove`: `generate` may emit the new tokens; old pieces inside characters that "
            "no text of the check needs any more are barred (`suppress_tokens` in "
            "`generation_config.json`).",
            bars=bars,
        ),
        OutputPolicy(
            "paper.winner-takes-all",
            "as shared, with a logits processor that pools a new token with its first old part",
            "`paper.winner-takes-all`: a new token and its first old part pool their probability "
            "and the larger takes it. Switch it on with "
            "`model.generate(..., logits_processor=tokengraft.logits_processor(folder))`; "
            "without it the model behaves as under `paper.shared`.",
            pools=Later("tokengraft.paper.winner_takes_all:WinnerTakesAll"),
            settle=settle,
            takes=("bias",),
        ),
    ):
        POLICIES[policy.name] = policy
