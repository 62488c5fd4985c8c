"""Results in the terminal: text folds, columns that do not fit go into a further table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tokengraft.core.wording import counted

if TYPE_CHECKING:
    import polars as pl

    from tokengraft.auditing.audit_tables import AuditTables
    from tokengraft.evaluating.score import Measurements
    from tokengraft.planning.plan_files import TestedPlan

SHOWN = 24  # languages of an audit that are printed
_EDGES = 3  # a cell's padding of two spaces and the rule after it
_NARROW = 12  # text may be folded to this width, numbers and codes never


@dataclass(frozen=True)
class Column:
    """A title and its cells in rich's markup; if `text`, cells may be folded over several lines."""

    title: str
    cells: Sequence[str]
    text: bool = False
    right: bool = True

    @cached_property
    def widest(self) -> int:
        """Width at which nothing is folded."""
        return max([len(self.title), *self._widths])

    @cached_property
    def narrowest(self) -> int:
        """Width below which a number, a code or a word of the title would be broken."""
        title = max(map(len, self.title.split()), default=0)
        cells = max(self._widths, default=0)
        return max(title, min(cells, _NARROW) if self.text else cells)

    @cached_property
    def _widths(self) -> list[int]:
        lines = (Text.from_markup(cell).split("\n") for cell in self.cells)
        return [max((line.cell_len for line in cell), default=0) for cell in lines]


def code_column(title: str, cells: Sequence[str]) -> Column:
    """A column of names, codes or ids: flush left and never broken."""
    return Column(title, [escape(cell) for cell in cells], right=False)


def text_column(title: str, cells: Sequence[str]) -> Column:
    """A column of words: flush left, folded where room is scarce."""
    return Column(title, [escape(cell) for cell in cells], text=True, right=False)


def print_table(
    console: Console,
    keys: Sequence[Column],
    values: Sequence[Column],
    title: str | None = None,
    caption: str | None = None,
) -> None:
    """Print the columns as one table, or as several that each begin with the keys.

    Numbers and codes are never broken or cut as long as the widest of them and the first key fit
    the console. A further key is left out if it would leave no room for a value.
    """
    room = console.width - 1
    first, *others = keys
    tightest = first.narrowest + max((v.narrowest for v in values), default=0) + 2 * _EDGES
    kept = [first]
    for key in others:
        tightest += key.narrowest + _EDGES
        if tightest <= room:
            kept.append(key)
    parts = [[*kept, *part] for part in _parts(kept, values, room)]
    for number, columns in enumerate(parts, 1):
        last = number == len(parts)
        table = Table(title=title if number == 1 else None, caption=caption if last else None)
        for column, width in zip(columns, _widths(columns, room), strict=True):
            justify: Literal["left", "right"] = "right" if column.right else "left"
            table.add_column(escape(column.title), justify=justify, width=width, overflow="fold")
        for row in zip(*(column.cells for column in columns), strict=True):
            table.add_row(*row)
        console.print(table)


def _parts(keys: Sequence[Column], values: Sequence[Column], room: int) -> Iterator[list[Column]]:
    left = room - sum(key.narrowest + _EDGES for key in keys)
    part: list[Column] = []
    used = 0
    for value in values:
        if part and used + value.narrowest + _EDGES > left:
            yield part
            part, used = [], 0
        part.append(value)
        used += value.narrowest + _EDGES
    yield part


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """Each column's least width, with the spare room given to the narrowest unfinished first."""
    widths = [column.narrowest for column in columns]
    spare = room - sum(widths) - _EDGES * len(columns)
    while spare > 0:
        short = [n for n, column in enumerate(columns) if widths[n] < column.widest]
        if not short:
            break
        widths[min(short, key=widths.__getitem__)] += 1
        spare -= 1
    return widths


