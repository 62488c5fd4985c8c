"""Tables as data (CSV, Parquet, JSON) and as print (Markdown, LaTeX).

LaTeX is set with booktabs, its cells coloured as in the paper's premium table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tokengraft.auditing.frames import UNK_LIMIT
from tokengraft.core.files import write_text, writing
from tokengraft.core.wording import as_csv, in_cell, in_markdown
from tokengraft.languages.codes import language_name
from tokengraft.render.colours import luminance, mix, rgb
from tokengraft.render.selection import (
    by_cost,
    column_order,
    comparable_note,
    credit,
    labels,
    pivot_name,
    printed_code,
    units,
)

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables

_NOTEBOOK_ROWS = 20  # of a table that a notebook shows


@dataclass(frozen=True)
class Cell:
    """A printed cell: its text, its value for the colour scale, whether UNK spoils it."""

    text: str
    value: float | None = None
    spoilt: bool = False


@dataclass(frozen=True)
class Printed:
    """A table as a reader sees it; Markdown and LaTeX are two renderings of it."""

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    left: int = 1  # how many leading columns hold text, set flush left
    codes: int | None = None  # the column that holds language codes, set in typewriter
    notes: Sequence[str] = ()


def write_data(frame: pl.DataFrame, stem: Path) -> list[Path]:
    """Write `frame` as `stem`.csv, .parquet and .json without loss of precision.

    CSV holds the shortest decimal that reads back as the same float, null as nothing and the empty
    string as `""`. JSON is a list of records, one per line, NaN and infinities as null.
    """
    csv, parquet = write_text(stem.with_suffix(".csv"), as_csv(frame)), stem.with_suffix(".parquet")
    with writing(parquet) as temporary, temporary.open("wb") as file:
        frame.write_parquet(file)  # polars takes no path that is not UTF-8
    lines = ",\n".join(json.dumps(_plain(row), ensure_ascii=False) for row in frame.to_dicts())
    return [csv, parquet, write_text(stem.with_suffix(".json"), f"[\n{lines}\n]\n")]


def read_data(folder: Path, name: str) -> Callable[[], pl.DataFrame] | None:
    """A function that reads a saved run's table in its most exact form; None if there is none."""
    parquet, csv = (folder / "tables" / f"{name}.{suffix}" for suffix in ("parquet", "csv"))
    if parquet.is_file():
        return lambda: pl.read_parquet(parquet.read_bytes())
    return (lambda: pl.read_csv(csv.read_bytes())) if csv.is_file() else None


def html(title: str, frame: pl.DataFrame) -> str:
    """The first rows of a table for a notebook, under a title; all content is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in frame.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row) + "</tr>"
        for row in frame.head(_NOTEBOOK_ROWS).rows()
    )
    rest = frame.height - _NOTEBOOK_ROWS
    more = f"<p>… and {rest:,} more rows</p>" if rest > 0 else ""
    return f"<p>{escape(title)}</p><table><tr>{head}</tr>{rows}</table>{more}"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else f"{value:,}" if type(value) is int else str(value)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


def markdown(table: Printed) -> str:
    """The table in Markdown with its caption above and notes below."""
    aligned = [":---" if n < table.left else "---:" for n in range(len(table.header))]
    lines = [list(map(in_cell, table.header)), aligned]
    lines += [[in_cell(c.text) + ("†" if c.spoilt else "") for c in row] for row in table.rows]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    notes = "".join(f"\n{in_markdown(note)}\n" for note in table.notes)
    return f"**{in_markdown(table.caption)}**\n\n{body}\n{notes}"


def matrix(audit: AuditTables) -> pl.DataFrame:
    """Premiums as languages × tokenizers, unrounded, in the order of the printed table.

    A cell that UNK spoils is empty, since a plain number could not be marked.
    """
    names = labels(audit)
    ranked = by_cost(audit)["language"].to_list()[::-1]
    codes = [audit.pivot, *(code for code in ranked if code != audit.pivot)]
    order = pl.DataFrame({"language": codes, "position": range(len(codes))})
    honest = pl.when(~pl.col("meaningless")).then("premium")
    wide = audit.premiums.with_columns(honest.alias("premium")).pivot(
        on="tokenizer", index=["language", "name"], values="premium"
    )
    return (
        wide.join(order, on="language", how="left")
        .sort("position", maintain_order=True, nulls_last=True)
        .select("language", "name", *(pl.col(c).alias(names[c]) for c in column_order(audit)))
    )


def printed(audit: AuditTables) -> dict[str, Printed]:
    """The audit's tables in printed form, by name of the frame; not every frame has one."""
    alike = "Jaccard similarity of each pair of normalised vocabularies"
    contained = "Share of the row’s normalised vocabulary that the column’s holds too"
    makers: dict[str, Callable[[AuditTables], Printed]] = {
        "premiums": _premiums, "summary": _summary, "vocabulary": _vocabulary,
        "jaccard": partial(_square, name="jaccard", caption=alike),
        "containment": partial(_square, name="containment", caption=contained),
        "coverage": _coverage, "cost": _cost, "equiprobable": _equiprobable,
    }  # fmt: skip
    return {name: make(audit) for name, make in makers.items() if name in audit.frames}


