r"""How a tokenizer cuts text into words, and the rewrite that keeps marks with their letters.

Most split patterns take a word to be `\p{L}+`. Vowel signs, viramas and tone marks are `\p{M}`, so
Indic, Myanmar and Khmer words fall apart at each of them, and no vocabulary can repair that. The
rewrite puts one alternative in front of the old pattern, for chosen scripts only:

    LEAD? S \p{L}* ( \p{M}+ \p{L}* )* ( (?<=\p{M}) REST )?      S = a letter of the chosen scripts

LEAD is what the old pattern allows before a word, REST what its punctuation alternative goes on to
match after a mark. The new alternative joins two old pieces only between S and a mark of its script
(or of no script in particular), or between such a mark and S, and stops before a cut that has to
stay (`kept_cuts`). S is written `(?=[\p{Tamil}…])\p{L}`, which more engines accept than
`[\p{L}&&[\p{Tamil}…]]`. Three things follow:
- text without a letter of the chosen scripts is cut exactly as before, since S must match;
- every cut of the new pattern is a cut of the old one: the pieces are only joined. Without REST
  the old tokens `<mark><punctuation>` would be torn (Llama 3 has 62 of them), which lengthened
  918 of 1,012 Hindi lines;
- a joined piece starts out as the tokens of its parts, so no text gets longer.

Arabic in Latin letters writes digits for letters (`3ala`, `al-baqa2`), and patterns cut at each.
Where Latin is relaxed, a single such digit between, before or after ASCII letters stays in its word
(`_digit_words`). No old token holds a letter beside a digit, so text that no new merge touches
keeps its ids, whatever its language.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tokenizers import Tokenizer, pre_tokenizers

from tokengraft.core.errors import TokenizerError, UsageError
from tokengraft.core.wording import ranges
from tokengraft.tokenizer.file_shape import TokenizerKey
from tokengraft.tokenizer.kept_cuts import KeptCuts, in_class, kept_cuts, only_whole_words
from tokengraft.tokenizer.vocabulary import byte_level_piece

# ISO 15924 codes, as in `hin_Deva`, to Unicode script names, as regular expressions know them.
SCRIPTS: dict[str, tuple[str, ...]] = {
    "Arab": ("Arabic",), "Armn": ("Armenian",), "Bali": ("Balinese",), "Beng": ("Bengali",),
    "Bugi": ("Buginese",), "Cans": ("Canadian_Aboriginal",), "Cher": ("Cherokee",),
    "Copt": ("Coptic",), "Cyrl": ("Cyrillic",), "Deva": ("Devanagari",), "Ethi": ("Ethiopic",),
    "Geor": ("Georgian",), "Grek": ("Greek",), "Gujr": ("Gujarati",), "Guru": ("Gurmukhi",),
    "Hang": ("Hangul",), "Hans": ("Han",), "Hant": ("Han",), "Hani": ("Han",),
    "Hebr": ("Hebrew",), "Hira": ("Hiragana",), "Java": ("Javanese",),
    "Jpan": ("Han", "Hiragana", "Katakana"), "Kana": ("Katakana",), "Khmr": ("Khmer",),
    "Knda": ("Kannada",), "Kore": ("Hangul", "Han"), "Laoo": ("Lao",), "Limb": ("Limbu",),
    "Mlym": ("Malayalam",), "Mong": ("Mongolian",), "Mtei": ("Meetei_Mayek",),
    "Mymr": ("Myanmar",), "Nkoo": ("Nko",), "Olck": ("Ol_Chiki",), "Orya": ("Oriya",),
    "Sinh": ("Sinhala",), "Sund": ("Sundanese",), "Syrc": ("Syriac",), "Taml": ("Tamil",),
    "Telu": ("Telugu",), "Tfng": ("Tifinagh",), "Thaa": ("Thaana",), "Thai": ("Thai",),
    "Tibt": ("Tibetan",), "Vaii": ("Vai",), "Yiii": ("Yi",),
}  # fmt: skip

LATIN = "Latin"
RELAXABLE = (LATIN, *sorted({name for names in SCRIPTS.values() for name in names}))
DIGITS = "2356789"  # written for letters in chat Arabic: 3 for ain, 7 for ha

Word: TypeAlias = str | int  # a string for the model to encode, or the id of an added token

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
_TAIL = r"(?:(?<=\p{M})[^\s\p{L}\p{N}]*"  # ends the alternative that `relax_pattern` puts in front
NO_PATTERN = "this tokenizer has no split pattern that cuts words at marks: use boundaries keep"
_WORD = re.compile(r"(?P<lead>\[\^\\r\\n\\p\{L\}\\p\{N\}\]\?| \?)\\p\{L\}\+")
_NUMBERS = re.compile(r"\|\\p\{N\}(\{1,3\})?\|")
_DIGIT_BESIDE = re.compile(rb"[ \-A-Za-z][0-9]|[0-9][A-Za-z]")
_REST = re.compile(r" \?(?P<rest>\[\^\\s\\p\{L\}\\p\{N\}\])\+(?P<after>\[\\r\\n/?\]\*)?")


def script_names(codes: Iterable[str]) -> tuple[str, ...]:
    """Unicode script names of ISO 15924 codes, sorted; Latin is refused: it is English too."""
    names: set[str] = set()
    for code in codes:
        if code not in SCRIPTS:
            known = ", ".join(sorted(SCRIPTS))
            raise UsageError(f"boundaries cannot be relaxed for script {code!r}; known: {known}")
        names.update(SCRIPTS[code])
    return tuple(sorted(names))


def relax_pattern(pattern: str, scripts: Collection[str], kept: KeptCuts | None = None) -> str:
    r"""`pattern`, changed to keep marks with the letters of `scripts` (Unicode script names).

    The cuts in `kept` stay, as do those beside letters or marks of other scripts. Raises
    TokenizerError for a pattern whose word and punctuation alternatives are not the `\p{L}+` and
    `[^\s\p{L}\p{N}]+` of GPT-2's family: a guess could cut other text differently.
    """
    word, rest = _WORD.search(pattern), _REST.search(pattern)
    if word is None or rest is None:
        raise TokenizerError(
            f"the split pattern {pattern!r} has no `\\p{{L}}+` word to relax: use boundaries keep"
        )
    kept = kept or KeptCuts()
    letter, mark = word_classes(scripts)
    lead, after = word["lead"], rest["after"] or ""
    names, marks = _names(scripts)
    start = ""
    if kept.pieces:
        # This test for a letter of the scripts is repeated below. Without it here, every word of
        # any text would be compared with all the pieces (English took 1.2 times as long).
        start = f"(?={lead}{names}){_unless(map(_literal, kept.pieces))}"
    before_mark = [*_pairs(kept.letter_mark)]
    before_mark += [_literal(piece) for piece in kept.pieces if in_class(piece[:1], mark)]
    parted = _unless(_runs(kept.parted))
    before_letter = [r"(?<!\p{M})", f"(?<!{marks})", r"(?!\p{L})", f"(?!{names})"]
    if kept.mark_letter:
        before_letter.append(f"{parted}(?:{'|'.join(_pairs(kept.mark_letter))})")
    before_letter += [_literal(piece) for piece in kept.pieces if in_class(piece[:1], letter)]
    # Where a word may begin with a mark, a single mark was never cut off from the letter after it.
    cut = "" if lead == " ?" else r"(?<=\p{M}\p{M})"
    stop = f"(?!{cut}(?:{'|'.join(before_letter)}))"
    between = rf"(?<=\p{{L}})(?<={names})(?=\p{{M}})(?={marks})"
    joined = rf"{between}{_unless(before_mark)}\p{{M}}+(?:{stop}\p{{L}}+)?"
    tail = rf"(?:(?<=\p{{M}}){rest['rest']}*{after})?"
    return rf"{start}{lead}(?={names})\p{{L}}+(?:{joined})*{tail}|{pattern}"


def word_classes(scripts: Iterable[str]) -> tuple[str, str]:
    """Regex classes of the letters of `scripts`, and of the marks that go with them."""
    names, marks = _names(scripts)
    return rf"[\p{{L}}&&{names}]", rf"[\p{{M}}&&{marks}]"


def _names(scripts: Iterable[str]) -> tuple[str, str]:
    """A regex class of all characters of `scripts`, and one that adds those any script may use."""
    names = "".join(rf"\p{{{name}}}" for name in sorted(scripts))
    return f"[{names}]", rf"[{names}\p{{Inherited}}\p{{Common}}]"


def _pairs(stops: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Expressions that match between a left character and any of its right ones."""
    lefts: dict[frozenset[str], str] = {}
    for left, rights in stops.items():
        lefts[rights] = lefts.get(rights, "") + left
    for rights, left in lefts.items():
        yield f"(?<={_class(left)}){_class(rights)}"


