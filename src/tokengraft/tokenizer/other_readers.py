"""Another program's reading of text held against `tokenizer.json`'s own: every line, or a refusal.

llama.cpp, SentencePiece and servers read a tokenizer from other files, or cut text by code of their
own. Whether they agree is never inferred: they read lines, and the ids must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: Where readers differ: numbers, contractions, cases, spaces, line ends, signs, marks, code.
AWKWARD = (
    "1234567 12 3.14 1,000,000 2026-11-16", "I'M don't WE'LL they've it's O'Neill 'tis",
    "'Storage 'tis\n'Made ('Text' 'Led') a'Re", "camelCase HTTPServer snake_case kebab-case",
    "a  b   c    \n\n  d\r\n\te \t\n",
    "for (int i=0; i<10; ++i) { x[i] += f(i)*2; } // done\n", "def f(x):\n    return x**2\n\n\n",
    "…—–«»„“” !!! ??? (a) [b] {c} <d>", "naïve café ESPAÑA ÉCOLE МоскваКиев", "👍🏽 ❤️ 👩‍👩‍👧 #️⃣",
    "https://example.org/a?b=c&d=%20e", "C'est l'été à l'école.", "हिन्दी में लिखा।", "தமிழ்நாடு",
    "ภาษาไทย", "မြန်မာဘာသာ", "ၵႂၢမ်းတႆး", "العربيّة", "עִבְרִית", "한국어 中文 日本語かな", "አማርኛ፡ቋንቋ",
    "क्‍ष ന്‍ می‌خواهم 🏃‍♂️🏃‍♂️", "x\u0301 \u0301x 1\u0301x .\u0301x ၵ.်ၵ", "a/b\n//\n x\n\n\n\ty \r\n z",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """How many of some lines got other ids, and the first of them."""

    wrong: int
    lines: int
    line: str


def difference(
    read: Callable[[str], list[int]], lines: Sequence[str], ids: Sequence[list[int]]
) -> Difference | None:
    """What `read` encodes otherwise than `ids`, the tokenizer's own of each line, or None."""
    wrong = [line for line, own in zip(lines, ids, strict=True) if read(line) != own]
    return Difference(len(wrong), len(lines), wrong[0]) if wrong else None
