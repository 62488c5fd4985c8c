"""The sentences at the top of the page, each a finding computed from the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from tokengraft.wording import counted

Cell = tuple[float, int, int]  # premium, tokenizer, language


def headline(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Title, standfirst and three figures of an audit; only what its numbers say."""
    cells = _honest(audit)
    pivot = audit["languages"][audit["pivot"]]["name"]
    if not cells:
        spoilt = any("1" in row for row in audit["bad"])
        title = (
            f"Every language but {pivot} is lost to UNK"
            if spoilt
            else f"No language shares a line of text with {pivot}"
        )
        return {"title": title, "lead": "", "figures": []}
    value, tokenizer, language = max(cells)
    worst = audit["languages"][language]["name"]
    label = audit["tokenizers"][tokenizer]["label"]
    fair = _fairest(audit, cells)
    return {
        "title": f"The same words cost {_times(value)} as many tokens in {worst} as in {pivot}",
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
            f"No tokenizer measured here can write every language. Even {name}, which loses the "
            f"fewest to UNK ({lost}), makes {above} of the other {total} pay more than double what "
            f"{pivot} pays."
        )
    else:
        text += (
            f"It makes {above} of {counted(total, 'language')} pay more than double what {pivot} "
            "pays."
        )
    return text


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
    typical: dict[int, list[float]] = {}
    for cell in cells:
        typical.setdefault(cell[2], []).append(cell[0])
    share = sum(median(values) > 2 for values in typical.values()) / len(typical)
    figures.append(
        {
            "number": f"{share:.0%}",
            "words": f"of {counted(len(typical), 'language')} pay more than double what {pivot} "
            "pays on the typical tokenizer",
        }
    )
    lost = sum(row.count("1") for row in audit["bad"])
    if lost:
        figures.append(
            {
                "number": f"{lost:,}",
                "words": f"{'pair' if lost == 1 else 'pairs'} of language and tokenizer where the "
                "text is not encoded but thrown away (UNK)",
            }
        )
    else:
        above, total = _above(cells, fair)
        figures.append(
            {
                "number": f"{above}",
                "words": f"of {counted(total, 'language')} above 2× on "
                f"{audit['tokenizers'][fair]['label']}",
            }
        )
    return figures


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


def _times(value: float) -> str:
    words = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    near = round(value)
    return f"{words[near] if near <= 10 else near} times" if value >= 1.95 else f"{value:.1f} times"
