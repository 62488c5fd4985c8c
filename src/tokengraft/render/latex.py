"""Printed tables as LaTeX: booktabs, cells coloured as in the paper's premium table."""

from __future__ import annotations

from collections.abc import Sequence

from tokengraft.render.colours import luminance, mix, rgb
from tokengraft.render.tables import Cell, Printed

LONG = 40  # rows; a longer table breaks over pages
PORTRAIT, LANDSCAPE = 455.0, 660.0  # points across the text of A4 with margins of an inch
#: Opens a box that is shrunk to the line where it is wider.
SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
COLOURED = ("premiums", "cost", "jaccard", "containment")

# ColorBrewer's nine reds, which the paper's table uses through matplotlib and pandas.
_REDS = (
    "#fff5f0", "#fee0d2", "#fcbba1", "#fc9272", "#fb6a4a", "#ef3b2c", "#cb181d", "#a50f15",
    "#67000d",
)  # fmt: skip
_DARK = 0.409  # luminance below which pandas, and so the paper, sets white text (.408 unrounded)
_SPOILT = r"{\cellcolor[HTML]{E3E3E3}} \color[HTML]{6B6B6B} "
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "†": r"\textsuperscript{\dag}",
    "×": r"$\times$",
    "—": "---",
    "–": "--",
    "−": "$-$",
    "→": r"$\to$",
    "…": r"\dots{}",
    "’": "'",
    "ʼ": "'",
    "·": r"\textperiodcentered{}",
} | {special: "\\" + special for special in "&%$#_{}"}


def escape(text: str) -> str:
    """`text` with everything that LaTeX would take as a command made literal."""
    return "".join(_SPECIAL.get(character, character) for character in text)


def latex(table: Printed) -> str:
    r"""The table as a float, or as a `longtable` when it has more than 40 rows.

    The file is meant for `\input`; its first lines name the packages it needs. A float wider than
    the line is shrunk to it, a narrower one keeps its size.
    """
    width = len(table.header)
    columns = "l" * table.left + "r" * (width - table.left)
    low, high = _range(table)
    shade = table.name in COLOURED and high > low
    heading = _line([rf"\textbf{{{escape(title)}}}" if title else "" for title in table.header])
    body = [_line(_cells(table, row, low, high, shade)) for row in table.rows]
    caption = rf"\caption{{{escape(table.caption)}.}}"
    label = rf"\label{{table:{table.name}}}"
    notes = [rf"\emph{{{escape(note)}}}" for note in table.notes]
    long = len(table.rows) > LONG
    size = r"\scriptsize" if width > 9 else r"\footnotesize"
    turned = False
    if long:  # a float is shrunk to the line, a table over several pages cannot be
        size, turned = fitting(table)
    lines = [
        "% Needs: \\usepackage{booktabs,graphicx,longtable} \\usepackage[table]{xcolor}"
        + (" \\usepackage{pdflscape}" if turned else ""),
        "% pdfLaTeX needs \\usepackage[T1]{fontenc} for accented names.",
    ]
    if long:
        again = rf"\multicolumn{{{width}}}{{r}}{{\emph{{continued}}}} \\"
        lines += [
            *([r"\begin{landscape}"] if turned else []),
            rf"\begingroup{size}\setlength{{\tabcolsep}}{{3pt}}",
            rf"\begin{{longtable}}{{{columns}}}",
            *(caption + label + r" \\", r"\toprule", heading, r"\midrule", r"\endfirsthead"),
            *(r"\toprule", heading, r"\midrule", r"\endhead"),
            *(r"\midrule", again, r"\endfoot", r"\bottomrule", r"\endlastfoot"),
            *body,
            r"\end{longtable}",
            *(rf"\noindent {note}\par" for note in notes),
            r"\endgroup",
            *([r"\end{landscape}"] if turned else []),
        ]
    else:
        lines += [
            r"\begin{table*}",
            rf"\centering{size}\setlength{{\tabcolsep}}{{3pt}}",
            SHRUNK,
            rf"\begin{{tabular}}{{{columns}}}",
            *(r"\toprule", heading, r"\midrule"),
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            *(rf"\par\smallskip {note}" for note in notes),
            caption,
            label,
            r"\end{table*}",
        ]
    return "\n".join(lines) + "\n"


def fitting(table: Printed) -> tuple[str, bool]:
    """The largest type in which the table fits a page's width, and whether the page is turned.

    Widths are estimated: half the type's size a character, bold headings a little more, and the
    space between columns.
    """
    longest = [
        max([1.15 * len(title), *(len(row[n].text) for row in table.rows)])
        for n, title in enumerate(table.header)
    ]
    for name, points, turned in (
        ("footnotesize", 8.0, False), ("scriptsize", 7.0, False), ("scriptsize", 7.0, True),
    ):  # fmt: skip
        room = LANDSCAPE if turned else PORTRAIT
        if sum(longest) * 0.5 * points + 6 * len(longest) <= room:
            return rf"\{name}", turned
    return r"\tiny", True


def colours(share: float) -> tuple[str, str]:
    """Background and text colour (six hex digits) at `share` of the scale from white to red."""
    # Matplotlib's map has 256 colours; the same steps give the paper's very digits.
    background = mix(_REDS, min(int(share * 256), 255) / 255)
    text = "F1F1F1" if luminance(rgb(background)) < _DARK else "000000"
    return background[1:].upper(), text


def _cells(table: Printed, row: Sequence[Cell], low: float, high: float, shade: bool) -> list[str]:
    return [
        rf"\texttt{{{escape(cell.text)}}}" if n == table.codes else _cell(cell, low, high, shade)
        for n, cell in enumerate(row)
    ]


def _cell(cell: Cell, low: float, high: float, shade: bool) -> str:
    if cell.spoilt:
        return _SPOILT + escape(cell.text + "†")
    if not shade or cell.value is None:
        return escape(cell.text)
    background, text = colours((cell.value - low) / (high - low))
    return rf"{{\cellcolor[HTML]{{{background}}}}} \color[HTML]{{{text}}} {escape(cell.text)}"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _range(table: Printed) -> tuple[float, float]:
    values = [cell.value for row in table.rows for cell in row if cell.value is not None]
    return (min(values), max(values)) if values else (0.0, 0.0)
