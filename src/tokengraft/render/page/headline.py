"""The sentences at the top of the page, each a finding computed from the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from tokengraft.core.wording import counted

Cell = tuple[float, int, int]  # premium, tokenizer, language


def headline(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Title, standfirst and three figures of an audit; only what its numbers say."""
    cells = _honest(audit)
    pivot = audit["languages"][audit["pivot"]]["name"]
    if not cells:
        lost, most = _lost(audit)
        title = f"No language shares a line of text with {pivot}"
        if lost:
            verb = "is lost to" if lost == most else "loses text to"
            title = f"Every language but {pivot} {verb} UNK"
        return {"title": title, "lead": "", "figures": []}
    value, tokenizer, language = max(cells)
    worst = audit["languages"][language]["name"]
    label = audit["tokenizers"][tokenizer]["label"]
    fair = _fairest(audit, cells)
    return {
        "title": _title(value, worst, pivot),
        "lead": _lead(audit, cells, label, fair, pivot),
        "figures": _figures(audit, cells, fair, pivot),
        "worst": language,
        "tokenizer": tokenizer,
    }


def _lead(
    audit: Mapping[str, Any], cells: Sequence[Cell], label: str, fair: int, pivot: str
) -> str:
    above, total = _above(cells, fair)
    text = (
        f"That is {label}’s count, and tokens are what models charge for and what fills their "
        f"memory. "
    )
    name, lost = audit["tokenizers"][fair]["label"], audit["bad"][fair].count("1")
    if len(audit["tokenizers"]) > 1 and not lost:
        text += (
            f"Even {name}, the fairest of the tokenizers measured here that can write every "
            f"language, makes {above} of {counted(total, 'language')} pay more than double what "
            f"{pivot} pays."
        )
    elif len(audit["tokenizers"]) > 1:
        text += (
            f"Every tokenizer measured here loses text to UNK in some language. Even {name}, "
            f"which does so in the fewest ({lost}), makes {above} of the other {total} pay more "
            f"than double what {pivot} pays."
        )
    elif total > 1:
        text += f"It makes {above} of {total} languages pay more than double what {pivot} pays."
    return text.rstrip()


def _figures(
    audit: Mapping[str, Any], cells: Sequence[Cell], fair: int, pivot: str
) -> list[dict[str, str]]:
    value, tokenizer, language = max(cells)
    figures = [
        {
            "number": f"{value:.1f}×",
            "words": f"{audit['languages'][language]['name']} on "
            f"{audit['tokenizers'][tokenizer]['label']}, the highest premium",
        }
    ]
    several = len(audit["tokenizers"]) > 1
    if several:
        figures.append(_typical(cells, pivot))
    own = [value for value, t, _ in cells if t == fair]
    lost, most = _lost(audit)
    # The lead counts the languages above 2× on the fairest tokenizer; the figures need not again.
    if len(own) > 1 and not (several and lost):
        on = f" on {audit['tokenizers'][fair]['label']}, the fairest" if several else ""
        figures.append(
            {
                "number": f"{median(own):.1f}×",
                "words": f"the median premium of {counted(len(own), 'language')}{on}",
            }
        )
    if lost:
        pairs = f"{'pair' if lost == 1 else 'pairs'} of language and tokenizer"
        what = pairs if several else "language" if lost == 1 else "languages"
        extent = f"; in {most:,} of them most of it" if lost > most > 0 else ""
        figures.append(
            {
                "number": f"{lost:,}",
                "words": f"{what} where {'most' if lost == most else 'part'} of the text is not "
                f"encoded but thrown away (UNK){extent}",
            }
        )
    return figures


def _typical(cells: Sequence[Cell], pivot: str) -> dict[str, str]:
    premiums: dict[int, list[float]] = {}
    for value, _, language in cells:
        premiums.setdefault(language, []).append(value)
    share = sum(median(values) > 2 for values in premiums.values()) / len(premiums)
    return {
        "number": f"{share:.0%}",
        "words": f"of {counted(len(premiums), 'language')} pay more than double what {pivot} "
        "pays on the typical tokenizer",
    }


def _lost(audit: Mapping[str, Any]) -> tuple[int, int]:
    """How many cells UNK spoils, and in how many of them most of the text is lost."""
    shares = [
        share
        for row, bad in zip(audit["cells"]["unk"], audit["bad"], strict=True)
        for share, mark in zip(row, bad, strict=True)
        if mark == "1"
    ]
    return len(shares), sum(share >= audit["unkMost"] for share in shares)


def _honest(audit: Mapping[str, Any]) -> list[Cell]:
    return [
        (value, t, n)
        for t, row in enumerate(audit["cells"]["premium"])
        for n, value in enumerate(row)
        if value is not None and audit["bad"][t][n] == "0" and n != audit["pivot"]
    ]


def _fairest(audit: Mapping[str, Any], cells: Sequence[Cell]) -> int:
    """The tokenizer with the fewest languages above 2×, among those UNK spoils least."""
    lost = [row.count("1") for row in audit["bad"]]
    there = {t for _, t, _ in cells}
    return min(there, key=lambda t: (lost[t], _above(cells, t)[0]))


def _above(cells: Sequence[Cell], tokenizer: int) -> tuple[int, int]:
    own = [value for value, t, _ in cells if t == tokenizer]
    return sum(value > 2 for value in own), len(own)


def _title(value: float, worst: str, pivot: str) -> str:
    if value < 1:
        return f"No language here takes as many tokens as {pivot}"
    if value < 1.05:
        return f"The same words cost as many tokens in {worst} as in {pivot}"
    return f"The same words cost {_times(value)} as many tokens in {worst} as in {pivot}"


def _times(value: float) -> str:
    words = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    near = round(value)
    if value >= 9.95:
        return f"{words[near] if near <= 10 else near} times"
    return f"{words[near]} times" if near > 1 and abs(value - near) < 0.05 else f"{value:.1f} times"
