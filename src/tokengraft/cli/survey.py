"""`tokengraft audit` on corpora of any size: its options, its progress, its table."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tokengraft.cli.console import print_json, progress_bar, stdout, warn
from tokengraft.cli.terminal import Column, code_column, print_table, text_column
from tokengraft.core.wording import counted

if TYPE_CHECKING:
    from tokengraft.api.results import Audit
    from tokengraft.engine.count_all import Meter, OnMeter, Total

SHOWN = 24
_PANEL = "Large corpora (docs/scale.md)"


class EngineName(str, enum.Enum):
    """Who counts."""

    local = "local"
    ray = "ray"


class FormatName(str, enum.Enum):
    """How files are written."""

    jsonl = "jsonl"
    text = "text"
    parquet = "parquet"


def _option(*names: str, **about: Any) -> Any:
    return typer.Option(*names, rich_help_panel=_PANEL, **about)


EngineOption = Annotated[
    EngineName,
    _option("--engine", help="local: all cores of this machine; ray: a Ray cluster."),
]
AddressOption = Annotated[
    str | None,
    _option("--address", help="A running Ray cluster: `auto` or host:port."),
]
WorkersOption = Annotated[
    int | None, _option("--workers", min=1, help="Processes that count. Default: one a core.")
]
StreamOption = Annotated[
    bool,
    _option(
        "--stream",
        help="Do not load the parallel corpus but stream it in shards, whatever its size: JSONL or "
        "Parquet with a column a language, or CODE=FILE pairs of text files.",
    ),
]
MonolingualOption = Annotated[
    bool,
    _option(
        "--monolingual",
        help="The corpus is not parallel: count each language's text. Implied by the four options "
        "below.",
    ),
]
TextColumnOption = Annotated[
    str | None, _option("--text-column", help="Column that holds the text (default: text).")
]
LanguageColumnOption = Annotated[
    str | None, _option("--language-column", help="Column that holds the language.")
]
LanguageFromPathOption = Annotated[
    str | None,
    _option("--language-from-path", help="Regular expression whose group is the language."),
]
DetectorOption = Annotated[
    str | None,
    _option("--detector", help="package.module:function that gives the language of a text."),
]
FormatOption = Annotated[
    FormatName | None, _option("--format", help="Format of the files. Default: by suffix.")
]
SkipBadOption = Annotated[
    bool,
    _option("--skip-bad", help="Leave out and list bad rows and broken files instead of stopping."),
]
MaxRowOption = Annotated[
    int | None, _option("--max-row-bytes", min=1, help="A longer row is bad (default 2 MiB).")
]
ShardOption = Annotated[
    int | None, _option("--shard-bytes", min=1, help="Size of a shard (default 16 MiB).")
]
StateOption = Annotated[
    Path | None,
    _option("--state", help="Folder that keeps finished shards. Default: the cache."),
]


@contextmanager
def metering() -> Iterator[OnMeter]:
    """A progress bar over all workers: rows, bytes and tokens a second, time left."""
    progress = progress_bar(
        TextColumn("Counting"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    task = progress.add_task("", total=None, visible=False, figures="")

    def on_meter(meter: Meter) -> None:
        rows, size, tokens, done = meter.read()
        seconds = progress.tasks[0].elapsed or 0.0
        figures = f"{rows:,} rows  {size / 1e6:,.1f} MB"
        if seconds > 0:
            figures += f"  {size / 1e6 / seconds:.1f} MB/s"
            figures += f"  {tokens / 1e3 / seconds:,.0f}k tokens/s" if tokens else ""
        progress.update(task, completed=done, total=meter.total, visible=True, figures=figures)

    with progress:
        yield on_meter


def finish(result: Audit, out: Path | None, json: bool) -> None:
    """Say what was left out, write the files, print the table."""
    assert result.total is not None
    tell_left_out(result.total)
    written = result.save(out) if out else []
    if json:
        print_json((result.premiums if result.parallel else result.counts).to_dicts())
        return
    show(result)
    if out:
        stdout.print(f"{len(written)} files written to {out}")


def tell_left_out(total: Total) -> None:
    """Warn about every broken file and the first bad rows."""
    for file, reason in total.broken.items():
        warn(f"{file}: {reason}. None of its rows is counted.")
    if total.bad:
        first = total.bad_rows[0]
        warn(
            f"{counted(total.bad, 'bad row')} left out, the first in {first.file}, line "
            f"{first.line}: {first.reason}. --out lists them."
        )


def show(result: Audit) -> None:
    """Print the table, the dearest languages first."""
    import polars as pl

    figure = "premium" if result.parallel else "tokens_per_byte"
    title = (
        f"Premium over {result.pivot} (mean of ratios)"
        if result.parallel
        else "Tokens per byte of text (not parallel, so no premium)"
    )
    table = result.premiums if result.parallel else result.counts
    order = (
        table.filter(~pl.col("meaningless"))
        .group_by("language", "name")
        .agg(pl.col(figure).median().alias("median"), pl.col("rows").first())
        .sort("median", "language", descending=[True, False], nulls_last=True)
    )
    cells = {(row["language"], row["tokenizer"]): row for row in table.to_dicts()}
    top = order.head(SHOWN)
    codes = top["language"].to_list()
    names = [name if name != code else "" for code, name in top.select("language", "name").rows()]
    columns = [
        Column(known.label, [_cell(cells[code, known.name], figure) for code in codes])
        for known in result.tokenizers
    ]
    spoilt = any("†" in cell for column in columns for cell in column.cells)
    print_table(
        stdout,
        [code_column("language", codes), text_column("name", names)],
        [Column("rows", [f"{rows:,}" for rows in top["rows"]]), *columns],
        title=title,
        caption="† over 1 % UNK: the figure says too little" if spoilt else None,
    )
    if order.height > SHOWN:
        more = counted(order.height - SHOWN, "more language")
        stdout.print(f"… and {more} (--out or --json gives all).")
    total = result.total
    assert total is not None
    resumed = f", {total.resumed} of them from an earlier run" if total.resumed else ""
    lines, shards = counted(total.lines, "line"), counted(len(total.shards), "shard")
    stdout.print(f"{lines} in {shards}{resumed}")


def _cell(row: dict[str, Any], figure: str) -> str:
    if row[figure] is None:
        return ""
    text = f"{row[figure]:.3f}"
    return f"[dim]{text}†[/dim]" if row["meaningless"] else text
