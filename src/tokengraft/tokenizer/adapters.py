"""One interface to the tokenizer libraries; an adapter only calls its library.

Other programs (llama.cpp, SentencePiece, servers) read a tokenizer from other files, or cut text by
their own code. Whether they agree with it is never inferred: both encode lines of text, and the ids
must be the same (`difference`).
"""

from __future__ import annotations

import abc
import contextlib
import functools
import random
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import EncoderDiffers, TokenizerError, gave_up
from tokengraft.tokenizer import fast
from tokengraft.tokenizer.rows import (
    Ints,
    Rows,
    characters,
    count_pieces,
    holding,
    plain_quantifiers,
)
from tokengraft.tokenizer.vocabulary import SPACE_MARK, Vocabulary


class Tokenizer(abc.ABC):
    """Text to ids and back, without special tokens, exactly as the wrapped library does it."""

    library = "tokengraft"  # the distribution that it wraps

    def __init__(self, name: str, fingerprint: str) -> None:
        self.name = name
        self.fingerprint = fingerprint  # sha256 over the files that define the tokenizer
        self.chance: random.Random | None = None  # for samples; None: not predictable
        self._judged: dict[str, bool] = {}  # characters tried so far: whether each is lost
        self._fast: fast.Fast | None = None
        self._sought = False  # whether a faster encoder was looked for

    @property
    @abc.abstractmethod
    def family(self) -> str:
        """What kind of tokenizer it is, in words."""

    @property
    @abc.abstractmethod
    def lossless(self) -> bool:
        """Whether decode(encode(x)) == x holds for every x by construction."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text; no special tokens are added."""
        self.hasten(sum(map(len, texts)))
        return self._encode(texts) if self._fast is None else self.encode_texts(texts).lists()

    @abc.abstractmethod
    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` by the wrapped library, which is the reference for any faster one."""

    def _encode_texts(self, texts: Sequence[str], alone: bool = False) -> Rows:
        """`_encode` as arrays; with `alone` in one thread only, since others want the cores."""
        del alone
        return Rows.of(self._encode(texts))

    @property
    def encoder(self) -> str:
        """Library and version that encode: a faster one, or the wrapped one."""
        return self._fast.name if self._fast else reference_of(self.library)

    def hasten(self, text: int) -> None:
        """Look for a faster encoder, unless it was looked for or `text` characters are too few."""
        if self._sought or text < fast.WORTH:
            return
        self._sought = True
        self._fast = fast.find_fast(
            self.fingerprint, self._definition, self._encode_texts, self._probe
        )

    def _probe(self) -> list[str]:
        return fast.probe(self.fingerprint, AWKWARD, self.vocabulary.pieces)

    def by_reference(self) -> None:
        """From now on, encode with the wrapped library only."""
        self._sought, self._fast = True, None

    def refute(self, where: str) -> None:
        """Take it that the faster encoder gives other ids, say so, and never use it again."""
        if self._fast is not None:
            fast.refute(self._fast.name, self.fingerprint)
            warnings.warn(
                f"{self._fast.name} gives other ids than {reference_of(self.library)} for "
                f"{self.name} ({where}); everything is encoded with the latter.",
                EncoderDiffers,
                stacklevel=2,
            )
            self.by_reference()

    def encode_texts(
        self, texts: Sequence[str], alone: bool = False, sample: Sequence[int] | None = None
    ) -> Rows:
        """`encode` as arrays; with `alone` in one thread only, since others want the cores.

        What a faster encoder gives is compared with the wrapped library's ids on the texts of these
        numbers, by default on a random sample.
        """
        if (quick := self._fast) is None or not fast.usable(quick.name):
            return self._encode_texts(texts, alone)
        if sample is None:
            sample = fast.sample([len(texts)], self.chance)
        if 2 * len(sample) > len(texts):  # nothing is gained
            return self._encode_texts(texts, alone)
        try:
            rows = quick.encode(texts, alone)
            if avoided := quick.avoided and quick.avoided & characters(texts):
                left = holding(texts, avoided)
                own = [texts[number] for number in left]
                rows = rows.replaced(left, self._encode_texts(own, alone))
        except BaseException as error:
            if not gave_up(error):
                raise
            return self._encode_texts(texts, alone)
        own = [texts[number] for number in sample]
        checked = self._encode_texts(own, alone)
        if len(rows.sizes) == len(texts) and rows.chosen(sample).same(checked):
            return rows
        self.refute(f"in a sample of {len(sample)} of {len(texts)} lines")
        return self._encode_texts(texts, alone)

    def _definition(self) -> fast.Definition | None:
        """What a faster library would load; None if there is no such library."""
        return None

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

    @functools.cached_property
    def shown_unknowns(self) -> frozenset[str]:
        """How UNKs look in decoded text, except those that decode to the text they stand for."""
        silent = self.vocabulary.unknown & self.vocabulary.special
        return frozenset(self.decode([[number]])[0].strip() for number in silent)

    @property
    def spelled_after(self) -> bytes | None:
        """What a text's pieces spell before the text itself, if the text decodes to itself.

        None if it is not known.
        """
        return None

    @functools.cached_property
    def not_spelled(self) -> NDArray[np.bool_] | None:
        """The ids that may decode to something other than their pieces; None if any id may."""
        return None

    def gives_back(self, rows: Rows, texts: Sequence[str]) -> NDArray[np.bool_]:
        """For each row, whether it decodes to its text."""
        if self.spelled_after is None:
            back = np.zeros(len(texts), bool)
        else:
            back = rows.spell(texts, self.spelled_after, self.vocabulary.spelling)
        doubtful = ~back
        if self.not_spelled is not None:
            # An added token may be spelled as the text and yet decode otherwise (Gemma's `▁▁`).
            doubtful = (rows.sums(self.not_spelled) > 0) | (doubtful & (rows.sizes == 0))
        if len(places := np.flatnonzero(doubtful)):
            ids = [row.tolist() for row in rows.chosen(places).arrays()]
            decoded = zip(places.tolist(), self.decode(ids), strict=True)
            back[places] = [texts[n] == text for n, text in decoded]
        return back

    @abc.abstractmethod
    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each id sequence, special tokens shown."""

    @abc.abstractmethod
    def pretokens(self, texts: Sequence[str], rows: Rows | None = None) -> Ints | None:
        """How many pieces each text is cut into before any vocabulary is consulted.

        No vocabulary can encode a text in fewer tokens. None where the tokenizer cuts nothing.
        `rows` are the texts' ids, if they are known.
        """

    def _pieces(
        self, pattern: str, texts: Sequence[str], by_library: Callable[[Sequence[str]], Ints],
        normal: Sequence[str] | None = None,
    ) -> Ints:  # fmt: skip
        """`pretokens` counted by a split pattern, on the texts as they are, or as normalised.

        What the pattern alone does not decide is left to the library.
        """
        counted = count_pieces(pattern, texts if normal is None else normal)
        if counted is None:
            return by_library(texts)
        counts, left = counted
        if len(left):
            counts[left] = by_library([texts[number] for number in left.tolist()])
        return counts

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
        present = characters(texts)
        with self._failing_clearly():
            judged.update((c, is_lost(c, normal(c))) for c in present - judged.keys())
        return frozenset(filter(judged.__getitem__, present))

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


@functools.cache
def reference_of(library: str) -> str:
    """A library with its version."""
    try:
        return f"{library} {version(library)}"
    except PackageNotFoundError:
        return library


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
