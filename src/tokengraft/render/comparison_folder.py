"""A comparison on disk and in words: what got better and worse, by how much, for how many."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tokengraft.core.errors import TokengraftError
from tokengraft.core.files import read_json, write_json, write_text
from tokengraft.core.wording import counted, in_markdown, in_percent
from tokengraft.languages.codes import language_name
from tokengraft.render.latex import latex
from tokengraft.render.tables import Cell, Printed, markdown, read_data, write_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARISON = "comparison.json"
EDGES = 12  # languages at either end of a figure or printed table
_NO_CHANGE = {"lost": "now UNK", "regained": "was UNK", "neither": "UNK"}


def write_comparison(
    facts: Mapping[str, Any], tables: Mapping[str, pl.DataFrame], folder: Path, figures: bool
) -> list[Path]:
    """Write the comparison into `folder` and return every path written."""
    paths = [write_json(folder / COMPARISON, facts)]
    for name, frame in tables.items():
        paths += write_data(frame, folder / "tables" / name)
    text = [
        f"# {in_markdown(facts['a']['label'])} against {in_markdown(facts['b']['label'])}",
        "",
        f"Text: {in_markdown(facts['corpus']['source'])}. Better and worse are judged by tokens "
        "for the same text; premiums are given beside them. Speakers are counted by language, so a "
        "speaker of two counts twice.",
        "",
    ]
    for number, pair in enumerate(tables["summary"].to_dicts(), 1):
        own = of_pair(tables["languages"], pair)
        words = [f"- {in_markdown(finding)}" for finding in findings(facts, pair, own)]
        table = printed(facts, pair, own)
        stem = folder / "tables" / f"pair-{number}"
        paths.append(write_text(stem.with_suffix(".tex"), latex(table)))
        text += [f"## {in_markdown(heading(facts, pair))}", "", *words, "", markdown(table)]
        if figures and (drawn := draw(facts, pair, own)) is not None:
            from tokengraft.render.figures.style import save_figure

            paths += save_figure(drawn, folder / "figures" / f"pair-{number}")
            text += [f"![Change of tokens by language](figures/pair-{number}.png)", ""]
    return [*paths, write_text(folder / "README.md", "\n".join(text))]


def read_comparison(folder: Path) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    """What `write_comparison` wrote: the facts, and the tables by name."""
    readers = {name: read_data(folder, name) for name in ("languages", "summary")}
    facts = read_json(folder / COMPARISON)
    facts["labels"], facts["corpus"]["source"]  # KeyError if this is no comparison
    if missing := [name for name, reader in readers.items() if reader is None]:
        raise TokengraftError(f"{folder}: this comparison lacks {', '.join(missing)}")
    return facts, {name: reader() for name, reader in readers.items() if reader}


def of_pair(cells: pl.DataFrame, pair: Mapping[str, Any]) -> pl.DataFrame:
    """The rows of one pair of tokenizers, most gained first."""
    both = (pl.col(side) == pair[side] for side in ("tokenizer_a", "tokenizer_b"))
    return cells.filter(*both).sort("change", "language", nulls_last=True)


def names(facts: Mapping[str, Any], pair: Mapping[str, Any]) -> tuple[str, str]:
    """What the two sides of a pair are called; never the same."""
    a, b = (facts["labels"][x].get(pair[f"tokenizer_{x}"], pair[f"tokenizer_{x}"]) for x in "ab")
    if a != b:
        return a, b
    first, second = (f"{a} ({facts[x]['label']})" for x in "ab")
    return (first, second) if first != second else (f"{a} (a)", f"{b} (b)")


def heading(facts: Mapping[str, Any], pair: Mapping[str, Any]) -> str:
    """`GPT-3.5/4 → GPT-4o`."""
    return " → ".join(names(facts, pair))


def findings(facts: Mapping[str, Any], pair: Mapping[str, Any], own: pl.DataFrame) -> list[str]:
    """What one pair's figures show, in sentences."""
    a, b = names(facts, pair)
    total = pair["languages"]
    words = [
        f"{b} takes fewer tokens than {a} in {pair['better']} of {counted(total, 'language')}"
        f"{_people(pair['speakers_better'])}, more in {pair['worse']}"
        f"{_people(pair['speakers_worse'])}, as many in {pair['same']}. By more than 1%: "
        f"fewer in {own.filter(pl.col('change') < -0.01).height}, "
        f"more in {own.filter(pl.col('change') > 0.01).height}."
    ]
    if pair["change"] is not None:
        words.append(
            f"In all it takes {pair['tokens_b']:,} tokens for what took {pair['tokens_a']:,} "
            f"({percent(pair['change'])})."
        )
    moved = own.filter(pl.col("change").is_not_null())
    if pair["better"]:
        top = moved.row(0, named=True)
        words.append(f"Most gained: {top['name']}, {_move(top)}.")
    if pair["worse"]:
        last = moved.row(-1, named=True)
        words.append(f"Most lost: {last['name']}, {_move(last)}.")
    for outcome, said in (("lost", f"{b} throws away (UNK), {a} does not"),
                          ("regained", f"{a} throws away (UNK), {b} does not"),
                          ("neither", "both throw away (UNK)")):  # fmt: skip
        if pair[outcome]:
            rows = own.filter(pl.col("outcome") == outcome)
            shown = ", ".join(rows["name"][:6]) + (", …" if rows.height > 6 else "")
            words.append(f"{counted(pair[outcome], 'language')} whose text {said}: {shown}.")
    if pair["median_premium_a"] is not None and pair["median_premium_b"] is not None:
        words.append(
            f"Premiums over {language_name(facts['pivot'])}: median "
            f"{pair['median_premium_a']:.2f} → {pair['median_premium_b']:.2f}, worst "
            f"{pair['worst_premium_a']:.2f} → "
            f"{pair['worst_premium_b']:.2f}, Gini {pair['gini_a']:.3f} → {pair['gini_b']:.3f}."
        )
    return words


