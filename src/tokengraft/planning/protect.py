"""Protected text: lines whose ids no plan may change.

An appended merge acts only where its two parts stand side by side in the finished old tokenization.
So a text keeps its ids if no two neighbours in it are ever merged, and since it keeps them, which
pairs it forbids is known before the first merge is learned: a set, made once by encoding the text
with the old tokenizer. Two more things may not become tokens: characters of the text that are
spelled in bytes (byte fallback), and its words, where the tokenizer looks whole words up before it
merges (`ignore_merges`).

The bundled sample is English and source code: the commonest word forms (with and without a space
before them, capitalised too) and identifiers and keywords of many programming languages. It is
protected whenever a plan may use letters that English has too (`permitted`).

No list holds every English word, least of all names: with 300,000 forms protected, plans for many
languages still change some (results/world). With `keep_names` a rule keeps every word that begins
with a capital (`permitted.keeps_names`), and only English in lower case is left to a list: the
bundled dictionary.
"""

from __future__ import annotations

import functools
import lzma
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, pre_tokenizers

from tokengraft.core.errors import CorpusError, TokenizerError, UsageError
from tokengraft.core.files import sha256
from tokengraft.core.wording import one_line
from tokengraft.corpus import udhr
from tokengraft.corpus.lines_of import lines_of_files
from tokengraft.languages.codes import resolve, well_formed
from tokengraft.planning.chain import Ints, distinct
from tokengraft.planning.learn import key_of
from tokengraft.planning.permitted import foreign_piece, names_spoiled
from tokengraft.planning.plan import Elsewhere, Plan, PlanCut, Protection, folded, with_plan
from tokengraft.planning.word_pool import Cutter
from tokengraft.tokenizer.pipeline import Encoded, Encoder, encode, load
from tokengraft.tokenizer.pre_tokenizer import DIGITS, LATIN, relaxed_pattern
from tokengraft.tokenizer.vocabulary import byte_level_piece

NOTHING = "nothing"  # asks that the bundled sample be not protected
BUNDLED = "English words and source code (bundled)"
DICTIONARY = "an English dictionary, and words with a capital by rule (bundled)"
_UDHR = " (UDHR)"
_WORDS_A_LINE = 64
_WORD = re.compile(r"[ -]?[^\W\d_]+")
_DIGIT_WORD = re.compile(r"[ -]?[A-Za-z]*[2-9][A-Za-z2-9]*")
# What English writes after a digit; a single letter is no token with one (`permitted`).
_AFTER_DIGITS = "nd rd th am pm km cm mm kg mg ml hr hrs min sec mph bn ft in px pt ms"
_BEFORE_DIGITS = "m km cm mm ft mi co"  # km2