def unk_note(cells: pl.DataFrame) -> str:
    """Why the marked among these premiums must not be read as such; empty if none is marked."""
    marked = cells.filter(pl.col("meaningless"))["unk_share"].to_list()
    shares = [share for share in marked if share > UNK_LIMIT]
    if not shares:
        return ""
    ends = min(shares), max(shares)
    low, high = (f"{share:.1%}" if share < 0.1 else f"{share:.0%}" for share in ends)
    here = f"here {low}" if low == high else f"here {low} to {high}"
    note = (
        f"† More than {UNK_LIMIT:.0%} of these tokens ({here}) are UNK: what they stood for was "
        "thrown away, not encoded, so the number says too little and a low one is no merit."
    )
    if len(shares) < len(marked):
        note += " A tokenizer that throws away the pivot’s own text has no premium at all."
    return note


def _premiums(audit: AuditTables) -> Printed:
    caption = (
        f"Tokenization premiums over {pivot_name(audit)}: mean over {units(audit)} "
        f"of the ratio of token counts ({credit(audit)})"
    )
    table = _wide(audit, "premiums", caption, "premium")
    return replace(table, notes=_notes(audit, audit.premiums))


def _coverage(audit: AuditTables) -> Printed:
    caption = "Share of running characters (spaces left out) that are one token, in percent"
    order = sorted(audit.corpus.languages)
    return _wide(audit, "coverage", caption, "running_share", order=order, percent=True)


def _wide(
    audit: AuditTables,
    name: str,
    caption: str,
    column: str,
    by: str = "tokenizer",
    order: Sequence[str] | None = None,
    percent: bool = False,
) -> Printed:
    """A long frame as languages × tokenizers (or models); languages not in it are left out."""
    frame, names = audit.frames[name], labels(audit)
    titles = {one: names[one] for one in column_order(audit)}
    titles = titles if by == "tokenizer" else {one: one for one in frame[by]}
    form, factor = ("{:.1f}", 100) if percent else ("{:.2f}", 1)
    cells = {
        (row["language"], row[by]): _number(
            None if row[column] is None else factor * row[column], form, row.get("meaningless")
        )
        for row in frame.to_dicts()
    }
    rows = [
        _language(code) + [cells[code, one] for one in titles]
        for code in order or matrix(audit)["language"]
        if any((code, one) in cells for one in titles)
    ]
    return Printed(name, caption, ["Language", "Code", *titles.values()], rows, left=2, codes=1)


def _cost(audit: AuditTables) -> Printed:
    frame = audit.cost
    caption = (
        f"Relative cost: what content that costs 1 in {pivot_name(audit)} costs "
        f"(ratio of summed token counts; models on the price list of {audit.facts['prices_as_of']})"
    )
    priced = pl.col("tokenizer").is_in(frame["tokenizer"].unique().to_list())
    notes = _notes(audit, audit.premiums.filter(priced))
    if free := list(dict.fromkeys(frame.filter(pl.col("input_usd").is_null())["model"])):
        notes.append(f"Without a price on that list, so the factor only: {', '.join(free)}.")
    return replace(_wide(audit, "cost", caption, "relative_cost", by="model"), notes=notes)


def _equiprobable(audit: AuditTables) -> Printed:
    frame = audit.equiprobable.sort("premium", "language", descending=[True, False])
    rows = [
        _language(row["language"])
        + [_number(row[name], "{:.2f}") for name in ("premium", "premium_low", "premium_high")]
        for row in frame.to_dicts()
    ]
    caption = (
        f"What each language would pay if it and {pivot_name(audit)} had {frame['strings'][0]:,} "
        "equiprobable strings of their own and nothing else; chosen on every other unit, counted "
        "on the others"
    )
    header = ["Language", "Code", "Premium", "from", "to"]
    return Printed("equiprobable", caption, header, rows, left=2, codes=1)