def show_audit(console: Console, audit: AuditTables) -> None:
    """Print the languages that pay most, and what each tokenizer is like."""
    import polars as pl

    from tokengraft.render.selection import labels, pivot_name

    figure, form = "premium", "{:.2f}" if audit.total is None else "{:.3f}"
    table = audit.premiums if audit.parallel else audit.counts
    title = f"Premium over {escape(pivot_name(audit))} (mean of ratios)"
    if not audit.parallel:
        figure, title = "tokens_per_byte", "Tokens per byte of text (not parallel, so no premium)"
    elif audit.total is None:
        title += f", {escape(audit.corpus.title)}"
    order = (
        table.group_by("language", "name")
        .agg(
            pl.col(figure).filter(~pl.col("meaningless")).median().alias("median"),
            pl.col(figure).count().alias("known"),
            pl.col("^rows$").first(),
        )
        .sort("median", "language", descending=[True, False], nulls_last=True)
    )
    if audit.total is None:
        order = order.filter(pl.col("known") > 0)
    cells = {(row["language"], row["tokenizer"]): row for row in table.to_dicts()}
    top = order.head(SHOWN)
    codes, every = top["language"].to_list(), labels(audit)
    names = [name if name != code else "" for code, name in top.select("language", "name").rows()]
    columns = [
        Column(every[known.name], [_cost(cells[code, known.name], figure, form) for code in codes])
        for known in audit.tokenizers
    ]
    spoilt = any("†" in cell for column in columns for cell in column.cells)
    captions = []
    if "tokens_per_unit" in table.columns:
        captions.append("below each premium: tokens per passage, bytes per token")
        # Not if every cell below would leave it out: the first tokenizer lost these languages.
        if any(
            cells[code, k.name]["tokens_change"] is not None
            for code in codes
            for k in audit.tokenizers
        ):
            captions[0] += f", tokens against {every[audit.tokenizers[0].name]}"
    if spoilt:
        figured = "premium" if audit.total is None else "figure"
        why = f"text was lost (over 1% UNK): the {figured} says too little"
        if audit.parallel and audit.pivot in table.filter("meaningless")["language"]:
            why = f"no premium: text was lost (over 1% UNK), the language’s or {audit.pivot}’s"
        captions.append(f"† {why}")
    if "rows" in top.columns:
        columns.insert(0, Column("rows", [f"{rows:,}" for rows in top["rows"]]))
    print_table(
        console,
        [code_column("language", codes), text_column("name", names)],
        columns,
        title=title,
        caption="\n".join(captions) or None,
    )
    if order.height > SHOWN:
        more = counted(order.height - SHOWN, "more language")
        console.print(f"… and {more} (--out or --json gives all).")
    if audit.total is None:
        _show_summary(console, audit, every)
    else:
        total = audit.total
        resumed = f", {total.resumed} of them from an earlier run" if total.resumed else ""
        lines, shards = counted(total.lines, "line"), counted(len(total.shards), "shard")
        console.print(f"{lines} in {shards}{resumed}")


def _show_summary(console: Console, audit: AuditTables, names: Mapping[str, str]) -> None:
    from tokengraft.languages.codes import language_name
    from tokengraft.render.selection import (
        by_use,
        comparable_note,
        disagreements,
        inexact_notes,
        lead_sentence,
        nfc_notes,
    )

    for note in disagreements(audit.premiums, names, audit.pivot):
        console.print(note, markup=False)
    for note in inexact_notes(audit.premiums, names):
        console.print(note, markup=False)
    if missing := comparable_note(audit):
        console.print(missing, markup=False)
    for note in nfc_notes(audit):
        console.print(note, markup=False)
    if len(audit.corpus.languages) > 2:  # of one language, the lines below say all
        console.print(lead_sentence(audit), markup=False)
    spoilt = set(audit.premiums.filter("meaningless").select("language", "tokenizer").rows())
    rows = {row["tokenizer"]: row for row in audit.summary.to_dicts()}
    for row in map(rows.__getitem__, by_use(rows)):
        lost = row["meaningless_cells"]
        unk = f", text lost to UNK in {counted(lost, 'language')}" if lost else ""
        if (audit.pivot, row["tokenizer"]) in spoilt:
            said, unk = f"no premium: text of {audit.pivot} itself is lost to UNK", ""
        elif not row["compared"]:
            said = "no premium" if lost else f"no language but {audit.pivot} to compare"
        elif row["compared"] == 1:
            premium = audit.premium(row["tokenizer"], row["worst_language"])
            said = f"{escape(language_name(row['worst_language']))} takes {premium.value:.2f} times"
            said += f" the tokens of {escape(language_name(audit.pivot))}"
            over = [f"mean of {counted(premium.n, 'passage')}"]
            if not math.isnan(premium.low):
                over.append(f"95% interval {premium.low:.2f} to {premium.high:.2f}")
            said += f" ({', '.join(over)})"
        else:
            said = (
                f"worst {escape(language_name(row['worst_language']))} {row['worst_premium']:.2f}, "
                f"median {row['median_premium']:.2f}, Gini {row['gini']:.3f}, "
                f"{row['above_2x']} of {counted(row['compared'], 'language')} above 2×"
            )
        console.print(f"[bold]{escape(names[row['tokenizer']])}[/bold]: {said}{unk}")