def _runs(parted: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Expressions that match between a run of marks after a letter and the letters given for it."""
    for run, letters in parted.items():
        yield rf"(?<=\p{{L}}{''.join(_point(ord(mark)) for mark in run)}){_class(letters)}"


def _class(characters: Iterable[str]) -> str:
    """A regex class of exactly these characters, with runs of code points as ranges."""
    ends = ranges(map(ord, characters))
    return "[" + "".join(_point(a) if a == b else f"{_point(a)}-{_point(b)}" for a, b in ends) + "]"


def _point(point: int) -> str:
    return rf"\x{{{point:04X}}}"


def _literal(piece: str) -> str:
    """An expression for `piece` as a whole: if it ends with a letter, none may follow."""
    spelled = "".join(map(_point, map(ord, piece)))
    return spelled + (r"(?!\p{L})" if in_class(piece[-1:], r"\p{L}") else "")


def _unless(expressions: Iterable[str]) -> str:
    joined = "|".join(expressions)
    return f"(?!{joined})" if joined else ""


def split_pattern(tokenizer: dict[str, Any]) -> str | None:
    r"""The pattern that takes a word to be `\p{L}+`, or None if the tokenizer has no such pattern.

    It must be the last step that cuts: another one after it would see joined pieces.
    """
    steps = steps_of(tokenizer.get("pre_tokenizer"))
    place = _place(steps)
    return None if place is None else pattern_of(steps[place])


def _place(steps: Sequence[dict[str, Any]]) -> int | None:
    """The number of the step that holds the split pattern (`split_pattern`)."""
    for place, step in enumerate(steps):
        pattern = pattern_of(step)
        if pattern is not None and _WORD.search(pattern) and _REST.search(pattern):
            no_cut = [s["type"] == "ByteLevel" and not s.get("use_regex", True) for s in steps]
            last = all(no_cut[place + 1 :])
            return place if last and any(s["type"] == "ByteLevel" for s in steps) else None
    return None


def relaxed_pattern(tokenizer: dict[str, Any], scripts: Collection[str]) -> str:
    """The relaxed split pattern of a parsed `tokenizer.json`, by which no text gets longer."""
    pattern = split_pattern(tokenizer)
    if pattern is None:
        raise TokenizerError(NO_PATTERN)
    known, asked = _relaxed_before(TokenizerKey(tokenizer)), tuple(scripts)
    if asked not in known:
        digits = f"{_digit_words(tokenizer, pattern)}|" if LATIN in scripts else ""
        if others := [name for name in scripts if name != LATIN]:
            kept = kept_cuts(tokenizer, *word_classes(others))
            pattern = relax_pattern(pattern, others, kept)
        known[asked] = digits + pattern
    return known[asked]


@functools.lru_cache(maxsize=1)
def _relaxed_before(_key: TokenizerKey) -> dict[tuple[str, ...], str]:
    """The relaxed patterns of the last tokenizer, by scripts; the caller adds to them.

    A plan asks for the same one several times, and each takes half a second to make.
    """
    return {}


def _digit_words(tokenizer: dict[str, Any], pattern: str) -> str:
    r"""The alternative that keeps digits in a word of ASCII letters.

    Everything it matches is several old pieces joined: runs of letters, and single digits. Raises
    TokenizerError if an old token reaches across such a cut. Words that the encoder knows only as
    a whole (`only_whole_words`) are not joined.
    """
    vocab = tokenizer["model"]["vocab"]
    word = _WORD.search(pattern)
    spaced = word is None or word["lead"] == " ?" or not _NUMBERS.search(pattern)
    if spaced or any(_DIGIT_BESIDE.search(byte_level_piece(token)) for token in vocab):
        raise TokenizerError("this tokenizer does not cut digits off letters: use boundaries keep")
    only = only_whole_words(tokenizer)
    not_letter, digit = r"(?!\p{L})", rf"[{DIGITS}](?!\p{{N}})"
    first = f"(?!(?:{'|'.join(only)}){not_letter})" if only else ""
    inner = [one for one in only if one[0].isalpha()]
    later = f"(?!(?:{'|'.join(inner)}){not_letter})" if inner else ""
    whole = f"{later}(?>[A-Za-z]+){not_letter}"
    # A cheap test for a digit comes first, so that other words are not compared with `only`.
    gate = rf"(?=[ -]?(?>\p{{{LATIN}}}*)[{DIGITS}])"
    start = rf"(?>[A-Za-z]+){digit}|{digit}{whole}(?:{digit})?"
    return rf"{gate}{first}[ -]?(?:{start})(?:{whole}(?:{digit})?)*"


def with_pattern(tokenizer: dict[str, Any], new_pattern: str) -> dict[str, Any]:
    """A copy of a parsed `tokenizer.json` with `new_pattern` in place of `split_pattern`.

    GPT-2's pattern is built into its ByteLevel step; that step becomes a Split with the rewritten
    pattern, then ByteLevel without one. Everything else is shared with the original.
    """
    steps = copy.deepcopy(steps_of(tokenizer.get("pre_tokenizer")))
    place = _place(steps)
    if place is None:
        raise TokenizerError(NO_PATTERN)
    step, new = steps[place], {"Regex": new_pattern}
    if step["type"] == "ByteLevel":
        split = {"type": "Split", "pattern": new, "behavior": "Isolated", "invert": False}
        if step.get("add_prefix_space"):
            raise TokenizerError(
                "a tokenizer that puts a space before text cannot be relaxed: use boundaries keep"
            )
        steps[place : place + 1] = [split, {**step, "use_regex": False}]
    else:
        steps[place] = {**step, "pattern": new}
    return {**tokenizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def floor(tokenizer: dict[str, Any], lines: Sequence[str]) -> list[int]:
    """Pre-tokens and added tokens per line: no vocabulary, however large, needs fewer."""
    splitter = splitter_of(tokenizer)
    return [len(splitter.pre_tokenize(line)) for line in lines]


class Splitter:
    """What a tokenizer's pipeline does to text before the model sees it.

    Added tokens are cut out first, by the pipeline's own rules (in raw or normalised text, with or
    without the spaces beside them); the rest is normalised and cut into words.
    """

    def __init__(self, tokenizer: Tokenizer, added: Sequence[Mapping[str, Any]]) -> None:
        """`tokenizer` must have the file's `added` tokens under their ids; it is changed."""
        self._normalizer = tokenizer.normalizer
        self._pre_tokenizer = tokenizer.pre_tokenizer
        raw = [token["content"] for token in added if not token.get("normalized")]
        late = [self._normal(token["content"]) for token in added if token.get("normalized")]
        self._raw, self._late = any_of(raw), any_of(late)
        self._recorder = _Recorder()
        steps = [] if self._pre_tokenizer is None else [self._pre_tokenizer]
        steps.append(pre_tokenizers.PreTokenizer.custom(self._recorder))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        self._whole = tokenizer

    def pre_tokenize(self, text: str) -> list[Word]:
        """The strings the model sees, in the tokenizer's alphabet, with added tokens as ids."""
        normal = self._normal(text)
        if (self._raw and self._raw.search(text)) or (self._late and self._late.search(normal)):
            self._whole.encode(text, add_special_tokens=False)
            return self._recorder.words
        if self._pre_tokenizer is None:
            return [normal] if normal else []
        return [piece for piece, _ in self._pre_tokenizer.pre_tokenize_str(normal)]

    def _normal(self, text: str) -> str:
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))


