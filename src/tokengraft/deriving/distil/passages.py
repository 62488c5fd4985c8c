"""Passages of text under both tokenizers, to train on and to judge by.

Lines are joined, and cut at spaces, into passages of at most `characters` characters, so that short
lines are read with something before them too (rootstock, 700 steps: KL .364 instead of .442 in
Hindi, whose lines have 54 characters). A passage without a new token teaches nothing and is
dropped. Whether a line is held out depends on its own hash alone: not on its place, on the other
lines or on the seed.

A model that reads new tokens and writes old ones has both in its context, which passages in new
tokens from end to end never show. So `mix` makes mixtures of them: the beginning of a passage in
one spelling and the rest in the other, matched at positions of the rest, and in training also at
those of a beginning in new tokens, which has to be read anyway (rootstock, Hindi, lanes, four
minutes of one core: held-out KL .465 instead of .612, and in the rest .093 instead of .103).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from tokengraft.core.errors import CorpusError
from tokengraft.tokenizer.align import Aligner, Alignment, Ints

HELD_OUT = 0.05  # of the lines
_MOST_JUDGES = 256  # held-out passages
_BATCH = 4096
_RECUR = 3
_FEW = 200  # passages: of less text lines are not joined, so that there is something to draw,
_SHORT = 160  # and passages have so many characters at most
_SAMPLE = 200  # lines by which the length of passages is found
_AGAIN = 10  # times at most that a passage is read in a round, if its language has little text


@dataclass(frozen=True)
class Lots:
    """Passages to train on, and held-out passages to judge by."""

    train: tuple[Alignment, ...]
    held_out: tuple[Alignment, ...]
    mixed: tuple[Alignment, ...] = ()  # held-out passages of mixed spelling
    languages: tuple[int, ...] = ()  # of the passages to train on, where there are several


@dataclass(frozen=True)
class Mixture(Alignment):
    """A passage whose `new` ids change from one spelling to the other.

    `after` is the id with which the new tokenizer's spelling goes on after each common position, -1
    for none. In a rest of old tokens a new one could be written there too. `source` is the number
    of the passage that the mixture was made of; its old ids are that passage's, or the first of
    them. The first `beginning` common positions are before the change.
    """

    after: Ints
    source: int
    beginning: int = 0


@dataclass(frozen=True)
class Rest:
    """How much old text follows a beginning in new tokens, and where in it states are matched.

    At most `most` old tokens follow. Where that is more than `places`, only so many are matched: a
    share `near` of these right after the beginning, the others drawn at random from what follows.
    With `beginning`, states are matched there too, at every common position.
    """

    most: int = 128
    places: int = 48
    near: float = 0.5
    beginning: bool = False


def is_held_out(line: str, share: float) -> bool:
    """Whether a line is kept back for judging, by its sha1."""
    digest = hashlib.sha1(line.encode("utf-8"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def cut(line: str, characters: int) -> list[str]:
    """`line` in passages of at most `characters`, cut before a space where there is one."""
    passages, start = [], 0
    while len(line) - start > characters:
        space = line.rfind(" ", start + 1, start + characters + 1)
        end = space if space > 0 else start + characters
        passages.append(line[start:end])
        start = end
    rest = line[start:]
    return [*passages, rest] if rest.strip() else passages


def joined(lines: Iterable[str], characters: int) -> list[str]:
    """Lines one after the other, as many together as have at most `characters`."""
    together: list[str] = []
    for line in lines:
        if together and len(together[-1]) + 1 + len(line) <= characters:
            together[-1] += f" {line}"
        else:
            together.append(line)
    return together


def read_lots(
    lines: Iterable[str] | Iterable[Sequence[str]],
    aligner: Aligner,
    first_new: int,
    characters: int = 400,
    tokens: int = 512,
    held_out: float = HELD_OUT,
    rows: int | None = None,
    more: Sequence[str] = (),
) -> Lots:
    """Join, cut, encode and align `lines`; duplicates count once, passages keep `tokens` tokens.

    `more` lines are to be trained on, not to be judged by. Where `characters` take more tokens than
    that, passages are shorter. Of a model of `rows` rows, passages with an old token beyond them
    are dropped: it has no row. If `lines` are those of several languages, one sequence each, no
    passage holds text of two, and `Lots.languages` says whose it is (`more` are one more).
    """
    every = list(lines)
    texts: list[tuple[Sequence[str], Sequence[str]]]
    texts = [(one, ()) for one in every if not isinstance(one, str)]
    if not texts:
        texts = [([one for one in every if isinstance(one, str)], more)]
    elif more:
        texts.append(((), more))
    made = [_both(*text, aligner, first_new, characters, tokens, held_out, rows) for text in texts]
    train = [(one, number) for number, (own, _) in enumerate(made) for one in own]
    most = max(1, _MOST_JUDGES // len(made))
    spaced = (judged[:: max(1, len(judged) // most)][:most] for _, judged in made)
    judged = [one for turn in zip_longest(*spaced) for one in turn if one is not None]
    if not train or not judged:
        raise CorpusError(
            f"the text holds {len(train)} passages with a new token to train on and {len(judged)} "
            "to be judged by: give more text of the languages the plan was made for"
        )
    whose = tuple(number for _, number in train) if len(made) > 1 else ()
    return Lots(tuple(one for one, _ in train), tuple(judged), languages=whose)


def _both(
    lines: Sequence[str],
    more: Sequence[str],
    aligner: Aligner,
    first_new: int,
    characters: int,
    tokens: int,
    held_out: float,
    rows: int | None,
) -> tuple[list[Alignment], list[Alignment]]:
    """Passages of one text to train on and to judge by, as `read_lots` makes them."""
    distinct = [line for line in dict.fromkeys(one.strip() for one in lines) if line]
    characters = min(characters, _fitting(distinct or more, aligner, tokens))
    lots: tuple[list[str], list[str]] = ([], [])
    for line in distinct:
        lots[is_held_out(line, held_out)].append(line)
    lots[0].extend(more)
    if sum(len(line) for lot in lots for line in lot) >= _FEW * characters:
        lots = joined(lots[0], characters), joined(lots[1], characters)
    else:
        characters = min(characters, _SHORT)
    train, judged = (
        _with_new(
            aligner, [p for one in lot for p in cut(one, characters)], first_new, tokens, rows
        )
        for lot in lots
    )
    if distinct and (not train or not judged):  # too few lines: all of them fell to one lot
        every = train or judged
        if len(every) >= 10:
            judged = every[::10]
            train = [one for number, one in enumerate(every) if number % 10]
    return train, judged


def _fitting(lines: Sequence[str], aligner: Aligner, tokens: int) -> int:
    """Characters of this text that take nine tenths of `tokens` old tokens."""
    sample = lines[:: max(1, len(lines) // _SAMPLE)]
    taken = sum(map(len, aligner.old.encode(sample)))
    return max(1, round(0.9 * tokens * sum(map(len, sample)) / max(1, taken)))


def _with_new(
    aligner: Aligner, passages: Sequence[str], first_new: int, tokens: int, rows: int | None
) -> list[Alignment]:
    kept = []
    for start in range(0, len(passages), _BATCH):
        for one in aligner(passages[start : start + _BATCH]):
            short = shorten(one, tokens)
            known = rows is None or bool((short.old < rows).all())
            if len(short) and known and (short.new >= first_new).any():
                kept.append(short)
    return kept


def shorten(one: Alignment, tokens: int) -> Alignment:
    """The passage up to its last common position within `tokens` tokens of either tokenization."""
    if len(one.old) <= tokens and len(one.new) <= tokens:
        return one
    inside = int(((one.old_at < tokens) & (one.new_at < tokens)).sum())
    old_at, new_at = one.old_at[:inside], one.new_at[:inside]
    if not inside:
        return Alignment(one.old[:0], one.new[:0], old_at, new_at)
    return Alignment(one.old[: old_at[-1] + 1], one.new[: new_at[-1] + 1], old_at, new_at)


def shuffled_batches(
    sizes: Ints, per_batch: int, generator: np.random.Generator
) -> list[npt.NDArray[np.int64]]:
    """Every passage once in batches of like length (little padding), in random order."""
    jitter = sizes * generator.uniform(0.85, 1.15, len(sizes))
    order = np.argsort(jitter, kind="stable")
    lots = [order[start : start + per_batch] for start in range(0, len(order), per_batch)]
    return [lots[n] for n in generator.permutation(len(lots))]


def evenly(languages: Ints, sizes: Ints) -> Ints:
    """Numbers of passages, those of languages with less text several times, for one round.

    By `sizes` every language then has about as much, but none is read more than `_AGAIN` times.
    """
    totals = np.maximum(1, np.bincount(languages, sizes))
    times = np.clip(np.round(totals.max() / totals), 1, _AGAIN).astype(np.int64)
    return np.repeat(np.arange(len(sizes)), times[languages])


def choose(
    passages: Sequence[Alignment],
    first_new: int,
    most: float,
    seed: int,
    languages: Sequence[int] = (),
) -> Ints:
    """Numbers of passages of at most `most` old tokens in all, chosen so that new tokens recur.

    Passages come in random order, first those that hold a new token seen fewer than three times.
    Of several `languages` each has the same share; what one does not need is left to the others.
    """
    if languages:
        whose, sizes = np.array(languages), np.array([len(one.old) for one in passages])
        own = [np.flatnonzero(whose == one) for one in np.unique(whose)]
        own.sort(key=lambda numbers: int(sizes[numbers].sum()))
        taken = []
        for left, numbers in zip(range(len(own), 0, -1), own, strict=True):
            some = choose([passages[n] for n in numbers.tolist()], first_new, most / left, seed)
            taken.append(numbers[some])
            most -= sizes[taken[-1]].sum()
        return np.sort(np.concatenate(taken))
    order = np.random.default_rng(seed).permutation(len(passages))
    seen: Counter[int] = Counter()
    needed: list[int] = []
    others: list[int] = []
    for number in order.tolist():
        one = passages[number].new
        tokens = one[one >= first_new].tolist()
        wanted = any(seen[token] < _RECUR for token in tokens)
        (needed if wanted else others).append(number)
        seen.update(tokens)
    ranked = np.array([*needed, *others], np.int64)
    sizes = np.fromiter((len(passages[n].old) for n in ranked), np.int64, len(ranked))
    inside = max(1, int(np.searchsorted(np.cumsum(sizes), most, side="right")))
    return np.sort(ranked[:inside])


def next_old(one: Alignment) -> Ints:
    """The old id that follows each common position, -1 at the end of the passage."""
    return np.append(one.old, -1)[one.old_at + 1]


def text_after(one: Alignment) -> Ints:
    """`next_old` in the rest of a mixture, which the text itself may teach; elsewhere -1."""
    before = one.beginning if isinstance(one, Mixture) else len(one)
    return np.concatenate([np.full(before, -1), next_old(one)[before:]])


def following(one: Alignment) -> Ints:
    """The id that the new spelling goes on with after each common position, -1 for none."""
    if isinstance(one, Mixture):
        return one.after
    return np.append(one.new, -1)[np.minimum(one.new_at + 1, len(one.new))]


def mix(
    passages: Sequence[Alignment],
    first_new: int,
    share: float,
    seed: int,
    *,
    writes: bool = False,
    rest: Rest | None = None,
    tokens: int = 512,
) -> list[Mixture]:
    """Mixtures of a `share` of the passages, each cut at a common position drawn at random.

    With a share above 1 the same passage is cut in several places. New tokens come first and a
    `rest` of old ones after them; where the model `writes`, every second mixture is the other way
    round. Those of more than `tokens` tokens are left out.
    """
    generator = np.random.default_rng([seed, 1])
    count, rounds = round(share * len(passages)), max(1, math.ceil(share))
    chosen = np.concatenate([generator.permutation(len(passages)) for _ in range(rounds)])[:count]
    mixtures = []
    for turn, number in enumerate(np.sort(chosen).tolist()):
        make = _anew if writes and turn % 2 else _back
        one = make(number, passages[number], first_new, rest or Rest(), generator)
        if one is not None and len(one.new) <= tokens:
            mixtures.append(one)
    return mixtures


def _back(
    source: int, one: Alignment, first_new: int, rest: Rest, generator: np.random.Generator
) -> Mixture | None:
    """First new tokens, then old ones."""
    count = np.cumsum(one.new >= first_new)[one.new_at]
    cuts = np.flatnonzero((count > 0) & (one.old_at < len(one.old) - 1))
    if not len(cuts):
        return None
    cut = int(generator.choice(cuts))
    old_at, new_at = int(one.old_at[cut]), int(one.new_at[cut])
    end = min(len(one.old), old_at + 1 + rest.most)
    at = np.arange(old_at, end)
    if len(at) > rest.places:
        first = round(rest.near * rest.places)
        far = generator.choice(at[first:], rest.places - first, replace=False)
        at = np.concatenate([at[:first], np.sort(far)])
    ids = np.concatenate([one.new[: new_at + 1], one.old[old_at + 1 : end]])
    after = np.full(len(one.old), -1)
    after[one.old_at] = following(one)
    before = cut if rest.beginning else 0
    there = np.concatenate([one.new_at[:before], at - old_at + new_at])
    at = np.concatenate([one.old_at[:before], at])
    return Mixture(one.old[:end], ids, at, there, after[at], source, before)


def _anew(
    source: int, one: Alignment, first_new: int, rest: Rest, generator: np.random.Generator
) -> Mixture | None:
    """First old tokens, then new ones."""
    is_new = one.new >= first_new
    left = is_new.sum() - np.cumsum(is_new)[one.new_at]
    cuts = np.flatnonzero((left > 0) & (one.old_at < rest.most))
    if not len(cuts):
        return None
    cut = int(generator.choice(cuts))
    old_at, new_at = int(one.old_at[cut]), int(one.new_at[cut])
    ids = np.concatenate([one.old[: old_at + 1], one.new[new_at + 1 :]])
    ends = one.new_at[cut:] - new_at + old_at
    return Mixture(one.old, ids, one.old_at[cut:], ends, following(one)[cut:], source)