def _cost(row: Mapping[str, Any], figure: str, form: str) -> str:
    """A premium and, below it, tokens per passage, bytes per token and the change of tokens."""
    if row[figure] is None:
        return ""
    text, absolute = form.format(row[figure]), []
    if row.get("tokens_per_unit") is not None:
        absolute.append(f"{row['tokens_per_unit']:.0f}")
        if row["bytes_per_token"] is not None and not row["meaningless"]:
            absolute.append(f"{row['bytes_per_token']:.1f}")
    if row.get("tokens_change") is not None:
        change = f"{100 * row['tokens_change']:+.0f}%".replace("-", "−")
        absolute.append("±0%" if change in ("−0%", "+0%") else change)
    if row["meaningless"]:
        text = f"[dim]{text}†[/dim]"
    elif figure == "premium" and row[figure] >= 4:
        text = f"[red]{text}[/red]"
    return f"{text}\n[dim]{' '.join(absolute)}[/dim]" if absolute else text


def show_comparison(
    console: Console, facts: Mapping[str, Any], cells: pl.DataFrame, summary: pl.DataFrame
) -> None:
    """Print each pair's findings, and the languages that gained and lost most."""
    from tokengraft.render.comparison_folder import findings, heading, of_pair, printed

    for pair in summary.to_dicts():
        own = of_pair(cells, pair)
        table = printed(facts, pair, own)
        name, code, *figures = zip(*table.rows, strict=True) if table.rows else ((), ())
        titles = table.header[2:]
        print_table(
            console,
            [
                code_column("language", [cell.text for cell in code]),
                text_column("name", [cell.text for cell in name]),
            ],
            [
                Column(title, [escape(cell.text) + "†" * cell.spoilt for cell in column])
                for title, column in zip(titles, figures, strict=True)
            ],
            title=escape(heading(facts, pair)),
            caption="\n".join(map(escape, table.notes)) or None,
        )
        for finding in findings(facts, pair, own):
            console.print(finding, markup=False)


_MANY = 10  # languages from which on a plan's table is followed by a summary


