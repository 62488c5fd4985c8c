"""One interface to the tokenizer libraries; an adapter only calls its library.

Other programs (llama.cpp, SentencePiece, servers) read a tokenizer from other files, or cut text by
their own code. Whether they agree with it is never inferred: both encode lines of text, and the ids
must be the same (`difference`).
"""

from __future__ import annotations

import abc
import contextlib
import functools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from unicodedata import is_normalized

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import TokenizerError, gave_up
from tokengraft.tokenizer.vocabulary import SPACE_MARK, Vocabulary
from tokengraft.tokenizer.words import (
    Ints,
    Rows,
    count_pieces,
    parted,
    plain_quantifiers,
    together,
)

Form: TypeAlias = Literal["NFC", "NFKC"]


class Tokenizer(abc.ABC):
    """Text to ids and back, without special tokens, exactly as the wrapped library does it."""

    def __init__(self, name: str, fingerprint: str) -> None:
        self.name = name
        self.fingerprint = fingerprint  # sha256 over the files that define the tokenizer
        self._judged: dict[str, bool] = {}  # characters tried so far: whether each is lost

    @property
    @abc.abstractmethod
    def family(self) -> str:
        """What kind of tokenizer it is, in words."""

    @property
    @abc.abstractmethod
    def lossless(self) -> bool:
        """Whether decode(encode(x)) == x holds for every x by construction."""

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text; no special tokens are added."""

    @contextlib.contextmanager
    def _failing_clearly(self) -> Iterator[None]:
        """Turn what the library raises, or panics with, while it encodes into a TokenizerError."""
        try:
            yield
        except BaseException as error:
            if not gave_up(error):
                raise
            said = str(error).partition("\n")[0]
            raise TokenizerError(f"{self.name}: cannot encode this text ({said})") from error

    def encode_texts(self, texts: Sequence[str], alone: bool = False) -> Rows:
        """`encode` as arrays; with `alone` in one thread only, since others want the cores."""
        del alone
        return Rows.of(self.encode(texts))

    @functools.cached_property
    def word_prefix(self) -> str | None:
        """What to put before a word so that it is encoded as inside a text, after a space.

        A space, or "" if the tokenizer adds one itself. None if a text's ids are not those of its
        words in a row, so that words cannot be encoded one by one (`words`).
        """
        return None

    @functools.cached_property
    def across(self) -> frozenset[str]:
        """Strings that betray tokens reaching across words: a text with one is encoded whole."""
        return frozenset()

    def unruly(self, characters: Collection[str]) -> frozenset[str]:
        """The characters that are normalised to a space, to something with a space, or to nothing.

        A word with such a character may become two words, or none, when many are encoded as one
        text.
        """
        del characters
        return frozenset()

    def encode_words(self, words: Sequence[str], begin: bool = False, alone: bool = False) -> Rows:
        """Ids of each of these `plain` words after a space, or with `begin` at a text's beginning.

        Many are encoded as one text, so no word may have an `unruly` character. With `alone`, in
        one thread only.
        """
        prefix = "" if begin else self.word_prefix or ""
        between, marks, each = self._between_first if begin else self._between
        blocks = list(together(words))
        texts = [prefix + between.join(block) for block in blocks]
        rows = self.encode_texts(texts, alone)
        sizes = np.fromiter(map(len, blocks), np.int64, len(blocks))
        firsts = np.cumsum(rows.sizes) - rows.sizes
        if not each and (rows.sums(marks) == sizes).all() and marks[rows.ids[firsts]].all():
            heads = np.flatnonzero(marks.take(rows.ids))
            return Rows(np.diff(heads, append=len(rows.ids)), rows.ids)
        parts = []
        for block, ids in zip(blocks, rows.arrays(), strict=True):
            own = parted(ids, marks, len(block), each)
            # Not separable if, say, the normaliser turned other characters into spaces.
            parts.append(own or self.encode_texts([prefix + word for word in block], alone))
        return Rows.joined(parts)

    @functools.cached_property
    def _between(self) -> tuple[str, NDArray[np.bool_], int]:
        """A separator for words encoded together, which ids mark it, and how many tokens it has.

        0 tokens if the marked ones belong to the words, each of which begins with its space.
        """
        return " ", self.vocabulary.starts_with_space, 0

    @functools.cached_property
    def _between_first(self) -> tuple[str, NDArray[np.bool_], int]:
        """`_between` for words that begin a text.

        After a line's end a word is encoded as at the beginning of a text; the space before the
        line's end keeps it out of the tokens of the previous word.
        """
        if not self.word_prefix:
            return self._between
        blank = [piece in (b" ", b"\n", b" \n") for piece in self.vocabulary.pieces]
        return " \n", np.array(blank), len(self.encode(["a \na"])[0]) - 2

    def pretokens_of_words(self, words: Sequence[str], rows: Rows, begin: bool) -> Ints | None:
        """`pretokens` of `plain` words placed as in `encode_words`, which gave the ids `rows`."""
        del rows
        prefix = "" if begin else self.word_prefix
        return self.pretokens([prefix + word for word in words] if prefix else words)

    def _pieces_of_words(
        self, pattern: str, words: Sequence[str], begin: bool, forms: Collection[Form] = ()
    ) -> Ints | None:
        """`pretokens_of_words` counted by a split pattern, for text normalised to `forms`."""
        texts = list(words) if begin else [f"{self.word_prefix}{word}" for word in words]
        counts = count_pieces(pattern, texts)
        if counts is None:
            return self.pretokens(texts)
        # Left to the library: characters so new that regex engines may differ about them, and
        # words that the normaliser changes before they are cut.
        new = {char for char in set("".join(words)) if unicodedata.category(char) == "Cn"}
        odd = [n for n, word in enumerate(words if new else ()) if not new.isdisjoint(word)]
        for form in forms:
            odd += [n for n, word in enumerate(words) if not is_normalized(form, word)]
        if odd:
            counts[odd] = np.asarray(self.pretokens([texts[number] for number in odd]))
        return counts

    @functools.cached_property
    def shown_unknowns(self) -> frozenset[str]:
        """How UNKs look in decoded text, except those that decode to the text they stand for."""
        silent = self.vocabulary.unknown & self.vocabulary.special
        return frozenset(self.decode([[number]])[0].strip() for number in silent)

    @property
    def spelled_after(self) -> bytes | None:
        """What a text's pieces spell before the text itself, if the text decodes to itself.

        At the beginning, that is; after other words it is a space. None if it is not known.
        """
        return None

    @functools.cached_property
    def not_spelled(self) -> NDArray[np.bool_] | None:
        """The ids that may decode to something other than their pieces; None if any id may."""
        return None

    def gives_back(self, rows: Rows, texts: Sequence[str], begin: bool) -> NDArray[np.bool_]:
        """For each row, whether it decodes to its text; without `begin`, placed after `a `."""
        before = self.spelled_after if begin else b" "
        if self.spelled_after is None or before is None:
            back = np.zeros(len(texts), bool)
        else:
            back = rows.spell(texts, before, self.vocabulary.spelling)
        doubtful = ~back
        if self.not_spelled is not None:
            # An added token may be spelled as the text and yet decode otherwise (Gemma's `▁▁`).
            doubtful = (rows.sums(self.not_spelled) > 0) | (doubtful & (rows.sizes == 0))
        if len(places := np.flatnonzero(doubtful)):
            lead, word = ([], "") if begin else (self.encode(["a"])[0], "a ")
            ids = [lead + row.tolist() for row in rows.chosen(places).arrays()]
            decoded = zip(places.tolist(), self.decode(ids), strict=True)
            back[places] = [word + texts[n] == text for n, text in decoded]
        return back

    @abc.abstractmethod
    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each id sequence, special tokens shown."""

    @abc.abstractmethod
    def pretokens(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
        """How many pieces each text is cut into before any vocabulary is consulted.

        No vocabulary can encode a text in fewer tokens. None where the tokenizer cuts nothing.
        """

    def dropped(self, texts: Sequence[str]) -> NDArray[np.int64] | None:
        """How many characters of each text, spaces aside, no token stands for; None for none.

        Here: those that the normaliser removes, and letters that it turns into other signs.
        """
        lost = self._lost(texts)
        if not lost:
            return None
        return np.array([sum(c in lost for c in text) for text in texts], np.int64)

    def _lost(self, texts: Sequence[str]) -> frozenset[str]:
        """The characters of the texts that the normaliser loses; each is tried only once."""
        judged, normal = self._judged, self._normal
        if normal is None:
            return frozenset()
        characters: frozenset[str] = frozenset().union(*texts)
        with self._failing_clearly():
            judged.update((c, is_lost(c, normal(c))) for c in characters - judged.keys())
        return frozenset(filter(judged.__getitem__, characters))

    @functools.cached_property
    def _normal(self) -> Callable[[str], str] | None:
        """The normaliser, to be tried on single characters; None if it is known to lose none."""
        return None

    @functools.cached_property
    @abc.abstractmethod
    def vocabulary(self) -> Vocabulary:
        """Each token as bytes."""

    @abc.abstractmethod
    def clean_vocabulary(self) -> frozenset[bytes]:
        """The vocabulary as the paper compares it (see `vocabulary.py`)."""

    @property
    def raw_bytes(self) -> bool:
        """Whether the paper reads this vocabulary as raw bytes instead of decoded strings."""
        return False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.family}, {len(self.vocabulary)} tokens>"


