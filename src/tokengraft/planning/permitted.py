r"""Which new tokens may exist: those that only text in a planned script can contain.

A merge of shared characters (`, “`, digits, spaces) or of ASCII letters would change the ids of
English. So a new token must hold a character of a planned script, or first bytes that only its
characters have; for Latin script that means a letter outside ASCII. Text in other scripts, and
all ASCII text, then keeps its ids whatever was learned.

One hole is left open on purpose: two leading bytes span 64 code points, and a few such spans are
shared (U+1080-10BF holds Shan tones and old Georgian capitals). Where the old vocabulary lacks
those two bytes as a token, the pair itself may become one: without it the script's characters
have no path from their bytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable

from tokenizers import Regex, pre_tokenizers

from tokengraft.planning.boundaries import script_of
from tokengraft.planning.symbols import completions
from tokengraft.tokenizer.boundaries import SCRIPTS

_ENDS_INSIDE = re.compile(rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})\Z")


def territory(codes: Iterable[str]) -> Callable[[bytes], bool] | None:
    """A test whether a token's bytes belong to the scripts of the languages `codes`.

    None, for no limit, where the script of a language is not known.
    """
    names: set[str] = set()
    for code in codes:
        script = script_of(code)
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
        inside = _ENDS_INSIDE.search(piece)
        if inside is None:
            return False
        span = _span(inside[0])
        foreign = others(span)
        return foreign < len(span) and (not foreign or inside[0] == piece)

    return belongs


@functools.cache
def _span(lead: bytes) -> str:
    """Every assigned character that begins with `lead`, where it leaves one byte open.

    Longer spans (a lone E0 or F0) hold every script: such bytes alone say nothing.
    """
    size = 2 if lead[0] < 0xE0 else 3 if lead[0] < 0xF0 else 4
    return "".join(completions(lead)) if len(lead) == size - 1 else ""
