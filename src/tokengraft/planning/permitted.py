r"""Which new tokens may exist: those that only text of the planned languages is likely to contain.

A merge of shared characters (`, “`, digits, spaces) would change the ids of text in any language.
So a new token must hold a character of a planned script, or first bytes that only its characters
have. Text in other scripts then keeps its ids, whatever is learned.

ASCII letters belong to English and to code as well. Where a language in Latin script is planned,
words and parts of words made of them may become tokens too, and English is kept by protected text
instead (`protect`): no pair that occurs in it is ever merged.

Three exceptions are deliberate:
- For a language in Latin script, a combining accent and the full stop or comma after it may become
  one token, whatever letter stands before them.
- Where characters are spelled in bytes (byte fallback), an accent may be a token by itself, since
  no letter can be joined to its bytes (otherwise Nuer stays at 2.18 on Mistral, whatever is spent).
- Two leading bytes span 64 code points, and a few such spans are shared by several scripts
  (U+1080-10BF holds Shan tones and old Georgian capitals). Where the old vocabulary lacks those two
  bytes as a token, the pair may become one, alone or after a space: without it the script's
  characters cannot be built from their bytes. (Without the form after a space Santali stayed at
  2.99 instead of 1.67 on held-out dev lines: the only other way to a letter at the start of a word
  is through its last two bytes, which nothing else uses, and an unused token is never made.)
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from tokenizers import Regex, pre_tokenizers

from tokengraft.corpus import udhr
from tokengraft.languages.codes import script_of
from tokengraft.planning.symbols import character_size, completions
from tokengraft.tokenizer.pre_tokenizer import SCRIPTS
from tokengraft.tokenizer.vocabulary import piece_reader

if TYPE_CHECKING:
    from tokengraft.planning.plan import Plan

_ENDS_INSIDE = re.compile(rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})\Z")
_INSIDE_WORDS = "'-’‘ʻʼ\u02b9"  # written between letters: Uzbek oʻ, Kabyle d-yusan
_ACCENT = re.compile("[\u0300-\u036f][.,]")  # the end of a clause in Yoruba, cut off its letter
_ACCENTED = re.compile("[\u0300-\u036f]")
_BEGINS_INSIDE = re.compile(rb"[\x80-\xbf]+")
# What CLDR says English is written with: its own letters and those of foreign names and words.
_LOWER = "abcdefghijklmnopqrstuvwxyzáàăâåäãāæçéèĕêëēíìĭîïīñóòŏôöøōœúùŭûüūÿ"
_NAME_LETTERS = frozenset(_LOWER + _LOWER.upper())
# Those outside ASCII take two bytes each.
_FIRST_BYTES = frozenset(c.encode("utf-8")[:1] for c in _NAME_LETTERS if not c.isascii())
_LAST_BYTES = frozenset(c.encode("utf-8")[1:] for c in _NAME_LETTERS if not c.isascii())
_SIGN_OF_OTHERS = re.compile(r"[^\x00-\u024f\u2000-\u2bff]")  # such as the dot of Tibetan
_OFTEN = 10  # times a letter stands in a text before it counts as borrowed


def shares_letters(codes: Iterable[str]) -> bool:
    """Whether tokens for these languages may be made of characters that English has too."""
    return any(script == "Latn" or script not in SCRIPTS for script in map(script_of, codes))


def borrowed_letters(texts: Mapping[str, Mapping[str, int]]) -> frozenset[str]:
    """Letters of other scripts that languages in Latin script write inside their words.

    `texts` are chunks of text with their counts, by language. In FLORES Ewe has ͻ and Kabyle ε,
    both Greek. A letter is borrowed if it stands beside a Latin letter at least `_OFTEN` times, and
    nearly always: Greek names in a Swahili text lend it nothing.
    """
    borrowed: set[str] = set()
    for code, chunks in texts.items():
        if script_of(code) != "Latn":
            continue
        every: Counter[str] = Counter()
        beside: Counter[str] = Counter()
        for chunk, times in chunks.items():
            if chunk.isascii():
                continue
            for place, letter in enumerate(chunk):
                if letter.isalpha() and not _is_latin(letter):
                    every[letter] += times
                    around = chunk[max(0, place - 1) : place] + chunk[place + 1 : place + 2]
                    beside[letter] += times * any(map(_is_latin, around))
        borrowed |= {
            letter
            for letter, times in beside.items()
            if times >= _OFTEN and times > 0.9 * every[letter]
        }
    return frozenset(borrowed)


@functools.cache
def _written_elsewhere() -> frozenset[str]:
    """Every character of the bundled UDHR in other scripts than Latin."""
    corpus = udhr.load()
    others = [code for code in corpus.languages if script_of(code) != "Latn"]
    return frozenset().union(*corpus.lines(*others))


@functools.cache
def _is_latin(character: str) -> bool:
    return unicodedata.name(character, "").startswith("LATIN ") and character.isalpha()


def territory(
    codes: Iterable[str], borrowed: Collection[str] = ()
) -> Callable[[bytes], bool] | None:
    """A test whether a token's bytes belong to the scripts of the languages `codes`.

    `borrowed` letters of other scripts belong to words in Latin letters, and may stand alone if no
    language of their own script writes them. None, for no limit, where there is no language or the
    script of one is not known.
    """
    alone = frozenset(borrowed) - _written_elsewhere() if borrowed else frozenset()
    names: set[str] = set()
    latin = False
    for code in codes:
        script = script_of(code)
        latin |= script == "Latn"
        if script not in SCRIPTS and script != "Latn":
            return None
        names.update(SCRIPTS.get(script, ("Latin",)))
    if not names:
        return None
    classes = "".join(rf"\p{{{name}}}" for name in sorted(names))
    taker = pre_tokenizers.Split(Regex(rf"[[{classes}]&&[^\x{{00}}-\x{{7F}}]]"), "removed")

    @functools.cache
    def others(text: str) -> int:
        return sum(len(piece) for piece, _ in taker.pre_tokenize_str(text))

    @functools.cache
    def belongs(piece: bytes) -> bool:
        text = piece.decode("utf-8", "ignore")
        if others(text) < len(text):
            return True
        if latin and (text in alone or _of_a_word(text, borrowed) or _ACCENT.fullmatch(text)):
            return True
        inside = _ENDS_INSIDE.search(piece)
        if inside is None:
            return False
        span = _span(inside[0])
        foreign = others(span)
        spaced = len(inside[0]) > 1 and piece == b" " + inside[0]
        return foreign < len(span) and (not foreign or inside[0] == piece or spaced)

    return belongs


def accents_alone(codes: Iterable[str]) -> Callable[[str], bool]:
    """A test whether a string is an accent that a language in Latin script may have alone."""
    latin = "Latn" in map(script_of, codes)
    return lambda string: latin and _ACCENTED.fullmatch(string) is not None


def keeps_names(piece: bytes, whole: bool, looked_up: bool) -> bool:
    """Whether a new token leaves every word that begins with a capital as it is.

    A word is an unbroken run of the letters that English and its names are written with
    (`_NAME_LETTERS`) beside no other letter or accent. No token that goes on to a digit or a sign
    begins inside one (`ama2` would change `Panama2`). A token with any other letter or a combining
    accent then never occurs in one, and neither does a token with a digit, if it begins a word or
    holds three letters at least. Any other token, unless it is made of signs that English does not
    use,

    - is in lower case, with no hyphen but at its start (`co-` would change English `co-author`);
    - if it is `whole`, which the encoder takes before it merges, does not begin with a letter: what
      the pattern leaves of `O'Shannessy` behind `'S` is not a word of its own;
    - if merges make it, begins a word, with the space or hyphen before it. Where whole words are
      `looked_up`, merges make no such token, so that none is ever a part of a longer word.
    """
    text = piece.decode("utf-8", "ignore")
    if _ends_a_name(text):
        return False
    if any(_in_a_word(c) and c not in _NAME_LETTERS for c in text):
        return True
    if len(text.encode("utf-8")) < len(piece):
        return not _torn_from_a_name(piece)
    if _SIGN_OF_OTHERS.search(text) and _NAME_LETTERS.isdisjoint(text):
        return True
    if text != text.lower() or "-" in text[1:]:
        return False
    if whole:
        return not text[:1].isalpha()
    if any(map(str.isdigit, text)):
        return text[0] in " -" or sum(map(str.isalpha, text)) > 2
    return text[:1] in (" ", "-") and not looked_up


def _ends_a_name(text: str) -> bool:
    """Whether the text holds more than a word, and a part that may end or be one with a capital."""
    runs = ["".join(run) for _, run in itertools.groupby(text, _in_a_word)]
    parts = [*runs[:1], *(run for run in runs[1:] if run[0].isupper())] if runs[1:] else []
    return any(map(_NAME_LETTERS.issuperset, parts))


def _in_a_word(character: str) -> bool:
    return character.isalpha() or unicodedata.category(character)[0] == "M"


def _torn_from_a_name(piece: bytes) -> bool:
    """Whether the piece begins or ends inside a letter of `_NAME_LETTERS`."""
    first = _BEGINS_INSIDE.match(piece)
    return piece[-1:] in _FIRST_BYTES or (first is not None and first[0] in _LAST_BYTES)


def names_spoiled(plan: Plan, looked_up: bool) -> str | None:
    """A token or merge of the plan that could change a name (`keeps_names`), or None."""
    read = piece_reader(plan.family)
    joined = {left + right for left, right in plan.merges}
    whole = {token.token for token in plan.tokens} - joined
    made = (*joined, *whole)
    spoiling = (one for one in made if not keeps_names(read(one), one in whole, looked_up))
    return min(spoiling, default=None)


def foreign_piece(plan: Plan) -> str | None:
    """A string that the plan makes, as token or by a merge, outside its languages' territory.

    None for plans with a language in Latin script: what those borrow only their text says, and
    protected text is what keeps English as it is.
    """
    belongs = None if shares_letters(plan.languages) else territory(plan.languages)
    if belongs is None:
        return None
    read = piece_reader(plan.family)
    made = (*(token.token for token in plan.tokens), *(a + b for a, b in plan.merges))
    return next((one for one in made if not belongs(read(one))), None)


def _of_a_word(text: str, borrowed: Collection[str]) -> bool:
    """Whether `text`, with or without a space before it, is ASCII letters and what joins them.

    With a digit there must be two letters at least: `u3` would change source code (`u32`).
    """
    word = text.removeprefix(" ")
    letters = sum(c.isascii() and c.isalpha() for c in word)
    return letters > any(map(str.isdigit, word)) and all(
        (c.isascii() and c.isalpha())
        or c in _INSIDE_WORDS
        or c in borrowed
        or unicodedata.category(c)[0] == "M"
        for c in word
    )


@functools.cache
def _span(lead: bytes) -> str:
    """Every assigned character whose UTF-8 is `lead` and one byte more.

    "" where more bytes are missing: a lone E0 or F0 begins characters of many scripts.
    """
    return "".join(completions(lead)) if len(lead) == character_size(lead[0]) - 1 else ""
