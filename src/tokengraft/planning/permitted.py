r"""Which new tokens may exist: those that only text of the planned languages is likely to contain.

A merge of shared characters (`, “`, digits, spaces) would change the ids of text in any language.
So a new token must hold a character of a planned script, or first bytes that only its characters
have. Text in other scripts then keeps its ids whatever was learned.

Latin letters inside ASCII belong to English and to code as well. Where a language in Latin script
is planned, words and parts of words made of them may become tokens too, and what keeps English as
it is then is protected text (`protect`): no pair that occurs in it is ever merged.

One hole is left open on purpose: two leading bytes span 64 code points, and a few such spans are
shared (U+1080-10BF holds Shan tones and old Georgian capitals). Where the old vocabulary lacks
those two bytes as a token, the pair itself may become one: without it the script's characters
have no path from their bytes.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable

from tokenizers import Regex, pre_tokenizers

from tokengraft.planning.boundaries import script_of
from tokengraft.planning.symbols import completions
from tokengraft.tokenizer.boundaries import SCRIPTS

_ENDS_INSIDE = re.compile(rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})\Z")
_INSIDE_WORDS = "'-’‘ʻʼ\u02b9"  # written between letters: Uzbek oʻ, Kabyle d-yusan


def shares_letters(codes: Iterable[str]) -> bool:
    """Whether tokens for these languages may be made of characters that English has too."""
    return any(script == "Latn" or script not in SCRIPTS for script in map(script_of, codes))


def territory(codes: Iterable[str]) -> Callable[[bytes], bool] | None:
    """A test whether a token's bytes belong to the scripts of the languages `codes`.

    None, for no limit, where the script of a language is not known.
    """
    names: set[str] = set()
    latin = False
    for code in codes:
        script = script_of(code)
        latin |= script == "Latn"
        if script not in SCRIPTS and script != "Latn":
            return None
        names.update(SCRIPTS.get(script, ("Latin",)))
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
        if latin and _of_a_word(text):
            return True
        inside = _ENDS_INSIDE.search(piece)
        if inside is None:
            return False
        span = _span(inside[0])
        foreign = others(span)
        return foreign < len(span) and (not foreign or inside[0] == piece)

    return belongs


def _of_a_word(text: str) -> bool:
    """Whether `text`, with or without a space before it, is ASCII letters and what joins them."""
    word = text.removeprefix(" ")
    return any(c.isascii() and c.isalpha() for c in word) and all(
        (c.isascii() and c.isalpha()) or c in _INSIDE_WORDS or unicodedata.category(c)[0] == "M"
        for c in word
    )


@functools.cache
def _span(lead: bytes) -> str:
    """Every assigned character that begins with `lead`, where it leaves one byte open.

    Longer spans (a lone E0 or F0) hold every script: such bytes alone say nothing.
    """
    size = 2 if lead[0] < 0xE0 else 3 if lead[0] < 0xF0 else 4
    return "".join(completions(lead)) if len(lead) == size - 1 else ""
