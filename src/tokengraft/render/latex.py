"""Tables in LaTeX, set with booktabs, their cells coloured as in the paper's premium table."""

from __future__ import annotations

from collections.abc import Sequence

from tokengraft.render.colours import luminance, mix, rgb
from tokengraft.render.tables import Cell, Printed

_LONG = 40  # rows; a longer table breaks over pages
PORTRAIT, LANDSCAPE = 455.0, 660.0  # points across the text of A4 with margins of an inch
#: Opens a box that is shrunk to the width of the line if it is wider.
SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
_COLOURED = ("premiums", "premiums_compact", "cost", "jaccard", "containment")

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


def in_latex(text: str) -> str:
    """`text` with everything escaped that LaTeX would take as a command."""
    return "".join(_SPECIAL.get(character, character) for character in text)


def latex(table: Printed) -> str:
    r"""The table as a float, or as a `longtable` when it has more than 40 rows.

    The file is meant for `\input`; its first lines name the packages it needs. A float wider than
    the line is shrunk to it, a narrower one keeps its size.
    """
    width = len(table.header)
    columns = "l" * table.left + "r" * (width - table.left)
    values = [cell.value for row in table.rows for cell in row if cell.value is not None]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    shade = table.name in _COLOURED and high > low
    heading = _line([rf"\textbf{{{in_latex(title)}}}" if title else "" for title in table.header])
    body = []
    for row in table.rows:
        cells = [_cell(cell, low, high, shade) for cell in row]
        if table.codes is not None:
            cells[table.codes] = rf"\texttt{{{cells[table.codes]}}}"
        body.append(_line(cells))
    caption = rf"\caption{{{in_latex(table.caption)}.}}"
    label = rf"\label{{table:{table.name}}}"
    notes = [rf"\emph{{{in_latex(note)}}}" for note in table.notes]
    long = len(table.rows) > _LONG
    size = r"\scriptsize" if width > 9 else r"\footnotesize"
    # A float can be shrunk to the line; a table that runs over several pages cannot.
    size, turned = _fitting(table) if long else (size, False)
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


def _fitting(table: Printed) -> tuple[str, bool]:
    """The largest type in which the table fits a page's width, and whether the page is turned.

    Widths are estimated: half the type size per character, a little more in bold headings, plus the
    space between columns.
    """
    longest = [
        max([1.15 * len(title), *(len(c.text) + 0.7 * len(c.beside) for c in column)])
        for n, title in enumerate(table.header)
        for column in [[row[n] for row in table.rows]]
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
    # Matplotlib's map has 256 colours; the same steps give exactly the paper's hex digits.
    background = mix(_REDS, min(int(share * 256), 255) / 255)
    text = "F1F1F1" if luminance(rgb(background)) < _DARK else "000000"
    return background[1:].upper(), text


def _cell(cell: Cell, low: float, high: float, shade: bool) -> str:
    beside = rf" {{\tiny {in_latex(cell.beside)}}}" if cell.beside else ""
    if cell.spoilt:
        return _SPOILT + in_latex(cell.text + "†") + beside
    if not shade or cell.value is None:
        return in_latex(cell.text) + beside
    background, text = colours((cell.value - low) / (high - low))
    colour = rf"{{\cellcolor[HTML]{{{background}}}}} \color[HTML]{{{text}}}"
    return f"{colour} {in_latex(cell.text)}{beside}"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