def _notes(audit: AuditTables, cells: pl.DataFrame) -> list[str]:
    missing = comparable_note(audit)
    return [note for note in (unk_note(cells), f"— {missing}" if missing else "") if note]


def _summary(audit: AuditTables) -> Printed:
    names = labels(audit)
    rows = [
        [
            Cell(names[row["tokenizer"]]),
            Cell(language_name(row["worst_language"]) if row["worst_language"] else "—"),
            *(_number(row[name], "{:.2f}") for name in ("worst_premium", "median_premium")),
            _number(row["gini"], "{:.3f}"),
            Cell(f"{row['above_2x']:,} of {row['compared']:,}"),
            Cell(f"{row['meaningless_cells']:,}"),
        ]
        for row in audit.summary.to_dicts()
    ]
    header = ["Tokenizer", "Worst language", "Premium", "Median", "Gini", "Above 2×"]
    caption = (
        f"Each tokenizer at a glance, over the languages other than {pivot_name(audit)} with at "
        f"most {UNK_LIMIT:.0%} of UNK: the worst and its premium, the median premium, the "
        "inequality of costs, how many pay over twice; last, how many languages have more UNK"
    )
    notes = list(filter(None, [comparable_note(audit)]))
    header.append(f"UNK > {UNK_LIMIT:.0%}")
    return Printed("summary", caption, header, rows, left=2, notes=notes)


def _vocabulary(audit: AuditTables) -> Printed:
    columns = [c for c in audit.vocabulary.columns if c not in ("tokenizer", "label")]
    titles = {"clean_vocab_size": "Size", "unicode_blocks": "Blocks", "toks_gt7b": "8+ B"}
    titles |= {f"chars_{n}b": f"C{n}" for n in range(1, 5)}
    titles |= {f"toks_{n}b": f"{n} B" for n in range(1, 8)}
    rows = [
        [Cell(labels(audit)[row["tokenizer"]]), *(Cell(f"{row[c]:,}") for c in columns)]
        for row in audit.vocabulary.to_dicts()
    ]
    caption = (
        "Normalised vocabularies: size, Unicode blocks, distinct characters of 1 to 4 bytes of "
        "UTF-8 (C1 to C4), tokens by length in bytes (1 B to 8+ B)"
    )
    return Printed("vocabulary", caption, ["Tokenizer", *(titles[c] for c in columns)], rows)


def _square(audit: AuditTables, name: str, caption: str) -> Printed:
    frame: pl.DataFrame = getattr(audit, name)
    rows = [
        [Cell(row[0]), *(_number(value, "{:.2f}") for value in row[1:])] for row in frame.rows()
    ]
    return Printed(name, caption, ["", *frame.columns[1:]], rows)


def _language(code: str) -> list[Cell]:
    return [Cell(language_name(code)), Cell(printed_code(code))]


def _number(value: float | None, form: str, spoilt: bool | None = False) -> Cell:
    if value is None or not math.isfinite(value):
        return Cell("—")
    return Cell(form.format(value), None if spoilt else float(value), bool(spoilt))


LONG = 40  # rows; a longer table breaks over pages
PORTRAIT, LANDSCAPE = 455.0, 660.0  # points across the text of A4 with margins of an inch
#: Opens a box that is shrunk to the width of the line if it is wider.
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
    shade = table.name in COLOURED and high > low
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
    long = len(table.rows) > LONG
    size = r"\scriptsize" if width > 9 else r"\footnotesize"
    # A float can be shrunk to the line; a table that runs over several pages cannot.
    size, turned = fitting(table) if long else (size, False)
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

    Widths are estimated: half the type size per character, a little more in bold headings, plus the
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
    # Matplotlib's map has 256 colours; the same steps give exactly the paper's hex digits.
    background = mix(_REDS, min(int(share * 256), 255) / 255)
    text = "F1F1F1" if luminance(rgb(background)) < _DARK else "000000"
    return background[1:].upper(), text


def _cell(cell: Cell, low: float, high: float, shade: bool) -> str:
    if cell.spoilt:
        return _SPOILT + in_latex(cell.text + "†")
    if not shade or cell.value is None:
        return in_latex(cell.text)
    background, text = colours((cell.value - low) / (high - low))
    return rf"{{\cellcolor[HTML]{{{background}}}}} \color[HTML]{{{text}}} {in_latex(cell.text)}"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