def show_plans(console: Console, plans: Mapping[str, TestedPlan], chosen: TestedPlan) -> None:
    """Print what each objective's plan buys, then texts and checks of the `chosen` plan."""
    from tokengraft.languages.codes import language_name
    from tokengraft.planning.curve import LIMIT, frontier
    from tokengraft.planning.plan import CAPTION, spoilt
    from tokengraft.render.plan_folder import outcome_cells

    label = escape(chosen.plan.label or "?")
    pivot = language_name(chosen.plan.pivot) if chosen.plan.pivot else "the pivot"
    caption = (
        f"premium: how many times the tokens of {escape(pivot)}; floor: "
        "the same if every piece of the split pattern were one token: no vocabulary goes below it"
    )
    title = f"{counted(len(chosen.plan.tokens), 'new token')} for {label}"
    table = Table(title=title, caption=caption)
    every = [
        (code, name, outcome)
        for name, planned in plans.items()
        for code, outcome in planned.plan.languages.items()
    ]
    shares = [share for *_, o in every for share in (o.unk_share_before, o.unk_share_after)]
    lost = any(shares)
    titles = ["language", "objective", "premium before", "after", "floor before", "after"]
    for title in [*titles, "lost to UNK before", "after"] if lost else titles:
        table.add_column(title, justify="left" if title in ("language", "objective") else "right")
    for code, name, outcome in every:
        premiums, unk = outcome_cells(outcome)
        table.add_row(code, name, *premiums, *(unk if lost else ()))
    console.print(table)
    if any(map(spoilt, shares)):
        console.print(CAPTION)
    for name, planned in plans.items():
        if len(planned.plan.languages) >= _MANY and (
            spreads := list(frontier(planned.plan).values())
        ):
            was, now = spreads[0], spreads[-1]
            console.print(
                f"By {name}: highest premium {was.highest:.2f} ({was.whose}) → {now.highest:.2f} "
                f"({now.whose}), median {was.median:.2f} → {now.median:.2f}, Gini {was.gini:.3f} → "
                f"{now.gini:.3f}, languages above {LIMIT:g}: {was.above} → {now.above}.",
                markup=False,
            )
    texts = f"Chosen on {chosen.chosen_on}; tested on {chosen.tested_on}."
    console.print(f"{texts} {chosen.plan.checked}", markup=False)


_SCORES = {
    "kl": "KL", "top1": "top-1", "top10": "top-10", "aligned_cosine": "aligned cos",
    "continuation_excess": "bits +", "shared_bpb": "shared bpb",
    "aligned_mutual_rank": "rank", "pooled_cosine": "paper's cos",
}  # fmt: skip


def show_evaluation(console: Console, measurements: Measurements) -> None:
    """Print one row per language, with the floor under each value."""
    from tokengraft.evaluating.measures import described

    rows = {(r["language"], r["metric"]): r for r in measurements.scores.to_dicts()}
    measured = {metric for _, metric in rows}
    columns = [metric for metric in _SCORES if metric in measured]
    sizes = measurements.sizes.to_dicts()
    codes = [row["language"] for row in sizes]
    tokens = [f"{row['tokens_before']:,} → {row['tokens_after']:,}" for row in sizes]
    print_table(
        console,
        [code_column("language", codes)],
        [
            Column("tokens", tokens),
            *(
                Column(_SCORES[m], [score_cell(rows.get((code, m))) for code in codes])
                for m in columns
            ),
        ],
        title=escape(f"{measurements.graft} against {measurements.base}, {measurements.corpus}"),
    )
    console.print(
        "value \\[floor → ceiling]. Floor: what a graft that learned nothing reaches. Ceiling: "
        "what the base reaches on the same text cut another way, if there is one."
    )
    for metric in columns:
        console.print(f"[bold]{_SCORES[metric]}[/bold]: {escape(described(metric)[1])}")
    titles = {
        "generation": "What generation costs (prefill: reading the prompt, decode: writing)",
        "tasks": "Tasks",
    }
    for name, title in titles.items():
        frame = measurements.tables().get(name)
        if frame is not None:
            # What a row is about (a language and a model, a task and a metric) comes first.
            shown = [
                (c.replace("_", " "), [plain(value) for value in frame[c]]) for c in frame.columns
            ]
            keys = [code_column(*column) for column in shown[:2]]
            values = [text_column(*column) for column in shown[2:]]
            print_table(console, keys, values, title=title)


def score_cell(row: Mapping[str, Any] | None) -> str:
    """A value with its floor and ceiling."""
    if row is None:
        return ""
    value = f"{row['value']:.3f}" if abs(row["value"]) < 10 else _short(row["value"])
    if row["floor"] is None:
        return value
    top = "" if row["ceiling"] is None else f" → {_short(row['ceiling'])}"
    return f"{value} [dim]\\[{_short(row['floor'])}{top}][/dim]"


def _short(value: float) -> str:
    """Three digits, or a whole number if that has more (a rank among thousands)."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def plain(value: Any) -> str:
    """A value as text, floats to four digits."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