class _Recorder:
    """A last pre-tokenizer that changes nothing and keeps what it was given."""

    words: list[Word]

    def pre_tokenize(self, text: Any) -> None:
        """Called by `tokenizers`; a split that holds tokens already is an added token."""
        self.words = []
        for piece, _, tokens in text.get_splits():
            if tokens:
                self.words += [token.id for token in tokens]
            elif piece:
                self.words.append(piece)


def any_of(contents: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern that finds any of the strings; None if there are none."""
    literals = sorted({content for content in contents if content})
    return re.compile("|".join(map(re.escape, literals))) if literals else None


def splitter_of(tokenizer: dict[str, Any]) -> Splitter:
    """The `Splitter` of a parsed `tokenizer.json`."""
    added = tokenizer.get("added_tokens") or []
    ids = {token["content"]: token["id"] for token in added}
    unknown = "?" * (1 + max(map(len, ids), default=0))
    vocab = {**ids, unknown: 1 + max(ids.values(), default=0)}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": unknown}
    bare = {**tokenizer, "model": model, "added_tokens": added, "post_processor": None}
    bare |= {"truncation": None, "padding": None}
    return Splitter(Tokenizer.from_str(json.dumps(bare)), added)


def steps_of(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A pre-tokenizer, normaliser or decoder as a flat list of steps, sequences unfolded."""
    if part is None:
        return []
    for key in ("pretokenizers", "normalizers", "decoders"):
        if key in part:
            return [step for inner in part[key] for step in steps_of(inner)]
    return [part]


def is_relaxed(tokenizer: dict[str, Any]) -> bool:
    """Whether a parsed `tokenizer.json` has a pattern that `relaxed_pattern` wrote."""
    patterns = [pattern_of(step) or "" for step in steps_of(tokenizer.get("pre_tokenizer"))]
    return any(_TAIL in one or rf"\p{{{LATIN}}}*)[{DIGITS}]" in one for one in patterns)


def tells_case(tokenizer: dict[str, Any]) -> bool:
    """Whether words are cut before capitals, as GPT-4o and Mistral Nemo cut them."""
    steps = steps_of(tokenizer.get("pre_tokenizer"))
    return any(r"\p{Lu}" in (pattern_of(step) or "") for step in steps)


def pattern_of(step: dict[str, Any]) -> str | None:
    """The regular expression by which a step cuts; None if it has none."""
    if step["type"] == "ByteLevel":
        return GPT2 if step.get("use_regex", True) else None
    if step["type"] == "Split":
        pattern = step["pattern"].get("Regex")
        return pattern if isinstance(pattern, str) else None
    return None