def printed(facts: Mapping[str, Any], pair: Mapping[str, Any], own: pl.DataFrame) -> Printed:
    """The languages that gained and lost most; all if they are few."""
    a, b = names(facts, pair)
    shown = edges(own)
    rows = [
        [
            Cell(row["name"]),
            Cell(row["language"]),
            Cell(f"{row['tokens_a']:,}"),
            Cell(f"{row['tokens_b']:,}"),
            Cell(_change(row)),
            *(Cell(_premium(row[f"premium_{x}"]), spoilt=row[f"meaningless_{x}"]) for x in "ab"),
            *(
                Cell("—" if row[f"covered_{x}"] is None else f"{in_percent(row[f'covered_{x}'])}%")
                for x in "ab"
            ),
            Cell("" if row["speakers_total"] is None else f"{row['speakers_total']:,}"),
        ]
        for row in shown.to_dicts()
    ]
    header = ["language", "code", f"tokens, {a}", f"tokens, {b}", "change", f"premium, {a}",
              f"premium, {b}", f"covered, {a}", f"covered, {b}", "speakers"]  # fmt: skip
    rest = own.height - shown.height
    notes = [f"{rest:,} languages between these are left out here."] if rest else []
    if any(cell.spoilt for row in rows for cell in row):
        notes.append("† text was lost (over 1% UNK), its own or the pivot’s: this is no premium.")
    caption = f"Tokens for the same text, {a} and {b}, most gained first"
    return Printed("languages", caption, header, rows, left=2, codes=1, notes=notes)


def edges(own: pl.DataFrame) -> pl.DataFrame:
    """The first and the last rows, or all if they are few."""
    if own.height <= 2 * EDGES:
        return own
    moved = own.filter(pl.col("change").is_not_null())
    if moved.height <= 2 * EDGES:
        return moved if moved.height else own.head(2 * EDGES)
    return pl.concat([moved.head(EDGES), moved.tail(EDGES)])


def draw(facts: Mapping[str, Any], pair: Mapping[str, Any], own: pl.DataFrame) -> Figure | None:
    """Bars to the left for languages that got cheaper, to the right for those that got dearer."""
    from tokengraft.render.figures.style import (
        INK,
        LESS,
        MORE,
        QUIET,
        bare,
        row_labels,
        sheet,
        styled,
        write,
    )

    shown = edges(own.filter(pl.col("change").is_not_null()))
    if shown.is_empty():
        return None
    a, b = names(facts, pair)
    title = (
        f"{b} takes fewer tokens than {a} in {pair['better']} of "
        f"{counted(pair['languages'], 'language')}, more in {pair['worse']}"
    )
    rest = own.height - shown.height
    subtitle = (
        "Change of the tokens that the same text takes, percent; grey: tokens before → after."
    )
    subtitle += f" The ends of the list; {rest:,} languages lie between." if rest else ""
    tall = 0.27 * shown.height
    changes = [float(change) for change in shown["change"]]
    low, high = min(0.0, *changes), max(0.0, *changes)
    pad = 0.32 * max(high - low, 0.01)
    with styled():
        page = sheet(8.6, tall + 0.1, title, subtitle, f"Text: {facts['corpus']['source']}.")
        axes = page.axes(2.6, 0, 6.0, tall)
        for y, row in enumerate(shown.to_dicts()):
            better = row["change"] < 0
            axes.barh(y, row["change"], 0.7, color=LESS if better else MORE, linewidth=0)
            side = {"ha": "right" if better else "left", "fontsize": 8, "weight": "bold"}
            place = (-4 if better else 4, -3)
            write(axes, percent(row["change"]), (row["change"], y), place, "data", **side)
            said = f"{row['tokens_a']:,} → {row['tokens_b']:,}"
            beside = {"ha": "left" if better else "right", "fontsize": 7.5, "color": QUIET}
            write(axes, said, (0, y), (4 if better else -4, -3), "data", **beside)
        axes.axvline(0, color=INK, linewidth=0.9)
        axes.set_xlim(low - pad, high + pad)
        axes.set_ylim(shown.height - 0.45, -0.55)
        row_labels(axes, shown["language"].to_list())
        bare(axes, ticks=False)
        return page.figure


def percent(change: float) -> str:
    """`−31.2%`, `+0.03%` where one decimal would show none, `±0%` where nothing changed."""
    if not change:
        return "±0%"
    form = "+.1g" if abs(change) < 0.0005 else "+.1f"
    return f"{100 * change:{form}}%".replace("-", "−")


def _change(row: Mapping[str, Any]) -> str:
    if row["change"] is None:
        return _NO_CHANGE.get(row["outcome"], "—")
    return percent(row["change"])


def _move(row: Mapping[str, Any]) -> str:
    return f"{row['tokens_a']:,} → {row['tokens_b']:,} tokens ({percent(row['change'])})"


def _people(count: int) -> str:
    for size, unit in ((10**9, "billion"), (10**6, "million")):
        if count >= size:
            return f" ({count / size:.1f} {unit} speakers)"
    return f" ({count:,} speakers)" if count else ""


def _premium(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"