@dataclass(frozen=True)
class Protected:
    """Lines to protect, and where they come from."""

    sources: tuple[str, ...]
    lines: Sequence[str]
    keep_names: bool = False  # words that begin with a capital keep their ids too, by rule

    @functools.cached_property
    def hash(self) -> str:
        """sha256 of the lines, each ended by a line feed."""
        return sha256("".join(f"{line}\n" for line in self.lines).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class Forbidden:
    """What a plan may not make, so that protected text keeps its ids; `old` are those ids."""

    pairs: Ints  # sorted keys of two ids, as `learn.key_of` makes them
    words: frozenset[str] = frozenset()  # texts of words, where those are looked up first
    characters: frozenset[str] = frozenset()
    old: Sequence[Encoded] = ()
    keep_names: bool = False  # as `Protected.keep_names`


def protected_text(
    asked: Iterable[str | Path], bundled: bool, keep_names: bool = False
) -> Protected | None:
    """The text that `asked` names (files, or languages of the bundled UDHR), None for none.

    With `bundled` the bundled sample comes first, unless "nothing" is asked for; with `keep_names`
    the bundled dictionary follows, and the rule applies that keeps words with a capital.
    """
    wanted = [str(one) for one in asked]
    if NOTHING in wanted and (keep_names or len(wanted) > 1):
        other = "keep_names (--keep-names)" if keep_names else "other text"
        raise UsageError(f"protect {NOTHING!r} does not go with {other}: leave one of them out")
    sources: list[str] = []
    lines: list[str] = []
    if bundled and NOTHING not in wanted:
        sources.append(BUNDLED)
        lines += sample()
        if keep_names:
            sources.append(DICTIONARY)
            lines += dictionary()
    for one in wanted:
        if one == NOTHING:
            continue
        if Path(one).is_file():
            sources.append(one_line(Path(one).name))
            lines += lines_of_files([one])
            continue
        corpus = udhr.load()
        try:
            code = resolve(one, corpus.texts, udhr.NAME)
        except CorpusError as error:
            raise UsageError(f"protect {one}: there is no such file, and: {error}") from None
        sources.append(f"{code}{_UDHR}")
        lines += corpus.lines(code)
    return Protected(tuple(sources), lines, DICTIONARY in sources) if lines else None


@functools.cache
def sample() -> tuple[str, ...]:
    """The bundled sample, as lines that hold every form of its words."""
    words, names = _asset("english").split("\n"), _asset("code").split("\n")
    capitals = [word[0].upper() + word[1:] for word in words]
    return tuple(line for forms in (words, capitals, names) for line in _joined(forms, " \n"))


@functools.cache
def dictionary() -> tuple[str, ...]:
    """The bundled dictionary, as lines that hold its words after a space and after a hyphen.

    The sample's words are there after a hyphen, and units beside digits. Capitals are left to the
    rule (`permitted.keeps_names`), but for words with letters outside ASCII.
    """
    more = _asset("dictionary").split("\n")
    accented = [word[0].upper() + word[1:] for word in more if not word.isascii()]
    common = _asset("english").split("\n")
    numbered = [f"{n}{end}" for n in DIGITS for end in _AFTER_DIGITS.split()]
    numbered += [f"{unit}{n}" for n in "23" for unit in _BEFORE_DIGITS.split()]
    words = _joined([*more, *accented], " -")
    return (*words, *_joined(common, "-"), *_joined(numbered, " \n"))


def _joined(words: Sequence[str], signs: str) -> Iterator[str]:
    for start in range(0, len(words), _WORDS_A_LINE):
        for sign in signs:
            yield sign.join(words[start : start + _WORDS_A_LINE])


def _asset(name: str) -> str:
    asset = resources.files("tokengraft") / "assets" / "protected" / f"{name}.txt.xz"
    return lzma.decompress(asset.read_bytes()).decode("utf-8").rstrip("\n")


def forbidden(tokenizer: dict[str, Any], pipeline: Tokenizer, text: Protected | None) -> Forbidden:
    """What the text forbids; `pipeline` is the working tokenizer of `tokenizer`."""
    if text is None:
        return Forbidden(np.empty(0, np.int64))
    old = list(encode(pipeline, text.lines))
    keys = []
    for encoded in old:
        ids = encoded.ids
        inside = np.ones(len(ids), bool)
        # A line's last token has no right neighbour.
        inside[np.cumsum(encoded.sizes)[encoded.sizes > 0] - 1] = False
        at = np.flatnonzero(inside)
        keys.append(distinct(key_of(ids[at], ids[at + 1])))
    words: frozenset[str] = frozenset()
    if tokenizer["model"].get("ignore_merges"):
        kinds = _WORD, _DIGIT_WORD
        words = frozenset(w for line in text.lines for one in kinds for w in one.findall(line))
    normal = pipeline.normalizer
    seen = {c for line in text.lines for c in set(normal.normalize_str(line) if normal else line)}
    return Forbidden(distinct(np.concatenate(keys)), words, frozenset(seen), old, text.keep_names)


def newly_emitted(extended: Tokenizer, text: Protected, old: Sequence[Encoded]) -> set[int]:
    """All ids in those lines of protected text whose ids are no longer `old`.

    Empty where every line, encoded afresh, has the ids it had.
    """
    emitted: set[int] = set()
    for before, after in zip(old, encode(extended, text.lines), strict=True):
        if not np.array_equal(before.ids, after.ids) or (before.sizes != after.sizes).any():
            pairs = zip(before, after, strict=True)
            emitted.update(i for was, now in pairs if was != now for i in now)
    return emitted


def insert_proved(
    tokenizer: dict[str, Any], plan: Plan, label: str | None = None
) -> dict[str, Any]:
    """`insert` for a plan that anybody may have edited: its promises are checked again.

    TokenizerError also where it would change text in scripts that are not planned, or text that it
    says is protected. The vocabulary grows, even if the plan gives new tokens the places of old
    ones (`plan.folded`).
    """
    if not plan.literal and (foreign := foreign_piece(plan)) is not None:
        raise TokenizerError(
            f"this plan was edited: its token {foreign!r} holds nothing of the scripts of "
            f"{', '.join(plan.languages)}, so text in any language would change. Plan again."
        )
    extended = with_plan(tokenizer, plan, label)
    final = folded(extended, plan)
    if plan.protected is not None:
        looked_up = bool(tokenizer["model"].get("ignore_merges"))
        spoiler = names_spoiled(plan, looked_up) if DICTIONARY in plan.protected.sources else None
        if spoiler is not None:
            raise TokenizerError(
                f"this plan was edited, or made by an earlier version: its piece {spoiler!r} would "
                "change words with a capital, whose ids it says stay as they are. Plan again."
            )
        reprove(tokenizer, final, plan.protected)
    return extended


def reprove(tokenizer: dict[str, Any], extended: dict[str, Any], said: Protection) -> None:
    """Encode again what there is here of the text that a plan says is protected.

    That is what is bundled; files that the planner named are not here. TokenizerError where a line
    has other ids in `extended`, or where all of the text is here and its hash is another one.
    """
    codes = [one.removesuffix(_UDHR) for one in said.sources if one.endswith(_UDHR)]
    known = [code for code in codes if well_formed(code)]
    text = protected_text(known, BUNDLED in said.sources, DICTIONARY in said.sources)
    if text is None:
        return
    if text.sources == said.sources and (text.hash, len(text.lines)) != (said.sha256, said.lines):
        raise TokenizerError(
            "this plan was edited, or its protected text is not today's: its hash is another one. "
            "Plan again."
        )
    old = list(encode(load(tokenizer), text.lines))
    if newly_emitted(load(extended), text, old):
        raise TokenizerError(
            f"this plan was edited: it changes the ids of text that it says is protected "
            f"({', '.join(text.sources)}). Plan again."
        )


def unrelaxed(
    tokenizer: dict[str, Any], cut: PlanCut, text: Protected | None
) -> tuple[PlanCut, list[str]]:
    """The cut without the scripts that protected text is written in, and a note on each.

    Latin stays: relaxing it only joins digits to words, which keep their ids unless a merge acts
    there, and merges that would change protected text are forbidden.
    """
    if text is None or not cut.scripts:
        return cut, []
    seen = "".join(sorted(set().union(*text.lines)))
    kept, notes = [], []
    for name in cut.scripts:
        taker = pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed")
        others = sum(len(piece) for piece, _ in taker.pre_tokenize_str(seen))
        if name == LATIN or others == len(seen):
            kept.append(name)
        else:
            notes.append(f"boundaries stay as they are for {name}: protected text is written in it")
    if not kept:
        return PlanCut(old_pattern=cut.old_pattern), notes
    return PlanCut(tuple(kept), cut.old_pattern, relaxed_pattern(tokenizer, kept)), notes


def measure_elsewhere(
    tokenizer: dict[str, Any],
    extended: dict[str, Any],
    texts: Iterable[tuple[str, Sequence[str]]],
) -> tuple[Elsewhere, ...]:
    """How many words (pre-tokens) of text that was not protected change their ids.

    Text is cut as `extended` cuts it, since a merge may act across an old cut; what is one word
    only there is cut anew for the old ids.
    """
    changes = []
    cutter, old_cutter = Cutter(extended), Cutter(tokenizer)
    old_encoder, new_encoder = Encoder(load(tokenizer)), Encoder(load(extended))
    for name, lines in texts:
        words = Counter(word for line in lines for word in cutter.words(line))
        whole = {word for line in lines for word in old_cutter.words(line)}
        joined = [word for word in words if word not in whole]
        spelled = [word for word in words if word in whole]
        old, new = list(old_encoder.ids(spelled)), list(new_encoder.ids([*spelled, *joined]))
        for word in joined:
            parts = old_cutter.words(byte_level_piece(str(word)).decode("utf-8"))
            old.append(old_encoder.ids(parts).ids.tolist())
        pairs = zip([*spelled, *joined], old, new, strict=True)
        changed = sum(words[word] for word, was, now in pairs if was != now)
        changes.append(Elsewhere(name, words.total(), changed))
    return tuple(changes)


def unprotected_code() -> Sequence[str]:
    """Bundled lines of source code that are not part of the sample, to measure on."""
    return _asset("elsewhere").split("\n")
