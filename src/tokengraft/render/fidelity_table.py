r"""A grid of strategies in the paper's own form: LaTeX, cells coloured, its figures beside ours.

The paper colours by ColorBrewer's reds, light where the cosine is high. Colours come from
`report.latex`, whose digits are the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokengraft.render.latex import colours

_TITLES = {"knn": "KNN", "linear": "LinReg", "local-linear": "LocalLinReg"}
_OURS = r"{\cellcolor[HTML]{%s}} \color[HTML]{%s} %s"
_THEIRS = r" {\tiny %s}"


@dataclass(frozen=True)
class Row:
    """One strategy: values by column (None: not measured), the paper's where it has them."""

    layer: int
    strategy: str
    k: int | None
    ours: Mapping[str, float | None]
    paper: Mapping[str, float | None]


def table(
    rows: Sequence[Row],
    columns: Sequence[str],
    shares: Mapping[str, float],
    caption: str,
    label: str,
    higher: bool = True,
) -> str:
    r"""The table as a float; its first lines name the packages it needs.

    `columns` are language codes; the mean comes before them. `shares` are percentages of new
    tokens. Light cells are good ones.
    """
    every = ["mean", *columns]
    values = [v for row in rows for v in row.ours.values() if v is not None]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    beside = any(v is not None for row in rows for v in row.paper.values())
    heads = [
        rf"\makecell{{{code[:3]}\\{shares[code]:.0f}\%}}" if code in shares else code[:3]
        for code in columns
    ]
    lines = [
        r"% Needs: \usepackage{multirow,makecell} \usepackage[table]{xcolor}",
        r"\begin{table*}",
        r"\centering\scriptsize\setlength{\tabcolsep}{2pt}",
        rf"\begin{{tabular}}{{rrrr|{'r' * len(columns)}}}",
        rf"& & & & \multicolumn{{{len(columns)}}}{{c}}"
        r"{Language plus \% of new tokens in encodings} \\",
        " & ".join([r"\makecell{Layer}", "Strategy", "$k$", "Mean", *heads]) + r" \\",
        r"\hline",
    ]
    for place, row in enumerate(rows):
        before = rows[place - 1] if place else None
        new_layer = before is None or before.layer != row.layer
        new_strategy = new_layer or before is None or before.strategy != row.strategy
        if new_layer and before is not None:
            lines.append(r" \hline")
        first = _span(str(row.layer), sum(r.layer == row.layer for r in rows)) if new_layer else ""
        alike = sum((r.layer, r.strategy) == (row.layer, row.strategy) for r in rows)
        title = _TITLES.get(row.strategy, row.strategy)
        second = _span(title, alike) if new_strategy else ""
        cells = [_cell(row.ours.get(c), row.paper.get(c), low, high, higher, beside) for c in every]
        k = "" if row.k is None else str(row.k)
        lines.append(" & ".join([first, second, k, *cells]) + r" \\")
    lines += [
        r"\end{tabular}", rf"\caption{{{caption}}}", rf"\label{{table:{label}}}", r"\end{table*}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def printed(value: float) -> str:
    """As the paper prints a cosine: three decimals, no leading zero."""
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def _span(text: str, count: int) -> str:
    return rf"\multirow[c]{{{count}}}{{*}}{{{text}}}" if count > 1 else text


def _cell(
    value: float | None, paper: float | None, low: float, high: float, higher: bool, beside: bool
) -> str:
    theirs = _THEIRS % printed(paper) if beside and paper is not None else ""
    if value is None:
        return "---" + theirs
    share = (value - low) / (high - low) if high > low else 0.0
    background, text = colours(1 - share if higher else share)
    return _OURS % (background, text, printed(value)) + theirs