def pretoken_counter(pre_tokenizer: Any, normalizer: Any = None) -> Any:
    """A `tokenizers` pipeline in which every pre-token becomes exactly one token.

    Counting its output in Rust batches is several times faster than `pre_tokenize_str`.
    """
    from tokenizers import Tokenizer as Pipeline
    from tokenizers.models import WordLevel

    counter = Pipeline(WordLevel({"?": 0}, unk_token="?"))  # noqa: S106
    counter.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        counter.normalizer = normalizer
    return counter


def count_batch(pipeline: Any, texts: Sequence[str]) -> NDArray[np.int64]:
    """Number of tokens of each text."""
    encodings = pipeline.encode_batch_fast(list(texts), add_special_tokens=False)
    return np.fromiter(map(len, encodings), np.int64, len(texts))


def for_oniguruma(pattern: str) -> str:
    r"""Rewrite a tiktoken pattern for the regex engine of `tokenizers`.

    Oniguruma reads `{1,3}+` as "repeat", not as possessive, and `$` as end of line. Possessive
    quantifiers only save backtracking in these patterns, so plain ones match the same text.
    """
    return re.sub(r"(?<!\\)\$", r"\\z", plain_quantifiers(pattern))


#: Text on which programs that encode tend to differ: numbers, contractions, case, spaces, marks …
AWKWARD = (
    "1234567 12 3.14 1,000,000 2026-11-16", "I'M don't WE'LL they've it's O'Neill 'tis",
    "'Storage 'tis\n'Made ('Text' 'Led') a'Re", "camelCase HTTPServer snake_case kebab-case",
    "a  b   c    \n\n  d\r\n\te \t\n",
    "for (int i=0; i<10; ++i) { x[i] += f(i)*2; } // done\n", "def f(x):\n    return x**2\n\n\n",
    "…—–«»„“” !!! ??? (a) [b] {c} <d>", "naïve café ESPAÑA ÉCOLE МоскваКиев", "👍🏽 ❤️ 👩‍👩‍👧 #️⃣",
    "https://example.org/a?b=c&d=%20e", "C'est l'été à l'école.", "हिन्दी में लिखा।", "தமிழ்நாடு",
    "ภาษาไทย", "မြန်မာဘာသာ", "ၵႂၢမ်းတႆး", "العربيّة", "עִבְרִית", "한국어 中文 日本語かな", "አማርኛ፡ቋንቋ",
    "क्‍ष ന്‍ می‌خواهم 🏃‍♂️🏃‍♂️", "x\u0301 \u0301x 1\u0301x .\u0301x ၵ.်ၵ", "a/b\n//\n x\n\n\n\ty \r\n z",
    "O'Reilly D'Artagnan erra'tsena aya'da wu'du O’Reilly", "a\n  ", "x\n\t\n\t\t",
    "Y'ALL'D'VE we're WE'RE you'll YOU'LL I'd'a shan't 'twas o'clock rock'n'roll l'été qu'il",
    "iPhone在iOS上 GPT模型v2 κόσμοςworld мирworld नमस्ते2026 ৩x३ ABCабвαβγ 東京2026年 العربيةABC",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """How many of the lines got other ids, and the first of those."""

    wrong: int
    lines: int
    line: str


def difference(
    read: Callable[[str], list[int]], lines: Sequence[str], ids: Sequence[list[int]]
) -> Difference | None:
    """The lines that `read` does not encode as `ids`, the tokenizer's own, or None if it agrees."""
    wrong = [line for line, own in zip(lines, ids, strict=True) if read(line) != own]
    return Difference(len(wrong), len(lines), wrong[0]) if wrong else None


def is_lost(char: str, normal: str) -> bool:
    """Whether normalising `char` to `normal` loses it: nothing is left of it.

    Of a letter or mark, a part of the decomposed, case-folded character must be left.
    """
    kind = unicodedata.category(char)[0]
    if kind in "ZC" or char == SPACE_MARK:
        return False
    left = "".join(normal.split()).replace(SPACE_MARK, "")
    return not (set(_bare(char)) & set(_bare(left)) if kind in "LM" else left)


def _bare(text: str) -> str:
    return unicodedata.normalize("NFKD", text).casefold()
